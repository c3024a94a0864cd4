//! `--direct` with the real program: what it covers, and what becomes of the covers.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Bench, benches, stderr, stdout};

/// A repository with a submodule, a nested repository and a linked working tree, and names far from the top.
fn populate(bench: &Bench) {
    for path in [
        ".git/HEAD",
        ".git/config",
        ".git/hooks/keep",
        ".git/modules/m/config",
        ".git/refs/heads/keep",
        "sub/.git/config",
        "sub/.git/HEAD",
        "linked/.git",
        "deep/er/.vscode/tasks.json",
        "deep/er/plain",
    ] {
        bench.write(path, "old\n");
    }
}

/// Rows: an act of a command, and its way to act on the host; see the review of git's ways to run programs.
const ROWS: &[(&str, &str)] = &[
    ("the shared directory of git", "echo ../evil > .git/commondir"),
    ("settings of one working tree", "echo x > .git/config.worktree"),
    ("a new hook", "echo x > .git/hooks/pre-commit"),
    ("settings of a submodule", "echo x >> .git/modules/m/config"),
    ("settings of a nested repository", "echo x >> sub/.git/config"),
    ("a hook of a nested repository", "mkdir sub/.git/hooks"),
    ("a git directory elsewhere", "echo gitdir: ../evil > linked/.git"),
    ("a nested git directory moved away", "mv sub sub2"),
    ("a name far from the top", "echo x > deep/er/.vscode/tasks.json"),
    ("a new file below such a name", "echo x > deep/er/.vscode/settings.json"),
    ("a directory above such a name moved away", "mv deep deep2"),
    ("the git directory moved away", "mv .git g"),
    ("attributes", "mkdir -p .git/info && echo x > .git/info/attributes"),
];

#[test]
fn a_direct_run_covers_git_and_protected_names_at_any_depth() {
    for bench in benches() {
        populate(&bench);
        let row = |(row, script): &(&str, &str)| format!("({script}) 2>/dev/null && echo 'LEAK {row}'; ");
        let script = ROWS.iter().map(row).collect::<Vec<_>>().concat();
        let output =
            bench.run(["run", "--direct", "--shell", &format!("{script} echo new > deep/er/plain; echo x > fresh")]);
        let told = stdout(&output);
        assert_eq!((output.status.code(), told.as_str()), (Some(0), ""), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("deep/er/plain")).unwrap(), "new\n");
        assert!(bench.workspace.join("fresh").exists());
        assert!(!stderr(&output).contains("came into the workspace"), "{}", stderr(&output));
        // The twin: where nothing is covered, each row works.
        for (row, script) in ROWS {
            let done =
                std::process::Command::new("sh").args(["-c", script]).current_dir(&bench.workspace).status().unwrap();
            assert!(done.success(), "{row}");
            fs::remove_dir_all(&bench.workspace).unwrap();
            fs::create_dir(&bench.workspace).unwrap();
            bench.give(&bench.workspace);
            populate(&bench);
        }
    }
}

#[test]
fn direct_git_lets_git_work_and_holds_what_it_runs() {
    for bench in benches() {
        let git = |arguments: &str| {
            let line = format!("git -c safe.directory='*' -c user.name=a -c user.email=a@b {arguments}");
            let done =
                std::process::Command::new("sh").args(["-c", &line]).current_dir(&bench.workspace).output().unwrap();
            assert!(done.status.success(), "{line}: {}", stderr(&done));
        };
        git("init -q -b main");
        bench.write("f", "1\n");
        let owned = std::process::Command::new("chown")
            .args(["-R", "--reference=.", ".git"])
            .current_dir(&bench.workspace)
            .status();
        assert!(owned.unwrap().success());
        let commit = "(git add f && git -c user.name=a -c user.email=a@b commit -qm x) 2>&1";
        let output = bench.run(["run", "--direct", "--shell", commit]);
        assert!(!output.status.success() && stdout(&output).contains("Read-only"), "{}", stdout(&output));
        let script = format!(
            "{commit} && for f in .git/config .git/hooks/x; do (echo x >> $f) 2>/dev/null && echo LEAK $f; done; git log --oneline"
        );
        let output = bench.run(["run", "--direct", "--direct-git", "--shell", &script]);
        let told = stdout(&output);
        assert!(
            output.status.success() && told.ends_with(" x\n") && !told.contains("LEAK"),
            "{told}{}",
            stderr(&output)
        );
        let alone = bench.run(["run", "--direct-git", "--", "true"]);
        assert_eq!(alone.status.code(), Some(2), "{}", stderr(&alone));
    }
}

#[test]
fn a_protected_name_that_a_direct_run_makes_is_reported() {
    for bench in benches() {
        bench.write("src/x", "");
        let (report, code) = bench.json(["--direct", "--shell", "mkdir src/.vscode; echo x > .envrc; echo y > plain"]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(
            report["changes"]["appeared"],
            serde_json::json!([{"text": ".envrc"}, {"text": "src/.vscode"}]),
            "{}",
            bench.who()
        );
        let output = bench.run(["run", "--direct", "--shell", "echo x > CLAUDE.md"]);
        assert!(stderr(&output).contains("came into the workspace") && stderr(&output).contains("CLAUDE.md"));
    }
}

#[test]
fn work_that_git_resumes_and_new_links_are_reported() {
    for bench in benches() {
        for path in
            [".git/HEAD", ".git/config", ".git/hooks/x", ".git/rebase-apply/keep", ".git/sequencer/todo", "src/old"]
        {
            bench.write(path, "old\n");
        }
        std::os::unix::fs::symlink("../.git/hooks", bench.workspace.join("src/was")).unwrap();
        let new = [
            ".git/BISECT_LOG",
            ".git/MERGE_AUTOSTASH",
            ".git/branches/x",
            ".git/modules/m/rebase-merge",
            ".git/packed-refs",
            ".git/refs/replace/x",
            ".git/remotes/x",
        ];
        let mut script = "echo x >> .git/sequencer/todo; mkdir -p .git/refs/heads; echo x > .git/refs/heads/x; \
             ln -s .git/hooks log; ln -s ../.envrc src/later; ln -s old src/fine; "
            .to_owned();
        for path in new {
            let file = if path.ends_with("rebase-merge") { format!("{path}/git-rebase-todo") } else { path.to_owned() };
            write!(script, "mkdir -p $(dirname {file}); echo x refs/replace/x > {file}; ").unwrap();
        }
        let (report, code) = bench.json(["--direct", "--direct-git", "--shell", &script]);
        let mut wanted: Vec<&str> = new.to_vec();
        wanted.extend([".git/sequencer", "log", "src/later"]);
        wanted.sort_unstable();
        let appeared: Vec<_> =
            report["changes"]["appeared"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
        assert_eq!((code, appeared), (0, wanted), "{}: {report}", bench.who());
        let (report, _) =
            bench.json(["--direct", "--direct-git", "--shell", "echo x > .git/packed-refs; mv src/old o"]);
        assert_eq!(report["changes"]["appeared"], serde_json::json!([]), "{}: {report}", bench.who());
    }
}

/// `git push origin feat` would push the branch that it stands for.
#[test]
fn refs_that_stand_for_others_are_reported() {
    for bench in benches() {
        let hash = "0123456789abcdef0123456789abcdef01234567\n";
        for (path, text) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\nbare = false\n"),
            (".git/hooks/x", ""),
            (".git/refs/heads/main", hash),
            (".git/refs/heads/was", "ref: refs/heads/main\n"),
            (".git/modules/m/HEAD", "ref: refs/heads/main\n"),
            ("srv/HEAD", "ref: refs/heads/main\n"),
            ("srv/objects/x", ""),
            ("srv/refs/heads/main", hash),
        ] {
            bench.write(path, text);
        }
        let plain = format!(
            "printf 'ref: refs/heads/topic\\n' > .git/HEAD; mkdir -p .git/refs/remotes/origin; printf '{}' > \
             .git/refs/heads/topic; printf 'ref: refs/remotes/origin/main' > .git/refs/remotes/origin/HEAD",
            hash.trim_end()
        );
        let (report, code) = bench.json(["--direct", "--direct-git", "--shell", &plain]);
        assert_eq!((code, &report["changes"]["appeared"]), (0, &serde_json::json!([])), "{}: {report}", bench.who());
        let script = "cd .git; R='ref: refs/heads/main'; mkdir -p refs/tags/a modules/m/refs/heads; echo $R > refs/heads/feat; \
             (printf \"$R\"; head -c 2000000 /dev/zero | tr '\\0' ' ') > refs/heads/padded; echo $R > refs/tags/a/b; \
             ln -s main refs/heads/link; echo $R > modules/m/refs/heads/x; echo $R > ../srv/refs/heads/x; \
             echo 'ref: refs/heads/../../config' > HEAD; echo ref: refs/heads/main > refs/remotes/origin/HEAD";
        let (report, code) = bench.json(["--direct", "--direct-git", "--shell", script]);
        let appeared: Vec<_> =
            report["changes"]["appeared"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
        let wanted = [
            ".git/HEAD",
            ".git/modules/m/refs/heads/x",
            ".git/refs/heads/feat",
            ".git/refs/heads/link",
            ".git/refs/heads/padded",
            ".git/refs/remotes/origin/HEAD",
            ".git/refs/tags/a/b",
            "srv/refs/heads/x",
        ];
        assert_eq!((code, &appeared[..]), (0, &wanted[..]), "{}: {report}", bench.who());
        let (report, _) = bench.json(["--direct", "--direct-git", "--shell", "rm .git/refs/heads/was"]);
        assert_eq!(report["changes"]["appeared"], serde_json::json!([]), "{}: {report}", bench.who());
    }
}

/// Makes an index of one entry with a name that no working tree may have, or a plain one.
const INDEX: &str = "import struct, sys, hashlib\nname = sys.argv[2].encode()\n\
    e = bytes(24) + struct.pack('>I', 0o100644) + bytes(32) + struct.pack('>H', len(name)) + name\n\
    e += bytes(((len(e) + 8) & ~7) - len(e))\nb = b'DIRC' + struct.pack('>II', 2, 1) + e\n\
    open(sys.argv[1], 'wb').write(b + hashlib.sha1(b).digest())\n";

#[test]
fn a_bad_index_of_a_direct_run_is_moved_aside() {
    for bench in benches() {
        let make = |path: &str, name: &str| format!("python3 -c \"$INDEX\" {path} {name}");
        let env = format!("INDEX={INDEX}");
        let run = |flags: &[&str], script: &str| {
            let fixed = ["--direct", "--env", &env, "--shell", script];
            bench.json(flags.iter().copied().chain(fixed))
        };
        for path in [".git/HEAD", ".git/config", ".git/refs/x", ".git/objects/x"] {
            bench.write(path, "");
        }
        let flags = ["--direct-git"];
        let (report, code) = run(&flags, &make(".git/index", "src/x"));
        assert_eq!((code, &report["changes"]["held_indexes"]), (0, &serde_json::json!([])), "{report}");
        let (report, code) = run(&flags, &make(".git/index", ".git/hooks/x"));
        let wanted = serde_json::json!([{
            "path": {"text": ".git/index"},
            "why": "a git index with names that no working tree may have",
            "aside": {"text": ".git/index.nexus-held"},
        }]);
        assert_eq!((code, &report["changes"]["held_indexes"]), (0, &wanted), "{}: {report}", bench.who());
        assert!(!bench.workspace.join(".git/index").exists() && bench.workspace.join(".git/index.nexus-held").exists());
        // One that was there before is the user's own.
        fs::rename(bench.workspace.join(".git/index.nexus-held"), bench.workspace.join(".git/index")).unwrap();
        let (report, _) = run(&flags, "true");
        assert_eq!(report["changes"]["held_indexes"], serde_json::json!([]), "{report}");
        fs::remove_file(bench.workspace.join(".git/index")).unwrap();
        // Git directories that came, without the flag.
        let script = format!(
            "mkdir -p d/.git/worktrees/w s; {}; {}; {}",
            make("d/.git/worktrees/w/index", "../x"),
            make("d/.git/sharedindex.1", "a/.git/x"),
            make("s/index", "/x")
        );
        let (report, _) = run(&[], &script);
        let held: Vec<_> =
            report["changes"]["held_indexes"].as_array().unwrap().iter().map(|one| &one["path"]["text"]).collect();
        assert_eq!(held, ["d/.git/sharedindex.1", "d/.git/worktrees/w/index", "s/index"], "{}: {report}", bench.who());
        // A link, and the words for people.
        let output =
            bench.run(["run", "--direct", "--direct-git", "--shell", "rm -f .git/index; ln -s ../s/other .git/index"]);
        let told = stderr(&output);
        assert!(told.contains(".git/index was moved to .git/index.nexus-held:"), "{told}");
    }
}

/// Waits until a file is there.
fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} did not come", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a direct run that says when it is up and waits for `go`, does something outside meanwhile, and returns the report.
fn meanwhile(bench: &Bench, flags: &[&str], last: &str, act: impl FnOnce(&Path)) -> (serde_json::Value, Option<i32>) {
    for name in ["up", "go"] {
        fs::remove_file(bench.workspace.join(name)).ok();
    }
    let script = format!("echo x > up; while ! [ -e go ]; do sleep 0.02; done; {last}");
    let mut command = bench.nexus(["run", "--direct", "--json", "--timeout", "60s"]);
    command.args(flags).args(["--shell", &script]).stdout(std::process::Stdio::piped());
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_for(&bench.workspace.join("up"));
    act(&bench.workspace);
    fs::write(bench.workspace.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (report, output.status.code())
}

fn replace(at: &Path) {
    let new = at.with_extension("new");
    fs::write(&new, "new\n").unwrap();
    fs::rename(new, at).unwrap();
}

#[test]
fn a_run_ends_when_the_host_replaces_a_covered_file() {
    for bench in benches() {
        for (flags, path) in [
            (&["--hide", ".env"][..], "conf/.env"),
            (&[], "CLAUDE.md"),
            (&["--direct-git"], ".git/config"),
            (&[], ".git"),
        ] {
            bench.write("conf/.env", "SECRET\n");
            bench.write("CLAUDE.md", "old\n");
            bench.write(".git/config", "[core]\n");
            let (report, code) = meanwhile(&bench, flags, "sleep 60", |workspace| {
                let at = workspace.join(path);
                if at.is_dir() { fs::rename(&at, workspace.join("moved")).unwrap() } else { replace(&at) }
            });
            assert_eq!((code, report["reason"].as_str()), (Some(125), Some("protection_lost")), "{path}: {report}");
            let text = report["changes"]["uncovered"]["text"].as_str().unwrap_or_default();
            assert!(text.ends_with(path), "{}: {report}", bench.who());
            fs::remove_dir_all(bench.workspace.join("moved")).ok();
        }
    }
}

#[test]
fn a_run_goes_on_when_the_host_changes_what_has_no_cover() {
    for bench in benches() {
        bench.write("plain", "old\n");
        bench.write("CLAUDE.md", "old\n");
        bench.write(".git/config", "[core]\n");
        let probe = "cat plain; (echo evil >> .git/config) 2>/dev/null && echo LEAK; true";
        let (report, code) = meanwhile(&bench, &[], probe, |workspace| {
            replace(&workspace.join("plain"));
            // git writes its configuration like this, inside of a directory that is covered as a whole.
            replace(&workspace.join(".git/config"));
        });
        assert_eq!((code, report["output"]["stdout"]["text"].as_str()), (Some(0), Some("new\n")), "{report}");
        assert_eq!(report["changes"]["altered"], serde_json::json!([]));
        let (report, code) = meanwhile(&bench, &[], "true", |workspace| {
            fs::write(workspace.join("CLAUDE.md"), "edited in place\n").unwrap();
        });
        assert_eq!(code, Some(0), "{report}");
        let altered = report["changes"]["altered"].to_string();
        assert!(altered.contains("CLAUDE.md"), "{}: {report}", bench.who());
    }
}

#[test]
fn a_run_ends_when_the_host_replaces_a_bind_inside_another() {
    for bench in benches() {
        let outer = bench.home.join("d");
        let keep = outer.join("keep");
        fs::create_dir_all(&outer).unwrap();
        fs::write(&keep, "old\n").unwrap();
        for path in [&outer, &keep] {
            bench.give(path);
        }
        let flags = ["--rw", outer.to_str().unwrap(), "--ro", keep.to_str().unwrap()];
        let (report, code) = meanwhile(&bench, &flags, "sleep 60", |_| replace(&keep));
        assert_eq!((code, report["reason"].as_str()), (Some(125), Some("protection_lost")), "{report}");
    }
}

/// The owner of a directory that is closed to it can open it. Root looks through every directory.
#[test]
fn a_direct_run_covers_directories_that_it_cannot_look_through() {
    for bench in benches() {
        bench.write("a/sub/.git/hooks/keep", "old\n");
        bench.write("a/.envrc", "old\n");
        bench.write("listed/in/.git/hooks/keep", "old\n");
        let close = |name: &str, mode| fs::set_permissions(bench.workspace.join(name), mode).unwrap();
        close("a/sub", Permissions::from_mode(0o000));
        close("listed", Permissions::from_mode(0o600));
        let row = |name: &str, at: &str| {
            format!(
                "chmod 755 {name}; mkdir -p {at}/hooks; echo x > {at}/hooks/pre-commit && echo LEAK; chmod 000 {name}; "
            )
        };
        let script = row("a/sub", "a/sub/.git") + &row("listed", "listed/in/.git") + "echo x > plain";
        let output = bench.run(["run", "--direct", "--shell", &format!("({script}) 2>/dev/null")]);
        let told = (output.status.code(), stdout(&output));
        assert_eq!(told, (Some(0), String::new()), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.workspace.join("plain").exists());
        // A new one is named at the end.
        let (report, code) = bench.json(["--direct", "--shell", "mkdir p; echo x > p/.envrc; chmod 000 p"]);
        let name = if bench.user.is_none() && support::is_root() { "p/.envrc" } else { "p" };
        assert_eq!((code, &report["changes"]["appeared"]), (0, &serde_json::json!([{"text": name}])), "{report}");
        for name in ["a/sub", "listed", "p"] {
            close(name, Permissions::from_mode(0o755));
        }
        assert!(!bench.workspace.join("a/sub/.git/hooks/pre-commit").exists());
        assert!(!bench.workspace.join("listed/in/.git/hooks/pre-commit").exists());
    }
}

#[test]
fn a_directory_below_hundreds_of_others_is_covered_and_named() {
    for bench in benches() {
        let chain = |depth: usize| format!("c/{}", vec!["d"; depth].join("/"));
        let program = |name: &str, depth: usize| {
            format!(
                "import os\nos.makedirs('{name}', exist_ok=True)\nos.chdir('{name}')\nfor i in range({depth}):\n  os.makedirs('d', exist_ok=True)\n  os.chdir('d')\n"
            )
        };
        let (report, code) = bench.json(["--direct", "--", "python3", "-c", &program("c", 200)]);
        assert_eq!(
            (code, report["changes"]["appeared"].to_string().contains("d/d")),
            (0, false),
            "{}: {report}",
            bench.who()
        );
        let (report, code) = bench.json(["--direct", "--", "python3", "-c", &program("c", 400)]);
        assert_eq!(code, 0, "{}: {report}", bench.who());
        let appeared = report["changes"]["appeared"].to_string();
        assert!(appeared.contains(&chain(257)) && !appeared.contains(&chain(258)), "{}", bench.who());
        // What is below it cannot be changed by the next run, and what is above can.
        let write = format!("mkdir -p c/d/x && ! mkdir {}/x", chain(300));
        let next = bench.run(["run", "--direct", "--", "sh", "-c", &write]);
        assert_eq!(next.status.code(), Some(0), "{}: {}", bench.who(), stderr(&next));
    }
}

#[test]
fn a_direct_run_reports_beside_a_path_that_is_too_long() {
    for bench in benches() {
        let program = "import os\nopen('.envrc', 'w').close()\nos.mkdir('deep')\nos.chdir('deep')\nfor i in range(25):\n  \
                       os.mkdir('n' * 200)\n  os.chdir('n' * 200)\nopen('.envrc', 'w').close()\n";
        let (report, code) = bench.json(["--direct", "--", "python3", "-c", program]);
        assert_eq!(code, 0, "{}: {report}", bench.who());
        let appeared = report["changes"]["appeared"].to_string();
        assert!(appeared.contains(".envrc") && appeared.contains("deep/nnn"), "{}: {report}", bench.who());
        let next = bench.run(["run", "--direct", "--", "true"]);
        assert_eq!(next.status.code(), Some(0), "{}: {}", bench.who(), stderr(&next));
    }
}
