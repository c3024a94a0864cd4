//! Holds back entries that would stop programs of the host: FIFOs at names that programs open unasked, and lock files
//! of git.
//!
//! A program that opens a FIFO waits for ever (`git status` for `.gitignore`), and git refuses to work while a lock is
//! there.

use crate::beneath::split;
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::meta::EntryType;
use nexus_git::git_dir::git_class;

/// Parks the entries of a layer that are in the way by their kinds and names.
pub(crate) fn classify(rules: &Rules, tree: &mut LayerTree) {
    for one in tree.nodes.iter_mut().skip(1) {
        if one.role == Role::Entry && !matches!(one.rare.verdict, Some(Verdict::Park(_))) {
            let why = reason(rules, &one.path.0, one.meta.kind);
            if let Some(why) = why {
                one.rare.verdict = Some(Verdict::Park(why.to_owned()));
            }
        }
    }
}

fn reason(rules: &Rules, path: &[u8], kind: EntryType) -> Option<&'static str> {
    let name = split(path).1;
    // Most entries are neither.
    if kind != EntryType::Fifo && !name.ends_with(b".lock") {
        return None;
    }
    let is_of_git = matches!(rules.class(path), Class::NoLink | Class::MustBeDirectory);
    match kind {
        EntryType::Fifo if is_of_git || name.starts_with(b".") => Some("a FIFO that a program would wait for"),
        EntryType::File if is_of_git && is_lock(path) => Some("a lock of an unfinished git command"),
        _ => None,
    }
}

/// Reports whether a path of a git directory is the lock of a file that git writes.
fn is_lock(path: &[u8]) -> bool {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let git = names.iter().rposition(|name| crate::fold::fold(name).as_ref() == b".git");
    let inside = git.map_or(&names[..], |at| &names[at + 1..]);
    // Programs beside git keep locks of their own below `lfs` and `annex`, which are not locks of git.
    let is_own = matches!(inside, [b"lfs" | b"annex" | b"rr-cache" | b"logs", _, ..]);
    let folded: Vec<_> = inside.iter().map(|name| crate::fold::fold(name)).collect();
    !is_own && git_class(&folded) == Class::NoLink
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_stop_git_waits_beside_a_neighbour() {
        let rules = Rules::default();
        let why = |path: &str, kind| reason(&rules, path.as_bytes(), kind);
        for path in [".gitignore", "a/.gitignore", ".git/index", ".git/refs/heads/x", "a/.ignore"] {
            assert!(why(path, EntryType::Fifo).is_some(), "{path}");
            assert_eq!(why(path, EntryType::File), None, "{path}");
        }
        for path in [
            ".git/index.lock",
            "a/.git/HEAD.lock",
            ".git/refs/heads/x.lock",
            ".git/modules/m/index.lock",
            ".git/gc.pid.lock",
        ] {
            assert!(why(path, EntryType::File).is_some(), "{path}");
        }
        for path in ["Cargo.lock", "yarn.lock", ".git/lfs/tmp/x.lock", ".terraform.lock", "a/index.lock"] {
            assert_eq!(why(path, EntryType::File), None, "{path}");
        }
        assert_eq!(why("pipe", EntryType::Fifo), None);
    }
}
