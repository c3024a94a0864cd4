//! Real tools in the sandbox: the same exit codes, output and files as outside (see `support::twin`).
//!
//! A script of `tests/real_tools/` runs inside and outside, as root and as an ordinary user. Each of its steps names
//! the exit code that is expected, so that two equal failures do not count as a success.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::tree::Check;
use support::twin::{Extra, Twins, names_of, normalised, normalised_for, twice};
use support::{Bench, benches, is_root, stderr, stdout, user};

const STEPS: &str = include_str!("real_tools/steps.sh");
const GIT_ENV: &str = include_str!("real_tools/git_env.sh");

/// A whole script: the steps come from a file of `tests/real_tools/`.
fn script(steps: &str) -> String {
    format!("{STEPS}{GIT_ENV}{steps}exit $bad\n")
}

/// Copies a directory of `tests/real_tools/` into the workspace.
fn project(bench: &Bench, name: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_tools").join(name);
    let mut folders = vec![from.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                bench.write(path.strip_prefix(&from).unwrap().to_str().unwrap(), fs::read(&path).unwrap());
            }
        }
    }
}

/// Returns git's output on the host, for a directory that a run left.
fn git(bench: &Bench, folder: &Path, arguments: &[&str]) -> String {
    let output =
        bench.command("git").current_dir(folder).args(["-c", "safe.directory=*"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}: git {arguments:?}: {}{}", bench.who(), stdout(&output), stderr(&output));
    stdout(&output)
}

/// Objects that a run deletes stay until the host collects them, and graphs of commits that it writes do not come. The trees that
/// an index remembers do not come either; git packs them first, and makes them again for a commit.
fn collect_garbage(bench: &Bench, twins: &Twins) {
    for tree in [&twins.inside, &twins.outside] {
        git(bench, tree, &["write-tree"]);
        git(bench, tree, &["-c", "pack.threads=1", "gc", "--quiet", "--prune=now"]);
    }
}

/// The host's git finds both repositories sound and equal.
fn same_repositories(bench: &Bench, twins: &Twins, name: &str) {
    let [inside, outside] = [&twins.inside, &twins.outside].map(|tree| tree.join(name));
    git(bench, &inside, &["fsck", "--full", "--strict"]);
    for arguments in
        [&["log", "--all", "--graph", "--stat"][..], &["status", "--porcelain=v2", "--branch"], &["show-ref"]]
    {
        let seen = git(bench, &inside, arguments);
        assert_eq!(seen, git(bench, &outside, arguments), "{}: git {arguments:?}", bench.who());
        assert!(!seen.is_empty() || arguments[0] == "status");
    }
}

/// The index of git holds inode numbers and dates, a compiled Python file the date of its source.
fn undated(name: &str) -> Check {
    let dated = name.ends_with(".git/index") || name.contains("/__pycache__/") || name.starts_with("__pycache__/");
    if dated { Check::NotContent } else { Check::All }
}

#[test]
fn git_works_in_an_existing_repository() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            for (name, content) in [
                ("a.txt", "one\ntwo\n"),
                ("src/one.c", "int one;\n"),
                ("src/two.c", "int two;\n"),
                ("docs/x.md", "# X\n"),
            ] {
                bench.write(name, content);
            }
            let tool = bench.write("bin/tool", "#!/bin/sh\n");
            fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).unwrap();
            symlink("a.txt", bench.workspace.join("link")).unwrap();
            bench.give(&bench.workspace.join("link"));
            let made = format!("set -e\n{GIT_ENV}git init -q -b main\ngit add .\ngit commit -q -m First\n");
            let output = bench.command("sh").args(["-c", &made]).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        };
        let twins = twice(&bench, fixture, &Extra::default(), &[script(include_str!("real_tools/git_old.sh"))]);
        collect_garbage(&bench, &twins);
        twins.same_trees(bench.who(), undated);
        same_repositories(&bench, &twins, ".");
    }
}

#[test]
fn git_makes_a_new_repository() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            bench.write("readme", "Read me\n");
            bench.write("lib/a.c", "int a;\n");
        };
        let twins = twice(&bench, fixture, &Extra::default(), &[script(include_str!("real_tools/git_new.sh"))]);
        collect_garbage(&bench, &twins);
        twins.same_trees(bench.who(), undated);
        same_repositories(&bench, &twins, ".");
        assert!(fs::read_dir(twins.inside.join(".git/hooks")).unwrap().count() > 5, "the sample hooks are there");
    }
}

/// The overlay of an ordinary user renames no directory that was there before the run; a helper inside moves it.
#[test]
fn git_mv_and_mv_move_directories_as_outside() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            bench.write("old/deep/a", "a");
            bench.write("other/b", "b");
            let made = format!("set -e\n{GIT_ENV}git init -q -b main\ngit add .\ngit commit -q -m First\n");
            assert!(bench.command("sh").args(["-c", &made]).status().unwrap().success());
        };
        let steps = "step 0 git mv old new\nstep 0 mv other another\nstep 0 git add -A\nstep 0 git status --short\n";
        let twins = twice(&bench, fixture, &Extra::default(), &[script(steps)]);
        twins.same_trees(bench.who(), undated);
        same_repositories(&bench, &twins, ".");
    }
}

#[test]
fn make_and_gcc_build_test_and_build_again_only_what_is_old() {
    for bench in benches() {
        let first = "step 0 make\nstep 0 make test\nstep 0 make\nstep 0 ar t libgreet.a\nstep 2 make no-such-target\nstep 0 note_dates\n";
        let second = "step 0 same_dates\nstep 0 make -q\nstep 0 make\nline 0 'make test | tail -n 1'\n\
            line 0 'touch greet.h; make'\nline 0 'echo bad >> count.c'\nstep 2 make\n";
        let scripts = [script(first), script(second)];
        let twins = twice(&bench, |bench| project(bench, "c"), &Extra::default(), &scripts);
        twins.same_trees(bench.who(), |_| Check::All);
        let again = stdout(&twins.outputs[1]);
        assert!(again.contains("Nothing to be done for 'all'"), "{}: {again}", bench.who());
        assert_eq!(again.matches("greet.c").count(), 1, "{}: {again}", bench.who());
    }
}

#[test]
fn python_makes_an_environment_and_runs_tests_in_it() {
    for bench in benches() {
        let scripts = [script(include_str!("real_tools/python_1.sh")), script(include_str!("real_tools/python_2.sh"))];
        let twins = twice(&bench, |bench| project(bench, "py"), &Extra::default(), &scripts);
        twins.same_trees(bench.who(), undated);
        let output = stdout(&twins.outputs[1]);
        assert!(output.contains("\n1\n[exit 0]"), "{}: compiled again: {output}", bench.who());
    }
}

#[test]
fn node_works_with_threads_children_files_and_loopback() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            project(bench, "node");
            bench.write("old/a/b", "x");
        };
        let twins = twice(&bench, fixture, &Extra::default(), &[script(include_str!("real_tools/node.sh"))]);
        twins.same_trees(bench.who(), |_| Check::All);
        assert_eq!(
            fs::metadata(twins.inside.join("made/c")).unwrap().mtime(),
            1_000_000_000,
            "the date that the script set"
        );
    }
}

/// Returns the directory of these tests' toolchain.
fn sysroot() -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.unwrap_or_else(|error| panic!("these tests need a rustc on PATH that they may run: {error}"));
    assert!(output.status.success(), "rustc --print sysroot: {}", stderr(&output));
    PathBuf::from(stdout(&output).trim())
}

/// A toolchain that every uid can read. Root's own lies in root's home; hard links make a copy for nothing.
fn toolchain(bench: &Bench) -> PathBuf {
    let sysroot = sysroot();
    if !is_root() {
        return sysroot;
    }
    let copy = bench.base.path().join("toolchain");
    let parts = ["bin/cargo", "bin/rustc", "bin/rustdoc", "lib"];
    for how in ["-rl", "-r"] {
        for folder in ["", "bin"] {
            fs::create_dir_all(copy.join(folder)).unwrap();
            fs::set_permissions(copy.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let copied = parts.iter().all(|part| {
            let to = copy.join(part);
            Command::new("cp").arg(how).arg("--").arg(sysroot.join(part)).arg(to).status().unwrap().success()
        });
        if copied {
            return copy;
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    panic!("the toolchain {} could not be copied", sysroot.display());
}

#[test]
fn cargo_builds_and_tests_offline_and_builds_nothing_again() {
    for bench in benches() {
        let toolchain = toolchain(&bench);
        let toolchain = toolchain.to_str().unwrap();
        let cargo_home = bench.workspace.join("cargo-home");
        let flags = [
            "--ro".to_owned(),
            toolchain.to_owned(),
            "--env".to_owned(),
            format!("PATH={toolchain}/bin:/usr/bin:/bin"),
            "--env".to_owned(),
            format!("CARGO_HOME={}", cargo_home.display()),
            // Names below incremental/ are made up again each time.
            "--env".to_owned(),
            "CARGO_INCREMENTAL=0".to_owned(),
        ];
        let scripts = [script(include_str!("real_tools/cargo_1.sh")), script(include_str!("real_tools/cargo_2.sh"))];
        let twins = twice(
            &bench,
            |bench| project(bench, "crate"),
            &Extra { flags: flags.to_vec(), ..Extra::default() },
            &scripts,
        );
        let again = stderr(&twins.outputs[1]);
        assert!(again.contains("Finished") && !again.contains("Compiling"), "{}: {again}", bench.who());
        // Files in an order that cargo makes up again each time, and its list of what was used when.
        let unsteady = |name: &str| {
            name.ends_with("/.global-cache")
                || name.ends_with("/.rustc_info.json")
                || name.contains("/.fingerprint/") && name.contains("/dep-")
        };
        twins.same_trees(bench.who(), |name| if unsteady(name) { Check::NotContent } else { Check::All });
    }
}

#[test]
fn a_toolchain_in_the_home_of_the_calling_user_can_be_shown() {
    let bench = Bench::new(None);
    let sysroot = sysroot();
    let rustc = sysroot.join("bin/rustc");
    let output = bench.nexus(["run", "--ro"]).arg(&sysroot).arg("--").arg(&rustc).arg("-vV").output().unwrap();
    let outside = Command::new(&rustc).arg("-vV").output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), stdout(&outside)), "{}", stderr(&output));
}

#[test]
fn sqlite_works_with_a_write_ahead_log() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            let made =
                bench.command("sqlite3").args(["shop.db", "create table old (x); insert into old values (7)"]).status();
            assert!(made.unwrap().success());
        };
        let twins = twice(&bench, fixture, &Extra::default(), &[script(include_str!("real_tools/sqlite.sh"))]);
        twins.same_trees(bench.who(), |_| Check::All);
    }
}

/// Lines that differ from file to file, 200 MB in 2,000 files.
fn large_tree(bench: &Bench) {
    let mut number = 88_172_645_463_325_252_u64;
    let mut lines = String::new();
    while lines.len() < 110_000 {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        writeln!(lines, "{number:x}").unwrap();
    }
    for folder in 0..40 {
        for file in 0..50 {
            let from = folder * 50 + file;
            let content = format!("needle {}\n{}", from % 300, &lines[from..from + 100_000]);
            bench.write(&format!("tree/{folder:02}/{file}"), content);
        }
    }
}

#[test]
fn a_large_tree_is_read_copied_packed_and_removed() {
    for bench in benches() {
        let twins = twice(&bench, large_tree, &Extra::default(), &[script(include_str!("real_tools/large.sh"))]);
        twins.same_trees(bench.who(), |name| if name.ends_with("holes") { Check::NotContent } else { Check::All });
        assert_eq!(fs::metadata(twins.inside.join("tree/27/holes")).unwrap().len(), 1 << 30);
    }
}

#[test]
fn one_ordinary_project_uses_all_of_them_in_one_run() {
    for bench in benches() {
        let fixture = |bench: &Bench| {
            for name in ["c", "py", "node"] {
                project(bench, name);
            }
        };
        let twins = twice(&bench, fixture, &Extra::default(), &[script(include_str!("real_tools/all.sh"))]);
        twins.same_trees(bench.who(), undated);
        same_repositories(&bench, &twins, ".");
    }
}

#[test]
fn only_owners_and_durations_are_normalised() {
    assert_eq!(normalised("-rw-r--r-- 1 nexus nexus 5 x"), "-rw-r--r-- 1 OWNER OWNER 5 x");
    let own = format!("uid {}, 1000; 7 nexus-x", user());
    assert_eq!(normalised(&own), "uid OWNER, OWNER; 7 OWNER-x");
    let passwd = "root:x:0:0::/root:/bin/sh\nada:x:20000:20001::/home/ada:/bin/sh\n";
    let names = names_of(20000, passwd);
    assert_eq!(names, ["ada"]);
    assert_eq!(normalised_for(&names, "-rw-r--r-- 1 ada ada 5 adam root"), "-rw-r--r-- 1 OWNER OWNER 5 adam root");
    assert_eq!(normalised("Ran 7 tests in 0.123s"), "Ran 7 tests in TIME");
    assert_eq!(normalised("duration_ms 3.25\ntook 12 ms"), "duration_ms TIME\ntook TIME");
    assert_eq!(normalised("a 5 sums 3such 1.5"), "a 5 sums 3such 1.5");
}
