//! Prepares the rest of a layer for a later decision when only part of it is committed: the changes of this commit must not look
//! like changes by another process then. Pure.

use crate::beneath::{is_beneath, split};
use crate::decide::renames::Moves;
use crate::decide::state::{State, is_new_dir, writes_shared};
use crate::entries::arrival::Arrival;
use crate::entries::marks::LayerMode;
use crate::entries::tree::{Group, LayerTree, Lower, Verdict};
use crate::meta::EntryType;
use nexus_model::ByteText;

/// More conflicts than this are not worth listing for one directory.
pub(crate) const LISTED: usize = 16;

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
        // A directory whose own attributes are set is touched itself.
        let is_merged = matches!(tree.nodes[at].rare.lower, Lower::Merged(_));
        let mut up = if is_merged { at } else { tree.nodes[at].parent };
        while up != 0 && !seen[up] {
            seen[up] = true;
            if tree.is_unchanged_directory(&tree.nodes[up]) {
                paths.push(tree.nodes[up].path.text());
            }
            up = tree.nodes[up].parent;
        }
    }
    let mut files: Vec<&[u8]> = Vec::new();
    // A file whose other name goes away or is held for a while: the number of its names is a part of its time stamp. So it is
    // for one in a directory whose removal waits.
    for (node, state) in tree.nodes.iter().zip(states) {
        if *state == State::Park
            && let Some(found) = node.covers.as_ref()
            && found.meta.links > 1
            && !tree.is_new_outside(node, found)
        {
            files.push(&found.at.0);
        }
    }
    for (node, state) in tree.nodes.iter().zip(states).filter(|(node, _)| !node.claimed) {
        let scan = node.rare.scan.as_ref().filter(|_| *state == State::Park && node.covers.is_some());
        files.extend(scan.iter().flat_map(|scan| &scan.shared).map(|path| &*path.0));
    }
    // And for those names of a file with a new one that waits which the layer does not have.
    let has_parked = |group: &&Group| group.members.iter().any(|at| states[*at] == State::Park);
    let waits = tree.groups.iter().filter(|group| group.waits || has_parked(group));
    let names = waits.flat_map(|group| group.anchor.iter().chain(&group.others));
    files.extend(names.filter(|name| !tree.is_fresh(name)).map(|name| &*name.at.0));
    let moves = Moves::of(tree, |at| states[at] == State::Commit);
    paths.extend(files.into_iter().filter_map(|path| moves.after(path)).map(ByteText));
    paths.extend(written_directories(tree, states));
    paths
}

/// Lists the directories whose removal still waits, and in which a further name of an accepted file gets its new content. One in
/// which another process worked is not among them.
fn written_directories(tree: &LayerTree, states: &[State]) -> Vec<ByteText> {
    let mut paths: Vec<ByteText> = Vec::new();
    let written = tree.groups.iter().filter(|group| !group.same && writes_shared(tree, states, group));
    let anchor = |group: &Group| group.anchor.clone().filter(|anchor| tree.is_scanned(anchor));
    for other in written.flat_map(|group| group.others.iter().cloned().chain(anchor(group))) {
        let waits = tree.nodes.iter().zip(states).filter(|(node, state)| **state == State::Park && !node.claimed);
        let mut waits = waits.filter_map(|(node, _)| Some((node.covers.as_deref()?, node.rare.scan.as_ref()?)));
        let Some((_, scan)) = waits.find(|(found, _)| is_beneath(&other.at.0, &found.at.0)) else { continue };
        let parent = ByteText(split(&other.at.0).0.to_vec());
        if scan.changed.len() < LISTED && !scan.changed.contains(&parent) && !paths.contains(&parent) {
            paths.push(parent);
        }
    }
    paths
}

/// Lists the directories of the workspace that may have come to their places after the run began, with the answer about
/// each, which holds for all in it.
pub(crate) fn arrivals(tree: &LayerTree) -> Vec<(ByteText, Arrival)> {
    let mut found = Vec::new();
    for node in tree.nodes.iter().skip(1) {
        let (Lower::Merged(directory) | Lower::Moved(directory)) = &node.rare.lower else { continue };
        let arrival = node.rare.arrival;
        if arrival.is_possible() && !tree.nodes[node.parent].rare.arrival.is_possible() {
            found.push((directory.at.text(), arrival));
        }
    }
    found
}
