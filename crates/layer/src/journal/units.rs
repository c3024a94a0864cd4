//! Commit units: groups of paths that a commit applies completely or not at all, also after it was decided.
//!
//! | unit | members |
//! |---|---|
//! | a database of SQLite | `NAME`, `NAME-wal`, `NAME-journal`, `NAME-shm`; logs without a step are to be as at the start |
//! | a git directory of the workspace | what names its objects: `HEAD`, `index`, `packed-refs`, `refs`, `logs`, … |
//! | a new git directory that borrows objects | the same, or the whole directory that it comes with |
//!
//! An old log beside a new database damages it, and a ref that is deleted while the new `packed-refs` is kept back takes its
//! branch along. Another process, or the user between a killed commit and its recovery, may change one member:
//!
//! ```text
//!  unchecked ── first step of a member: every member as planned, or as an earlier pass left it ──▶ whole
//!      └─────── one of them changed ──▶ broken ◀── a step of a member is kept back ── whole
//!  broken: no further member comes, and those that came go back
//! ```
//! A database and its logs are compared again before each step.

use crate::beneath::{Workspace, is_beneath};
use crate::databases::companions::{databases_of, is_beside, is_log, may_be_database, siblings};
use crate::entries::changes::Outside;
use crate::journal::seen::Seen;
use crate::journal::step::Step;
use crate::journal::step_reader::Steps;
use crate::meta::EntryType;
use crate::read::git_dirs::may_be_repository;
use nexus_git::paths::{git_dir_of_names, is_index};
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::io;

/// A step that belongs to a unit, with its number.
pub(crate) type Member = (usize, Step);

/// The state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No member was compared with the workspace yet.
    Unchecked,
    /// The steps of all members are carried out.
    Whole,
    /// The steps of no member are carried out.
    Broken(Cause),
}

/// The step for which no member of a unit is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Number of the step.
    pub(crate) number: usize,
    /// Event that happened to its path.
    pub(crate) outside: Outside,
    /// More about it for a person.
    pub(crate) detail: Option<&'static str>,
}

impl Cause {
    /// A step on whose path another process acted.
    pub(crate) fn new(number: usize, outside: Outside) -> Self {
        Self { number, outside, detail: None }
    }
}

/// The decision of a unit about one of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allows {
    /// The step is carried out.
    Comes,
    /// Another step of the unit is kept back.
    Broken,
    /// This step is the reason for which the unit does not come.
    Changed(Cause),
}

/// Steps that are carried out together or not at all.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The steps, in their order.
    pub(crate) members: Vec<Member>,
    /// State of the unit.
    pub(crate) state: State,
    /// The git directory that the members belong to; `None` for a database and its logs.
    pub(crate) git_dir: Option<Vec<u8>>,
}

impl Unit {
    /// Returns the files of the same database for which there is no step: they are to be as they were at the start.
    pub(crate) fn others(&self) -> Vec<Vec<u8>> {
        let paths: HashSet<&[u8]> = self.members.iter().filter_map(|(_, step)| member(step)).collect();
        let all: HashSet<Vec<u8>> = if self.git_dir.is_none() {
            paths.iter().flat_map(|path| siblings(path)).collect()
        } else {
            HashSet::new()
        };
        all.into_iter().filter(|one| !paths.contains(&**one)).collect()
    }
}

/// Returns the files beside the one of a step that may be a database or its log, where the step is the only one of them.
pub(crate) fn others_of_one(step: &Step) -> Vec<Vec<u8>> {
    let Some(path) = member(step) else { return Vec::new() };
    let new = if let Step::Put(put) = step { put.new } else { None };
    let seen = [new, step.displaces().copied()];
    let is_file = |one: &Seen| one.kind == EntryType::File && (is_log(path) || may_be_database(one.size));
    if seen.iter().flatten().any(is_file) { siblings(path) } else { Vec::new() }
}

/// The units of a commit.
#[derive(Debug, Default)]
pub(crate) struct Units {
    by_step: HashMap<usize, usize>,
    all: Vec<Unit>,
}

/// Names a unit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Database(Vec<u8>),
    Git(Vec<u8>),
}

impl Units {
    /// Finds the units among the steps of a journal. `borrowers` are git directories that are new. One step alone is a unit only of a
    /// git directory, and with `alone`.
    pub(crate) fn find(steps: &Steps, base: &Workspace, borrowers: &[ByteText], alone: bool) -> io::Result<Self> {
        if !steps.has_units() && borrowers.is_empty() {
            return Ok(Self::default());
        }
        let mut databases: HashSet<Vec<u8>> = HashSet::new();
        for step in steps.each() {
            let step = step?;
            if let Some(path) = member(&step).filter(|path| is_beside(path)) {
                databases.extend(databases_of(path).map(<[u8]>::to_vec));
            }
        }
        let mut repositories: HashMap<Vec<u8>, bool> = HashMap::new();
        let mut found: HashMap<Key, Vec<Member>> = HashMap::new();
        for (at, step) in steps.each().enumerate() {
            let step = step?;
            let Some(path) = member(&step) else { continue };
            if matches!(&step, Step::Put(put) if put.whole) {
                for borrower in borrowers.iter().filter(|one| is_beneath(&one.0, path)) {
                    found.entry(Key::Git(borrower.0.clone())).or_default().push((at, step.clone()));
                }
            }
            let key = if let Some(git_dir) = git_dir_of_names(path) {
                let is_one = || borrowers.iter().any(|one| one.0 == git_dir) || may_be_repository(base, git_dir);
                if !*repositories.entry(git_dir.to_vec()).or_insert_with(is_one) {
                    continue;
                }
                Key::Git(git_dir.to_vec())
            } else if databases.contains(path) {
                Key::Database(path.to_vec())
            } else if let Some(database) = databases_of(path).next() {
                Key::Database(database.to_vec())
            } else {
                continue;
            };
            found.entry(key).or_default().push((at, step));
        }
        let mut units = Self::default();
        for (key, members) in found {
            if members.len() < 2 && !(alone && matches!(key, Key::Git(_))) {
                continue;
            }
            units.by_step.extend(members.iter().map(|(at, _)| (*at, units.all.len())));
            let git_dir = if let Key::Git(git_dir) = key { Some(git_dir) } else { None };
            units.all.push(Unit { members, state: State::Unchecked, git_dir });
        }
        Ok(units)
    }

    /// Returns the unit of a step.
    pub(crate) fn of(&self, at: usize) -> Option<&Unit> {
        self.by_step.get(&at).map(|unit| &self.all[*unit])
    }

    /// Returns all units.
    pub(crate) fn all(&self) -> &[Unit] {
        &self.all
    }

    /// Sets the state of the unit of a step.
    pub(crate) fn set(&mut self, at: usize, state: State) {
        if let Some(unit) = self.by_step.get(&at) {
            self.all[*unit].state = state;
        }
    }

    /// Notes that a step was kept back: nothing more of its unit comes.
    pub(crate) fn break_at(&mut self, at: usize) {
        if self.of(at).is_some_and(|unit| !matches!(unit.state, State::Broken(..))) {
            self.set(at, State::Broken(Cause::new(at, Outside::Changed)));
        }
    }

    /// Takes the broken units out.
    pub(crate) fn take_broken(&mut self) -> Vec<Unit> {
        self.by_step.clear();
        let all = std::mem::take(&mut self.all);
        all.into_iter().filter(|unit| matches!(unit.state, State::Broken(..))).collect()
    }
}

/// Returns the path of a step that can be a member.
fn member(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Take { renamed: false, at, .. } => Some(&at.0),
        Step::Put(put) => Some(&put.path.0),
        _ => None,
    }
}

/// Reports whether a step of a git directory brings an index.
pub(crate) fn brings_index(step: &Step) -> bool {
    matches!(step, Step::Put(_)) && member(step).is_some_and(is_index)
}
