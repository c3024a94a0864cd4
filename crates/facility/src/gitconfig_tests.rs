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
                origin\n[user]\n\tname = \"A # B\" ; comment\n[pull]\n\trebase\n[alias]\n\tco = checkout\n[core]\n\t\
                preloadIndex = true\n";
    assert_eq!(keys(text), Vec::<String>::new());
    assert_eq!(parse(text.as_bytes()).unwrap().len(), 10);
}

/// The names of the settings that change from `base` to `new` and need an accept.
fn diff(base: &str, new: &str) -> Vec<String> {
    changed(Some(new.as_bytes()), Some(base.as_bytes()), &at(b".git", Known::All)).unwrap()
}

fn at(git_dir: &[u8], known: Known) -> Place<'_> {
    Place {
        git_dir,
        known,
        names_back: &|directory| matches!(directory, b"sub" | b"lib"),
        branch_goes: &|branch| branch == b"gone",
    }
}

#[test]
fn each_setting_that_is_not_inert_is_held_beside_a_neighbour() {
    for (bad, good) in [
        ("[core]\nhooksPath=x", "[core]\nfilemode=false"),
        ("[CORE]\nFSMONITOR = ./x", "[core]\npreloadIndex = false"),
        ("[core]\nfsmonitor = true", "[core]\nuntrackedCache = true"),
        ("[core]\npager = yes", "[pager]\ndiff = true"),
        ("[core] sshCommand = x", "[core] fileMode = true"),
        ("[core]\nsomethingNew = x", "[core]\nautocrlf = input"),
        ("[core]\nautocrlf = ./x", "[core]\neol = lf"),
        ("[core]\nprotectHFS = false", "[core]\nsymlinks = false"),
        ("[core]\nexcludesFile = x", "[core]\nquotePath = false"),
        ("[core]\nattributesFile = x", "[core]\nabbrev = 10"),
        ("[filter \"x\"]\nsmudge = y", "[user]\nemail = a@b"),
        ("[filter.x]\nclean = y", "[color.x]\nmeta = red bold"),
        ("[diff]\nexternal = x", "[diff]\nrenames = copies"),
        ("[diff \"p\"]\ntextconv = x", "[diff]\nalgorithm = histogram"),
        ("[diff]\nalgorithm = x y", "[diff]\ncontext = 5"),
        ("[merge \"m\"]\ndriver = x", "[merge]\nconflictStyle = diff3"),
        ("[credential]\nhelper = x", "[column]\nui = auto dense"),
        ("[credential \"https://x\"]\nusername = x", "[user]\nname = x"),
        ("[alias]\nx = !sh", "[alias]\nx = log"),
        ("[alias]\nx = \" !sh\"", "[alias]\nlg = log"),
        ("[alias]\nco = fetch --upload-pack=touch${IFS}PWNED .", "[alias]\nco = fetch"),
        ("[alias]\nrb = rebase --exec ./evil HEAD~1", "[alias]\nrb = rebase"),
        ("[alias]\nx = log -p", "[alias]\nx = show"),
        ("[alias]\nlog = diff", "[alias]\nl = diff"),
        ("[alias]\nx = push", "[alias]\nx = pull"),
        ("[alias]\nx = submodule", "[alias]\nx = status"),
        ("[alias \"x\"]\ncommand = log", "[alias]\ncommand = log"),
        ("[include]\npath = x", "[advice]\ndetachedHead = false"),
        ("[includeIf \"gitdir:x\"]\npath = x", "[branch \"x\"]\nmerge = refs/heads/x"),
        ("[gpg]\nprogram = x", "[commit]\nverbose = true"),
        ("[commit]\ngpgSign = true", "[commit]\ngpgSign = false"),
        ("[commit]\ngpgSign", "[tag]\ngpgSign = no"),
        ("[gc]\npruneExpire = now", "[gc]\nauto = 0"),
        ("[gc]\nauto = ./x", "[gc]\nauto = 6700"),
        ("[remote \"o\"]\nurl = sub/tool", "[remote \"o\"]\nurl = /ws/tool"),
        ("[gpg \"ssh\"]\nprogram = x", "[commit]\ncleanup = scissors"),
        ("[sequence]\neditor = x", "[rebase]\nautosquash = true"),
        ("[pager]\nlog = less", "[pager]\nlog = false"),
        ("[interactive]\ndiffFilter = x", "[log]\ndate = iso"),
        ("[remote \"o\"]\nuploadpack = x", "[remote \"o\"]\nprune = true"),
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
        ("[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/origin/*", "[remote \"o\"]\nprune = false"),
        ("[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/o", "[remote \"o\"]\nprune = false"),
        ("[remote \"o\"]\nfetch = +refs/tags/*:refs/remotes/o/*", "[remote \"o\"]\nprune = false"),
        ("[core]\nbare = true", "[user]\nname = y"),
        ("[remote \"o\"]\nfetch = +refs/*:refs/*", "[remote \"o\"]\nfetch = refs/heads/m:refs/remotes/o/m"),
        ("[remote \"https://x/y\"]\nurl = h:z", "[remote \"x.y\"]\nurl = h:z"),
        ("[remote]\npushDefault = x", "[push]\ndefault = current"),
        ("[branch \"x\"]\npushRemote = y", "[branch \"x\"]\nrebase = true"),
        ("[branch \"x\"]\nremote = https://e.org/x", "[branch \"x\"]\nremote = ."),
        ("[branch \"x\"]\nmergeOptions = -s x", "[branch \"x\"]\ndescription = y"),
        ("[uploadpack]\npackObjectsHook = x", "[push]\nautoSetupRemote = true"),
        ("[url \"x\"]\ninsteadOf = y", "[pull]\nff = only"),
        ("[url \"x\"]\npushInsteadOf = y", "[pull]\nrebase = merges"),
        ("[init]\ntemplateDir = x", "[init]\ndefaultBranch = main"),
        ("[submodule \"s\"]\nupdate = !x", "[submodule \"s\"]\nactive = true"),
        ("[submodule \"s\"]\nupdate = rebase", "[submodule \"s\"]\nurl = https://e.org/x"),
        ("[submodule \"../s\"]\nurl = x", "[submodule \"a/s\"]\nurl = x"),
        ("[difftool \"t\"]\ncmd = x", "[diff]\nnoprefix = true"),
        ("[trailer \"t\"]\ncommand = x", "[status]\nshort = true"),
        ("[tar \"gz\"]\ncommand = x", "[grep]\nlineNumber = true"),
        ("[http]\nproxy = x", "[fetch]\nprune = true"),
        ("[http \"https://x\"]\nsslVerify = false", "[fetch]\nparallel = 4"),
        ("[protocol \"ext\"]\nallow = always", "[core]\nlogAllRefUpdates = always"),
        ("[safe]\ndirectory = *", "[core]\nignorecase = true"),
        ("[core]\nworktree = /x", "[core]\nprecomposeUnicode = true"),
        ("[extensions]\nworktreeConfig = true", "[core]\nrepositoryFormatVersion = 1"),
        ("[extensions]\npartialClone = o", "[core]\nsafecrlf = warn"),
        ("[gc]\nrecentObjectsHook = x", "[lfs]\nrepositoryFormatVersion = 0"),
        ("[gc]\nreflogExpire = 1", "[merge]\nlog = 10"),
        ("[help]\nautocorrect = 1", "[advice]\nskippedCherryPicks = false"),
        ("[svn]\nauthorsProg = x", "[author]\nname = x"),
        ("[delta]\npager = x", "[committer]\nemail = x"),
        ("[transfer]\nfsckObjects = false", "[status]\nshowUntrackedFiles = all"),
        ("[user]\nname = a\\nb", "[user]\nname = a"),
    ] {
        for base in ["", "[core]\nbare = false\n"] {
            assert_eq!(diff(base, &format!("{base}{bad}")).len(), 1, "{bad}");
            assert_eq!(diff(&format!("{base}{bad}"), base).len(), 1, "without {bad}");
            assert!(diff(base, &format!("{base}{good}")).is_empty(), "{good}");
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
    ] {
        assert_eq!(diff(base, &format!("{base}{added}")), [wanted], "{added}");
    }
    assert_eq!(diff(base, &base.replace("url = h:a", "url = h:b")), ["remote.origin.url"]);
    assert_eq!(diff(base, "[branch \"main\"]\nremote = origin\n").len(), 3, "a removed remote");
    assert_eq!(diff(base, &base.replace("remote = origin", "")), ["branch.main.remote"]);
    for added in [
        "[remote \"other\"]\nurl = h:b\nfetch = +refs/heads/*:refs/remotes/other/*\n",
        "[branch \"new\"]\nremote = origin\nmerge = refs/heads/new\n",
        "[branch \"main\"]\nrebase = true\n",
    ] {
        assert_eq!(diff(base, &format!("{base}{added}")), [""; 0], "{added}");
    }
    // The default remote is `origin`: a run must not bring one to a repository that has another.
    let other = base.replace("origin", "upstream");
    assert_eq!(diff(&other, &format!("{other}[remote \"origin\"]\nurl = h:b\n")), ["remote.origin.url"]);
    let both = format!("[core]\nbare = false\n{base}");
    assert_eq!(diff("[core]\nbare = false\n", &both), [""; 0], "the first remote");
}

/// A run takes the remote of a branch away, and the next one brings another: neither must look like the first.
#[test]
fn a_branch_keeps_its_remote_until_its_ref_goes() {
    let base = "[remote \"origin\"]\nurl = h:a\n[remote \"fork\"]\nurl = h:b\n[branch \"main\"]\nremote = origin\nmerge = \
                refs/heads/main\n[branch \"gone\"]\nremote = fork\nmerge = refs/heads/gone\npushRemote = fork\n";
    let main = "[branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n";
    assert_eq!(diff(base, &base.replace(main, "")), ["branch.main.merge", "branch.main.remote"]);
    assert_eq!(diff(base, &base.replace(main, "[branch \"main\"]\nremote = origin\n")), ["branch.main.merge"]);
    assert_eq!(
        diff(base, &format!("{base}{}", main.replace("refs/heads/main", "refs/heads/x"))),
        ["branch.main.merge"]
    );
    let gone = base.find("[branch \"gone").unwrap();
    assert_eq!(diff(base, &base[..gone]), [""; 0], "`git branch -d gone`");
    assert_eq!(diff(base, &base.replace("merge = refs/heads/gone\n", "")), ["branch.gone.merge"], "a part of it");
    let renamed = base.replace("\"gone\"", "\"new\"");
    assert_eq!(diff(base, &renamed), ["branch.new.pushremote", "branch.new.remote"], "to a name without an old remote");
    for (added, waits) in [
        ("[branch \"new\"]\nremote = origin\nmerge = refs/heads/new\n", false),
        ("[branch \"new\"]\nremote = .\nmerge = refs/heads/main\n", false),
        // An earlier run may have brought the remote.
        ("[branch \"new\"]\nremote = fork\n", true),
    ] {
        assert_eq!(!diff(base, &format!("{base}{added}")).is_empty(), waits, "{added}");
    }
    let only = "[remote \"up\"]\nurl = h:a\n";
    assert_eq!(diff(only, &format!("{only}[branch \"x\"]\nremote = up\n")), [""; 0], "the only remote");
}

#[test]
fn a_new_remote_has_no_name_that_is_used_already() {
    for (base, name) in [
        ("[branch \"main\"]\nremote = up\n", "up"),
        ("[branch \"main\"]\npushRemote = up\n", "up"),
        ("[remote]\npushDefault = up\n", "up"),
        ("[remotes]\nall = a up\n", "up"),
        ("[checkout]\ndefaultRemote = up\n", "up"),
        ("[remote \"Up\"]\nurl = h:x\n", "up"),
        ("[remote \"up/x\"]\nurl = h:x\n", "up"),
    ] {
        let with = |name: &str| format!("{base}[remote \"{name}\"]\nurl = h:b\n");
        assert_eq!(diff(base, &with(name)).len(), 1, "{base}");
        assert_eq!(diff(base, &with("upper")), [""; 0], "{base}");
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
    assert_eq!(diff(first, &format!("[user]\nname = x\n{first}[alias]\nx = log\n")), [""; 0]);
    assert_eq!(diff("[core]\neditor = a\n", "[core]\neditor = a\neditor = a\n"), ["core.editor"]);
    assert_eq!(diff("[alias]\nx = log\n", "[alias]\nx = log\nx = diff\n").len(), 1, "an alias that was there");
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

/// What is said elsewhere may be another remote of the same name, or the one that a branch had.
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

/// A megabyte of settings is judged in a moment: no step looks at all of them for each.
#[test]
fn a_large_configuration_is_judged_quickly() {
    let one = |number| format!("[remote \"r{number}\"]\nurl = h:x\n[x{number}]\ny = z\n");
    let text: String = (0..20_000).map(one).collect::<Vec<_>>().concat();
    let started = std::time::Instant::now();
    assert_eq!(diff("", &text).len(), 20_000);
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
        "[color \"] \\\" [\"]\nb = 1\n[core]\nfsmonitor=x",
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
