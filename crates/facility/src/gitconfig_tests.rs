use super::*;

fn keys(text: &str) -> Vec<String> {
    dangerous(text.as_bytes(), b".git")
        .unwrap()
        .into_iter()
        .map(|one| format!("{}.{}", one.section, one.name))
        .collect()
}

#[test]
fn an_ordinary_configuration_is_harmless() {
    let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = \
                https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = \
                origin\n[user]\n\tname = \"A # B\" ; comment\n[pull]\n\trebase\n[alias]\n\tco = checkout\n[core]\n\t\
                fsmonitor = true\n";
    assert_eq!(keys(text), Vec::<String>::new());
    assert_eq!(parse(text.as_bytes()).unwrap().len(), 10);
}

#[test]
fn each_dangerous_key_is_found_beside_a_harmless_neighbour() {
    for (bad, good) in [
        ("[core]\nhooksPath=x", "[core]\nhooksPaths=x"),
        ("[CORE]\nFSMONITOR = ./x", "[core]\nfsmonitor = false"),
        ("[core] sshCommand = x", "[core] bare = true"),
        ("[filter \"x\"]\nsmudge = y", "[filters \"x\"]\nsmudge = y"),
        ("[filter.x]\nclean = y", "[core]\nautocrlf = input"),
        ("[diff]\nexternal = x", "[diff]\nrenames = copies"),
        ("[diff \"p\"]\ntextconv = x", "[diff \"p\"]\nbinary = true"),
        ("[merge \"m\"]\ndriver = x", "[merge]\nconflictStyle = diff3"),
        ("[credential]\nhelper = x", "[credential]\nusername = x"),
        ("[credential \"https://x\"]\nhelper = x", "[credential \"https://x\"]\nusername = x"),
        ("[alias]\nx = !sh", "[alias]\nx = log"),
        ("[alias]\nx = \" !sh\"", "[alias]\nx = \"log !\""),
        ("[include]\npath = x", "[included]\npath = x"),
        ("[includeIf \"gitdir:x\"]\npath = x", "[branch \"x\"]\nmerge = x"),
        ("[gpg]\nprogram = x", "[gpg]\nformat = ssh"),
        ("[gpg \"ssh\"]\nprogram = x", "[commit]\ngpgSign = true"),
        ("[sequence]\neditor = x", "[rebase]\nautosquash = true"),
        ("[pager]\nlog = less", "[pager]\nlog = false"),
        ("[interactive]\ndiffFilter = x", "[interactive]\nsinglekey = true"),
        ("[remote \"o\"]\nuploadpack = x", "[remote \"o\"]\nprune = true"),
        ("[remote \"o\"]\nurl = ext::sh -c x", "[remote \"o\"]\nurl = ssh://git@x/y"),
        ("[uploadpack]\npackObjectsHook = x", "[uploadpack]\nallowFilter = true"),
        ("[url \"x\"]\ninsteadOf = y", "[url \"x\"]\nnothing = y"),
        ("[init]\ntemplateDir = x", "[init]\ndefaultBranch = main"),
        ("[submodule \"s\"]\nupdate = !x", "[submodule \"s\"]\nupdate = rebase"),
        ("[difftool \"t\"]\ncmd = x", "[diff]\ntool = t"),
        ("[trailer \"t\"]\ncommand = x", "[trailer \"t\"]\nkey = x"),
        ("[tar \"gz\"]\ncommand = x", "[tar]\numask = 022"),
        ("[http]\nproxy = x", "[http]\npostBuffer = 1"),
        ("[http \"https://x\"]\nsslVerify = false", "[http]\nversion = HTTP/1.1"),
        ("[core]\nworktree = /x", "[core]\nignorecase = true"),
        ("[extensions]\nworktreeConfig = true", "[extensions]\nobjectFormat = sha256"),
    ] {
        assert_eq!(keys(bad).len(), 1, "{bad}");
        assert!(keys(good).is_empty(), "{good}");
    }
}

#[test]
fn tricks_with_lines_and_quotes_do_not_hide_a_key() {
    for text in [
        "[core] fsmonitor = \"./x\"",
        "[core]\r\nfsmonitor = ./x\r\n",
        "[user]\nname = a\\\n b\n[core]\nfsmonitor = x",
        "# [core]\n[core] ; c\n fsMonitor=x # y",
        "[a \"] \\\" [\"]\nb = 1\n[core]\nfsmonitor=x",
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
fn stripping_takes_the_dangerous_settings_and_nothing_else() {
    let text =
        "[core]\n\tbare = false\n\tfsmonitor = ./x \\\n y\n\tfilemode = true\n[alias] x = !sh\n[user]\n\tname = me\n";
    let stripped = String::from_utf8(strip(text.as_bytes(), b".git").unwrap()).unwrap();
    assert_eq!(stripped, "[core]\n\tbare = false\n\t\n\tfilemode = true\n[alias] \n[user]\n\tname = me\n");
    assert!(strip(b"[core", b".git").is_none());
}

#[test]
fn the_worktree_of_a_submodule_is_harmless_only_inside_the_workspace() {
    let judge = |value: &str, dir: &str| {
        dangerous(format!("[core]\nworktree = {value}\n").as_bytes(), dir.as_bytes()).unwrap().len()
    };
    assert_eq!(judge("../../../lib", ".git/modules/lib"), 0);
    assert_eq!(judge("../../../../lib", ".git/modules/lib"), 1);
    assert_eq!(judge("/etc", ".git/modules/lib"), 1);
    assert_eq!(judge("../../../.git", ".git/modules/lib"), 1);
    assert_eq!(judge("..", ".git"), 1);
}

/// git takes a carriage return for white space and drops it around a value: it reads an absolute path, or one level up.
#[test]
fn a_carriage_return_does_not_hide_where_a_worktree_leads() {
    for value in ["\r/../../../../etc", " \r /../../../../etc", "\r../../../../../x", "../../../lib\r "] {
        let text = format!("[core]\nworktree = {value}\n");
        let judged = dangerous(text.as_bytes(), b".git/modules/lib");
        assert!(judged.is_err(), "{value:?}: {judged:?}");
        assert_eq!(strip(text.as_bytes(), b".git/modules/lib"), None, "{value:?}");
    }
    // In quotes, and before a line feed, it is for git what it is here.
    assert_eq!(parse(b"[a]\nb = \"\rc\"\r\n").unwrap()[0].value.as_deref(), Some(&b"\rc"[..]));
}

/// git drops blanks before a value also behind a continued line or empty quotes, and keeps those before a continuation.
#[test]
fn a_continued_line_or_empty_quotes_do_not_hide_where_a_worktree_leads() {
    for value in ["\\\n /../../../../etc", "\"\" /../../../../etc", " \\\n\t\\\n ../../../../../x"] {
        let text = format!("[core]\nworktree = {value}\n");
        assert_eq!(dangerous(text.as_bytes(), b".git/modules/lib").unwrap().len(), 1, "{value:?}");
    }
    let value = |text: &str| parse(format!("[a]\nb = {text}\n").as_bytes()).unwrap()[0].value.clone().unwrap();
    assert_eq!(value("a \\\n"), b"a ");
    assert_eq!(value("\" \" x \"\""), b"  x ");
}
