//! Decides which changes `git apply` can carry out. Pure.
//!
//! `git apply` does everything or nothing, and refuses some names altogether. One patch that it refuses would make the
//! whole diff useless, so such a change is shown as a remark, and with it every change that depends on it: a file that
//! takes the place of something that git will not remove.

use crate::meta::EntryType;
use crate::review::diff::model::{Content, DiffKind, FileDiff};
use std::collections::BTreeSet;

/// Dependencies chain along nested paths and renames. A longer chain than any honest change has is not followed.
const ROUNDS: usize = 32;

/// git's own limit of a path.
const PATH_MAX: usize = 4096;

/// Returns the permission bits as git keeps them.
pub(crate) fn git_mode(kind: EntryType, mode: u32) -> &'static str {
    match kind {
        EntryType::Symlink => "120000",
        _ if mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}

/// Reports whether git's view of the mode changes. (It keeps nothing but the owner's execute bit.)
pub(crate) fn mode_changes(file: &FileDiff) -> bool {
    match (file.old_mode, file.new_mode) {
        (Some(old), Some(new)) => git_mode(file.file_type, old) != git_mode(file.file_type, new),
        _ => false,
    }
}

/// Names that git refuses in a work tree (git's verify_path): `.git` in any case and as Windows would read it
/// (CVE-2019-1352, CVE-2019-1353), and links that would be taken for its own files (CVE-2018-11235).
fn is_refused(path: &[u8], is_link: bool) -> bool {
    if path.len() >= PATH_MAX {
        return true;
    }
    path.split(|byte| matches!(byte, b'/' | b'\\')).any(|name| {
        let name = name.to_ascii_lowercase();
        let is_git = [&b".git"[..], b"git~1"].iter().any(|git| {
            name.strip_prefix(*git).is_some_and(|rest| {
                let rest = rest.split(|byte| *byte == b':').next().unwrap_or_default();
                rest.iter().all(|byte| matches!(byte, b'.' | b' '))
            })
        });
        let is_file_of_git = name.starts_with(b".gitmodules") || (name.starts_with(b"g") && name.contains(&b'~'));
        is_git || (is_link && is_file_of_git)
    })
}

fn paths(file: &FileDiff) -> impl Iterator<Item = &[u8]> {
    std::iter::once(file.path.0.as_slice()).chain(file.rename_from.as_ref().map(|from| from.0.as_slice()))
}

fn is_expressible(file: &FileDiff) -> bool {
    let is_link = file.file_type == EntryType::Symlink;
    if !matches!(file.file_type, EntryType::File | EntryType::Symlink)
        || paths(file).any(|path| is_refused(path, is_link))
    {
        return false;
    }
    match (&file.content, file.kind) {
        (Content::Text { .. }, _) | (Content::None, DiffKind::Renamed) => true,
        (Content::Binary { .. } | Content::None, DiffKind::Modified) => mode_changes(file),
        (Content::Binary { .. }, DiffKind::Added | DiffKind::Deleted | DiffKind::Renamed) => false,
        // A link has a target: without one it could not be read.
        (Content::None, DiffKind::Added | DiffKind::Deleted) => !is_link,
    }
}

/// Sets [`FileDiff::applies`] of each file.
pub fn set_applies(files: &mut [FileDiff]) {
    for file in files.iter_mut() {
        file.applies = is_expressible(file);
    }
    let gone = files.iter().filter(|file| file.kind == DiffKind::Deleted).map(|file| file.path.0.clone());
    let gone: BTreeSet<Vec<u8>> = gone.collect();
    let all: BTreeSet<Vec<u8>> = files.iter().flat_map(|file| paths(file).map(<[u8]>::to_vec)).collect();
    for file in files.iter_mut() {
        file.applies &= match file.kind {
            // A file that is gone under this name and changed under others: git knows one file of each name.
            DiffKind::Modified => !gone.contains(&file.path.0),
            // A directory became a link or a link a directory: git looks for what it will make through the link.
            _ if file.file_type == EntryType::Symlink => !has_beneath(&all, &file.path.0),
            DiffKind::Added | DiffKind::Deleted | DiffKind::Renamed => true,
        };
    }
    for _ in 0..ROUNDS {
        // What git leaves where it is: forward (it should go away), and in reverse (it should never have come).
        let stays: BTreeSet<Vec<u8>> = (files.iter())
            .filter(|file| !file.applies && file.kind != DiffKind::Modified)
            .flat_map(|file| paths(file).map(<[u8]>::to_vec))
            .collect();
        let mut changed = false;
        for file in files.iter_mut().filter(|file| file.applies && file.kind != DiffKind::Modified) {
            if paths(file).any(|path| is_blocked(path, &stays)) {
                file.applies = false;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
    for file in files {
        file.applies = false;
    }
}

/// Reports whether something of `stays` is at this path, on the way to it, or below it.
fn is_blocked(path: &[u8], stays: &BTreeSet<Vec<u8>>) -> bool {
    let on_the_way =
        path.iter().enumerate().filter(|(_, byte)| **byte == b'/').any(|(at, _)| stays.contains(&path[..at]));
    on_the_way || stays.contains(path) || has_beneath(stays, path)
}

fn has_beneath(paths: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let beneath = [path, b"/"].concat();
    paths.range(beneath.clone()..).next().is_some_and(|other| other.starts_with(&beneath))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_refuses_come_in_pairs_with_those_it_takes() {
        for (bad, good) in [
            (".git/config", ".gitignore"),
            ("a/.GIT/x", "a/.github/x"),
            ("git~1/x", "git~2/x"),
            (".git. ./x", ".git.x/x"),
            ("x\\.git", "x\\git"),
            (".git::$INDEX_ALLOCATION/x", "git"),
        ] {
            assert!(is_refused(bad.as_bytes(), false), "{bad}");
            assert!(!is_refused(good.as_bytes(), false), "{good}");
        }
        assert!(is_refused(b".gitmodules", true) && !is_refused(b".gitmodules", false));
    }
}
