//! Decides what a commit does. Pure: [`plan`] turns what was read into a list of actions, and nothing else.
//!
//! ```text
//!  Stage    directories that were renamed leave their old places, the deepest first   (chains and swaps just work)
//!  Hold     files with several names get one more name, so that they outlive the deletions
//!  Delete   what is gone or replaced by something of another type
//!  MakeDir, Place, Move, Write    what is there now, a directory before what is in it
//!  Overwrite, Link    files with several names
//!  SetDir   attributes of directories, the deepest first
//!  Release  the extra names
//! ```
//!
//! Every action can run twice (a crash, then recovery): it names the file it means by inode and birth time, not only
//! by path, and does nothing when that file is no longer there.

use crate::changes::{Change, Conflict, Outside};
use crate::meta::{EntryType, FileId, FsTime};
use crate::protected::Rules;
use crate::tree::{Group, LayerTree, Lower, Role, Source, Verdict};
use crate::verdict::{Hold, change, hold, is_nothing};
use crate::walk::origin_inode;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Attributes as (name, value).
pub type AttrList = Vec<(ByteText, ByteText)>;

/// One step of a commit. Paths are relative to the workspace unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Takes a renamed directory away from its old place, to the temporary name `temp`.
    Stage {
        /// Its old place.
        at: ByteText,
        /// Which directory.
        id: FileId,
        /// Number of the temporary name.
        temp: usize,
    },
    /// Gives a file the extra name `temp`.
    Hold {
        /// Where it is.
        at: ByteText,
        /// Which file.
        id: FileId,
        /// Number of the temporary name.
        temp: usize,
    },
    /// Removes an entry with everything beneath it.
    Delete {
        /// Where it is.
        at: ByteText,
        /// Which entry.
        id: FileId,
    },
    /// Makes a directory; its attributes come last.
    MakeDir {
        /// Where.
        path: ByteText,
    },
    /// Puts a staged directory at its new place.
    Place {
        /// Where.
        path: ByteText,
        /// Which directory.
        id: FileId,
        /// Number of its temporary name.
        temp: usize,
    },
    /// Removes overlay's attributes from an entry of the upper directory.
    Strip {
        /// Where, in the layer.
        path: ByteText,
        /// Which attributes.
        names: Vec<ByteText>,
    },
    /// Moves an entry of the layer to its place; copies it where it cannot be moved.
    Move {
        /// Where, in the layer and in the workspace.
        path: ByteText,
        /// Overlay's attributes on it.
        strip: Vec<ByteText>,
        /// Its mode, which opening it up may change.
        mode: u32,
        /// Copy it even if it could be moved.
        copy: bool,
        /// Names of one new file have the same number.
        group: Option<usize>,
        /// Number of the temporary name.
        temp: usize,
    },
    /// Writes a file with this content and the attributes of the layer's entry of the same path.
    Write {
        /// Where.
        path: ByteText,
        /// The bytes.
        content: ByteText,
        /// Number of the temporary name.
        temp: usize,
    },
    /// Gives a held file the content and attributes of its new version, in place.
    Overwrite {
        /// Number of its temporary name.
        held: usize,
        /// The new version.
        source: Source,
    },
    /// Makes `path` a name of a held file.
    Link {
        /// Number of its temporary name.
        held: usize,
        /// The new name.
        path: ByteText,
        /// Number of the temporary name of the link.
        temp: usize,
    },
    /// Sets the attributes of a directory.
    SetDir {
        /// Which directory.
        path: ByteText,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Last change, unless it stays as it is.
        mtime: Option<FsTime>,
        /// All its attributes, unless they stay as they are.
        attrs: Option<AttrList>,
    },
    /// Removes the extra name of a held file.
    Release {
        /// Number of the temporary name.
        temp: usize,
    },
}

/// An entry that stays in the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Where.
    pub path: ByteText,
    /// With everything beneath it, untouched.
    pub subtree: bool,
    /// There is no entry yet: a whiteout has to be made.
    pub whiteout: bool,
}

/// What a commit would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitPlan {
    /// In this order.
    pub actions: Vec<Action>,
    /// What reaches the workspace.
    pub committed: Vec<Change>,
    /// What stays in the layer.
    pub parked: Vec<Change>,
    /// What stays in the layer, by path.
    pub keep: Vec<Keep>,
    /// Changes outside; with any of them nothing is committed.
    pub conflicts: Vec<Conflict>,
    /// Files that the commit leaves behind in another form than in the layer; a later accept must not take them for
    /// changes from outside.
    pub rewritten: Vec<ByteText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    Commit,
    Park,
}

/// The report of a layer: everything that differs, with the reasons to hold entries back.
#[must_use]
pub fn report(tree: &LayerTree, rules: &Rules) -> Vec<Change> {
    let all = tree.nodes.iter().skip(1).filter(|node| !is_nothing(tree, node));
    let mut changes: Vec<Change> = all.map(|node| change(tree, node, rules)).collect();
    changes.extend(index_only(tree));
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// Files that changed through names that are gone again; what is left are names that the layer does not contain.
fn index_only(tree: &LayerTree) -> impl Iterator<Item = Change> {
    let groups = tree.groups.iter().filter(|group| group.members.is_empty() && !group.same);
    groups.filter_map(|group| {
        let anchor = group.anchor.as_ref()?;
        Some(Change {
            path: anchor.at.clone(),
            kind: crate::changes::ChangeKind::Modified,
            file_type: group.meta.kind,
            size: group.meta.size,
            mode: group.meta.mode,
            protected: None,
            setuid: false,
            new_executable: false,
            hook: false,
            skipped: false,
        })
    })
}

/// Plans a commit.
#[must_use]
pub fn plan(tree: &LayerTree, rules: &Rules) -> CommitPlan {
    let mut states = states(tree, rules);
    let Some(also_kept) = park_renames(tree, &mut states) else { return park_all(tree, rules, Vec::new()) };
    let conflicts = conflicts(tree, &states);
    if !conflicts.is_empty() {
        return park_all(tree, rules, conflicts);
    }
    let mut plan = CommitPlan { keep: keep(tree, &states, &also_kept), ..CommitPlan::default() };
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let report = || change(tree, node, rules);
        match states[at] {
            State::Nothing => {}
            State::Park => plan.parked.push(report()),
            State::Commit => {
                if matches!(node.verdict, Some(Verdict::Strip(_))) && !rules.accept_protected {
                    plan.rewritten.push(node.path.clone());
                    plan.parked.push(Change { protected: Some("git configuration that runs commands".to_owned()), ..report() });
                    plan.keep.push(Keep { path: node.path.clone(), subtree: false, whiteout: false });
                }
                plan.committed.push(Change { protected: None, ..report() });
            }
        }
    }
    plan.committed.extend(index_only(tree));
    plan.committed.sort_by(|a, b| a.path.cmp(&b.path));
    plan.parked.sort_by(|a, b| a.path.cmp(&b.path));
    plan.actions = Emitter::new(tree, rules, &states).emit();
    plan
}

fn park_all(tree: &LayerTree, rules: &Rules, conflicts: Vec<Conflict>) -> CommitPlan {
    CommitPlan { parked: report(tree, rules), conflicts, ..CommitPlan::default() }
}

/// A directory with nothing of the workspace in it, or one from another place.
fn is_new_dir(tree: &LayerTree, at: usize) -> bool {
    let node = &tree.nodes[at];
    node.role == Role::Entry
        && node.meta.kind == EntryType::Directory
        && matches!(node.lower, Lower::None | Lower::Moved(_) | Lower::Missing)
}

fn states(tree: &LayerTree, rules: &Rules) -> Vec<State> {
    let mut states = vec![State::Nothing; tree.nodes.len()];
    let mut held = vec![false; tree.nodes.len()];
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        // What lies in a directory that stays behind stays behind with it, also what would change nothing.
        held[at] = held[node.parent] && is_new_dir(tree, node.parent);
        if is_nothing(tree, node) {
            continue;
        }
        held[at] |= match hold(node, rules) {
            Some(Hold::Never(_)) => true,
            Some(Hold::Protected(_)) => !rules.accept_protected,
            None => false,
        };
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
    let moved: Vec<(usize, &ByteText)> = (1..tree.nodes.len())
        .filter_map(|at| match &tree.nodes[at].lower {
            Lower::Moved(found) => Some((at, &found.at)),
            Lower::None | Lower::Merged(_) | Lower::Missing => None,
        })
        .collect();
    let mut marks = Vec::new();
    let sources: HashMap<&ByteText, usize> = (tree.nodes.iter().enumerate())
        .filter(|(_, node)| node.claimed && node.role == Role::Whiteout)
        .filter_map(|(at, node)| node.covers.as_ref().map(|found| (&found.at, at)))
        .collect();
    for (at, from) in &moved {
        if states[*at] != State::Park {
            continue;
        }
        let mark = *sources.get(from)?;
        let entangled = moved.iter().any(|(other, place)| {
            let nested = crate::beneath::is_beneath(&place.0, &from.0) || crate::beneath::is_beneath(&from.0, &place.0);
            other != at && nested
        });
        if entangled || has_moved_ancestor(tree, *at) || has_moved_ancestor(tree, mark) || tree.nodes[*at].covers.is_some() {
            return None;
        }
        marks.push(mark);
        for node in at + 1..tree.nodes.len() {
            let inside = crate::beneath::is_beneath(&tree.nodes[node].path.0, &tree.nodes[*at].path.0);
            if inside && states[node] == State::Commit {
                states[node] = State::Park;
            }
        }
    }
    Some(marks)
}

fn has_moved_ancestor(tree: &LayerTree, at: usize) -> bool {
    let mut at = tree.nodes[at].parent;
    while at != 0 {
        if matches!(tree.nodes[at].lower, Lower::Moved(_)) {
            return true;
        }
        at = tree.nodes[at].parent;
    }
    false
}

fn conflicts(tree: &LayerTree, states: &[State]) -> Vec<Conflict> {
    let mut found: BTreeSet<(ByteText, bool)> = BTreeSet::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        if node.lower == Lower::Missing {
            found.insert((node.path.clone(), true));
        }
        if states[at] != State::Commit {
            continue;
        }
        if let Some(covered) = node.covers.as_ref().filter(|covered| !node.claimed && tree.is_fresh(covered)) {
            found.insert((covered.at.clone(), false));
        }
        if let Lower::Merged(merged) = &node.lower
            && tree.is_fresh(merged)
        {
            found.insert((merged.at.clone(), false));
        }
        if let Some(scan) = &node.scan {
            found.extend(scan.changed.iter().map(|path| (path.clone(), false)));
        }
        // Copied up from a file that is neither at a place that the layer touches nor in a directory that goes away.
        if let Some(ino) = origin_inode(node)
            && !tree.inodes.contains_key(&ino)
        {
            found.insert((node.path.clone(), node.covers.is_none()));
        }
    }
    for anchor in tree.groups.iter().filter(|group| writes_shared(tree, states, group)).filter_map(|g| g.anchor.as_ref()) {
        if tree.is_fresh(anchor) {
            found.insert((anchor.at.clone(), false));
        }
    }
    let outside = |vanished| if vanished { Outside::Vanished } else { Outside::Changed };
    found.into_iter().map(|(path, vanished)| Conflict { path, outside: outside(vanished) }).collect()
}

/// Whether a group becomes the new version of a file with several names. When one of its names is held back it does
/// not: the file may be a protected one, and a link made in an earlier run must not be a way to write it.
fn writes_shared(tree: &LayerTree, states: &[State], group: &Group) -> bool {
    let own = |at: &usize| group.anchor.as_ref().map(|anchor| anchor.meta.id) == tree.covered_id(*at);
    group.anchor.is_some()
        && group.members.iter().all(|at| states[*at] == State::Commit || (states[*at] == State::Nothing && own(at)))
        && (!group.same || group.members.iter().any(|at| states[*at] == State::Commit))
}

fn keep(tree: &LayerTree, states: &[State], marks: &[usize]) -> Vec<Keep> {
    let mut whole = vec![false; tree.nodes.len()];
    let mut keep = Vec::new();
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        whole[at] = whole[node.parent];
        if whole[at] || (states[at] != State::Park && !marks.contains(&at)) {
            continue;
        }
        whole[at] = is_new_dir(tree, at);
        keep.push(Keep { path: node.path.clone(), subtree: whole[at], whiteout: node.role == Role::Implied });
    }
    keep
}

struct Emitter<'a> {
    tree: &'a LayerTree,
    rules: &'a Rules,
    states: &'a [State],
    /// Old place of a staged directory → number of its temporary name.
    staged: HashMap<&'a [u8], usize>,
    /// Group → number of the temporary name of its file.
    held: HashMap<usize, usize>,
    temps: usize,
    actions: Vec<Action>,
}

impl<'a> Emitter<'a> {
    fn new(tree: &'a LayerTree, rules: &'a Rules, states: &'a [State]) -> Self {
        Self { tree, rules, states, staged: HashMap::new(), held: HashMap::new(), temps: 0, actions: Vec::new() }
    }

    fn temp(&mut self) -> usize {
        self.temps += 1;
        self.temps
    }

    fn emit(mut self) -> Vec<Action> {
        self.stage();
        self.hold_shared();
        self.delete();
        self.make();
        self.share();
        self.set_dirs();
        let mut held: Vec<usize> = self.held.values().copied().collect();
        held.sort_unstable();
        self.actions.extend(held.into_iter().map(|temp| Action::Release { temp }));
        self.actions
    }

    fn commits(&self) -> impl Iterator<Item = usize> + use<'a> {
        let states = self.states;
        (1..states.len()).filter(move |at| states[*at] == State::Commit)
    }

    fn stage(&mut self) {
        let mut moved: Vec<(&'a ByteText, FileId)> = Vec::new();
        for at in self.commits() {
            if let Lower::Moved(found) = &self.tree.nodes[at].lower {
                moved.push((&found.at, found.meta.id));
            }
        }
        moved.sort_by_key(|(at, _)| std::cmp::Reverse((depth(&at.0), *at)));
        for (at, id) in moved {
            let temp = self.temp();
            self.staged.insert(&at.0, temp);
            self.actions.push(Action::Stage { at: at.clone(), id, temp });
        }
    }

    /// Where an entry of the workspace is after the staging.
    fn after_staging(&self, at: &[u8]) -> ByteText {
        let mut end = at.len();
        loop {
            if let Some(temp) = self.staged.get(&at[..end]) {
                let mut path = temp_marker(*temp);
                path.extend_from_slice(&at[end..]);
                return ByteText(path);
            }
            match at[..end].iter().rposition(|byte| *byte == b'/') {
                Some(slash) => end = slash,
                None => return ByteText(at.to_vec()),
            }
        }
    }

    fn hold_shared(&mut self) {
        for (number, group) in self.tree.groups.iter().enumerate() {
            if let Some(anchor) = group.anchor.as_ref().filter(|_| writes_shared(self.tree, self.states, group)) {
                let temp = self.temp();
                self.held.insert(number, temp);
                self.actions.push(Action::Hold { at: self.after_staging(&anchor.at.0), id: anchor.meta.id, temp });
            }
        }
    }

    fn delete(&mut self) {
        for at in self.commits() {
            let node = &self.tree.nodes[at];
            let Some(covered) = node.covers.as_ref().filter(|_| !node.claimed) else { continue };
            if node.meta.kind == EntryType::Socket && node.role == Role::Entry {
                continue;
            }
            let is_dir = |kind: EntryType| kind == EntryType::Directory;
            // A rename replaces one file by another by itself, and at no moment is there none.
            if node.role != Role::Entry || is_dir(covered.meta.kind) || is_dir(node.meta.kind) {
                self.actions.push(Action::Delete { at: self.after_staging(&covered.at.0), id: covered.meta.id });
            }
        }
    }

    /// Directories that can be moved with all that is in them.
    fn whole(&self) -> Vec<bool> {
        let tree = self.tree;
        let mut whole: Vec<bool> = (0..tree.nodes.len())
            .map(|at| {
                let node = &tree.nodes[at];
                let kind = node.meta.kind;
                let plain = at != 0 && tree.same_mount && node.role == Role::Entry && self.states[at] == State::Commit;
                let as_it_is = !node.marks.forged && !matches!(node.verdict, Some(Verdict::Strip(_)));
                let shared = node.group.is_some_and(|number| self.must_copy(number) || self.held.contains_key(&number));
                let fits = match kind {
                    // The owner must be able to get in, to remove overlay's attributes.
                    EntryType::Directory => node.lower == Lower::None && node.meta.mode & 0o700 == 0o700,
                    EntryType::File | EntryType::Symlink | EntryType::Fifo => true,
                    EntryType::Socket | EntryType::Device => false,
                };
                plain && as_it_is && !shared && fits
            })
            .collect();
        for at in (1..tree.nodes.len()).rev() {
            whole[tree.nodes[at].parent] &= whole[at];
        }
        whole
    }

    /// One of the names stays in the layer: what is committed must not be the same file, or a later change of it in the
    /// workspace would change what was reviewed.
    fn must_copy(&self, group: usize) -> bool {
        self.tree.groups[group].members.iter().any(|at| self.states[*at] == State::Park)
    }

    fn make(&mut self) {
        let whole = self.whole();
        for at in self.commits() {
            let node = &self.tree.nodes[at];
            if whole[node.parent] && !node.marks.names.is_empty() {
                let names = node.marks.names.iter().cloned().map(ByteText).collect();
                self.actions.push(Action::Strip { path: node.path.clone(), names });
            }
        }
        for at in self.commits() {
            let node = &self.tree.nodes[at];
            if node.role != Role::Entry || node.meta.kind == EntryType::Socket {
                continue;
            }
            let path = node.path.clone();
            let strip: Vec<ByteText> = node.marks.names.iter().cloned().map(ByteText).collect();
            if whole[node.parent] {
                // Goes along with its directory.
                continue;
            }
            if node.meta.kind == EntryType::Directory {
                match &node.lower {
                    Lower::Merged(_) => {}
                    Lower::Moved(found) => {
                        if let Some(temp) = self.staged.get(found.at.0.as_slice()).copied() {
                            self.actions.push(Action::Place { path, id: found.meta.id, temp });
                        }
                    }
                    Lower::None | Lower::Missing if whole[at] => {
                        let temp = self.temp();
                        let mode = node.meta.mode;
                        self.actions.push(Action::Move { path, strip, mode, copy: false, group: None, temp });
                    }
                    Lower::None | Lower::Missing => self.actions.push(Action::MakeDir { path }),
                }
                continue;
            }
            if node.group.is_some_and(|number| self.held.contains_key(&number)) {
                continue;
            }
            let temp = self.temp();
            match &node.verdict {
                Some(Verdict::Strip(content)) if !self.rules.accept_protected => {
                    self.actions.push(Action::Write { path, content: ByteText(content.clone()), temp });
                }
                _ => {
                    let copy = node.marks.forged || node.group.is_some_and(|number| self.must_copy(number));
                    let mode = node.meta.mode;
                    self.actions.push(Action::Move { path, strip, mode, copy, group: node.group, temp });
                }
            }
        }
    }

    fn share(&mut self) {
        for (number, group) in self.tree.groups.iter().enumerate() {
            let (Some(held), Some(anchor)) = (self.held.get(&number).copied(), &group.anchor) else { continue };
            if !group.same {
                self.actions.push(Action::Overwrite { held, source: group.source.clone() });
            }
            for at in &group.members {
                if self.tree.covered_id(*at) != Some(anchor.meta.id) {
                    let temp = self.temp();
                    self.actions.push(Action::Link { held, path: self.tree.nodes[*at].path.clone(), temp });
                }
            }
        }
    }

    fn set_dirs(&mut self) {
        let whole = self.whole();
        let tree = self.tree;
        // Directories in which something was done, and those that may have been opened up on the way to it.
        let mut worked = vec![false; tree.nodes.len()];
        let mut passed = vec![false; tree.nodes.len()];
        for at in (1..tree.nodes.len()).rev() {
            let parent = tree.nodes[at].parent;
            worked[parent] |= self.states[at] == State::Commit;
            passed[parent] |= worked[at] || passed[at] || self.states[at] == State::Commit;
        }
        let mut set = Vec::new();
        for at in 0..tree.nodes.len() {
            let node = &tree.nodes[at];
            if node.meta.kind != EntryType::Directory || node.role != Role::Entry || whole[at] {
                continue;
            }
            let (Lower::Merged(old) | Lower::Moved(old)) = &node.lower else {
                if self.states[at] == State::Commit {
                    set.push(self.set_dir(at));
                }
                continue;
            };
            let tight = old.meta.mode & 0o700 != 0o700 || node.meta.mode & 0o700 != 0o700;
            if at != 0 && self.states[at] == State::Commit {
                set.push(self.set_dir(at));
            } else if (worked[at] && at != 0 && self.states[at] == State::Nothing) || (passed[at] && tight) {
                // Its own attributes stay as they were in the workspace.
                let mtime = (worked[at] && at != 0 && self.states[at] == State::Nothing).then_some(node.meta.mtime);
                let (mode, uid, gid) = (old.meta.mode, old.meta.uid, old.meta.gid);
                set.push(Action::SetDir { path: node.path.clone(), mode, uid, gid, mtime, attrs: None });
            }
        }
        set.sort_by_key(|action| match action {
            Action::SetDir { path, .. } => std::cmp::Reverse(depth(&path.0)),
            _ => std::cmp::Reverse(0),
        });
        self.actions.append(&mut set);
    }

    fn set_dir(&self, at: usize) -> Action {
        let node = &self.tree.nodes[at];
        let (mode, uid, gid, mtime) = (node.meta.mode, node.meta.uid, node.meta.gid, Some(node.meta.mtime));
        let attrs = node.attrs.iter().map(|(name, value)| (ByteText(name.clone()), ByteText(value.clone()))).collect();
        Action::SetDir { path: node.path.clone(), mode, uid, gid, mtime, attrs: Some(attrs) }
    }
}

/// How deep a path is; the root is 0.
fn depth(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() }
}

/// A staged directory in a path of an action: `//` and the number, which no real path starts with.
fn temp_marker(temp: usize) -> Vec<u8> {
    format!("//{temp}").into_bytes()
}

/// The path with a staged directory's real temporary name.
#[must_use]
pub fn resolve(path: &[u8], name_of: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let Some(rest) = path.strip_prefix(b"//") else { return path.to_vec() };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
    number.map_or_else(|| path.to_vec(), |number| [name_of(number).as_slice(), &rest[end..]].concat())
}

