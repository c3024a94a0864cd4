//! Finds entries that stay in the layer and may be copies of workspace entries that a commit removes. Each is recorded as a
//! possible last copy. Pure.
//!
//! Overlay's mark names the file that a copy was made from for root alone, and only where the file system of the
//! workspace has file handles. Elsewhere the mark is empty, or there is none: on a copy of a file with several names,
//! and in an ordinary user's layer on a symbolic link, a FIFO or a device. What a program copied has none, and an edit
//! hides a rename: what the marks do not tell, [`crate::last_copies::copies`] finds in the contents.

use crate::decide::sources::{Taken, goes, is_edit_of_its_file, is_unnamed, key, takes_away};
use crate::decide::state::State;
use crate::decide::unmarked::Unmarked;
use crate::entries::tree::{LayerTree, Node, Verdict};
use crate::journal::step::Step;
use crate::meta::{EntryType, FsTime};
use nexus_model::ByteText;
use std::collections::HashSet;

/// The entries that a commit takes away, as far as a mark without a name tells them apart.
struct Gone {
    /// Size and time of each file that goes or gets another version.
    keys: HashSet<(u64, FsTime)>,
    /// Size and time of each file of the workspace that stays and that the layer changes.
    staying: HashSet<(u64, FsTime)>,
    /// A directory goes, with files that no scan listed.
    has_directory: bool,
    /// A file with bytes goes and is not merely edited.
    has_file: bool,
}

impl Gone {
    fn new(tree: &LayerTree, states: &[State]) -> Self {
        let nodes = || tree.nodes.iter().zip(states).skip(1);
        let going = || nodes().filter(|(node, state)| **state == State::Commit && goes(node)).map(|(node, _)| node);
        let has = |kind: EntryType| move |node: &Node| node.covers.as_ref().is_some_and(|one| one.meta.kind == kind);
        let is_full = |node: &Node| node.covers.as_ref().is_some_and(|one| one.meta.size > 0);
        let is_file = |node: &Node| has(EntryType::File)(node) && is_full(node);
        let staying =
            nodes().filter(|(_, state)| **state != State::Commit).filter_map(|(node, _)| node.covers.as_ref());
        Self {
            keys: going().filter_map(|node| node.covers.as_ref()).map(|found| key(&found.meta)).collect(),
            staying: staying.filter(|found| found.meta.kind == EntryType::File).map(|found| key(&found.meta)).collect(),
            has_directory: going().any(has(EntryType::Directory)),
            has_file: going().any(|node| is_file(node) && takes_away(tree, node)),
        }
    }

    /// Reports whether a copy whose mark names no file may be one of a file that goes.
    fn may_have(&self, node: &Node) -> bool {
        let own = key(&node.meta);
        // With its old size and time a copy is of the file that has both, often the one that it covers.
        self.has_directory || self.keys.contains(&own) || (self.has_file && !self.staying.contains(&own))
    }
}

/// Notes an entry. Its mark stays.
pub(crate) fn note(node: &Node) -> Step {
    Step::Strip { path: node.path.text(), names: Vec::new(), marks: Vec::new(), is_edit: false }
}

/// Entries that stay although the commit takes away the file that they were copied from: without their marks they are
/// simply new. `None` when that file has several names, which then part or not with the layer as a whole.
pub(crate) fn orphans(tree: &LayerTree, states: &[State]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let waits = |at: usize| states[at] == State::Park || matches!(tree.nodes[at].rare.verdict, Some(Verdict::Strip(_)));
    if !(1..tree.nodes.len()).any(waits) {
        return Some(steps);
    }
    let (gone, unmarked) = (Gone::new(tree, states), Unmarked::new(tree, states));
    for (node, _) in tree.nodes.iter().zip(states).skip(1).filter(|(_, state)| **state == State::Park) {
        if is_unnamed(tree, node) && gone.may_have(node) {
            let names = node.marks.all.names(tree.mode).map(ByteText).collect();
            steps.push(Step::Strip { path: node.path.text(), names, marks: Vec::new(), is_edit: false });
        } else if unmarked.may_have(node) {
            steps.push(note(node));
        }
    }
    let taken = Taken::new(tree, states);
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let Some(from) = tree.origin_of(node).filter(|_| waits(at)) else { continue };
        if taken.by(&from.at.0).is_none() {
            continue;
        }
        if from.meta.links > 1 {
            return None;
        }
        let names = node.marks.all.names(tree.mode).map(ByteText).collect();
        // What it was made from is not deleted but gets a part of it.
        let is_edit = is_edit_of_its_file(tree, node) && matches!(node.rare.verdict, Some(Verdict::Strip(_)));
        steps.push(Step::Strip { path: node.path.text(), names, marks: Vec::new(), is_edit });
    }
    Some(steps)
}
