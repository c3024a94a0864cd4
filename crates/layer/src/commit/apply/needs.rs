//! Keeps back refs whose objects the workspace lost after the commit was decided.
//!
//! A commit leaves out the objects that the workspace has. Where `git prune` or `git gc` removes some of them after the decision, or
//! before a commit that was killed goes on, the refs of the run would lead to nothing:
//!
//! ```text
//!  first member of a git unit, and after the last step:
//!   each new ref: tree, files and parents of what the commit brought; each new file of an index
//!       ├─ all there ──▶ the unit comes, or stays
//!       ├─ one is missing ──▶ the unit is kept back, or goes back, and the layer keeps its own copies of objects: the next
//!       │                     accept brings both
//!       └─ not known ──▶ the same where the workspace lost an object of which the layer has a copy
//! ```
//! Nothing is known of a repository that borrows or fetches objects, and of too many new ones. That the user accepts a git directory
//! as a whole makes no difference: its refs would lead to nothing all the same.

use super::Apply;
use crate::beneath::{Doing as _, IoFailure, Workspace, split};
use crate::changes::Outside;
use crate::commit::journal::{JOURNAL, KeptBack};
use crate::commit::kept_objects::copies_of;
use crate::commit::ops::{Op, Origin, Put};
use crate::commit::units::{Cause, Member, State};
use crate::facts::{Version, read_small};
use crate::fold::fold;
use crate::git_index::id_lengths;
use crate::git_index::ids::new_ids;
use crate::git_names::PACKED;
use crate::git_packs::history::{History, Reach};
use crate::git_paths::{git_dir_of_object, is_index};
use crate::meta::{EntryType, stat_if_there};
use crate::nested::has_objects;
use crate::protected::Class;
use crate::reads::Reads;
use crate::shallow::words;
use crate::waiting_refs::commits::{Form, place};
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Says why a ref is kept back.
const GONE: &str = "git objects that it leads to are gone from the workspace";
const HAS_COPIES: &str =
    "git objects that it leads to are gone from the workspace, and the run has copies of its own: accept them with it";
/// Names of a git directory that may lead to what is gone.
const FORMER: &[&[u8]] = &[b"orig_head", b"fetch_head", b"rebase_head"];

impl Apply<'_> {
    /// Breaks the git units whose objects went while their steps were carried out.
    pub(super) fn find_lost_objects(&mut self) -> Result<(), IoFailure> {
        let whole = self.units.all().iter().filter(|unit| unit.state == State::Whole);
        let with_git = whole.filter_map(|unit| Some((unit.git_dir.clone()?, unit.members.clone())));
        for (git_dir, members) in with_git.collect::<Vec<_>>() {
            if let Some(cause) = self.lost_objects(&git_dir, &members)? {
                self.units.set(cause.step, State::Broken(cause));
            }
        }
        Ok(())
    }

    /// Returns the first step of a git unit that leads to an object which is not there.
    pub(super) fn lost_objects(&mut self, git_dir: &[u8], members: &[Member]) -> Result<Option<Cause>, IoFailure> {
        let is_of = |op: &Op, names: &dyn Fn(&[u8]) -> bool| matches!(op, Op::Put(put) if names(&put.path.0));
        let is_one = |op: &Op| is_of(op, &names_commits) || is_of(op, &is_index);
        if !members.iter().any(|(_, op)| is_one(op)) || !has_objects(self.base, git_dir)? {
            return Ok(None);
        }
        let brought = self.brought_objects(git_dir)?;
        let shallow = self.base.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"shallow"));
        let shallow = shallow.ok().flatten().unwrap_or_default();
        let ends: HashSet<&[u8]> = words(&shallow).collect();
        let mut history = History::of(&[(self.base, git_dir)], id_lengths, true).ok().flatten();
        let is_new = |_: usize, path: &[u8]| {
            let mut at = path;
            while !at.is_empty() && !brought.contains(at) {
                at = split(at).0;
            }
            !at.is_empty()
        };
        let mut unknown = None;
        for (number, op) in members.iter().filter(|(_, op)| is_one(op)) {
            let (Op::Put(put), Some(history)) = (op, &mut history) else {
                unknown = unknown.or(Some(*number));
                continue;
            };
            let text = self.text_of(put);
            let reach = if is_index(&put.path.0) {
                history.has_each(&new_ids(&text, &self.present(put), history.id_length()))
            } else {
                let present = if is_log(&put.path.0) { self.present(put) } else { Vec::new() };
                history.needs(&named(&put.path.0, &text, &present), &ends, &is_new)
            };
            match reach {
                Reach::Whole => {}
                Reach::Unknown => unknown = unknown.or(Some(*number)),
                Reach::Broken => {
                    let copies = self.copies(git_dir)?;
                    let detail = Some(if copies.is_empty() { GONE } else { HAS_COPIES });
                    self.keep_copies(copies);
                    return Ok(Some(Cause { step: *number, outside: Outside::Blocked, detail }));
                }
            }
        }
        let Some(step) = unknown else { return Ok(None) };
        let copies = self.copies(git_dir)?;
        if !self.is_any_gone(&copies, history.as_ref()) {
            return Ok(None);
        }
        self.keep_copies(copies);
        Ok(Some(Cause { step, outside: Outside::Blocked, detail: Some(HAS_COPIES) }))
    }

    /// Reports whether the workspace has one of these objects or packs no more. What cannot be read counts as gone.
    fn is_any_gone(&self, copies: &[Vec<u8>], history: Option<&History<'_>>) -> bool {
        let is_there = |path: &Vec<u8>| match self.base.stat(path) {
            Ok(Some(_)) => true,
            Ok(None) if path.ends_with(b".idx") || path.ends_with(b".rev") => true,
            Ok(None) => history.is_some_and(|history| history.has_file_of(path)),
            Err(_) => false,
        };
        !copies.iter().all(is_there)
    }

    /// Reads the file of the workspace in whose place a step is about to bring another one. It is empty where there is none.
    fn present(&self, put: &Put) -> Vec<u8> {
        let (parent, name) = split(&put.path.0);
        let Ok(dir) = self.base.dir_by_force(parent) else { return Vec::new() };
        let is_ours = stat_if_there(dir.as_fd(), name)
            .is_ok_and(|meta| meta.is_some_and(|meta| put.new.is_some_and(|new| new.id == meta.id)));
        let read = || Version::read(dir.as_fd(), name, &Class::GitState(PACKED), &Reads::default());
        match (is_ours, put.old) {
            (false, Some(_)) => {
                if let Ok(Version::Bytes(text)) = read() {
                    text
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        }
    }

    /// Returns the paths of the objects, packs and directories of them that the commit brings to a git directory.
    fn brought_objects(&self, git_dir: &[u8]) -> Result<HashSet<Vec<u8>>, IoFailure> {
        let mut found = HashSet::new();
        for op in self.journal.steps.each() {
            if let Op::Put(put) = op.doing("read", JOURNAL.as_bytes())?
                && git_dir_of_object(&put.path.0) == Some(git_dir)
            {
                found.insert(put.path.0);
            }
        }
        Ok(found)
    }

    /// Reads the file that a step brings, or brought. One that cannot be read is empty.
    pub(super) fn text_of(&self, put: &Put) -> Vec<u8> {
        let Some(new) = put.new.filter(|new| new.kind == EntryType::File) else { return Vec::new() };
        let slot_name;
        let at_source: (Option<&Workspace>, &[u8]) = match &put.from {
            Origin::Layer => (Some(self.upper), &put.path.0),
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                (self.slots, &slot_name)
            }
        };
        for (tree, path) in [(Some(self.base), &*put.path.0), at_source] {
            let (parent, name) = split(path);
            let Some(dir) = tree.and_then(|tree| tree.dir_by_force(parent).ok()) else { continue };
            let is_it = stat_if_there(dir.as_fd(), name).is_ok_and(|meta| meta.is_some_and(|meta| meta.id == new.id));
            if is_it
                && let Ok(Version::Bytes(text)) =
                    Version::read(dir.as_fd(), name, &Class::GitState(PACKED), &Reads::default())
            {
                return text;
            }
        }
        Vec::new()
    }

    /// Returns the objects that the layer still has since the workspace had them.
    fn copies(&self, git_dir: &[u8]) -> Result<Vec<Vec<u8>>, IoFailure> {
        let mut found = copies_of(self.upper, git_dir)?;
        let waiting: HashMap<&[u8], bool> =
            self.journal.header.keep.iter().map(|one| (one.path.0.as_slice(), one.subtree)).collect();
        found.retain(|path| {
            let mut at = path.as_slice();
            let mut waits = waiting.contains_key(at);
            while !waits && !at.is_empty() {
                at = split(at).0;
                waits = waiting.get(at).copied().unwrap_or_default();
            }
            !waits
        });
        Ok(found)
    }

    fn keep_copies(&mut self, copies: Vec<Vec<u8>>) {
        let kept = |path| KeptBack { path, conflict: None, in_layer: true, subtree: false, arrived: true };
        self.kept.extend(copies.into_iter().map(|path| kept(ByteText(path))));
    }
}

/// Returns the ids in a file of refs, or those to which the new entries of a log lead: it may alone name older stashes.
fn named<'a>(path: &[u8], text: &'a [u8], present: &[u8]) -> Vec<&'a [u8]> {
    if !is_log(path) {
        return words(text).collect();
    }
    let known: HashSet<&[u8]> = present.split(|byte| *byte == b'\n').collect();
    let new = text.split(|byte| *byte == b'\n').filter(|line| !known.contains(line));
    let ids = new.filter_map(|line| words(line).nth(1));
    ids.filter(|id| id.iter().any(|byte| *byte != b'0')).collect()
}

fn is_log(path: &[u8]) -> bool {
    place(path).is_some_and(|place| place.form == Form::Log)
}

/// Reports whether a file has refs that are to lead to objects.
fn names_commits(path: &[u8]) -> bool {
    let is_former = || FORMER.contains(&fold(split(path).1).as_ref());
    place(path).is_some_and(|place| match place.form {
        Form::Ref | Form::Packed | Form::Log => true,
        Form::Head => !is_former(),
        Form::Table => false,
    })
}
