//! Removal of a facility in which something is mounted.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use nexus_facility::{Facilities, FacilityName, Kind, StoreError};
use std::path::Path;
use std::process::Command;

fn name(text: &str) -> FacilityName {
    text.parse().unwrap()
}

fn opened(dir: &Path) -> Facilities {
    Facilities::open(&dir.join("facilities")).unwrap()
}

/// A bind mount of a directory of another owner, in the mount namespace of the test's child. What it shows is not of the facility.
#[test]
fn a_removal_enters_no_mount() {
    if !rustix::process::geteuid().is_root() {
        println!("in part: test a_removal_enters_no_mount: only root can mount");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let facility = opened(dir.path()).create(&name("one"), Kind::Empty, 7).unwrap();
    // Deeper ones cannot be moved, and so are never entered.
    let (own, at) = (dir.path().join("own"), facility.tree());
    std::fs::create_dir_all(own.join("deep")).unwrap();
    for file in ["file", "deep/file"] {
        std::fs::write(own.join(file), "the user's").unwrap();
    }
    let line = "mount --bind \"$1\" \"$2\" && exec \"$3\" --exact child_removes --ignored --nocapture";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", line, "sh"])
        .args([&own, at, &std::env::current_exe().unwrap()])
        .env("NEXUS_TEST_DIR", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for file in ["file", "deep/file"] {
        assert_eq!(std::fs::read_to_string(own.join(file)).unwrap(), "the user's", "{file}");
    }
    opened(dir.path()).remove(&name("one")).unwrap();
}

#[test]
#[ignore = "the child of another test"]
fn child_removes() {
    let dir = std::path::PathBuf::from(std::env::var_os("NEXUS_TEST_DIR").unwrap());
    let all = opened(&dir);
    assert!(matches!(all.remove(&name("one")), Err(StoreError::Mounted { .. })));
    // As a removal left it that was cut off before the mount was there.
    let (facilities, gone) = (dir.join("facilities"), dir.join("facilities/.gone-one-x"));
    std::fs::rename(facilities.join("one"), &gone).unwrap();
    let swept = all.sweep();
    std::fs::rename(&gone, facilities.join("one")).unwrap();
    assert!(matches!(swept, Err(StoreError::Io { .. })), "{swept:?}");
}
