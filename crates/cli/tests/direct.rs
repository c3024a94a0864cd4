//! `--direct` with the real program: what it covers, and what becomes of the covers.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
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

/// What each row does, and how it would act on the host: see the review of git's ways to run programs.
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
