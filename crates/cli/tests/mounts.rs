//! Workspaces with mounts in them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::process::Command;
use support::{benches, needs_root, stderr, stdout};

/// Mounts in the mount namespace of one `sh`, which then runs `nexus`: nothing is left on the host, however it ends.
#[test]
fn a_mount_inside_the_workspace_is_refused_by_name() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let (dir, file) = (bench.workspace.join("m n"), bench.write("file", "under\n"));
        fs::create_dir(&dir).unwrap();
        bench.give(&dir);
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        let other = bench.base.path().join("other");
        fs::write(&other, "over\n").unwrap();
        for (mount, at) in [
            (format!("mount -t tmpfs none '{0}' && chmod 777 '{0}'", dir.display()), &dir),
            (format!("mount --bind '{}' '{}'", other.display(), file.display()), &file),
        ] {
            let run = |flags: &str, script: &str| {
                let nexus = bench.program().display();
                let line = format!("{mount} && exec {identity}{nexus} run {flags} --shell '{script}'");
                let mut command: Command = bench.command_as_root("unshare");
                command.args(["-m", "sh", "-c", &line]).output().unwrap()
            };
            let refused = run("--changes=commit", "touch made");
            let text = stderr(&refused);
            assert_eq!(refused.status.code(), Some(125), "{} {at:?}: {text}", bench.who());
            let name = at.display().to_string();
            assert!(text.contains(&name) && text.contains("--direct"), "{} {at:?}: {text}", bench.who());
            assert!(!bench.workspace.join("made").exists());
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
            // What the message advises works.
            let direct = run("--direct", "echo x > \"m n/x\"; cat \"m n/x\" file");
            assert_eq!(direct.status.code(), Some(0), "{} {at:?}: {}", bench.who(), stderr(&direct));
            assert_eq!(stdout(&direct), if *at == dir { "x\nunder\n" } else { "x\nover\n" }, "{}", bench.who());
            fs::remove_file(dir.join("x")).ok();
        }
        let smaller = bench.workspace.join("sub");
        fs::create_dir(&smaller).unwrap();
        bench.give(&smaller);
        let line = format!(
            "mount -t tmpfs none '{}' && cd sub && exec {identity}{} run --shell 'echo x > x'",
            dir.display(),
            bench.program().display()
        );
        let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(smaller.join("x").exists());
    }
}
