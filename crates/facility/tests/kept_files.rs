//! Files that a directive keeps, from a workspace on a real file system.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_facility::artifacts::{Bounds, Manifest, of_tree, place};
use nexus_facility::glob::Glob;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn kept(tree: &Path, spool: &Path, patterns: &[&str], bounds: Bounds) -> Manifest {
    let globs: Vec<Glob> = patterns.iter().map(|pattern| Glob::parse(pattern).unwrap()).collect();
    of_tree(tree, &globs, bounds, spool).unwrap()
}

#[test]
fn files_are_kept_with_hash_type_and_mode_and_links_as_links() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, spool) = (dir.path().join("tree"), dir.path().join("spool"));
    std::fs::create_dir_all(tree.join("out/deep")).unwrap();
    std::fs::write(tree.join("out/deep/a.json"), "{}").unwrap();
    std::fs::write(tree.join("out/run"), "#!").unwrap();
    std::fs::set_permissions(tree.join("out/run"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(tree.join("other"), "no").unwrap();
    std::fs::write(dir.path().join("secret"), "SECRET").unwrap();
    symlink(dir.path().join("secret"), tree.join("out/link")).unwrap();
    symlink(dir.path(), tree.join("out/way")).unwrap();
    let manifest = kept(&tree, &spool, &["out/"], Bounds::default());
    assert!(!manifest.truncated && manifest.omitted.is_empty(), "{manifest:?}");
    let names: Vec<_> = manifest.artifacts.iter().map(|one| (one.name.as_str(), one.kind.as_str())).collect();
    assert_eq!(
        names,
        [("out/deep/a.json", "file"), ("out/link", "symlink"), ("out/run", "file"), ("out/way", "symlink")]
    );
    let [json, link, run, _] = &manifest.artifacts[..] else { panic!("{manifest:?}") };
    assert_eq!((json.size, json.media_type.as_deref()), (2, Some("application/json")));
    assert_eq!(json.blake3, Some(blake3::hash(b"{}").to_hex().to_string()));
    assert!(run.executable && !json.executable && link.target.is_some() && link.blake3.is_none());
    assert_eq!(std::fs::read(place(&spool, 0)).unwrap(), b"{}");
    let copies: Vec<_> = std::fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(copies.iter().all(|copy| std::fs::read(copy).unwrap() != b"SECRET"), "no link is followed");
}

#[test]
fn what_has_no_safe_name_or_no_room_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, spool) = (dir.path().join("tree"), dir.path().join("spool"));
    std::fs::create_dir(&tree).unwrap();
    for bad in [&b"a\x1b[2Jb"[..], b"\xff", "left\u{202e}right".as_bytes(), b"back\\slash"] {
        std::fs::write(tree.join(OsStr::from_bytes(bad)), "x").unwrap();
    }
    let manifest = kept(&tree, &spool, &["**"], Bounds::default());
    assert!(manifest.artifacts.is_empty() && manifest.truncated);
    assert_eq!(manifest.omitted.len(), 4);
    assert!(manifest.omitted.iter().all(|one| !one.name.chars().any(char::is_control)), "{manifest:?}");
    for name in ["n1", "n2", "n3"] {
        std::fs::write(tree.join(name), "12345").unwrap();
    }
    let manifest = kept(&tree, &spool, &["n?"], Bounds { files: 2, bytes: 100 });
    assert_eq!((manifest.artifacts.len(), manifest.omitted.len(), manifest.truncated), (2, 1, true));
    let manifest = kept(&tree, &spool, &["n?"], Bounds { files: 9, bytes: 11 });
    assert_eq!((manifest.artifacts.len(), manifest.omitted.len(), manifest.truncated), (2, 1, true));
}
