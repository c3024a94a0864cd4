//! Finds the changes of a layer that remove a file from which another entry of the layer was copied. Pure.
//!
//! When a command renames or edits a file, overlay copies it up and stores the origin in an attribute of the copy. After a commit has
//! removed the origin, the copy is the only one.

use crate::beneath::split;
use crate::decide::state::State;
use crate::decide::unmarked::Unmarked;
use crate::entries::marks::Origin;
use crate::entries::tree::{Found, LayerTree, Node, Role};
use crate::journal::step::EVERYTHING;
use crate::meta::{EntryType, FsTime, Meta};
use crate::read::walk::origin_inode;
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};

pub(crate) use crate::decide::state::goes;

/// The number of sources that one step names. With more of them it waits for every step that takes something away.
const MANY: usize = 64;

/// Finds the committed entries that take something away, by what they take.
pub(crate) struct Sources<'a> {
    tree: &'a LayerTree,
    /// By the place in the workspace before the commit.
    taken: Taken<'a>,
    /// Files by size and time, for marks that name no file.
    alike: HashMap<(u64, FsTime), Vec<usize>>,
    /// Directories that go, with files in them that no scan listed.
    directories: Vec<usize>,
    /// All that may be the source of a mark that names no file.
    going: Vec<usize>,
    /// The possible sources of an entry without a mark.
    unmarked: Unmarked,
}

/// The sources of an entry, or of the entries of a directory.
#[derive(Default)]
pub(crate) struct MadeFrom {
    /// The paths of the steps that take it away.
    pub(crate) paths: Vec<ByteText>,
    /// It may be any file that goes.
    pub(crate) any_source: bool,
}

/// Committed entries that remove or replace something, by its place in the workspace.
pub(crate) struct Taken<'a>(HashMap<&'a [u8], usize>);

impl<'a> Taken<'a> {
    pub(crate) fn new(tree: &'a LayerTree, states: &[State]) -> Self {
        let committed = tree.nodes.iter().enumerate().filter(|(at, _)| states[*at] == State::Commit);
        let going = committed.filter(|(_, node)| goes(node));
        Self(going.filter_map(|(at, node)| node.covers.as_ref().map(|found| (&*found.at.0, at))).collect())
    }

    /// The entry that removes or replaces what is at `place`, or a directory above it.
    pub(crate) fn by(&self, place: &[u8]) -> Option<usize> {
        let mut place = place;
        while !place.is_empty() {
            if let Some(at) = self.0.get(place) {
                return Some(*at);
            }
            place = split(place).0;
        }
        None
    }
}

/// Reports whether an entry is a copy of a file that its mark does not name, and not an edit of the file that it
/// covers.
pub(crate) fn is_unnamed(tree: &LayerTree, node: &Node) -> bool {
    node.role == Role::Entry
        && node.meta.kind == EntryType::File
        && node.marks.origin == Some(Origin::Unknown)
        // A file that was renamed over another one still has its old time.
        && (node.covers.is_none() || node.meta.mtime <= tree.started)
}

/// Reports whether no mark makes an entry a copy of another file than the one that it covers.
pub(crate) fn is_edit_of_its_file(tree: &LayerTree, node: &Node) -> bool {
    tree.origin_of(node).is_none_or(|from| from.at.0 == node.path.0)
}

/// Reports whether committing an entry takes away a file that another entry may have been made from: it is not an edit
/// of what it covers.
pub(crate) fn takes_away(tree: &LayerTree, node: &Node) -> bool {
    let is_edit = |found: &Found| {
        let stays = node.role == Role::Entry && node.meta.kind == found.meta.kind;
        stays && node.marks.origin.is_some() && !is_unnamed(tree, node)
    };
    goes(node) && !node.covers.as_ref().is_some_and(|found| is_edit(found))
}

/// Returns the size and time of a file, which it keeps when it is renamed.
pub(crate) fn key(meta: &Meta) -> (u64, FsTime) {
    (meta.size, meta.mtime)
}

impl<'a> Sources<'a> {
    pub(crate) fn new(tree: &'a LayerTree, states: &[State]) -> Self {
        let committed = || (1..tree.nodes.len()).filter(|at| states[*at] == State::Commit);
        let is_named = |at: usize| origin_inode(&tree.nodes[at]).is_some() && !tree.nodes[at].is_own_version();
        // Most commits have no such entry, and then nothing is collected.
        let taken = if committed().any(is_named) { Taken::new(tree, states) } else { Taken(HashMap::new()) };
        let (mut alike, mut going, mut directories) = (HashMap::<_, Vec<usize>>::new(), Vec::new(), Vec::new());
        let unnamed = committed().filter(|at| is_unnamed(tree, &tree.nodes[*at]));
        let wanted: HashSet<(u64, FsTime)> = unnamed.map(|at| key(&tree.nodes[at].meta)).collect();
        if !wanted.is_empty() {
            for at in committed().filter(|at| goes(&tree.nodes[*at])) {
                let node = &tree.nodes[at];
                let Some(found) = &node.covers else { continue };
                if found.meta.kind == EntryType::File && wanted.contains(&key(&found.meta)) {
                    alike.entry(key(&found.meta)).or_default().push(at);
                }
                if takes_away(tree, node) {
                    going.push(at);
                }
                if found.meta.kind == EntryType::Directory {
                    directories.push(at);
                }
            }
        }
        Self { tree, taken, alike, directories, going, unmarked: Unmarked::new(tree, states) }
    }

    /// Adds what an entry was made from.
    pub(crate) fn add(&self, at: usize, made_from: &mut MadeFrom) {
        made_from.any_source |= self.may_be_any(at);
        let (node, paths) = (&self.tree.nodes[at], &mut made_from.paths);
        if let Some(found) = origin_inode(node).and_then(|_| self.tree.origin_of(node)) {
            if self.tree.covered_id(at) != Some(found.meta.id) {
                self.add_all(at, self.taken.by(&found.at.0), paths);
            }
        } else if is_unnamed(self.tree, node) {
            match self.alike.get(&key(&node.meta)) {
                Some(alike) => {
                    self.add_all(at, alike.iter().copied(), paths);
                    self.add_all(at, self.directories.iter().copied(), paths);
                }
                // Directories are among them.
                None => self.add_all(at, self.going.iter().copied(), paths),
            }
        } else {
            self.add_all(at, self.unmarked.of(node), paths);
        }
    }

    /// Reports whether an entry has bytes of its own, which a program may have copied from any file that goes.
    fn may_be_any(&self, at: usize) -> bool {
        let node = &self.tree.nodes[at];
        let has_bytes = match node.meta.kind {
            EntryType::File => node.meta.size > 0,
            EntryType::Symlink => true,
            EntryType::Directory | EntryType::Fifo | EntryType::Device | EntryType::Socket => false,
        };
        node.role == Role::Entry && has_bytes && !node.same_content
    }

    fn add_all(&self, at: usize, sources: impl IntoIterator<Item = usize>, paths: &mut Vec<ByteText>) {
        for source in sources.into_iter().filter(|source| *source != at) {
            if paths.first().is_some_and(|path| path.0 == EVERYTHING) {
                return;
            }
            let path = self.tree.nodes[source].path.text();
            if paths.contains(&path) {
                continue;
            }
            if paths.len() == MANY {
                *paths = vec![ByteText(EVERYTHING.to_vec())];
                return;
            }
            paths.push(path);
        }
    }
}
