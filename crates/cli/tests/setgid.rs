//! Directories with a setgid bit, which shared projects use, made by real programs inside.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use support::{Bench, benches, stderr, stdout};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn run(bench: &Bench, flags: &[&str], script: &str) -> std::process::Output {
    bench.run([&["run"][..], flags, &["--", "bash", "-ec", script]].concat())
}

#[test]
fn setgid_directories_are_made_by_tar_cp_and_install_in_a_layer() {
    let script = "install -d -m 2755 made; mkdir -m 2775 other; mkdir plain; chmod g+s plain; cp -a plain copied; \
                  tar -cf all.tar made other plain; mkdir out; tar -xpf all.tar -C out; rm all.tar; \
                  python3 -c \"import shutil; shutil.copytree('made', 'tree')\"";
    for bench in benches() {
        let output = run(&bench, &[], script);
        assert!(output.status.success(), "{}: {}{}", bench.who(), stdout(&output), stderr(&output));
        for name in ["made", "other", "plain", "copied", "out/made", "out/other", "out/plain", "tree"] {
            assert_eq!(mode(&bench.workspace.join(name)) & 0o6000, 0o2000, "{}: {name}", bench.who());
        }
    }
}

#[test]
fn git_works_in_a_shared_repository() {
    let identity = "git config user.name n; git config user.email e@example.org;";
    for bench in benches() {
        let script = format!("git init -q --shared new; cd new; {identity} echo x > f; git add f; git commit -qm one");
        let output = run(&bench, &[], &script);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(mode(&bench.workspace.join("new/.git/refs")) & 0o2000, 0o2000, "{}", bench.who());

        let outside = format!("git init -q --shared old; cd old; {identity} git commit -q --allow-empty -m zero");
        let made = bench.command("bash").args(["-ec", &outside]).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let output = run(&bench, &[], "cd old; echo y > g; git add g; git commit -qm one; git fsck");
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let log = bench.command("git").args(["-C", "old", "-c", "safe.directory=*", "log", "--oneline"]).output();
        assert_eq!(stdout(&log.unwrap()).lines().count(), 2, "{}", bench.who());
    }
}

#[test]
fn a_setgid_file_waits_and_a_direct_run_makes_none() {
    for bench in benches() {
        let output = run(&bench, &[], "cp /usr/bin/true tool; chmod 2755 tool; echo fine > other");
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.workspace.join("other").exists() && !bench.workspace.join("tool").exists(), "{}", bench.who());
        assert!(stderr(&output).contains("waiting for a decision: tool"), "{}", stderr(&output));
        assert!(bench.run(["changes", "reject"]).status.success());

        // What is written at once never has the bit, in the workspace and in a bind.
        let data = bench.home.join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
        bench.give(&data);
        let bind = format!("{}:/data", data.display());
        for (flags, place) in [(&["--direct"][..], "."), (&["--rw", &bind], "/data"), (&["--rw", &bind], ".")] {
            let output = run(&bench, flags, &format!("mkdir {place}/new; chmod 2755 {place}/new"));
            assert!(stderr(&output).contains("Operation not permitted"), "{}: {}", bench.who(), stderr(&output));
            fs::remove_dir_all(bench.workspace.join("new")).ok();
            fs::remove_dir_all(data.join("new")).ok();
        }
    }
}
