//! Holds back the refs that need the file `shallow`, together with it.
//!
//! `git fetch --depth` in a repository that has its whole history brings refs to commits without their parents, and
//! says in `shallow` that they end there. That file hides history, so it waits. Without it, git takes the repository
//! for damaged as soon as a ref leads to such a commit.
//!
//! A `shallow` that loses commits, or goes away, is the end of a fetch of the rest. It comes unasked only where the parents
//! of those commits are there, and their parents, up to the first ones:
//!
//! ```text
//!  shallow loses a commit ──▶ its history is whole, with the objects of the layer ──yes──▶ comes (with a fetch)
//!                                 └─no─▶ waits, and so does each ref whose history is not whole down to the old `shallow`
//! ```

use crate::beneath::{IoFailure, is_beneath, join, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Node, Role, Verdict, lower_path};
use crate::entries::verdict::NEEDS_SHALLOW;
use crate::fold::fold;
use crate::git::git_rules::Version;
use crate::git::halves::{NEEDS_OBJECTS, park_for_good, would_commit};
use crate::meta::EntryType;
use crate::read::walk::Walk;
use nexus_git::git_dir::{PACKED, SHALLOW};
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::history::{History, Reach};
use std::collections::HashSet;

/// Says that `shallow` waits since commits that it named have parents which are not there.
const NO_PARENTS: &str = "takes away where git's history ends, while commits before that are not there";
/// Says that a ref or reflog waits since its history is not there.
const NO_HISTORY: &str = "leads to commits whose history is not there, as the run took away where git's history ends";

impl Walk<'_> {
    /// Parks the refs of the repositories whose history a layer cuts off.
    pub(crate) fn classify_shallow(&self, tree: &mut LayerTree) -> Result<(), IoFailure> {
        let mut cut: HashSet<usize> = HashSet::new();
        let mut longer: Vec<usize> = Vec::new();
        for (at, node) in tree.nodes.iter().enumerate().skip(1) {
            let waits = matches!(&node.rare.verdict, Some(Verdict::Park(why)) if why == SHALLOW);
            let rules = self.rules;
            let comes = rules.is_chosen(&node.path.0) && rules.accepts_protected(&node.path.0);
            let cuts = waits && self.cuts(node)?;
            if cuts && !comes {
                cut.insert(node.parent);
            } else if waits && !cuts {
                longer.push(at);
            }
        }
        for at in longer {
            let parent = tree.nodes[at].parent;
            let objects = new_objects(tree, parent);
            let reach = self.reach_of_shallow(tree, at)?;
            if reach == Reach::Broken {
                tree.nodes[at].rare.verdict = Some(Verdict::Park(NO_PARENTS.to_owned()));
                if !would_commit(self.rules, &tree.nodes[at]) {
                    self.hold_broken(tree, at)?;
                }
            } else if objects.iter().any(|object| !would_commit(self.rules, &tree.nodes[*object])) {
                // By the name of the file, or with what is protected.
                park_for_good(self.rules, &mut tree.nodes[at], NEEDS_OBJECTS);
            } else if reach == Reach::Whole && !objects.is_empty() && notes_fetch(tree, parent) {
                tree.nodes[at].rare.verdict = Some(Verdict::Commit);
            }
        }
        if cut.is_empty() {
            return Ok(());
        }
        for at in 1..tree.nodes.len() {
            let node = &tree.nodes[at];
            let is_dir = node.role == Role::Entry && node.meta.kind == EntryType::Directory;
            if is_dir || matches!(node.rare.verdict, Some(Verdict::Park(_))) {
                continue;
            }
            let mut around = at;
            while around != 0 && !cut.contains(&around) {
                around = tree.nodes[around].parent;
            }
            if cut.contains(&around) && leads_to_history(&node.path.0[tree.nodes[around].path.0.len()..]) {
                tree.nodes[at].rare.verdict = Some(Verdict::Park(NEEDS_SHALLOW.to_owned()));
            }
        }
        Ok(())
    }

    /// Opens the objects of the git directory at a node, with those of the layer.
    fn history(&self, tree: &LayerTree, git_dir: usize) -> Result<Option<History<'_>>, IoFailure> {
        let node = &tree.nodes[git_dir];
        let Some(base) = lower_path(node) else { return Ok(None) };
        History::of(&[(self.base, base), (self.upper, &node.path.0)], id_lengths, false)
    }

    /// Returns the texts of a file of a git directory in the layer and in the workspace. One that is not there is empty;
    /// `None` for one that cannot be read.
    fn texts(&self, node: &Node) -> Result<Option<[Vec<u8>; 2]>, IoFailure> {
        let read = |tree, path: &[u8]| self.version(tree, path, &Class::GitState(PACKED));
        let is_file = |kind| kind == EntryType::File;
        let new = if node.role == Role::Entry { read(self.upper, &node.path.0)? } else { Version::Absent };
        let old = node.covers.as_ref().filter(|old| is_file(old.meta.kind));
        let old = old.map_or(Ok(Version::Absent), |old| read(self.base, &old.at.0))?;
        Ok(match [new, old].map(text) {
            [Some(new), Some(old)] => Some([new, old]),
            _ => None,
        })
    }

    /// Returns how far the history of the commits leads that a `shallow` loses.
    fn reach_of_shallow(&self, tree: &LayerTree, at: usize) -> Result<Reach, IoFailure> {
        let Some([new, old]) = self.texts(&tree.nodes[at])? else { return Ok(Reach::Unknown) };
        let ends: HashSet<&[u8]> = words(&new).collect();
        let lost: Vec<&[u8]> = words(&old).filter(|id| !ends.contains(id)).collect();
        let history = self.history(tree, tree.nodes[at].parent)?;
        Ok(history.map_or(Reach::Unknown, |mut history| history.reach(&lost, &ends)))
    }

    /// Parks the refs and reflogs whose history is not whole while the `shallow` of the workspace stays.
    fn hold_broken(&self, tree: &mut LayerTree, shallow: usize) -> Result<(), IoFailure> {
        let git_dir = tree.nodes[shallow].parent;
        let Some([_, ends]) = self.texts(&tree.nodes[shallow])? else { return Ok(()) };
        let ends: HashSet<&[u8]> = words(&ends).collect();
        let mut history = self.history(tree, git_dir)?;
        let top = tree.nodes[git_dir].path.clone();
        for at in 1..tree.nodes.len() {
            let node = &tree.nodes[at];
            let waits = matches!(node.rare.verdict, Some(Verdict::Park(_) | Verdict::LeaveOut));
            let is_beneath = || is_beneath(&node.path.0, &top.0) && leads_to_history(&node.path.0[top.0.len()..]);
            if waits || node.same_content || !is_file(node) || !is_beneath() {
                continue;
            }
            let reach = match (self.texts(node)?, &mut history) {
                (Some([new, old]), Some(history)) => {
                    let known: HashSet<&[u8]> = words(&old).collect();
                    let new: Vec<&[u8]> = words(&new).filter(|id| !known.contains(id)).collect();
                    history.reach(&new, &ends)
                }
                _ => Reach::Unknown,
            };
            if reach != Reach::Whole {
                tree.nodes[at].rare.verdict = Some(Verdict::Park(NO_HISTORY.to_owned()));
            }
        }
        Ok(())
    }

    /// Reports whether the file `shallow` of the layer has commits that the one of the workspace does not have.
    fn cuts(&self, node: &Node) -> Result<bool, IoFailure> {
        if node.role != Role::Entry {
            return Ok(false);
        }
        let read = |tree, path: &[u8]| self.version(tree, path, &Class::GitState(SHALLOW));
        let old = match &node.covers {
            Some(found) if found.meta.kind == EntryType::File => read(self.base, &found.at.0)?,
            Some(_) | None => Version::Absent,
        };
        let new = if node.meta.kind == EntryType::File { read(self.upper, &node.path.0)? } else { Version::Unreadable };
        Ok(adds(&new, &old))
    }
}

/// Returns the objects that a layer brings to a git directory, as `git fetch --unshallow` does. Without them git would
/// take the repository for damaged.
fn new_objects(tree: &LayerTree, git_dir: usize) -> Vec<usize> {
    let objects = join(&tree.nodes[git_dir].path.0, b"objects");
    let is_one = |node: &Node| is_file(node) && node.covers.is_none() && is_beneath(&node.path.0, &objects);
    (1..tree.nodes.len()).filter(|at| is_one(&tree.nodes[*at])).collect()
}

/// Reports whether a layer notes a fetch in a git directory.
fn notes_fetch(tree: &LayerTree, git_dir: usize) -> bool {
    let is_note = |node: &Node| is_file(node) && node.parent == git_dir && split(&node.path.0).1 == b"FETCH_HEAD";
    tree.nodes.iter().skip(1).any(|node| is_note(node) && !node.same_content)
}

fn is_file(node: &Node) -> bool {
    node.role == Role::Entry && node.meta.kind == EntryType::File
}

/// Returns the text of a file; none of one that is not there.
fn text(version: Version) -> Option<Vec<u8>> {
    match version {
        Version::Bytes(text) => Some(text),
        Version::Absent => Some(Vec::new()),
        Version::Unreadable => None,
    }
}

/// Returns the words of a text, among them the object ids of a file of git.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| matches!(word.len(), 40 | 64))
}

fn adds(new: &Version, old: &Version) -> bool {
    let Version::Bytes(new) = new else { return true };
    let old: &[u8] = match old {
        Version::Bytes(old) => old,
        Version::Absent | Version::Unreadable => &[],
    };
    let lines = |text| <[u8]>::split(text, |byte: &u8| *byte == b'\n').map(<[u8]>::trim_ascii);
    let known: HashSet<&[u8]> = lines(old).collect();
    lines(new).any(|line| !line.is_empty() && !known.contains(line))
}

/// Reports whether a file of a git directory names commits from which git walks through the history. Submodules have a
/// history of their own.
fn leads_to_history(inside: &[u8]) -> bool {
    let names: Vec<Vec<u8>> = inside
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .map(|name| fold(name).into_owned())
        .collect();
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return false };
    if matches!(first.as_slice(), b"modules" | b"objects" | b"hooks" | b"info") {
        return false;
    }
    let is_in = |wanted: &[u8]| names.iter().any(|name| name == wanted);
    is_in(b"refs") || is_in(b"logs") || last == b"packed-refs" || last == b"head" || last.ends_with(b"_head")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_lead_to_history_are_known() {
        for path in
            ["refs/heads/x", "/packed-refs", "HEAD", "FETCH_HEAD", "logs/HEAD", "worktrees/w/HEAD", "logs/refs/stash"]
        {
            assert!(leads_to_history(path.as_bytes()), "{path}");
        }
        for path in ["modules/s/refs/heads/x", "objects/aa/bb", "config", "index", "shallow", "", "hooks/refs/x"] {
            assert!(!leads_to_history(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn only_more_commits_cut_history_off() {
        let some = |text: &str| Version::Bytes(text.as_bytes().to_vec());
        for (new, old, wanted) in [
            ("a\n", Version::Absent, true),
            ("a\nb\n", some("a\n"), true),
            ("b\na\n", some("a\nb\n"), false),
            ("a\n", some("a\nb\n"), false),
            ("", some("a\n"), false),
            ("a", Version::Unreadable, true),
        ] {
            assert_eq!(adds(&some(new), &old), wanted, "{new}");
        }
        assert!(adds(&Version::Unreadable, &some("a")));
    }
}
