//! Turns the decision about each entry into the steps of a commit. Pure.
//!
//! ```text
//!  Hold     files that get a further name, before anything moves
//!  Take     directories that were renamed leave their old places, the deepest first   (chains and swaps just work)
//!  Strip    marks inside directories that move as a whole
//!  Put, Take  entry by entry, a directory before what is in it; objects of git, then indexes, then all others
//!  Put      names of a changed file that the layer does not contain
//!  SetDir   attributes of directories, the deepest first
//! ```

use crate::beneath::{IoFailure, split};
use crate::decide::object_steps::{self, Turn, order_of_database};
use crate::decide::plan::{CommitPlan, State, writes_shared};
use crate::decide::renames::Moves;
use crate::decide::sources::{MadeFrom, Sources};
use crate::entries::protected::Rules;
use crate::entries::tree::{Found, LayerTree, Lower, Node, Role, SharedPath, Source, Verdict};
use crate::journal::dir_times::DirTimes;
use crate::journal::directory_content::DirectoryContent;
use crate::journal::file::Parent;
use crate::journal::seen::Seen;
use crate::journal::step::{AttrList, DirState, Origin, Put, SetDir, Slot, Staged, Step};
use crate::links::hardlinks;
use crate::meta::{EntryType, FsTime};
use nexus_model::ByteText;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Takes the steps of a commit one by one: a large commit never has all of them in memory.
pub(crate) trait Sink {
    /// Takes an entry that has to be made in a slot. Comes before the step that uses it.
    fn stage(&mut self, slot: Slot, staged: Staged) -> Result<(), IoFailure>;
    /// Takes the next step.
    fn step(&mut self, step: Step) -> Result<(), IoFailure>;
}

type Emitted = Result<(), IoFailure>;

/// Gives the steps of a plan to the sink, in their order. Each call gives the same.
pub(crate) fn emit(tree: &LayerTree, rules: &Rules, plan: &CommitPlan, sink: &mut dyn Sink) -> Emitted {
    let Some(states) = &plan.states else { return Ok(()) };
    Emitter::new(tree, rules, states, sink).emit()?;
    plan.tail.iter().try_for_each(|step| sink.step(step.clone()))
}

/// Builds the list of steps.
struct Emitter<'a, 's> {
    tree: &'a LayerTree,
    rules: &'a Rules,
    states: &'a [State],
    /// Old place of a renamed directory → its slot.
    taken: HashMap<&'a [u8], Slot>,
    /// Group → slot of its first copy.
    copied: HashMap<usize, Slot>,
    /// New directory → slot in which it is made.
    made: HashMap<usize, Slot>,
    /// Member of a group of unchanged content → slot of the further name that it becomes.
    held: HashMap<usize, Slot>,
    /// Directory that moves as a whole → what is in it.
    inside: HashMap<usize, DirectoryContent>,
    /// The steps that take away the files from which entries were made.
    sources: Sources<'a>,
    /// The same for all that is in a directory that moves as a whole.
    sources_inside: HashMap<usize, MadeFrom>,
    times: DirTimes,
    slots: Slot,
    sink: &'s mut dyn Sink,
}

impl<'a, 's> Emitter<'a, 's> {
    fn new(tree: &'a LayerTree, rules: &'a Rules, states: &'a [State], sink: &'s mut dyn Sink) -> Self {
        let (taken, copied, made, held) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let (inside, sources_inside) = (HashMap::new(), HashMap::new());
        let sources = Sources::new(tree, states);
        let is_alone = tree.first_other == FsTime::MAX && !states.contains(&State::Park);
        let times = DirTimes { started: tree.started, first_other: tree.first_other, is_alone };
        Self { tree, rules, states, taken, copied, made, held, inside, sources, sources_inside, times, slots: 0, sink }
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots
    }

    fn stage(&mut self, staged: Staged) -> Result<Slot, IoFailure> {
        let slot = self.slot();
        self.sink.stage(slot, staged)?;
        Ok(slot)
    }

    /// Gives all steps of the plan, in their order.
    fn emit(mut self) -> Emitted {
        self.hold()?;
        self.take_renamed()?;
        let whole = self.whole();
        self.strip_inside(&whole)?;
        self.record_inside(&whole);
        let turns = object_steps::turns(self.tree, self.states);
        for turn in Turn::ALL {
            let entries = self.commits().filter(|at| turns[*at] == turn);
            if turn == Turn::Database {
                let mut entries: Vec<usize> = entries.collect();
                let nodes = &self.tree.nodes;
                entries.sort_by_key(|at| order_of_database(&nodes[*at].path.0, nodes[*at].role));
                entries.into_iter().try_for_each(|at| self.entry(at, &whole))?;
                continue;
            }
            for at in entries {
                self.entry(at, &whole)?;
            }
        }
        self.other_names()?;
        self.set_dirs(&whole)
    }

    fn commits(&self) -> impl Iterator<Item = usize> + use<'a> {
        let states = self.states;
        (1..states.len()).filter(move |at| states[*at] == State::Commit)
    }

    /// Holds unchanged files that get new names: these become names of the very file.
    fn hold(&mut self) -> Emitted {
        let tree = self.tree;
        for group in &tree.groups {
            let Some(anchor) = group.anchor.as_ref().filter(|_| group.same && writes_shared(tree, self.states, group))
            else {
                continue;
            };
            for at in &group.members {
                if self.states[*at] == State::Commit && tree.covered_id(*at) != Some(anchor.meta.id) {
                    let slot = self.slot();
                    self.held.insert(*at, slot);
                    self.sink.step(Step::Hold { at: anchor.at.text(), old: Seen::from(&anchor.meta), slot })?;
                }
            }
        }
        Ok(())
    }

    fn take_renamed(&mut self) -> Emitted {
        let mut moved: Vec<&'a Found> = Vec::new();
        for at in self.commits() {
            if let Lower::Moved(found) = &self.tree.nodes[at].rare.lower {
                moved.push(found);
            }
        }
        moved.sort_by_key(|found| std::cmp::Reverse((depth(&found.at.0), &found.at)));
        let whiteouts = self.tree.nodes.iter().filter(|node| node.claimed && node.role == Role::Whiteout);
        let whiteouts: HashMap<_, _> =
            whiteouts.filter_map(|node| node.covers.as_ref().map(|found| (&found.at, &node.path))).collect();
        for found in moved {
            let slot = self.slot();
            self.taken.insert(&found.at.0, slot);
            let whiteout = whiteouts.get(&found.at).map(|path| path.text());
            self.sink.step(Step::Take {
                at: found.at.text(),
                old: Seen::from(&found.meta),
                slot,
                renamed: true,
                whiteout,
            })?;
        }
        Ok(())
    }

    /// Directories that can be moved with all that is in them.
    fn whole(&self) -> Vec<bool> {
        let tree = self.tree;
        let mut whole: Vec<bool> = (0..tree.nodes.len())
            .map(|at| {
                let node = &tree.nodes[at];
                let kind = node.meta.kind;
                let plain = at != 0 && tree.same_mount && node.role == Role::Entry && self.states[at] == State::Commit;
                let is_rewritten = matches!(node.rare.verdict, Some(Verdict::Strip(_))) || node.rare.instead.is_some();
                let as_it_is = !node.marks.forged && !is_rewritten;
                let copied = node.group().is_some_and(|number| self.must_copy(number)) || self.held.contains_key(&at);
                let fits = match kind {
                    // The owner must be able to get in, to remove overlay's attributes.
                    EntryType::Directory => node.rare.lower == Lower::None && node.meta.mode & 0o700 == 0o700,
                    EntryType::File | EntryType::Symlink | EntryType::Fifo => true,
                    EntryType::Socket | EntryType::Device => false,
                };
                plain && as_it_is && !copied && fits
            })
            .collect();
        for at in (1..tree.nodes.len()).rev() {
            whole[tree.nodes[at].parent] &= whole[at];
        }
        whole
    }

    /// Reports whether a file with several names must be copied, because one stays in the layer: what is committed must
    /// not be the same file, or a later change of it in the workspace would change what was reviewed.
    fn must_copy(&self, group: usize) -> bool {
        let group = &self.tree.groups[group];
        hardlinks::must_part(group) || group.members.iter().any(|at| self.states[*at] == State::Park)
    }

    fn strip_inside(&mut self, whole: &[bool]) -> Emitted {
        for at in self.commits() {
            let node = &self.tree.nodes[at];
            if whole[node.parent] && !node.marks.all.is_empty() {
                self.sink.step(Step::Strip {
                    path: node.path.text(),
                    names: self.marks(node),
                    marks: Vec::new(),
                    is_edit: false,
                })?;
            }
        }
        Ok(())
    }

    fn marks(&self, node: &Node) -> Vec<ByteText> {
        node.marks.all.names(self.tree.mode).map(ByteText).collect()
    }

    /// Records what is in each directory that moves as a whole.
    fn record_inside(&mut self, whole: &[bool]) {
        let nodes = &self.tree.nodes;
        let mut tops: Vec<usize> = (0..nodes.len()).collect();
        for (at, node) in nodes.iter().enumerate().skip(1).filter(|(_, node)| whole[node.parent]) {
            tops[at] = tops[node.parent];
            self.inside.entry(tops[at]).or_default().add(&node.meta, !node.marks.all.is_empty());
            self.sources.add(at, self.sources_inside.entry(tops[at]).or_default());
        }
    }

    /// Returns the entry that stands at the place of a node and has to go.
    fn old(node: &Node) -> Option<Seen> {
        node.covers.as_ref().filter(|_| !node.claimed).map(|found| Seen::from(&found.meta))
    }

    fn entry(&mut self, at: usize, whole: &[bool]) -> Emitted {
        let node = &self.tree.nodes[at];
        if node.role != Role::Entry {
            let Some(old) = Self::old(node) else { return Ok(()) };
            let slot = self.slot();
            return self.sink.step(Step::Take { at: node.path.text(), old, slot, renamed: false, whiteout: None });
        }
        // A socket cannot be committed, and what lies in a whole directory goes along with it.
        if node.meta.kind == EntryType::Socket || whole[node.parent] {
            return Ok(());
        }
        if node.meta.kind == EntryType::Directory {
            return self.directory(at, whole);
        }
        let mut made_from = MadeFrom::default();
        self.sources.add(at, &mut made_from);
        let MadeFrom { paths: sources, any_source } = made_from;
        let put = |from| Put { old: Self::old(node), sources, any_source, ..put(node.path.text(), from) };
        if let Some(slot) = self.held.get(&at).copied() {
            let anchor = node.group().and_then(|number| self.tree.groups[number].anchor.as_ref());
            let new = anchor.map(|one| Seen::from(&one.meta));
            return self.sink.step(Step::Put(Put { new, ..put(Origin::Slot(slot)) }));
        }
        // A name of an unchanged file of the workspace, which is this very file: nothing to do.
        if let Some(group) = node.group().map(|number| &self.tree.groups[number])
            && group.same
            && writes_shared(self.tree, self.states, group)
        {
            return Ok(());
        }
        let stripped = match &node.rare.verdict {
            Some(Verdict::Strip(content)) if !self.rules.accepts_protected(&node.path.0) => Some(content),
            _ => node.rare.instead.as_ref(),
        };
        if let Some(content) = stripped {
            let slot = self.stage(Staged::Bytes { content: content.clone(), like: node.path.text() })?;
            return self.sink.step(Step::Put(put(Origin::Slot(slot))));
        }
        let copy =
            node.marks.forged || !self.tree.same_mount || node.group().is_some_and(|number| self.must_copy(number));
        if copy {
            let group = node.group().filter(|number| !hardlinks::must_part(&self.tree.groups[*number]));
            let slot = self.copy(group, Source::Upper(node.path.text()))?;
            return self.sink.step(Step::Put(put(Origin::Slot(slot))));
        }
        let mode = (node.meta.kind != EntryType::Symlink).then_some(node.meta.mode);
        let (new, strip) = (Some(Seen::from(&node.meta)), self.marks(node));
        self.sink.step(Step::Put(Put { new, strip, mode, ..put(Origin::Layer) }))
    }

    /// Makes a copy in a slot, or a further name of the first copy of the same file.
    fn copy(&mut self, group: Option<usize>, source: Source) -> Result<Slot, IoFailure> {
        if let Some(first) = group.and_then(|number| self.copied.get(&number)).copied() {
            return self.stage(Staged::Twin(first));
        }
        let slot = self.stage(Staged::Copy(source))?;
        if let Some(number) = group {
            self.copied.insert(number, slot);
        }
        Ok(slot)
    }

    fn directory(&mut self, at: usize, whole: &[bool]) -> Emitted {
        let node = &self.tree.nodes[at];
        let put = |from| Put { old: Self::old(node), ..put(node.path.text(), from) };
        let MadeFrom { paths: sources, any_source } = self.sources_inside.remove(&at).unwrap_or_default();
        let put = match &node.rare.lower {
            Lower::Merged(_) => return Ok(()),
            Lower::Moved(found) => {
                let Some(slot) = self.taken.get(&*found.at.0).copied() else { return Ok(()) };
                Put { new: Some(Seen::from(&found.meta)), ..put(Origin::Slot(slot)) }
            }
            Lower::None | Lower::Missing if whole[at] => Put {
                new: Some(Seen::from(&node.meta)),
                strip: self.marks(node),
                mode: Some(node.meta.mode),
                whole: true,
                inside: Some(self.inside.remove(&at).unwrap_or_default()),
                sources,
                any_source,
                ..put(Origin::Layer)
            },
            Lower::None | Lower::Missing => {
                let slot = self.stage(Staged::Directory)?;
                self.made.insert(at, slot);
                put(Origin::Slot(slot))
            }
        };
        self.sink.step(Step::Put(put))
    }

    /// Names of a changed file that the layer does not contain: overlay showed them the new content too.
    fn other_names(&mut self) -> Emitted {
        let tree = self.tree;
        let moves = Moves::of(tree, |at| self.states[at] == State::Commit);
        for (number, group) in tree.groups.iter().enumerate() {
            if group.anchor.is_none() || group.same || !writes_shared(tree, self.states, group) {
                continue;
            }
            // Nor is there an entry of the layer for an anchor that was found in a directory which goes away or moves.
            let anchor = group.anchor.as_ref().filter(|anchor| tree.is_scanned(anchor));
            for other in group.others.iter().chain(anchor) {
                let Some(path) = moves.after(&other.at.0) else { continue };
                let slot = if tree.same_mount && !self.copied.contains_key(&number) {
                    self.stage(Staged::Name(group.source.clone()))?
                } else {
                    self.copy(Some(number), group.source.clone())?
                };
                let strip = group.members.first().map(|at| self.marks(&tree.nodes[*at])).unwrap_or_default();
                let old = Some(Seen::from(&other.meta));
                let put = put(ByteText(path), Origin::Slot(slot));
                self.sink.step(Step::Put(Put { old, strip, only_staged: true, ..put }))?;
            }
        }
        Ok(())
    }

    fn set_dirs(&mut self, whole: &[bool]) -> Emitted {
        let tree = self.tree;
        // Directories in which something was done, and those that may have been opened up on the way to it.
        let mut worked = vec![false; tree.nodes.len()];
        let mut passed = vec![false; tree.nodes.len()];
        for at in (1..tree.nodes.len()).rev() {
            let parent = tree.nodes[at].parent;
            worked[parent] |= self.states[at] == State::Commit;
            passed[parent] |= worked[at] || passed[at] || self.states[at] == State::Commit;
        }
        let is_dir = |at: &usize| {
            let node = &tree.nodes[*at];
            node.meta.kind == EntryType::Directory && node.role == Role::Entry && !whole[*at]
        };
        let mut dirs: Vec<usize> = (0..tree.nodes.len()).filter(is_dir).collect();
        dirs.sort_by_key(|at| std::cmp::Reverse(depth(&tree.nodes[*at].path.0)));
        for at in dirs {
            let node = &tree.nodes[at];
            let is_committed = self.states[at] == State::Commit;
            let (Lower::Merged(old) | Lower::Moved(old)) = &node.rare.lower else {
                if self.states[at] == State::Commit {
                    self.sink.step(Step::SetDir(self.set_dir(at, None)))?;
                }
                continue;
            };
            let tight = old.meta.mode & 0o700 != 0o700 || node.meta.mode & 0o700 != 0o700;
            let is_tidied = worked[at] && at != 0 && self.states[at] == State::Nothing;
            if is_committed {
                self.sink.step(Step::SetDir(self.set_dir(at, Some(old))))?;
            } else if is_tidied || (passed[at] && tight) {
                // Its own attributes stay as they were in the workspace.
                let mtime = is_tidied.then(|| self.times.of(&old.meta, &node.meta)).flatten();
                if mtime.is_none() && !tight {
                    continue;
                }
                let (mode, uid, gid) = (old.meta.mode, old.meta.uid, old.meta.gid);
                let (path, id) = (node.path.text(), Some(old.meta.id));
                let mtime_was = Some(old.meta.mtime);
                let set = SetDir { path, id, slot: None, mode, uid, gid, mtime, mtime_was, attrs: None, was: None };
                self.sink.step(Step::SetDir(set))?;
            }
        }
        Ok(())
    }

    fn set_dir(&self, at: usize, old: Option<&Found>) -> SetDir {
        let node = &self.tree.nodes[at];
        // The time of the workspace's own directory is the commit's business.
        let is_filled = matches!(&node.rare.lower, Lower::Moved(found) if self.tree.is_fresh(found));
        let mtime = old.map_or(Some(node.meta.mtime), |old| self.times.of(&old.meta, &node.meta));
        let mtime = mtime.filter(|_| at != 0 && !is_filled);
        let (mode, uid, gid) = (node.meta.mode, node.meta.uid, node.meta.gid);
        let was = old.map(|old| DirState {
            mode: old.meta.mode,
            uid: old.meta.uid,
            gid: old.meta.gid,
            mtime: old.meta.mtime,
            attrs: list(&node.rare.base_attrs),
        });
        let id = old.map(|old| old.meta.id);
        let (path, slot) = (node.path.text(), self.made.get(&at).copied());
        SetDir { path, id, slot, mode, uid, gid, mtime, mtime_was: None, attrs: Some(list(&node.rare.attrs)), was }
    }
}

/// Makes a step that brings something to a free name.
fn put(path: ByteText, from: Origin) -> Put {
    let (new, old, mode, inside) = (None, None, None, None);
    let (strip, marks, sources) = (Vec::new(), Vec::new(), Vec::new());
    let (whole, only_staged, any_source) = (false, false, false);
    Put { path, from, new, old, strip, marks, mode, whole, inside, only_staged, any_source, sources }
}

/// Lists the directories of the workspace in which the steps of a plan act.
pub(crate) fn parents(tree: &LayerTree, plan: &CommitPlan) -> Vec<Parent> {
    let mut parents = BTreeMap::new();
    for (at, _) in plan.states.iter().flatten().enumerate().filter(|(_, state)| **state == State::Commit) {
        let parent = &tree.nodes[tree.nodes[at].parent];
        if let Lower::Merged(found) | Lower::Moved(found) = &parent.rare.lower {
            parents.insert(&parent.path, (found.meta.id, tree.is_unchanged_directory(parent)));
        }
    }
    let parent = |(path, (id, is_unchanged)): (&SharedPath, _)| Parent { path: path.text(), id, is_unchanged };
    parents.into_iter().map(parent).collect()
}

/// Lists the directories that renamed directories leave and that the layer has no version of: one that was removed after
/// them is gone from the layer with everything above it. A commit takes the renamed directory out of it, which sets its
/// times, before it takes the removed one away.
pub(crate) fn moved_from(tree: &LayerTree, plan: &CommitPlan) -> Vec<ByteText> {
    let committed = plan.states.iter().flatten().enumerate().filter(|(_, state)| **state == State::Commit);
    let moved = committed.filter_map(|(at, _)| match &tree.nodes[at].rare.lower {
        Lower::Moved(found) => Some(split(&found.at.0).0),
        _ => None,
    });
    let mut left: BTreeSet<&[u8]> = moved.filter(|parent| !parent.is_empty()).collect();
    if !left.is_empty() {
        for node in &tree.nodes {
            left.remove(&*node.path.0);
        }
    }
    left.into_iter().map(|path| ByteText(path.to_vec())).collect()
}

fn list(attrs: &[(Vec<u8>, Vec<u8>)]) -> AttrList {
    attrs.iter().map(|(name, value)| (ByteText(name.clone()), ByteText(value.clone()))).collect()
}

/// Returns the number of names in a path; the root has 0.
fn depth(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { path.split(|byte| *byte == b'/').count() }
}
