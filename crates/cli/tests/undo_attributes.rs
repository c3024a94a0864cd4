//! Undos of entries whose attributes are hard to set: files that are closed to their owner, of other owners, and immutable ones.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Bench, benches, needs_root, on_each_bench, stderr, stdout};

/// Mode, owner, time of change, and an attribute.
type Entry = (u32, u32, i64, i64, Option<Vec<u8>>);

/// Lists a directory, as root where the test is root.
fn listing(tree: &Path) -> BTreeMap<PathBuf, Entry> {
    let (mut all, mut waiting) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let mut value = vec![0; 64];
        let length = rustix::fs::lgetxattr(&path, "user.mark", value.as_mut_slice());
        let mark = length.ok().map(|length| value[..length].to_vec());
        all.insert(path, (meta.mode(), meta.uid(), meta.mtime(), meta.mtime_nsec(), mark));
    }
    all
}

fn marked(bench: &Bench, name: &str, mode: u32) {
    let path = bench.write(name, "old\n");
    rustix::fs::setxattr(&path, "user.mark", b"before", rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// Runs `chattr` on an entry of the workspace. Returns false where the file system has no such flags.
fn chattr(bench: &Bench, flag: &str, name: &str) -> bool {
    Command::new("chattr").arg(flag).arg(bench.workspace.join(name)).status().is_ok_and(|status| status.success())
}

#[test]
fn attributes_of_files_that_are_closed_to_their_owner_come_back() {
    on_each_bench(|bench| {
        for (name, mode) in [("d/a", 0o444), ("d/b", 0o644), ("d/c", 0o200), ("d/e", 0), ("d/f", 0o555), ("d/g", 0o444)]
        {
            marked(&bench, name, mode);
        }
        let before = listing(&bench.workspace);
        let script = "cd d; touch a; chmod 444 b; touch c; chmod 600 e; touch f; \
             chmod 644 g; python3 -c 'import os; os.setxattr(\"g\", \"user.mark\", b\"by the run\")' || echo none > g; chmod 444 g";
        let output = bench.run(["run", "--live", "--shell", script]);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        assert_ne!(listing(&bench.workspace), before);
        let undone = bench.run(["changes", "undo"]);
        assert!(undone.status.success(), "{}: {}{}", bench.who(), stdout(&undone), stderr(&undone));
        assert_eq!(listing(&bench.workspace), before, "{}", bench.who());
    });
}

#[test]
fn a_file_of_another_owner_is_left_and_named_and_the_rest_goes_back() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.who() != "root") {
        bench.write("mine", "old\n");
        let other = bench.write("other", "old\n");
        std::os::unix::fs::chown(&other, Some(0), Some(0)).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&bench.workspace, Permissions::from_mode(0o777)).unwrap();
        let live = ["run", "--live", "--shell", "echo x > mine; chmod 555 ."];
        let output = bench.run(live);
        assert!(output.status.success(), "{}", stderr(&output));
        // As a program of the owner does.
        let old = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        fs::File::options().write(true).open(&other).unwrap().set_times(old).unwrap();
        let undone = bench.run(["changes", "undo", "--overwrite"]);
        let text = stdout(&undone);
        assert_eq!(undone.status.code(), Some(1), "{text}{}", stderr(&undone));
        assert!(text.contains("other is left as it is: its attributes cannot be set"), "{text}");
        assert_eq!(fs::read_to_string(bench.workspace.join("mine")).unwrap(), "old\n");
        assert_eq!(fs::metadata(&bench.workspace).unwrap().mode() & 0o7777, 0o777);
        assert!(bench.run(["run", "--", "true"]).status.success(), "runs start again");
    }
}

#[test]
fn immutable_entries_are_left_and_named_and_the_rest_goes_back() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    for name in ["fixed", "grows", "d/in", "other"] {
        bench.write(name, "old\n");
    }
    let before = listing(&bench.workspace);
    let output = bench.run(["run", "--live", "--shell", "touch fixed grows; rm d/in; echo x > other"]);
    assert!(output.status.success(), "{}", stderr(&output));
    if !(chattr(&bench, "+i", "fixed") && chattr(&bench, "+a", "grows") && chattr(&bench, "+i", "d")) {
        eprintln!("skipped: chattr does not work here");
        return;
    }
    let undone = bench.run(["changes", "undo"]);
    let text = stdout(&undone);
    for name in ["fixed", "grows", "d"] {
        chattr(&bench, "-ia", name);
    }
    assert_eq!(undone.status.code(), Some(1), "{text}{}", stderr(&undone));
    for name in ["fixed", "grows", "d/in"] {
        assert!(text.contains(&format!("{name} is left as it is: ")), "{name}: {text}");
    }
    assert_eq!(fs::read_to_string(bench.workspace.join("other")).unwrap(), "old\n");
    assert!(bench.run(["run", "--", "true"]).status.success(), "runs start again");
    // Nothing stands against them any more.
    let undone = bench.run(["changes", "undo", "--overwrite"]);
    assert!(undone.status.success(), "{}{}", stdout(&undone), stderr(&undone));
    assert_eq!(listing(&bench.workspace), before);
    let none = bench.run(["changes", "undo", "--abandon"]);
    assert!(none.status.code() == Some(125) && stderr(&none).contains("no undo of this directory was cut off"));
}
