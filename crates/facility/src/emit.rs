//! Turns the decision about each entry into actions, in the order that `plan` explains. Pure.

use crate::meta::{EntryType, FileId};
use crate::plan::{Action, State, writes_shared};
use crate::protected::Rules;
use crate::tree::{LayerTree, Lower, Role, Verdict};
use nexus_model::ByteText;
use std::collections::HashMap;

/// Builds the list of actions.
pub(crate) struct Emitter<'a> {
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
    pub(crate) fn new(tree: &'a LayerTree, rules: &'a Rules, states: &'a [State]) -> Self {
        Self { tree, rules, states, staged: HashMap::new(), held: HashMap::new(), temps: 0, actions: Vec::new() }
    }

    fn temp(&mut self) -> usize {
        self.temps += 1;
        self.temps
    }

    /// The actions in their order.
    pub(crate) fn emit(mut self) -> Vec<Action> {
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
    if path.is_empty() { 0 } else { path.split(|byte| *byte == b'/').count() }
}

/// A staged directory in a path of an action: `//` and the number, which no real path starts with.
fn temp_marker(temp: usize) -> Vec<u8> {
    format!("//{temp}").into_bytes()
}
