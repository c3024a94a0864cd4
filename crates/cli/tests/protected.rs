//! Protected names with the real program: how they are added, kept for a later accept, and accepted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::path::Path;
use support::{Bench, benches, stderr, stdout};

const MAKE: &str = "echo all: > Makefile; echo x > plain";

/// Runs a command that writes a Makefile, which a default run would bring.
#[track_caller]
fn is_parked(bench: &Bench, flags: &[&str], why: &str) {
    let output = bench.run([&["run"][..], flags, &["--shell", MAKE]].concat());
    assert_eq!(output.status.code(), Some(0), "{why}: {}", stderr(&output));
    assert!(bench.workspace.join("plain").exists() && !bench.workspace.join("Makefile").exists(), "{why}");
    let shown = stdout(&bench.run(["changes", "show"]));
    assert!(shown.contains("Makefile") && shown.contains("[parked: "), "{why}: {shown}");
    assert!(bench.run(["changes", "reject"]).status.success());
    fs::remove_file(bench.workspace.join("plain")).unwrap();
}

#[test]
fn names_are_added_by_flag_profile_workspace_and_operator() {
    for bench in benches() {
        is_parked(&bench, &["--protect", "makefile"], "a flag");
        bench.at_home(".config/nexus/profiles/careful.yaml", "protect: [\"Make*\"]\n");
        is_parked(&bench, &["--profile", "careful"], "a profile");
        // What came with the directory may protect more without any trust.
        bench.write("nexus.yaml", "protect: [Makefile]\n");
        is_parked(&bench, &[], "the workspace's own file");
        fs::remove_file(bench.workspace.join("nexus.yaml")).unwrap();
        bench.at_home(".config/nexus/config.toml", "[changes]\nprotect = [\"Makefile\"]\n");
        is_parked(&bench, &[], "the settings");
        let told = stdout(&bench.run(["explain", "--protect", "deploy/*.sh", "--", "true"]));
        for line in ["protect deploy/*.sh  ← --protect", "protect Makefile  ← ", "config.toml:2:12"] {
            assert!(told.contains(line), "{line}: {told}");
        }
        let document = stdout(&bench.run(["explain", "--json", "--protect", "a", "--", "true"]));
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["protect"][0], serde_json::json!({"value": "a", "from": "--protect"}), "{document}");
        assert!(document["protected"].as_array().unwrap().contains(&".vscode".into()), "{document}");
        fs::remove_file(bench.home.join(".config/nexus/config.toml")).unwrap();
        // The twin: nothing of this holds for a run without.
        assert!(bench.run(["run", "--shell", MAKE]).status.success());
        assert!(bench.workspace.join("Makefile").exists());
    }
}

#[test]
fn a_pattern_that_protects_nothing_or_takes_away_is_wrong_use() {
    for bench in benches() {
        for text in ["!.envrc", "*", "/Makefile", "deploy/", "a?"] {
            let output = bench.run(["run", "--protect", text, "--", "true"]);
            assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
            assert!(stderr(&output).contains("cannot be a protected name"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_later_accept_protects_what_the_run_protected() {
    for bench in benches() {
        let output = bench.run(["run", "--changes", "review", "--protect", "Makefile", "--shell", MAKE]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let accepted = bench.run(["changes", "accept"]);
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
        assert!(stdout(&accepted).contains("held back Makefile (Makefile)"), "{}", stdout(&accepted));
        assert!(bench.workspace.join("plain").exists() && !bench.workspace.join("Makefile").exists());
        assert!(bench.run(["changes", "accept", "Makefile"]).status.success());
        assert!(bench.workspace.join("Makefile").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn accepting_a_directory_holds_back_what_is_protected_below_it() {
    for bench in benches() {
        bench.write("src/sub/.git/config", "[core]\n\tbare = false\n");
        bench.write("src/sub/.git/hooks/keep", "");
        let script = "mkdir src/.vscode; echo t > src/.vscode/tasks.json; echo s > src/.vscode/settings.json; \
                      echo evil > src/sub/.git/hooks/pre-commit; printf '\\tfsmonitor = x\\n' >> src/sub/.git/config; \
                      echo x > src/plain";
        let output = bench.run(["run", "--changes", "review", "--shell", script]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let there = |path: &str| bench.workspace.join("src").join(path).exists();
        let accepted = bench.run(["changes", "accept", "src"]);
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
        let text = stdout(&accepted);
        for line in [
            "held back src/.vscode/tasks.json (.vscode: editors and debuggers act on it)",
            "held back src/sub/.git/hooks/pre-commit (git hook)",
            "held back src/sub/.git/config (git configuration: core.fsmonitor)",
            "--protected",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(there("plain") && !there(".vscode") && !there("sub/.git/hooks/pre-commit"));
        let again = bench.run(["changes", "accept", "src"]);
        assert_eq!(again.status.code(), Some(125), "{}", stdout(&again));
        assert!(stderr(&again).contains("src/.vscode/tasks.json"), "{}", stderr(&again));
        assert!(bench.run(["changes", "accept", "src/.vscode/tasks.json"]).status.success());
        assert!(there(".vscode/tasks.json") && !there(".vscode/settings.json"));
        assert!(bench.run(["changes", "accept", "--protected", "src"]).status.success());
        assert!(there(".vscode/settings.json") && there("sub/.git/hooks/pre-commit"));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn the_directory_that_core_hooks_path_names_is_held_back() {
    for bench in benches() {
        bench.write(".git/config", "[core]\n\thooksPath = tools/hk\n");
        bench.write("tools/other", "x\n");
        let script = "mkdir tools/hk; echo evil > tools/hk/pre-commit; echo y > tools/other";
        let output = bench.run(["run", "--shell", script]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("tools/hk/pre-commit (named by core.hookspath in .git/config)"),
            "{}",
            stderr(&output)
        );
        assert!(!bench.workspace.join("tools/hk").exists());
        assert_eq!(fs::read_to_string(bench.workspace.join("tools/other")).unwrap(), "y\n");
    }
}

/// A file that wants a person to be asked gets a review where there is none.
#[test]
fn a_profile_that_wants_a_question_parks_without_a_terminal() {
    for bench in benches() {
        bench.at_home(".config/nexus/profiles/asking.yaml", "changes: ask\n");
        let output = bench.run(["run", "--profile", "asking", "--shell", "echo x > plain"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!bench.workspace.join("plain").exists(), "{}: it was committed unasked", bench.who());
        assert!(stdout(&bench.run(["changes", "show"])).contains("A plain"));
        assert!(bench.run(["changes", "accept"]).status.success());
        assert!(bench.workspace.join("plain").exists());
    }
}

#[test]
fn what_a_link_at_a_protected_name_leads_to_is_held_back() {
    for bench in benches() {
        bench.write("script.sh", "old\n");
        for (link, target) in [(".envrc", "env-file"), (".vscode", "conf")] {
            std::os::unix::fs::symlink(target, bench.workspace.join(link)).unwrap();
        }
        let script = "mkdir conf; echo x > conf/tasks.json; echo y > env-file; echo z > plain; echo new > script.sh";
        let output = bench.run(["run", "--shell", script]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let there = |name: &str| bench.workspace.join(name).exists();
        assert!(there("plain") && !there("conf/tasks.json") && !there("env-file"), "{}", bench.who());
        let shown = stdout(&bench.run(["changes", "show"]));
        assert!(shown.contains(".envrc leads here") && shown.contains(".vscode leads here"), "{shown}");
        assert_eq!(fs::read_to_string(bench.workspace.join("script.sh")).unwrap(), "new\n");
    }
}

/// Runs a script in a directory and returns what the run says.
#[track_caller]
fn run_in(bench: &Bench, at: &Path, script: &str) -> String {
    let output = bench.nexus(["run", "--shell", script]).current_dir(at).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    stderr(&output)
}

#[test]
fn what_git_of_the_host_reads_by_its_settings_waits() {
    for bench in benches() {
        bench.at_home(".gitconfig", "[core]\n\thooksPath = .my/hooks\n[include]\n\tpath = .work\n");
        bench.at_home(".work", "[alias]\n\tgo = !tools/go\n");
        bench.write(".git/config", "[include]\n\tpath = ../conf/more\n");
        bench.write("conf/more", "[diff \"d\"]\n\ttextconv = conf/text.sh\n");
        bench.write("sub/.git/config", "[core]\n\tfsmonitor = ./watch\n");
        let script = "mkdir -p .my/hooks tools; for f in .my/hooks/post-merge tools/go conf/more conf/text.sh sub/watch \
                      plain conf/plain; do echo x >> $f; done";
        run_in(&bench, &bench.workspace, script);
        let told = stdout(&bench.run(["changes", "show"]));
        for path in [".my/hooks/post-merge", "tools/go", "conf/more", "conf/text.sh", "sub/watch"] {
            assert!(told.contains(path), "{path}: {told}");
        }
        let there = |path: &str| bench.workspace.join(path).exists();
        assert!(there("plain") && there("conf/plain"), "{told}");
        assert!(!there(".my/hooks/post-merge") && !there("tools/go") && !there("conf/text.sh") && !there("sub/watch"));
        let accepted = bench.run(["changes", "accept", "conf/more"]);
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
        assert!(fs::read_to_string(bench.workspace.join("conf/more")).unwrap().ends_with("x\n"));
        assert!(!there("conf/text.sh"));
    }
}

#[test]
fn a_repository_above_the_workspace_names_its_files() {
    for bench in benches() {
        bench.write(".git/config", "[core]\n\thooksPath = sub/hk\n[core]\n\tpager = ./sub/pager\n");
        let sub = bench.write("sub/x", "").parent().unwrap().to_owned();
        let told = run_in(&bench, &sub, "mkdir hk; echo x > hk/pre-commit; echo x > pager; echo x > plain");
        assert!(told.contains("hk/pre-commit") && told.contains("pager"), "{told}");
        assert!(sub.join("plain").exists() && !sub.join("hk").exists() && !sub.join("pager").exists());
    }
}

#[test]
fn a_workspace_in_a_protected_place_is_classified_by_its_whole_path() {
    for bench in benches() {
        bench.write(".git/config", "[core]\n\tbare = false\n");
        bench.write(".git/hooks/keep", "");
        for (place, held, free) in [
            (".git/hooks", "pre-commit", None),
            (".git", "hooks/post-merge", Some("description")),
            (".github/workflows", "x.yml", None),
            (".github", "workflows/y.yml", Some("FUNDING.yml")),
            (".VSCode", "tasks.json", None),
            ("home/.config", "fish/x", Some("app/x")),
            ("home/.ssh", "rc", None),
        ] {
            let at = bench.write(&format!("{place}/old"), "").parent().unwrap().to_owned();
            let free = free.unwrap_or("");
            let told =
                run_in(&bench, &at, &format!("for f in {held} {free}; do mkdir -p $(dirname $f); echo x > $f; done"));
            assert!(told.contains(held), "{place}: {told}");
            assert!(!at.join(held).exists(), "{}: {place}/{held} was committed", bench.who());
            assert!(free.is_empty() || at.join(free).exists(), "{place}/{free}: {told}");
            let rejected = bench.nexus(["changes", "reject"]).current_dir(&at).output().unwrap();
            assert!(rejected.status.success(), "{}", stderr(&rejected));
        }
    }
}

#[test]
fn a_direct_run_in_a_protected_place_is_refused_by_name() {
    for bench in benches() {
        bench.write(".git/config", "[core]\n\tbare = false\n");
        bench.write(".git/hooks/keep", "");
        for place in [".git/hooks", ".vscode", ".github/workflows", ".git/refs"] {
            let at = bench.write(&format!("{place}/old"), "").parent().unwrap().to_owned();
            let output = bench.nexus(["run", "--direct", "--", "true"]).current_dir(&at).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{place}: {}", stderr(&output));
            let told = stderr(&output);
            assert!(told.contains("all of it is protected") && told.contains("Leave --direct out:"), "{place}: {told}");
        }
        // In the git directory itself, hooks and settings are held and the rest can be written.
        let script = "echo x > description; ! echo x > hooks/post-merge && ! echo x >> config";
        let at = bench.workspace.join(".git");
        let output = bench.nexus(["run", "--direct", "--shell", script]).current_dir(&at).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(at.join("description").exists() && !at.join("hooks/post-merge").exists());
    }
}

#[test]
fn a_direct_run_holds_links_at_protected_names_and_their_ends() {
    for bench in benches() {
        for (path, link, target) in [
            ("AGENTS.md", "CLAUDE.md", "AGENTS.md"),
            ("conf/editor/tasks.json", ".vscode", "conf/editor"),
            ("dot/fish/x", ".config", "dot"),
            ("conf/env", ".envrc", "alias"),
            ("conf/env", "alias", "conf/env"),
        ] {
            bench.write(path, "old\n");
            std::os::unix::fs::symlink(target, bench.workspace.join(link)).unwrap();
            bench.give(&bench.workspace.join(link));
        }
        let script = "exec 2>&1; for f in AGENTS.md CLAUDE.md .vscode/tasks.json conf/editor/tasks.json dot/fish/x conf/env; do \
                      echo evil >> $f && echo LEAK $f; done; echo x > conf/new || echo SHUT; \
                      for f in CLAUDE.md .vscode .config .envrc alias conf dot; do \
                      rm -f $f && echo LEAK rm $f; mv $f moved && echo LEAK mv $f; \
                      ln -sfnT other $f && echo LEAK ln $f; echo y > tmp; mv -T tmp $f && echo LEAK over $f; done; true";
        let output = bench.run(["run", "--direct", "--shell", script]);
        let told = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{}: {told}", bench.who());
        assert!(!told.contains("LEAK") && !told.contains("SHUT"), "{}: {told}", bench.who());
        assert!(bench.workspace.join("conf/new").exists());
        for path in ["AGENTS.md", "CLAUDE.md", ".vscode/tasks.json", ".config/fish/x", ".envrc"] {
            assert_eq!(fs::read_to_string(bench.workspace.join(path)).unwrap(), "old\n", "{path}");
        }
    }
}

#[test]
fn a_direct_run_holds_the_settings_of_every_git_directory_at_the_top() {
    for bench in benches() {
        for path in
            ["config", "config.worktree", "modules/a/b/config", "modules/a/b/hooks/x", "hooks/x", "modules/a/b/index"]
        {
            bench.write(&format!(".git/{path}"), "[core]\n");
        }
        let script = "cd .git; for f in config config.worktree modules/a/b/config modules/a/b/hooks/x hooks/x; do \
                      echo evil >> $f && echo LEAK $f; rm -f $f && echo LEAK rm $f; done; \
                      mv modules m && echo LEAK modules; echo x > modules/a/b/index || echo SHUT; true";
        let output = bench.run(["run", "--direct", "--direct-git", "--shell", script]);
        let told = stdout(&output);
        assert_eq!((output.status.code(), told.as_str()), (Some(0), ""), "{}: {}", bench.who(), stderr(&output));
        fs::remove_dir_all(bench.workspace.join(".git")).unwrap();
        // A working tree whose git directory is elsewhere.
        bench.write(".git", "gitdir: ../elsewhere\n");
        let script = "(echo x > .git) 2>&1 && echo LEAK; rm -f .git && echo LEAK; true";
        let output = bench.run(["run", "--direct", "--shell", script]);
        assert!(output.status.success() && !stdout(&output).contains("LEAK"), "{}", stdout(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join(".git")).unwrap(), "gitdir: ../elsewhere\n");
    }
}
