//! What a partial commit owes to the rest of the layer, so that its own work is no change from outside when the rest is
//! decided. Pure.

use crate::commit::ops::Op;
use crate::marks::LayerMode;
use crate::meta::{EntryType, Meta};
use crate::plan::{State, is_new_dir};
use crate::sources::{Taken, goes, is_edit_of_its_file, is_edited, is_unnamed, key, takes_away};
use crate::tree::{LayerTree, Lower, Node, Role, Verdict};
use nexus_model::ByteText;
use std::collections::HashSet;

/// Parks directories that would shut their owner out of the workspace while something in them still waits: an ordinary
/// user could then neither decide on the rest nor finish the commit. Returns whether there were any.
pub(crate) fn keep_readable(tree: &LayerTree, states: &mut [State]) -> bool {
    // Root passes every mode.
    if tree.mode == LayerMode::Root {
        return false;
    }
    let mut waits = vec![false; tree.nodes.len()];
    let mut any = false;
    for at in (1..tree.nodes.len()).rev() {
        let node = &tree.nodes[at];
        let shuts = node.meta.kind == EntryType::Directory && node.meta.mode & 0o700 != 0o700;
        if waits[at] && shuts && states[at] == State::Commit {
            states[at] = State::Park;
            any = true;
        }
        waits[at] |= states[at] == State::Park || matches!(node.rare.verdict, Some(Verdict::Strip(_)));
        waits[node.parent] |= waits[at];
    }
    let shuts = tree.nodes[0].meta.mode & 0o700 != 0o700;
    if waits[0] && shuts && states[0] == State::Commit {
        states[0] = State::Park;
        any = true;
    }
    for at in 1..tree.nodes.len() {
        let parent = tree.nodes[at].parent;
        if states[at] == State::Commit && states[parent] == State::Park && is_new_dir(tree, parent) {
            states[at] = State::Park;
        }
    }
    any
}

/// Paths of the workspace that get another time stamp by what is committed, while their own change stays parked.
pub(crate) fn touched(tree: &LayerTree, states: &[State]) -> Vec<ByteText> {
    let mut seen = vec![false; tree.nodes.len()];
    let mut paths = Vec::new();
    for at in (1..tree.nodes.len()).filter(|at| states[*at] == State::Commit) {
        let mut up = tree.nodes[at].parent;
        while up != 0 && !seen[up] {
            seen[up] = true;
            if let Lower::Merged(found) = &tree.nodes[up].rare.lower
                && !tree.is_fresh(found)
            {
                paths.push(tree.nodes[up].path.text());
            }
            up = tree.nodes[up].parent;
        }
    }
    // A file whose other name goes away or is held for a while: the number of its names is a part of its time stamp.
    for (node, state) in tree.nodes.iter().zip(states) {
        if *state == State::Park
            && let Some(found) = node.covers.as_ref().filter(|found| found.meta.links > 1 && !tree.is_fresh(found))
        {
            paths.push(found.at.text());
        }
    }
    paths
}

/// Entries that stay although the commit takes away the file that they were copied from: without their marks they are
/// simply new. `None` when that file has several names, which then part or not with the layer as a whole.
pub(crate) fn orphans(tree: &LayerTree, states: &[State]) -> Option<Vec<Op>> {
    let mut ops = Vec::new();
    let waits = |at: usize| states[at] == State::Park || matches!(tree.nodes[at].rare.verdict, Some(Verdict::Strip(_)));
    if !(1..tree.nodes.len()).any(waits) {
        return Some(ops);
    }
    let taken = Taken::new(tree, states);
    // An ordinary user's marks do not name the file. Once this commit has taken any file away, what was copied from it
    // could look like a copy of a file that vanished.
    let gone: Vec<&Meta> = match tree.mode {
        LayerMode::Root => Vec::new(),
        LayerMode::User => {
            let going = tree.nodes.iter().zip(states).filter(|(node, state)| **state == State::Commit && goes(node));
            going.filter_map(|(node, _)| node.covers.as_ref()).map(|found| &found.meta).collect()
        }
    };
    let keys: HashSet<_> = gone.iter().map(|meta| key(meta)).collect();
    let has_directory = gone.iter().any(|meta| meta.kind == EntryType::Directory);
    let parked = tree.nodes.iter().zip(states).skip(1).filter(|(_, state)| !gone.is_empty() && **state == State::Park);
    for (node, _) in parked.filter(|(node, _)| is_unnamed(tree, node)) {
        let own = key(&node.meta);
        // With its old size and time a file is the one that it covers, with another mode, unless one that goes has both, too.
        let is_itself = node.covers.as_ref().is_some_and(|found| key(&found.meta) == own);
        if !is_itself || has_directory || keys.contains(&own) {
            let names = node.marks.all.names(tree.mode).map(ByteText).collect();
            ops.push(Op::Strip { path: node.path.text(), names, marks: Vec::new(), is_edit: false });
        }
    }
    // A copy of a file with several names gets no mark at all in an ordinary user's layer.
    if gone.iter().any(|meta| meta.kind == EntryType::File && meta.links > 1) {
        let parked = tree.nodes.iter().zip(states).skip(1).filter(|(_, state)| **state == State::Park);
        let is_unmarked =
            |node: &Node| node.role == Role::Entry && node.meta.kind == EntryType::File && node.marks.origin.is_none();
        for (node, _) in parked.filter(|(node, _)| is_unmarked(node)) {
            ops.push(Op::Strip { path: node.path.text(), names: Vec::new(), marks: Vec::new(), is_edit: false });
        }
    }
    let committed = tree.nodes.iter().zip(states).filter(|(_, state)| **state == State::Commit);
    if tree.mode == LayerMode::User && committed.into_iter().any(|(node, _)| takes_away(tree, node)) {
        let parked = tree.nodes.iter().zip(states).skip(1).filter(|(_, state)| **state == State::Park);
        for (node, _) in parked.filter(|(node, _)| is_edited(tree, node)) {
            // Its mark stays, since it most likely is an edit.
            ops.push(Op::Strip { path: node.path.text(), names: Vec::new(), marks: Vec::new(), is_edit: false });
        }
    }
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
        ops.push(Op::Strip { path: node.path.text(), names, marks: Vec::new(), is_edit });
    }
    Some(ops)
}
