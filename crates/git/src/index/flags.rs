//! Flags of an index by which git passes over what is in the working tree.
//!
//! `git status` and `git diff` show nothing of a file whose entry is assumed to be unchanged (`git update-index
//! --assume-unchanged`) or is skipped (`--skip-worktree`, which sparse checkouts set too). A file that is to be added
//! (`git add --intent-to-add`) is shown.

use super::file::Index;
use super::format::{Entry, LONG, SHORT, inspect};
use std::collections::HashSet;

/// Says that an index waits which hides changes.
pub const HIDES: &str = "a git index that hides changes from git status (skip-worktree or assume-unchanged)";

/// A flag that hides an entry, with the name of the entry.
pub type Hidden = HashSet<(Vec<u8>, Flag)>;

/// A flag by which git passes over a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flag {
    /// `git update-index --assume-unchanged`.
    AssumeUnchanged,
    /// `git update-index --skip-worktree`, which sparse checkouts set too.
    SkipWorktree,
}

/// Tells whether an index hides an entry that no index before hid by the same flag. Each index is understood in every length of
/// an object id in which it makes sense. Pure.
pub fn hide_more(new: &[u8], before: &[Index]) -> bool {
    let new = hidden(new);
    if new.is_empty() {
        return false;
    }
    let before: Hidden = before.iter().flat_map(|index| hidden(&index.bytes)).collect();
    // An entry of a split index may have no name, which stands in the shared one: what it hides is not known.
    new.iter().any(|one| one.0.is_empty() || !before.contains(one))
}

/// Returns the flags of an index that hide entries.
pub fn hidden(bytes: &[u8]) -> Hidden {
    let mut all = Hidden::new();
    for length in [SHORT, LONG] {
        let mut found = Hidden::new();
        let mut add = |entry: &Entry<'_>| {
            let flags = [
                (entry.flags & ASSUME_UNCHANGED != 0, Flag::AssumeUnchanged),
                (entry.more & SKIP_WORKTREE != 0, Flag::SkipWorktree),
            ];
            found.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (entry.name.to_vec(), flag)));
        };
        // Flags of what makes no sense in this length are none.
        if inspect(bytes, length, &mut add).is_some() {
            all.extend(found);
        }
    }
    all
}

const ASSUME_UNCHANGED: u16 = 0x8000;
/// Among the further flags of an entry.
const SKIP_WORKTREE: u16 = 0x4000;

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, flagged};
    use super::*;

    #[test]
    fn an_index_may_hide_what_it_hid_and_no_more() {
        let all = |entries: &[(&str, u16, u16)], id| closed(flagged(entries, id), id);
        let old_one = |bytes| Index { bytes, written: 0 };
        for id in [SHORT, LONG] {
            for (new, old, wanted) in [
                ([("a", 0, 0), ("b", ASSUME_UNCHANGED, 0)], [("a", 0, 0), ("b", 0, 0)], true),
                ([("a", 0, SKIP_WORKTREE), ("b", 0, 0)], [("a", 0, 0), ("b", 0, 0)], true),
                ([("a", 0, SKIP_WORKTREE), ("b", 0, 0)], [("a", ASSUME_UNCHANGED, 0), ("b", 0, SKIP_WORKTREE)], true),
                ([("a", 0, 0), ("b", 0, SKIP_WORKTREE)], [("a", 0, 0), ("c", 0, SKIP_WORKTREE)], true),
                ([("a", 0, 0), ("b", 0, SKIP_WORKTREE)], [("a", ASSUME_UNCHANGED, 0), ("b", 0, SKIP_WORKTREE)], false),
                ([("a", 0, 0), ("b", 0, 0)], [("a", ASSUME_UNCHANGED, 0), ("b", 0, SKIP_WORKTREE)], false),
                // A file that is to be added hides nothing.
                ([("a", 0, 0), ("b", 0, 0x2000)], [("a", 0, 0), ("c", 0, 0)], false),
            ] {
                assert_eq!(hide_more(&all(&new, id), &[old_one(all(&old, id))]), wanted, "{new:?} {old:?}");
                assert_eq!(hide_more(&all(&new, id), &[]), new.iter().any(|one| one.1 | (one.2 & !0x2000) != 0));
            }
            // Its name is in a shared index.
            let unnamed = all(&[("", ASSUME_UNCHANGED, 0)], id);
            assert!(hide_more(&unnamed, &[old_one(unnamed.clone())]));
        }
    }
}
