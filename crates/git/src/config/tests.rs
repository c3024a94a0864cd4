use super::*;

fn keys(text: &str) -> Vec<String> {
    let settings = parse(text.as_bytes()).unwrap();
    held(&settings, &[], b".git").into_iter().map(|one| format!("{}.{}", one.section, one.name)).collect()
}

fn held_in(text: &[u8], git_dir: &[u8]) -> Result<usize, Unreadable> {
    Ok(held(&parse(text)?, &[], git_dir).len())
}

#[test]
fn an_ordinary_configuration_is_inert() {
    let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = \
                https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = \
                origin\n[user]\n\tname = \"A # B\" ; comment\n[pull]\n\trebase\n[core]\n\t\
                preloadIndex = true\n";
    assert_eq!(keys(text), Vec::<String>::new());
    assert_eq!(parse(text.as_bytes()).unwrap().len(), 9);
}

/// Lists the names of the settings that change from `base` to `new` and need an accept.
fn diff(base: &str, new: &str) -> Vec<String> {
    changed(Some(new.as_bytes()), Some(base.as_bytes()), &at(b".git", Known::All)).unwrap()
}

fn at(git_dir: &[u8], known: Known) -> Place<'_> {
    Place {
        git_dir,
        known,
        names_back: &|directory| matches!(directory, b"sub" | b"lib"),
        branch_goes: &|branch| branch == b"gone" || branch == b"old",
        has_upstream: &|_, _| false,
        module_url: &|module| matches!(module, b"s" | b"a/s").then(|| b"https://e.org/x".to_vec()),
        module: None,
    }
}

/// Lists the names of the settings of a new repository that need an accept.
fn fresh(text: &str) -> Vec<String> {
    changed(Some(text.as_bytes()), None, &at(b".git", Known::New)).unwrap()
}

#[test]
fn each_setting_that_is_not_inert_is_held_beside_a_neighbour() {
    for (bad, good) in [
        ("[core]\nhooksPath=x", "[core]\npreloadIndex=yes"),
        ("[CORE]\nFSMONITOR = ./x", "[core]\npreloadIndex = false"),
        ("[core]\nfsmonitor = true", "[core]\nuntrackedCache = true"),
        ("[core]\npager = yes", "[pager]\ndiff = true"),
        ("[core] sshCommand = x", "[core] preloadIndex = true"),
        ("[core]\nsomethingNew = x", "[core]\nabbrev = 8"),
        ("[core]\nautocrlf = ./x", "[core]\nuntrackedCache = false"),
        ("[core]\nprotectHFS = false", "[core]\nabbrev = auto"),
        ("[core]\nexcludesFile = x", "[core]\npreloadIndex = no"),
        ("[core]\nattributesFile = x", "[core]\nabbrev = 10"),
        ("[filter \"x\"]\nsmudge = y", "[user]\nemail = a@b"),
        ("[filter.x]\nclean = y", "[color]\nui = auto"),
        ("[diff]\nexternal = x", "[diff]\ncolorMoved = zebra"),
        ("[diff \"p\"]\ntextconv = x", "[diff]\nalgorithm = histogram"),
        ("[diff]\nalgorithm = x y", "[diff]\ncontext = 5"),
        ("[merge \"m\"]\ndriver = x", "[merge]\nconflictStyle = diff3"),
        ("[credential]\nhelper = x", "[column]\nui = auto"),
        ("[credential \"https://x\"]\nusername = x", "[user]\nname = x"),
        ("[alias]\nx = !sh", "[user]\nname = x"),
        ("[alias]\nx = log", "[log]\nabbrevCommit = true"),
        ("[alias]\nx = stash", "[color]\nstatus = never"),
        ("[alias \"x\"]\ncommand = log", "[color]\ngrep = false"),
        ("[include]\npath = x", "[advice]\ndetachedHead = false"),
        ("[includeIf \"gitdir:x\"]\npath = x", "[branch \"x\"]\nmerge = refs/heads/x"),
        ("[gpg]\nprogram = x", "[commit]\nverbose = true"),
        ("[commit]\ngpgSign = true", "[commit]\nstatus = true"),
        ("[commit]\ngpgSign", "[log]\nfollow = true"),
        ("[gc]\npruneExpire = now", "[gc]\nauto = 0"),
        ("[gc]\nauto = ./x", "[gc]\nauto = 6700"),
        ("[remote \"o\"]\nurl = sub/tool", "[remote \"o\"]\nurl = /ws/tool"),
        ("[gpg \"ssh\"]\nprogram = x", "[commit]\ncleanup = scissors"),
        ("[sequence]\neditor = x", "[rebase]\nautosquash = true"),
        ("[pager]\nlog = less", "[pager]\nlog = false"),
        ("[interactive]\ndiffFilter = x", "[log]\ndate = iso"),
        ("[remote \"o\"]\nuploadpack = x", "[remote \"o\"]\ntagOpt = --tags"),
        ("[remote \"o\"]\nreceivepack = x", "[remote \"o\"]\ntagOpt = --no-tags"),
        ("[remote \"o\"]\nproxy = x", "[remote \"o\"]\nurl = https://e.org/x"),
        ("[remote \"o\"]\nvcs = x", "[remote \"o\"]\nurl = ../x"),
        ("[remote \"o\"]\npromisor = true", "[remote \"o\"]\nurl = git@h:x"),
        ("[remote \"o\"]\nurl = ext::sh -c x", "[remote \"o\"]\nurl = ssh://git@x/y"),
        ("[remote \"o\"]\nurl = helper://x", "[remote \"o\"]\nurl = file:///x"),
        ("[remote \"o\"]\nurl = --upload-pack=x", "[remote \"o\"]\nurl = h:x"),
        ("[remote \"o\"]\nurl = ssh://-oProxyCommand=x/y", "[remote \"o\"]\nurl = git://x/y"),
        ("[remote \"o\"]\nurl = git@-oProxyCommand=x:y", "[remote \"o\"]\nurl = h:y"),
        ("[remote \"o\"]\nurl = .git/srv", "[remote \"o\"]\nurl = /srv/x"),
        ("[remote \"o\"]\nurl = ./tool", "[remote \"o\"]\nurl = ../../x"),
        ("[remote \"o\"]\nurl = a/b:c", "[remote \"o\"]\nurl = https://e.org/tool"),
        ("[remote \"o\"]\nurl = file:///ws/.GIT/srv", "[remote \"o\"]\nurl = file:///ws/srv"),
        ("[remote \"o\"]\npushurl = https://x", "[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/o/*"),
        ("[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/origin/*", "[remote \"o\"]\ntagOpt = --tags"),
        ("[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/o", "[remote \"o\"]\ntagOpt = --tags"),
        ("[remote \"o\"]\nfetch = +refs/tags/*:refs/remotes/o/*", "[remote \"o\"]\ntagOpt = --tags"),
        ("[core]\nbare = true", "[user]\nname = y"),
        ("[remote \"o\"]\nfetch = +refs/*:refs/*", "[remote \"o\"]\nfetch = refs/heads/m:refs/remotes/o/m"),
        ("[remote \"https://x/y\"]\nurl = h:z", "[remote \"x.y\"]\nurl = h:z"),
        ("[remote]\npushDefault = x", "[pull]\nff = true"),
        ("[branch \"x\"]\npushRemote = y", "[branch \"x\"]\nrebase = true"),
        ("[branch \"x\"]\nremote = https://e.org/x", "[branch \"x\"]\nrebase = false"),
        ("[branch \"x\"]\nmergeOptions = -s x", "[branch \"x\"]\ndescription = y"),
        ("[uploadpack]\npackObjectsHook = x", "[branch]\nautoSetupMerge = false"),
        ("[url \"x\"]\ninsteadOf = y", "[pull]\nff = only"),
        ("[url \"x\"]\npushInsteadOf = y", "[pull]\nrebase = merges"),
        ("[init]\ntemplateDir = x", "[init]\ndefaultBranch = main"),
        ("[submodule \"s\"]\nupdate = !x", "[submodule \"s\"]\nactive = true"),
        ("[submodule \"s\"]\nupdate = rebase", "[submodule \"s\"]\nurl = https://e.org/x"),
        ("[submodule \"../s\"]\nurl = x", "[submodule \"a/s\"]\nurl = https://e.org/x"),
        ("[difftool \"t\"]\ncmd = x", "[diff]\nalgorithm = minimal"),
        ("[trailer \"t\"]\ncommand = x", "[color]\nui"),
        ("[tar \"gz\"]\ncommand = x", "[color]\nbranch = true"),
        ("[http]\nproxy = x", "[fetch]\nparallel = 2"),
        ("[http \"https://x\"]\nsslVerify = false", "[fetch]\nparallel = 4"),
        ("[protocol \"ext\"]\nallow = always", "[core]\nlogAllRefUpdates = always"),
        ("[safe]\ndirectory = *", "[core]\nabbrev = 7"),
        ("[core]\nworktree = /x", "[core]\nuntrackedCache = no"),
        ("[extensions]\nworktreeConfig = true", "[core]\nrepositoryFormatVersion = 1"),
        ("[extensions]\npartialClone = o", "[commit]\nverbose = 2"),
        ("[gc]\nrecentObjectsHook = x", "[lfs]\nrepositoryFormatVersion = 0"),
        ("[gc]\nreflogExpire = 1", "[merge]\nlog = 10"),
        ("[help]\nautocorrect = 1", "[advice]\nskippedCherryPicks = false"),
        ("[svn]\nauthorsProg = x", "[author]\nname = x"),
        ("[delta]\npager = x", "[committer]\nemail = x"),
        ("[transfer]\nfsckObjects = false", "[column]\nstatus = never"),
        ("[user]\nname = a\\nb", "[user]\nname = a"),
        ("[push]\ndefault = upstream", "[pull]\nrebase = true"),
        ("[push]\ndefault = matching", "[pull]\nrebase = interactive"),
        ("[push]\nautoSetupRemote = true", "[branch]\nautoSetupMerge = simple"),
        ("[push]\nfollowTags = true", "[branch]\nautoSetupRebase = always"),
        ("[fetch]\nprune = true", "[fetch]\nparallel = 0"),
        ("[fetch]\npruneTags = true", "[fetch]\nparallel = 1"),
        ("[remote \"o\"]\nprune = true", "[remote \"o\"]\nurl = h:x"),
        ("[remote \"o\"]\nmirror = true", "[remote \"o\"]\nurl = h:x"),
        ("[remote \"o\"]\npush = HEAD:main", "[remote \"o\"]\nurl = h:x"),
        ("[branch]\nautoSetupMerge = always", "[branch]\nautoSetupMerge = true"),
        ("[core]\ntrustCtime = false", "[core]\nuntrackedCache = keep"),
        ("[core]\ncheckStat = minimal", "[core]\nhideDotFiles = dotGitOnly"),
        ("[status]\nshowUntrackedFiles = no", "[log]\ndate = relative"),
        ("[rebase]\nupdateRefs = true", "[rebase]\nupdateRefs = false"),
        ("[core]\nlogAllRefUpdates = false", "[core]\nlogAllRefUpdates = true"),
    ] {
        assert_eq!(fresh(bad).len(), 1, "new: {bad}");
        assert_eq!(fresh(good), [""; 0], "new: {good}");
        for base in ["", "[core]\nbare = false\n"] {
            assert_eq!(diff(base, &format!("{base}{bad}")).len(), 1, "{bad}");
            assert_eq!(diff(&format!("{base}{bad}"), base).len(), 1, "without {bad}");
            // A remote is inert in a new repository alone.
            assert_eq!(diff(base, &format!("{base}{good}")).is_empty(), !good.starts_with("[remote"), "{good}");
        }
    }
}

#[test]
fn an_existing_remote_and_its_branches_stay_where_they_lead() {
    let base = "[remote \"origin\"]\nurl = h:a\nfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\nremote = \
                origin\nmerge = refs/heads/main\n";
    for (added, wanted) in [
        ("[remote \"origin\"]\nurl = h:b\n", "remote.origin.url"),
        ("[remote \"origin\"]\npushurl = h:b\n", "remote.origin.pushurl"),
        ("[remote \"origin\"]\nfetch = +refs/heads/x:refs/remotes/origin/x\n", "remote.origin.fetch"),
        ("[remote.origin]\nurl = h:b\n", "remote.origin.url"),
        ("[branch \"main\"]\nremote = other\n[remote \"other\"]\nurl = h:b\n", "branch.main.remote"),
        ("[branch \"new\"]\nremote = other\n[remote \"other\"]\nurl = h:b\n", "branch.new.remote"),
        ("[branch \"new\"]\nremote = origin\nmerge = refs/heads/main\n", "branch.new.merge"),
        ("[branch \"new\"]\nremote = .\nmerge = refs/heads/main\n", "branch.new.merge"),
        // `git push` of a later branch of this name would publish nothing and say that all is well.
        ("[branch \"new\"]\nremote = .\nmerge = refs/heads/new\n", "branch.new.remote"),
        ("[branch \"new\"]\nmerge = refs/tags/new\n", "branch.new.merge"),
    ] {
        assert_eq!(diff(base, &format!("{base}{added}"))[0], wanted, "{added}");
    }
    assert_eq!(diff(base, &base.replace("url = h:a", "url = h:b")), ["remote.origin.url"]);
    assert_eq!(diff(base, "[branch \"main\"]\nremote = origin\n").len(), 3, "a removed remote");
    assert_eq!(diff(base, &base.replace("remote = origin", "")), ["branch.main.remote"]);
    for added in ["[branch \"new\"]\nremote = origin\nmerge = refs/heads/new\n", "[branch \"main\"]\nrebase = true\n"] {
        assert_eq!(diff(base, &format!("{base}{added}")), [""; 0], "{added}");
    }
    // The default remote is `origin`: a run must not bring one to a repository that has another.
    let other = base.replace("origin", "upstream");
    assert_eq!(diff(&other, &format!("{other}[remote \"origin\"]\nurl = h:b\n")), ["remote.origin.url"]);
}

/// Settings with which git hides changes, or shows hooks and people something else than they look for.
#[test]
fn what_hides_changes_from_people_or_hooks_waits() {
    for (bad, good) in [
        ("[color]\nui = always", "[color]\nui = never"),
        ("[color]\ndiff = always", "[color]\ndiff = auto"),
        ("[color \"diff\"]\nnew = black black", "[color]\ndiff = true"),
        ("[color.status]\nuntracked = black", "[color]\nstatus = false"),
        ("[column]\nstatus = always", "[column]\nstatus = auto"),
        ("[column]\nui = dense", "[column]\nui = never"),
        ("[core]\nwhitespace = -trailing-space", "[core]\nabbrev = 12"),
        ("[core]\nquotePath = true", "[core]\npreloadIndex = true"),
        ("[diff]\nnoprefix = true", "[diff]\ncontext = 5"),
        ("[diff]\nmnemonicPrefix = true", "[diff]\nalgorithm = patience"),
        ("[diff]\nsrcPrefix = x", "[diff]\ncolorMoved = no"),
        ("[diff]\nrelative = true", "[diff]\ncolorMoved = blocks"),
        ("[diff]\nignoreSubmodules = all", "[diff]\ncolorMoved = plain"),
        ("[diff]\norderFile = x", "[diff]\ncolorMoved = default"),
        ("[diff]\nrenames = copies", "[merge]\nrenames = true"),
        ("[diff]\nsubmodule = log", "[merge]\nlog = 1"),
        ("[diff]\ninterHunkContext = 9", "[diff]\ncontext = 9"),
        ("[status]\nshort = true", "[commit]\nstatus = true"),
        ("[status]\nrelativePaths = false", "[commit]\nstatus"),
        ("[status]\nsubmoduleSummary = false", "[commit]\nstatus = yes"),
        ("[commit]\nstatus = false", "[commit]\nverbose = true"),
        ("[commit]\nverbose = 0", "[commit]\nverbose = 1"),
        ("[grep]\nlineNumber = true", "[log]\nfollow = true"),
        ("[log]\ndate = format-local", "[log]\ndate = iso"),
    ] {
        for base in ["", "[core]\nbare = false\n"] {
            assert_eq!(diff(base, &format!("{base}{bad}")).len(), 1, "{bad}");
            assert_eq!(diff(&format!("{base}{bad}"), base).len(), 1, "without {bad}");
            assert_eq!(diff(base, &format!("{base}{good}")), [""; 0], "{good}");
        }
        // A hook of the user's own may hold in every repository.
        assert_eq!((fresh(bad).len(), fresh(good).len()), (1, 0), "new: {bad}");
    }
    for (inert, hiding) in [
        ("fileMode = true", "fileMode = false"),
        ("fileMode", "fileMode = no"),
        ("symlinks = true", "symlinks = false"),
        ("symlinks", "symlinks = "),
        ("ignoreCase = false", "ignoreCase = true"),
        ("ignoreCase = off", "ignoreCase"),
        ("autocrlf = false", "autocrlf = input"),
        ("autocrlf = false", "autocrlf = true"),
        ("eol = lf", "eol = crlf"),
        ("precomposeUnicode = true", "checkStat = minimal"),
        ("safecrlf = warn", "trustctime = false"),
    ] {
        for text in [inert, hiding] {
            let later = format!("[core]\nbare = false\n[core]\n{text}");
            assert_eq!(diff("[core]\nbare = false\n", &later).len(), 1, "in a repository that was there: {text}");
        }
        assert_eq!(fresh(&format!("[core]\n{inert}")), [""; 0], "{inert}");
        assert_eq!(fresh(&format!("[core]\n{hiding}")).len(), 1, "{hiding}");
    }
}

/// A push goes to each of them.
#[test]
fn a_new_remote_has_one_url() {
    let one = "[remote \"origin\"]\nurl = h:a\n";
    assert_eq!(fresh(one), [""; 0]);
    assert_eq!(fresh(&format!("{one}[remote \"up\"]\nurl = h:b\n")), [""; 0]);
    for two in [format!("{one}url = h:b\n"), format!("{one}[remote.origin]\nurl = h:b\n"), format!("{one}{one}")] {
        assert_eq!(fresh(&two), ["remote.origin.url"], "{two}");
        assert!(!String::from_utf8(strip(two.as_bytes(), &Place::of_new(b".git")).unwrap()).unwrap().contains("h:"));
    }
}

/// Covers what `git checkout -b X origin/Y`, `git branch -u` and `git branch -m` write; and what looks like it.
#[test]
fn an_upstream_of_a_known_remote_is_inert() {
    let base = "[remote \"origin\"]\nurl = h:a\n[branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n";
    let place =
        Place { has_upstream: &|remote, branch| remote == b"origin" && branch == b"topic", ..at(b".git", Known::All) };
    let judged =
        |old: &str, new: &str, place: &Place<'_>| changed(Some(new.as_bytes()), Some(old.as_bytes()), place).unwrap();
    let new = |settings: &str| format!("{base}[branch \"new\"]\n{settings}");
    let good = new("remote = origin\nmerge = refs/heads/topic\n");
    assert_eq!(judged(base, &good, &place), [""; 0]);
    for (bad, wanted) in [
        // No branch of the remote, or none at all.
        (new("remote = origin\nmerge = refs/heads/other\n"), "branch.new.merge"),
        (new("remote = origin\nmerge = refs/tags/topic\n"), "branch.new.merge"),
        (new("remote = origin\nmerge = topic\n"), "branch.new.merge"),
        // Two of them.
        (new("remote = origin\nmerge = refs/heads/topic\nmerge = refs/heads/topic\n"), "branch.new.merge"),
        (new("remote = origin\nremote = fork\nmerge = refs/heads/topic\n"), "branch.new.merge"),
        // No remote, one that comes with it, a place.
        (new("merge = refs/heads/topic\n"), "branch.new.merge"),
        (new("remote = .\nmerge = refs/heads/topic\n"), "branch.new.merge"),
        (new("remote = h:a\nmerge = refs/heads/topic\n"), "branch.new.merge"),
        (new("remote = fork\nmerge = refs/heads/topic\n[remote \"fork\"]\nurl = h:b\n"), "branch.new.merge"),
    ] {
        assert_eq!(judged(base, &bad, &place)[0], wanted, "{bad}");
    }
    // Where the remotes of the repository are unknown, and where a push may go to upstreams.
    for other in [Place { known: Known::Nothing, ..place }, Place { has_upstream: &|_, _| false, ..place }] {
        assert!(judged(base, &good, &other).contains(&"branch.new.merge".to_owned()), "{other:?}");
    }
    // `git branch -u origin/topic` of a branch that has one; but nothing takes one away.
    let of_main = |merge: &str| base.replace("merge = refs/heads/main\n", merge);
    assert_eq!(judged(base, &of_main("merge = refs/heads/topic\n"), &place), [""; 0]);
    assert_eq!(judged(base, &of_main("merge = refs/heads/other\n"), &place), ["branch.main.merge"]);
    assert_eq!(judged(base, &of_main(""), &place), ["branch.main.merge"]);
    assert_eq!(judged(&good, base, &place), ["branch.new.merge", "branch.new.remote"]);
    // `git branch -m gone new`.
    let gone = good.replace("\"new\"", "\"gone\"");
    assert_eq!(judged(&gone, &good, &place), [""; 0]);
    assert_eq!(judged(&gone, &new("remote = origin\nmerge = refs/heads/other\n"), &place), ["branch.new.merge"]);
}

/// A run takes the remote of a branch away, and the next one brings another: neither must look like the first.
#[test]
fn a_branch_keeps_its_remote_until_its_ref_goes() {
    let remotes = "[remote \"origin\"]\nurl = h:a\n[remote \"fork\"]\nurl = h:b\n";
    let main = "[branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n";
    let gone = "[branch \"gone\"]\nremote = origin\nmerge = refs/heads/gone\n";
    let rest = format!("{remotes}{main}");
    let base = &format!("{rest}{gone}");
    assert_eq!(diff(base, &base.replace(main, "")), ["branch.main.merge", "branch.main.remote"]);
    assert_eq!(diff(base, &base.replace(main, "[branch \"main\"]\nremote = origin\n")), ["branch.main.merge"]);
    assert_eq!(
        diff(base, &format!("{base}{}", main.replace("refs/heads/main", "refs/heads/x"))),
        ["branch.main.merge"]
    );
    assert_eq!(diff(base, &rest), [""; 0], "`git branch -d gone`");
    assert_eq!(diff(base, &base.replace("merge = refs/heads/gone\n", "")), ["branch.gone.merge"], "a part of it");
    assert_eq!(diff(base, &base.replace("\"gone\"", "\"new\"")), ["branch.new.merge"], "`git branch -m gone new`");
    for (of_gone, of_old, wanted) in [
        ("remote = .\n", "remote = origin\nmerge = refs/heads/x\n", &[][..]),
        ("merge = refs/heads/gone\n", "description = x\nmergeOptions = --ff\n", &[]),
        // The run could bring the branch again, and a push would go to the default remote.
        ("remote = fork\n", "remote = origin\n", &["branch.gone.remote"]),
        ("remote = origin\npushRemote = fork\n", "", &["branch.gone.pushremote", "branch.gone.remote"]),
        ("remote = origin\nremote = fork\n", "remote = .\n", &["branch.gone.remote"]),
    ] {
        let base = format!("{rest}[branch \"gone\"]\n{of_gone}[branch \"old\"]\n{of_old}");
        assert_eq!(diff(&base, &rest), wanted, "{base}");
    }
    for (added, waits) in [
        ("[branch \"new\"]\nremote = origin\nmerge = refs/heads/new\n", false),
        ("[branch \"new\"]\nremote = .\nmerge = refs/heads/new\n", true),
        // An earlier run may have brought the remote.
        ("[branch \"new\"]\nremote = fork\n", true),
    ] {
        assert_eq!(!diff(base, &format!("{base}{added}")).is_empty(), waits, "{added}");
    }
    let only = "[remote \"up\"]\nurl = h:a\n";
    assert_eq!(diff(only, &format!("{only}[branch \"x\"]\nremote = up\n")), [""; 0], "the only remote");
}

/// Another configuration may name it (`remote.pushDefault`), and `git push` of a repository without one fails.
#[test]
fn a_remote_comes_unasked_only_with_its_repository() {
    let remote = "[remote \"up\"]\nurl = h:b\nfetch = +refs/heads/*:refs/remotes/up/*\n";
    for base in ["", "[core]\nbare = false\n", "[remote \"origin\"]\nurl = h:a\n", "[branch \"x\"]\nremote = .\n"] {
        assert_eq!(diff(base, &format!("{base}{remote}")), ["remote.up.fetch", "remote.up.url"], "{base}");
        let branch = format!("{base}{remote}[branch \"y\"]\nremote = up\n");
        assert_eq!(diff(base, &branch)[0], "branch.y.remote", "{base}");
    }
    assert_eq!(fresh(&format!("[core]\nbare = false\n{remote}[branch \"y\"]\nremote = up\n")), [""; 0]);
}

/// The user's own configuration may say that commits are signed.
#[test]
fn signing_is_switched_off_in_a_new_repository_alone() {
    for text in ["[commit]\ngpgSign = false\n", "[tag]\ngpgSign = no\n"] {
        assert_eq!(fresh(text), [""; 0], "{text}");
        assert_eq!(diff("", text).len(), 1, "{text}");
        assert_eq!(diff(text, "").len(), 1, "{text}");
    }
}

#[test]
fn a_submodule_gets_the_url_that_gitmodules_says() {
    let init = |url: &str| format!("[submodule \"s\"]\nactive = true\nurl = {url}\n");
    assert_eq!(diff("", &init("https://e.org/x")), [""; 0]);
    assert_eq!(diff("", &init("https://evil.org/x")), ["submodule.s.url"]);
    assert_eq!(diff("", "[submodule \"unknown\"]\nurl = https://e.org/x\n"), ["submodule.unknown.url"]);
    assert_eq!(fresh(&init("https://evil.org/x")), [""; 0], "a new repository");
    let clone = |url: &str| format!("[remote \"origin\"]\nurl = {url}\n");
    let place = Place { module: Some(b"s"), ..at(b".git/modules/s", Known::New) };
    for (url, wanted) in [("https://e.org/x", &[][..]), ("https://evil.org/x", &["remote.origin.url"])] {
        assert_eq!(changed(Some(clone(url).as_bytes()), None, &place).unwrap(), wanted, "its git directory");
    }
}

/// A new repository could bring others of these settings, which would be inert in it.
#[test]
fn a_repository_goes_unasked_only_without_remotes() {
    for (text, git_dir, wanted) in [
        ("[core]\nbare = false\n[user]\nname = x\n", ".git", ""),
        ("[core]\nbare = true\n", "srv.git", ""),
        ("[branch \"x\"]\nmerge = refs/heads/x\ndescription = y\n", ".git", ""),
        ("[core]\nbare = true\n", ".git", "core.bare"),
        // The git directory of a working tree elsewhere.
        ("[core]\nbare = false\n", "gd", "core.bare"),
        ("[remote \"origin\"]\nurl = h:a\n", ".git", "remote.origin.url"),
        ("[remote]\npushDefault = x\n", ".git", "remote.pushdefault"),
        ("[branch \"x\"]\nremote = .\n", ".git", "branch.x.remote"),
        ("[submodule \"s\"]\nactive = true\n", ".git", "submodule.s.active"),
        ("[core]\nworktree = ../../../sub\n", ".git/modules/sub", "core.worktree"),
        ("[core]\nhooksPath = x\n", ".git", "core.hookspath"),
    ] {
        let names = kept(text.as_bytes(), &at(git_dir.as_bytes(), Known::New)).unwrap();
        assert_eq!(names.join(" "), wanted, "{text}");
    }
    assert!(kept(b"[core", &Place::of_new(b".git")).is_err());
}

#[test]
fn a_bare_repository_has_another_name_than_git() {
    for (git_dir, held) in [("srv.git", 0), (".git", 1), ("a/.GIT", 1), (".git/modules/sub", 1), (".git/srv", 1)] {
        assert_eq!(held_in(b"[core]\nbare = true\n", git_dir.as_bytes()), Ok(held), "{git_dir}");
        assert_eq!(held_in(b"[core]\nbare = false\n", git_dir.as_bytes()), Ok(0), "{git_dir}");
    }
}

#[test]
fn the_order_of_settings_that_are_not_inert_counts() {
    let (first, second) = ("[core]\neditor = a\neditor = b\n", "[core]\neditor = b\neditor = a\n");
    assert_eq!(diff(first, second), ["core.editor"]);
    assert_eq!(diff(first, &format!("[user]\nname = x\n{first}[pull]\nff = only\n")), [""; 0]);
    assert_eq!(diff("[core]\neditor = a\n", "[core]\neditor = a\neditor = a\n"), ["core.editor"]);
}

#[test]
fn an_existing_repository_keeps_its_working_tree() {
    let base = "[core]\nfilemode = true\nhooksPath = hk\n";
    for (section, name) in [("core", "bare"), ("core", "worktree")] {
        for (old, new) in [("", "= true"), ("= false", "= true"), ("= ../../../sub", "= ../../../evil"), ("= x", "")] {
            let text = |value: &str| {
                if value.is_empty() { base.to_owned() } else { format!("{base}[{section}]\n{name} {value}\n") }
            };
            let names =
                changed(Some(text(new).as_bytes()), Some(text(old).as_bytes()), &at(b".git/modules/sub", Known::All))
                    .unwrap();
            assert!(!names.is_empty(), "{name}: {old:?} to {new:?}");
        }
    }
    let text = "[core]\nbare = false\nworktree = ../../../sub\n";
    let place = at(b".git/modules/sub", Known::New);
    assert_eq!(changed(Some(text.as_bytes()), None, &place).unwrap(), [""; 0], "a new submodule");
    assert_eq!(kept(text.as_bytes(), &place).unwrap(), ["core.worktree"], "a submodule that goes");
    let more = format!("{text}[user]\nname = x\n");
    assert_eq!(changed(Some(more.as_bytes()), Some(text.as_bytes()), &place).unwrap(), [""; 0], "unchanged");
}

#[test]
fn only_a_new_repository_may_say_how_it_is_stored() {
    let format = "[extensions]\nobjectFormat = sha256\nrefStorage = files\n";
    assert_eq!(changed(Some(format.as_bytes()), None, &Place::of_new(b".git")).unwrap(), [""; 0]);
    assert_eq!(diff("", format).len(), 2, "a configuration without settings");
    for known in [Known::Nothing, Known::Part] {
        assert_eq!(changed(Some(format.as_bytes()), None, &at(b".git", known)).unwrap().len(), 2, "{known:?}");
    }
    assert_eq!(diff("[core]\nbare = false\n", &format!("[core]\nbare = false\n{format}")).len(), 2);
}

/// A remote that is named elsewhere may be another one of the same name, or the one that a branch had.
#[test]
fn a_part_of_the_settings_leads_nowhere() {
    for (text, wanted) in [
        ("[remote \"up\"]\nurl = h:b\n", "remote.up.url"),
        ("[remote \"origin\"]\nurl = h:b\n", "remote.origin.url"),
        ("[branch \"main\"]\nremote = up\n", "branch.main.remote"),
        ("[branch \"main\"]\nremote = .\n", "branch.main.remote"),
        ("[submodule \"s\"]\nurl = h:b\n", "submodule.s.url"),
        ("[core]\nworktree = ../../../sub\n", "core.worktree"),
        ("[core]\nbare = true\n", "core.bare"),
    ] {
        for known in [Known::Nothing, Known::Part] {
            let place = at(b".git/modules/sub", known);
            assert_eq!(changed(Some(text.as_bytes()), None, &place).unwrap(), [wanted], "{known:?}");
            let with = format!("[user]\nname = x\n{text}");
            let names = changed(Some(with.as_bytes()), Some(b"[user]\nname = x\n"), &place).unwrap();
            assert_eq!(names, [wanted], "{known:?}");
        }
    }
    let text = "[core]\nbare = false\n[user]\nname = x\n";
    assert_eq!(changed(Some(text.as_bytes()), None, &at(b".git", Known::Nothing)).unwrap(), [""; 0]);
    assert_eq!(changed(Some(text.as_bytes()), None, &at(b".git", Known::Part)).unwrap(), ["core.bare"]);
}

/// A megabyte of settings is classified in a moment: no step looks at all of them for each.
#[test]
fn a_large_configuration_is_classified_quickly() {
    let one = |number| format!("[remote \"r{number}\"]\nurl = h:x\n[x{number}]\ny = z\n");
    let text: String = (0..20_000).map(one).collect::<Vec<_>>().concat();
    let started = std::time::Instant::now();
    assert_eq!(diff("", &text).len(), 40_000);
    assert!(strip(text.as_bytes(), &Place::of_new(b".git")).is_some());
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn tricks_with_lines_and_quotes_do_not_hide_a_key() {
    for text in [
        "[core] fsmonitor = \"./x\"",
        "[core]\r\nfsmonitor = ./x\r\n",
        "[user]\nname = a\\\n b\n[core]\nfsmonitor = x",
        "# [core]\n[core] ; c\n fsMonitor=x # y",
        "[branch \"] \\\" [\"]\nrebase = 1\n[core]\nfsmonitor=x",
        "\u{feff}[core]\nfsmonitor = x",
    ] {
        assert_eq!(keys(text), ["core.fsmonitor"], "{text:?}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error() {
    for text in [
        "[core",
        "x = 1",
        "[core]\n=x",
        "[core]\na b",
        "[core]\na = \"x\n",
        "[core]\na = \\q",
        "[co re]\n",
        "[a]\nb=\0",
        "[a]\nb = \rc",
        "[a]\nb = c \r\r\n",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn stripping_takes_what_is_not_inert_and_nothing_else() {
    let text =
        "[core]\n\tbare = false\n\tfsmonitor = ./x \\\n y\n\tfilemode = true\n[alias] x = !sh\n[user]\n\tname = me\n";
    let stripped = String::from_utf8(strip(text.as_bytes(), &Place::of_new(b".git")).unwrap()).unwrap();
    assert_eq!(stripped, "[core]\n\tbare = false\n\t\n\tfilemode = true\n[alias] \n[user]\n\tname = me\n");
    assert!(strip(b"[core", &Place::of_new(b".git")).is_none());
}

#[test]
fn the_worktree_of_a_submodule_is_harmless_only_inside_the_workspace() {
    let judge = |value: &str, dir: &'static str| {
        let text = format!("[core]\nworktree = {value}\n");
        changed(Some(text.as_bytes()), None, &at(dir.as_bytes(), Known::New)).unwrap().len()
    };
    assert_eq!(judge("../../../lib", ".git/modules/lib"), 0);
    assert_eq!(judge("../../../other", ".git/modules/lib"), 1, "its file names no git directory");
    assert_eq!(judge("../../../../lib", ".git/modules/lib"), 1);
    assert_eq!(judge("/etc", ".git/modules/lib"), 1);
    assert_eq!(judge("../../../.git", ".git/modules/lib"), 1);
    assert_eq!(judge("../../../.vscode", ".git/modules/lib"), 1);
    assert_eq!(judge("..", ".git"), 1);
    assert_eq!(judge("..", "modules/d"), 1, "no submodule");
    assert_eq!(judge("../x", "modules/d/.git"), 1, "no submodule");
}

/// git takes a carriage return for white space and drops it around a value: it reads an absolute path, or one level up.
#[test]
fn a_carriage_return_does_not_hide_where_a_worktree_leads() {
    for value in ["\r/../../../../etc", " \r /../../../../etc", "\r../../../../../x", "../../../lib\r "] {
        let text = format!("[core]\nworktree = {value}\n");
        let judged = held_in(text.as_bytes(), b".git/modules/lib");
        assert!(judged.is_err(), "{value:?}: {judged:?}");
        assert_eq!(strip(text.as_bytes(), &Place::of_new(b".git/modules/lib")), None, "{value:?}");
    }
    // In quotes, and before a line feed, it is for git what it is here.
    assert_eq!(parse(b"[a]\nb = \"\rc\"\r\n").unwrap()[0].value.as_deref(), Some(&b"\rc"[..]));
}

/// git drops blanks before a value also behind a continued line or empty quotes, and keeps those before a continuation.
#[test]
fn a_continued_line_or_empty_quotes_do_not_hide_where_a_worktree_leads() {
    for value in ["\\\n /../../../../etc", "\"\" /../../../../etc", " \\\n\t\\\n ../../../../../x"] {
        let text = format!("[core]\nworktree = {value}\n");
        assert_eq!(held_in(text.as_bytes(), b".git/modules/lib").unwrap(), 1, "{value:?}");
    }
    let value = |text: &str| parse(format!("[a]\nb = {text}\n").as_bytes()).unwrap()[0].value.clone().unwrap();
    assert_eq!(value("a \\\n"), b"a ");
    assert_eq!(value("\" \" x \"\""), b"  x ");
}
