//! Decides what a commit does. Pure: `plan` decides about each entry that was read, and `commit::decide::steps_of_plan` turns the
//! decisions into steps ([`crate::journal::step`]).
//!
//! Every step can run twice (a crash, then recovery): it names the entries it means by inode and birth time, not only
//! by path, and leaves alone what is another entry by now.

use crate::beneath::is_beneath;
use crate::decide::orphans;
use crate::decide::outside;
use crate::decide::partial;
use crate::decide::report::{Report, Row, index_only, number};
use crate::decide::state::is_whole_object;
use crate::entries::changes::{Change, Conflict, Outside};
use crate::entries::marks::LayerMode;
use crate::entries::protected::Rules;
use crate::entries::tree::{Found, Group, LayerTree, Lower, Node, Role, SharedPath, Source, Verdict};
use crate::entries::verdict::{hold, is_nothing};
use crate::entries::yours::Yours;
use crate::journal::kept_entry::KeptEntry;
use crate::journal::step::Step;
use crate::meta::{EntryType, Meta};
use crate::read::walk::origin_inode;
use nexus_model::ByteText;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(crate) use crate::decide::state::{State, is_new_dir, writes_shared};

/// The effect of a commit: a decision about each entry. `commit::decide::steps_of_plan` turns it into steps.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan {
    /// The decision about each node; `None` when nothing is committed.
    pub(crate) states: Option<Vec<State>>,
    /// Steps after those of the entries.
    pub(crate) tail: Vec<Step>,
    /// The changes that reach the workspace.
    pub(crate) committed: Report,
    /// The changes that stay in the layer.
    pub(crate) parked: Report,
    /// The entries that stay in the layer, by path.
    pub(crate) keep: Vec<KeptEntry>,
    /// The names in overlay's index of the files that stay in the layer without a name there.
    pub(crate) keep_in_index: Vec<ByteText>,
    /// Changes outside; with any of them nothing is committed.
    pub(crate) conflicts: Vec<Conflict>,
    /// The entries that the commit leaves behind in another form than in the layer, and the directories that it works
    /// in while their own change stays parked; a later accept must not take them for changes from outside.
    pub(crate) rewritten: Vec<ByteText>,
}

/// The report of a layer: everything that differs, with the reasons to hold entries back.
#[must_use]
pub fn report(tree: &LayerTree, rules: &Rules) -> Vec<Change> {
    Report::everything(tree).lines(tree, rules).collect()
}

/// Plans a commit.
#[must_use]
pub(crate) fn plan(tree: &LayerTree, rules: &Rules) -> CommitPlan {
    // A change without a name in the layer: who accepts the rest would not see what stays behind.
    let is_held = |change: &Change| change.protected.is_some() && !rules.accept_protected;
    if index_only(tree).any(|(number, change)| is_held(&change) && !tree.groups[number].waits) {
        return park_all(tree, Vec::new());
    }
    let mut states = states(tree, rules);
    partial::keep_readable(tree, &mut states);
    let Some(also_kept) = park_renames(tree, &mut states) else { return park_all(tree, Vec::new()) };
    if partial::keep_readable(tree, &mut states) {
        return park_all(tree, Vec::new());
    }
    if tree.groups.iter().any(|group| group.waits && !group.same && loses_its_name(tree, &states, group)) {
        return park_all(tree, Vec::new());
    }
    let conflicts = conflicts(tree, &states, &rules.theirs);
    if !conflicts.is_empty() {
        return park_all(tree, conflicts);
    }
    let mut plan = CommitPlan { keep: keep(tree, &states, &also_kept), ..CommitPlan::default() };
    let (mut committed, mut parked) = (Vec::new(), Vec::new());
    for (at, node) in tree.nodes.iter().enumerate() {
        match states[at] {
            State::Nothing => {}
            State::Park => parked.push(Row::Node(number(at))),
            State::Commit => {
                if matches!(node.rare.verdict, Some(Verdict::Strip(_))) && !rules.accepts_protected(&node.path.0) {
                    plan.rewritten.push(node.path.text());
                    parked.push(Row::Stripped(number(at)));
                    plan.keep.push(node.path.text().into());
                }
                committed.push(Row::Accepted(number(at)));
            }
        }
    }
    let Some(orphans) = orphans::orphans(tree, &states) else { return park_all(tree, Vec::new()) };
    if !parked.is_empty() {
        plan.rewritten.extend(partial::touched(tree, &states));
    }
    for (at, _) in index_only(tree) {
        match &tree.groups[at].source {
            Source::Index(name) if tree.groups[at].waits => {
                plan.keep_in_index.push(name.clone());
                parked.push(Row::Group(number(at)));
            }
            _ => committed.push(Row::AcceptedGroup(number(at))),
        }
    }
    (plan.committed, plan.parked) = (Report::ordered(tree, committed), Report::ordered(tree, parked));
    (plan.states, plan.tail) = (Some(states), orphans);
    plan
}

pub(crate) fn park_all(tree: &LayerTree, conflicts: Vec<Conflict>) -> CommitPlan {
    CommitPlan { parked: Report::everything(tree), conflicts, ..CommitPlan::default() }
}

fn states(tree: &LayerTree, rules: &Rules) -> Vec<State> {
    let mut states = vec![State::Nothing; tree.nodes.len()];
    let mut held = vec![false; tree.nodes.len()];
    for at in 0..tree.nodes.len() {
        let node = &tree.nodes[at];
        // What lies in a directory that stays behind stays behind with it, also what would change nothing.
        held[at] = at != 0 && held[node.parent] && is_new_dir(tree, node.parent);
        if is_nothing(tree, node) {
            continue;
        }
        held[at] |= hold(node, rules).is_some_and(|hold| !hold.is_accepted(rules, node));
        states[at] = if held[at] || !rules.is_chosen(&node.path.0) { State::Park } else { State::Commit };
    }
    // A chosen entry needs its directory.
    for at in (1..tree.nodes.len()).rev() {
        let parent = tree.nodes[at].parent;
        if states[at] == State::Commit && is_new_dir(tree, parent) && !held[parent] {
            states[parent] = State::Commit;
        }
    }
    states
}

/// A renamed directory stays behind together with the mark at its old place. Returns these marks, or `None` when the
/// rename is entangled with other changes, so that only the layer as a whole can stay behind.
fn park_renames(tree: &LayerTree, states: &mut [State]) -> Option<Vec<usize>> {
    let moved: Vec<(usize, &SharedPath)> = (1..tree.nodes.len())
        .filter_map(|at| match &tree.nodes[at].rare.lower {
            Lower::Moved(found) => Some((at, &found.at)),
            Lower::None | Lower::Merged(_) | Lower::Missing => None,
        })
        .collect();
    let mut whiteouts = Vec::new();
    let sources: HashMap<&SharedPath, usize> = (tree.nodes.iter().enumerate())
        .filter(|(_, node)| node.claimed && node.role == Role::Whiteout)
        .filter_map(|(at, node)| node.covers.as_ref().map(|found| (&found.at, at)))
        .collect();
    for (at, from) in &moved {
        if states[*at] != State::Park {
            continue;
        }
        let whiteout = *sources.get(from)?;
        let entangled = moved.iter().any(|(other, place)| {
            let nested = crate::beneath::is_beneath(&place.0, &from.0) || crate::beneath::is_beneath(&from.0, &place.0);
            other != at && nested
        });
        if entangled
            || has_moved_ancestor(tree, *at)
            || has_moved_ancestor(tree, whiteout)
            || tree.nodes[*at].covers.is_some()
        {
            return None;
        }
        whiteouts.push(whiteout);
        for (node, state) in tree.nodes.iter().zip(states.iter_mut()) {
            if *state == State::Commit && crate::beneath::is_beneath(&node.path.0, &tree.nodes[*at].path.0) {
                *state = State::Park;
            }
        }
    }
    Some(whiteouts)
}

fn has_moved_ancestor(tree: &LayerTree, at: usize) -> bool {
    let mut at = tree.nodes[at].parent;
    while at != 0 {
        if matches!(tree.nodes[at].rare.lower, Lower::Moved(_)) {
            return true;
        }
        at = tree.nodes[at].parent;
    }
    false
}

/// Lists what changed outside. `kept` are conflicts that the user decided, as long as the workspace has what was kept beside.
fn conflicts(tree: &LayerTree, states: &[State], kept: &[Yours]) -> Vec<Conflict> {
    let mut found: BTreeMap<ByteText, Outside> = BTreeMap::new();
    let mut add = |path: &[u8], outside: Outside| {
        found.entry(path.to_vec().into()).or_insert(outside);
    };
    if tree.top_conflict && states[0] == State::Commit {
        add(b".", Outside::Changed);
    }
    let own_mount = |meta: &Meta| tree.mount.is_none_or(|mount| meta.mount == mount);
    for (path, outside) in outside::replaced(tree, states) {
        add(&path.0, outside);
    }
    if tree.mode == LayerMode::User {
        for (path, outside) in outside::vanished(tree, states) {
            if !Yours::is_kept(kept, &SharedPath::from(path.0.clone()), None, false) {
                add(&path.0, outside);
            }
        }
    }
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        if node.rare.lower == Lower::Missing {
            add(&node.path.0, Outside::Vanished);
        }
        if states[at] != State::Commit {
            continue;
        }
        let is_kept = !node.rare.in_unit && {
            let covered = node.covers.as_deref().filter(|_| !node.claimed);
            Yours::is_kept(kept, &node.path, covered, node.rare.instead.is_some())
        };
        if let Some(covered) = node.covers.as_ref().filter(|_| !node.claimed) {
            if !own_mount(&covered.meta) {
                add(&covered.at.0, Outside::Blocked);
            }
            if tree.is_new_outside(node, covered) && !node.rare.refreshed && !is_kept {
                add(&covered.at.0, Outside::Changed);
            }
        }
        if let Lower::Merged(merged) = &node.rare.lower
            && (tree.is_fresh(merged) || node.rare.arrival.is_possible())
        {
            add(&merged.at.0, Outside::Changed);
        }
        // A git of the host holds the file, and its own version would win.
        if let Some(lock) = tree.locks.get(&at) {
            add(&lock.0, Outside::Changed);
        }
        for path in node.rare.scan.iter().flat_map(|scan| &scan.blocked) {
            add(&path.0, Outside::Blocked);
        }
        for path in node.rare.scan.iter().flat_map(|scan| &scan.changed) {
            add(&path.0, Outside::Changed);
        }
        // Copied up from a file that is neither at a place that the layer touches nor in a directory that goes away.
        let is_elsewhere = origin_inode(node).is_some() && tree.origin_of(node).is_none();
        if is_elsewhere && !is_whole_object(node) && !node.rare.refreshed && !is_kept {
            add(&node.path.0, if node.covers.is_none() { Outside::Vanished } else { Outside::Changed });
        }
    }
    for group in tree.groups.iter().filter(|group| writes_shared(tree, states, group)) {
        let fresh = group.anchor.iter().chain(&group.others).filter(|name| tree.is_fresh(name));
        let fresh: Vec<&Found> = fresh.collect();
        for name in &fresh {
            add(&name.at.0, Outside::Changed);
        }
        // Where the layer has none of these names, the change is known by those that the run gave to the file.
        let has_name = |at: &usize| fresh.iter().any(|name| name.at == tree.nodes[*at].path);
        if !fresh.is_empty() && !group.members.iter().any(has_name) {
            group.members.iter().for_each(|at| add(&tree.nodes[*at].path.0, Outside::Changed));
        }
    }
    // What lies below a mount cannot be looked at, and the mount says it all.
    let blocked: Vec<ByteText> =
        found.iter().filter(|(_, outside)| **outside == Outside::Blocked).map(|(path, _)| path.clone()).collect();
    let is_below = |path: &ByteText| blocked.iter().any(|one| one != path && is_beneath(&path.0, &one.0));
    found.retain(|path, _| !is_below(path));
    found.into_iter().map(|(path, outside)| Conflict::new(path, outside)).collect()
}

/// Reports whether a name is taken away by which a later commit knows the file of a group that waits without any name in
/// the layer.
fn loses_its_name(tree: &LayerTree, states: &[State], group: &Group) -> bool {
    let Some(anchor) = &group.anchor else { return false };
    let takes = |node: &Node| node.covers.as_ref().is_some_and(|found| is_beneath(&anchor.at.0, &found.at.0));
    tree.nodes.iter().zip(states).skip(1).any(|(node, state)| *state == State::Commit && takes(node))
}

fn keep(tree: &LayerTree, states: &[State], whiteouts: &[usize]) -> Vec<KeptEntry> {
    let mut whole = vec![false; tree.nodes.len()];
    let mut keep = Vec::new();
    if states[0] == State::Park {
        keep.push(ByteText(Vec::new()).into());
    }
    // A name of a file that the run gave a further one, which waits: by the old name a later commit knows the file.
    let waits = |group: &&Group| group.members.iter().any(|at| states[*at] == State::Park);
    let old_names = tree.groups.iter().filter(waits).flat_map(|group| &group.members);
    let old_names: HashSet<usize> = old_names.filter(|at| states[**at] == State::Nothing).copied().collect();
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        whole[at] = whole[node.parent];
        if whole[at] || (states[at] != State::Park && !whiteouts.contains(&at) && !old_names.contains(&at)) {
            continue;
        }
        whole[at] = is_new_dir(tree, at);
        let mode = (node.meta.kind == EntryType::Directory && node.role == Role::Entry).then_some(node.meta.mode);
        keep.push(KeptEntry { path: node.path.text(), subtree: whole[at], whiteout: node.role == Role::Implied, mode });
    }
    keep
}
