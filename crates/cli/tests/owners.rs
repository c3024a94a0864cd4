//! Workspaces whose owners, groups and modes are not simply those of the caller.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use support::{Bench, USER, is_root, stderr, stdout};

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Root in the project of an ordinary user, as with `sudo nexus run`.
fn root_in_a_users_workspace() -> Bench {
    let bench = Bench::new(None);
    bench.write("f", "old\n");
    for path in [bench.workspace.clone(), bench.workspace.join("f")] {
        chown(&path, Some(USER), Some(USER)).unwrap();
    }
    bench
}

#[test]
fn root_gets_a_layer_in_a_workspace_of_another_user() {
    if !is_root() {
        return;
    }
    for disk in [None, Some("--disk=20M")] {
        let bench = root_in_a_users_workspace();
        let script = "echo more >> f; echo n > new; mkdir d; echo x > d/x";
        let words = ["run", "--changes=commit"].into_iter().chain(disk).chain(["--shell", script]);
        let output = bench.run(words);
        assert_eq!(output.status.code(), Some(0), "{disk:?}: {}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "old\nmore\n");
        for name in ["", "f", "new", "d", "d/x"] {
            assert_eq!(owner(&bench.workspace.join(name)), (USER, USER), "{disk:?}: {name}");
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// What the owner of the workspace could do outside, and no more: it counts what the modes say.
#[test]
fn files_of_other_owners_obey_their_modes_in_a_layer_of_root() {
    if !is_root() {
        return;
    }
    let bench = root_in_a_users_workspace();
    for (name, text, mode) in [("secret", "s\n", 0o600), ("read", "r\n", 0o644), ("all", "a\n", 0o666)] {
        let path = bench.write(name, text);
        set_mode(&path, mode);
    }
    for (folder, mode) in [("closed", 0o755), ("open", 0o777)] {
        bench.write(&format!("{folder}/f"), "f\n");
        set_mode(&bench.workspace.join(folder), mode);
    }
    let script =
        "cat secret && exit 1; (echo x >> read) 2>/dev/null && exit 2; (echo x > closed/n) 2>/dev/null && exit 3
        chown 1000 all 2>/dev/null && exit 4; chmod 777 all 2>/dev/null && exit 5
        set -e; echo b >> all; mv secret moved; rm read; mv closed renamed; echo o > open/n; rm open/f; mkdir open/d";
    let output = bench.run(["run", "--changes=commit", "--shell", script]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let at = |name: &str| bench.workspace.join(name);
    assert_eq!(fs::read_to_string(at("all")).unwrap(), "a\nb\n");
    assert_eq!(fs::read_to_string(at("moved")).unwrap(), "s\n");
    assert_eq!(fs::metadata(at("moved")).unwrap().mode() & 0o7777, 0o600);
    assert!(!at("read").exists() && !at("secret").exists() && !at("open/f").exists());
    for (name, uid) in [("all", 0), ("moved", 0), ("renamed", 0), ("renamed/f", 0), ("open", 0)] {
        assert_eq!(owner(&at(name)).0, uid, "{name}");
    }
    for name in ["open/n", "open/d"] {
        assert_eq!(owner(&at(name)), (USER, USER), "{name}");
    }
}
