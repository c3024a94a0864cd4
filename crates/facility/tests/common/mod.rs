//! Trees of tests: what they are, and random changes of them.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

pub mod undoing;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Everything of an entry that a snapshot keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub content: Vec<u8>,
    /// The first path with the same inode.
    pub first: PathBuf,
    pub attribute: Option<Vec<u8>>,
}

pub type Listing = BTreeMap<PathBuf, Seen>;

pub fn listing(tree: &Path) -> Listing {
    let (mut all, mut firsts, mut waiting) = (Listing::new(), BTreeMap::new(), vec![PathBuf::new()]);
    let mut paths = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(tree.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let path = dir.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let at = tree.join(&path);
        let meta = fs::symlink_metadata(&at).unwrap();
        let content = if meta.is_symlink() {
            fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes()
        } else if meta.is_file() {
            fs::read(&at).unwrap()
        } else {
            Vec::new()
        };
        let first =
            if meta.is_file() { firsts.entry(meta.ino()).or_insert(path.clone()).clone() } else { path.clone() };
        let mut value = vec![0; 100];
        let attribute = rustix::fs::lgetxattr(&at, "user.mark", value.as_mut_slice()).ok();
        let attribute = attribute.map(|length| value[..length].to_vec());
        let owner = (meta.uid(), meta.gid());
        let mtime = (meta.mtime(), meta.mtime_nsec());
        all.insert(path, Seen { mode: meta.mode(), owner, mtime, content, first, attribute });
    }
    all
}

/// One change of a tree. Names are few, so that types and links collide.
pub fn edit(tree: &Path, what: u8, place: u8, value: u16) {
    let dir = tree.join(["", "a", "a/b", "c"][usize::from(place % 4)]);
    fs::create_dir_all(&dir).ok();
    let path = dir.join(["x", "y", "z"][usize::from(place / 4 % 3)]);
    let remove = || {
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            fs::remove_dir_all(&path).ok();
        } else {
            fs::remove_file(&path).ok();
        }
    };
    let text = |length: usize| -> Vec<u8> { (0..length).map(|at| (at as u16 ^ value) as u8).collect() };
    match what % 9 {
        0 | 1 => fs::write(&path, text(usize::from(value % 4) * 100)).unwrap_or_default(),
        // Larger than one piece.
        2 => fs::write(&path, text((1 << 20) + usize::from(value) * 64)).unwrap_or_default(),
        3 => remove(),
        4 => {
            remove();
            symlink(format!("n{}", value % 8), &path).ok();
        }
        5 => {
            remove();
            fs::create_dir(&path).ok();
        }
        6 => {
            if fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_symlink()) {
                fs::set_permissions(&path, Permissions::from_mode(0o700 | u32::from(value % 64))).unwrap();
            }
        }
        7 => {
            fs::hard_link(&path, dir.join("again")).ok();
        }
        _ => {
            rustix::fs::setxattr(&path, "user.mark", &value.to_le_bytes(), rustix::fs::XattrFlags::empty()).ok();
        }
    }
}
