//! Takes, restores, forks and compares snapshots, and removes what none of them reaches.

use super::error::StateError;
use super::history::History;
pub use super::reading::Listener;
use super::reading::{now, read, scanned};
use super::record::{LeftOut, Named, Record, VERSION, check_label};
use crate::beneath;
use crate::name::FacilityName;
use crate::removal;
use crate::store::{Facilities, Facility, StoreError, TREE};
use nexus_layer::{LeaseCall, Workspace, first_in_use};
use nexus_model::{ByteText, RunId};
use nexus_snapshot::reach::verify;
use nexus_snapshot::{Cache, Change, Hold, ObjectId, Scanned, Store, Swept, Writer, build, compare, reach, sweep};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

/// The directory of the objects, in that of the facilities.
const OBJECTS: &str = ".snapshots";
/// Begins the name of a tree that is being built, or was replaced and is given up.
const BUILT: &str = ".build-";
/// Begins the name of a tree that was replaced, or is about to replace one. Its state is kept in a snapshot before it is removed.
const REPLACED: &str = ".tree-";

/// A snapshot that was taken.
#[derive(Debug)]
pub struct Taken {
    /// The snapshot with its name.
    pub snapshot: Named,
    /// Files that were read, because they were new or had changed.
    pub read: u64,
    /// Bytes of objects that were new in the store, before compression.
    pub new_bytes: u64,
}

/// A facility that was brought to a snapshot.
#[derive(Debug)]
pub struct Restored {
    /// The snapshot to which it was brought.
    pub to: Named,
    /// The state of before.
    pub before: Option<Taken>,
    /// The state that includes what another process wrote between that one and the exchange, if it wrote anything.
    pub meanwhile: Option<Named>,
    /// Replaced trees that are still there, because another process uses them.
    pub in_use: Vec<InUse>,
}

/// A replaced tree that is not removed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// The path of the tree.
    pub tree: PathBuf,
    /// The file below it that a process has open for writing.
    pub file: ByteText,
}

/// The result of a look at replaced trees.
#[derive(Debug, Default)]
struct Cleared {
    meanwhile: Option<Named>,
    in_use: Vec<InUse>,
}

/// The difference between two states.
#[derive(Debug)]
pub struct Difference {
    /// The later state; `None` for the present one.
    pub to: Option<Named>,
    /// The earlier state.
    pub from: Named,
    /// The paths that differ.
    pub changes: Vec<Change>,
}

/// The result of a cleaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// The result for the store.
    pub swept: Swept,
    /// Replaced trees that are still there, because another process uses them.
    pub in_use: Vec<InUse>,
}

/// The snapshots of all facilities of a directory.
#[derive(Debug)]
pub struct Snapshots<'a> {
    facilities: &'a Facilities,
    leases: Option<LeaseCall>,
}

impl<'a> Snapshots<'a> {
    /// Names the snapshots of facilities. Opens nothing.
    #[must_use]
    pub fn of(facilities: &'a Facilities) -> Self {
        Self { facilities, leases: None }
    }

    /// Finds out with this call which files of a replaced tree a process has open for writing. Without it no file counts as open.
    #[must_use]
    pub fn with_leases(self, call: LeaseCall) -> Self {
        Self { leases: Some(call), ..self }
    }

    /// Returns the records of a facility.
    pub fn history(&self, facility: &Facility) -> Result<History, StateError> {
        History::open(&facility.name, facility.directory())
    }

    /// Keeps the present state of a facility. The caller holds the facility.
    pub fn take(&self, facility: &Facility, label: Option<&str>, tell: Listener<'_>) -> Result<Taken, StateError> {
        if let Some(label) = label {
            check_label(label).map_err(|why| StateError::Label { why })?;
        }
        let mut store = self.store(Hold::Use)?;
        self.take_in(&mut store, facility, label, tell)
    }

    fn take_in(
        &self,
        store: &mut Store,
        facility: &Facility,
        label: Option<&str>,
        tell: Listener<'_>,
    ) -> Result<Taken, StateError> {
        let history = self.history(facility)?;
        let tree = self.tree(facility)?;
        let (scanned, new_bytes) = scanned(&history, store, tree.as_fd(), tell)?;
        let read = scanned.read;
        let cache = scanned.cache.bytes();
        let snapshot = recorded(&history, facility, scanned, label)?;
        history.set_base(&snapshot.id)?;
        // Without it the next one only reads more.
        cache.and_then(|bytes| history.keep_cache(&bytes)).ok();
        Ok(Taken { snapshot, read, new_bytes })
    }

    /// Brings a facility to a snapshot, after one of its present state unless `keeps_present` is false. Its tree is the old one or the
    /// new one, also after a kill. The caller holds the facility.
    ///
    /// A write of another process into the old tree becomes a snapshot of its own, if it comes before that tree is scanned again. While a process has a file of
    /// the old tree open for writing, that tree stays, and a later call scans and removes it. If `keeps_present` is false, the old tree is
    /// removed without any of this.
    pub fn restore(
        &self,
        facility: &Facility,
        which: &str,
        keeps_present: bool,
        tell: Listener<'_>,
    ) -> Result<Restored, StateError> {
        self.facilities.refuse_mounts(&facility.name)?;
        let history = self.history(facility)?;
        let wanted = history.find(which)?;
        let mut store = self.store(Hold::Use)?;
        let earlier = self.clear_replaced(facility, &mut store, tell)?.meanwhile;
        // A damaged snapshot is found before anything else is done.
        let top = top_of(&wanted, facility)?;
        reach(&mut store, &top, &mut HashSet::new())?;
        let taken = if keeps_present {
            let label = format!("before restore of {}", wanted.record.number);
            Some(self.take_in(&mut store, facility, Some(&label), tell)?)
        } else {
            None
        };
        let mut hidden = format!("{BUILT}{}", RunId::new());
        if let Err(error) = self.built(facility, &hidden, &mut store, &wanted, tell) {
            self.remove_built(facility).ok();
            return Err(error);
        }
        let failed = |error: Errno| StateError::Facility(self.facilities.failed(error.into()));
        let directory = facility.directory();
        if keeps_present {
            // From now on it may be the old tree.
            let replaced = format!("{REPLACED}{}", RunId::new());
            let kept = renameat_with(directory, hidden.as_str(), directory, replaced.as_str(), RenameFlags::NOREPLACE);
            kept.map_err(failed)?;
            hidden = replaced;
        }
        self.facilities.refuse_mounts(&facility.name)?;
        renameat_with(directory, hidden.as_str(), directory, TREE, RenameFlags::EXCHANGE).map_err(failed)?;
        rustix::fs::fsync(directory).map_err(failed)?;
        history.set_base(&wanted.id)?;
        let Cleared { meanwhile, in_use } = self.clear_replaced(facility, &mut store, tell)?;
        Ok(Restored { to: wanted, before: taken, meanwhile: meanwhile.or(earlier), in_use })
    }

    fn built(
        &self,
        facility: &Facility,
        hidden: &str,
        store: &mut Store,
        wanted: &Named,
        tell: Listener<'_>,
    ) -> Result<(), StateError> {
        let made = || -> io::Result<OwnedFd> {
            mkdirat(facility.directory(), hidden, Mode::RWXU)?;
            beneath::directory(facility.directory(), hidden)
        };
        let tree = made().map_err(|error| self.facilities.failed(error))?;
        let top = top_of(wanted, facility)?;
        Ok(build(tree.as_fd(), store, &top, wanted.record.entries, tell)?)
    }

    /// Removes trees that a restore built, replaced, or left when it was cut off. The state of a replaced one that no snapshot has becomes one
    /// first. A replaced one stays as long as a process has a file of it open for writing: what is written after the scan would be lost.
    fn clear_replaced(
        &self,
        facility: &Facility,
        store: &mut Store,
        tell: Listener<'_>,
    ) -> Result<Cleared, StateError> {
        let failed = |error: io::Error| StateError::Facility(self.facilities.failed(error));
        let history = self.history(facility)?;
        let mut cleared = Cleared::default();
        for name in
            beneath::names(facility.directory()).map_err(failed)?.iter().filter(|name| name.starts_with(REPLACED))
        {
            let tree = beneath::directory(facility.directory(), name).map_err(failed)?;
            // Before the scan: a process that closed its file by now wrote before the scan, too.
            if let Some(file) = self.in_use(&tree).map_err(failed)? {
                cleared.in_use.push(InUse { tree: facility.tree().with_file_name(name), file });
                continue;
            }
            let (scanned, _) = scanned(&history, store, tree.as_fd(), tell)?;
            let top = scanned.top.to_string();
            if !history.all()?.0.iter().any(|one| one.record.tree == top) {
                cleared.meanwhile = Some(recorded(&history, facility, scanned, Some("changed during a restore"))?);
            }
            remove_tree(facility, name).map_err(failed)?;
        }
        self.remove_built(facility)?;
        Ok(cleared)
    }

    /// Returns a file of a tree that a process has open for writing.
    fn in_use(&self, tree: &OwnedFd) -> io::Result<Option<ByteText>> {
        let Some(leases) = self.leases else { return Ok(None) };
        first_in_use(&Workspace::from_fd(tree.try_clone()?).with_leases(leases))
    }

    /// Removes trees that a restore built and did not exchange.
    fn remove_built(&self, facility: &Facility) -> Result<(), StateError> {
        let removed = || -> io::Result<()> {
            for name in beneath::names(facility.directory())?.iter().filter(|name| name.starts_with(BUILT)) {
                remove_tree(facility, name)?;
            }
            Ok(())
        };
        removed().map_err(|error| StateError::Facility(self.facilities.failed(error)))
    }

    /// Makes a new facility with the tree of a snapshot, which is its first one. Without a name of a snapshot the present state is kept
    /// first; then the caller holds the facility.
    pub fn fork(
        &self,
        facility: &Facility,
        new: &FacilityName,
        which: Option<&str>,
        tell: Listener<'_>,
    ) -> Result<(Facility, Named), StateError> {
        if self.facilities.get(new).is_ok() {
            return Err(StoreError::Exists { name: new.clone() }.into());
        }
        let mut store = self.store(Hold::Use)?;
        let wanted = if let Some(which) = which {
            self.history(facility)?.find(which)?
        } else {
            let label = format!("fork to {new}");
            self.take_in(&mut store, facility, Some(&label), tell)?.snapshot
        };
        let top = top_of(&wanted, facility)?;
        let kind = facility.metadata.kind.clone();
        let (_, now_ms) = now();
        let forked = self.facilities.create_filled(new, kind, now_ms, |directory| -> Result<(), StateError> {
            let tree = beneath::directory(directory, TREE).map_err(|error| self.facilities.failed(error))?;
            build(tree.as_fd(), &mut store, &top, wanted.record.entries, tell)?;
            let history = History::open(new, directory)?;
            let own = history.add(wanted.record.clone())?;
            history.set_base(&own.id)?;
            rustix::fs::fsync(directory).map_err(|error| self.facilities.failed(error.into()).into())
        })?;
        Ok((forked, wanted))
    }

    /// Compares a snapshot with another one, or with the present state. For the present state the caller holds the facility.
    pub fn difference(
        &self,
        facility: &Facility,
        from: &str,
        to: Option<&str>,
        tell: Listener<'_>,
    ) -> Result<Difference, StateError> {
        let history = self.history(facility)?;
        let from = history.find(from)?;
        let to = to.map(|to| history.find(to)).transpose()?;
        let mut store = self.store(Hold::Use)?;
        let old = top_of(&from, facility)?;
        let (new, kept) = if let Some(to) = &to {
            (top_of(to, facility)?, HashMap::new())
        } else {
            let tree = self.tree(facility)?;
            let cache = Cache::read(&history.cache());
            let mut writer = Writer::dry(&mut store);
            let scanned = read(tree.as_fd(), &mut writer, &cache, tell)?;
            (scanned.top, writer.into_kept())
        };
        let changes = compare(&mut store, &old, &new, &kept)?;
        Ok(Difference { to, from, changes })
    }

    /// Reads every object of a snapshot and checks its hash. Returns their number.
    pub fn verify(&self, facility: &Facility, which: &str) -> Result<u64, StateError> {
        let wanted = self.history(facility)?.find(which)?;
        let mut store = self.store(Hold::Use)?;
        Ok(verify(&mut store, &top_of(&wanted, facility)?)?)
    }

    /// Removes the record of a snapshot. Its objects go with the next cleaning, unless another snapshot reaches them.
    pub fn forget(&self, facility: &Facility, which: &str) -> Result<Named, StateError> {
        let history = self.history(facility)?;
        let wanted = history.find(which)?;
        history.remove(&wanted.id)?;
        Ok(wanted)
    }

    /// Removes every object that no snapshot of any facility reaches, and what killed processes left. Refused while another process uses
    /// the store, and where a record or an object that must be read is damaged: what it reaches is not known.
    pub fn clean(&self, tell: Listener<'_>) -> Result<Cleaned, StateError> {
        // What a killed restore left may have to become a snapshot, which the cleaning then reaches.
        let mut in_use = Vec::new();
        {
            let mut store = self.store(Hold::Use)?;
            for name in self.facilities.names()? {
                if let Ok(facility) = self.facilities.get(&name)
                    && let Ok(_held) = facility.hold()
                {
                    in_use.append(&mut self.clear_replaced(&facility, &mut store, tell)?.in_use);
                }
            }
        }
        let mut store = self.store(Hold::Clean)?;
        let mut reached = HashSet::new();
        let mut snapshots = 0;
        for name in self.facilities.names()? {
            let facility = match self.facilities.get(&name) {
                Ok(facility) => facility,
                // It was removed meanwhile.
                Err(StoreError::Missing { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let (all, mut damaged) = self.history(&facility)?.all()?;
            if let Some(error) = damaged.pop() {
                return Err(error);
            }
            for one in all {
                reach(&mut store, &top_of(&one, &facility)?, &mut reached)?;
                snapshots += 1;
            }
        }
        let swept = sweep(&mut store, &reached, tell)?;
        self.facilities.sweep_forks()?;
        Ok(Cleaned { snapshots, swept, in_use })
    }

    fn store(&self, hold: Hold) -> Result<Store, StateError> {
        Ok(Store::open(&self.facilities.path().join(OBJECTS), hold)?)
    }

    fn tree(&self, facility: &Facility) -> Result<OwnedFd, StateError> {
        let tree = beneath::directory(facility.directory(), TREE);
        tree.map_err(|error| StateError::Facility(self.facilities.failed(error)))
    }
}

/// Adds the record of a tree that was read.
fn recorded(
    history: &History,
    facility: &Facility,
    scanned: Scanned,
    label: Option<&str>,
) -> Result<Named, StateError> {
    let (all, _) = history.all()?;
    history.add(Record {
        version: VERSION,
        number: all.last().map_or(0, |last| last.record.number) + 1,
        facility: facility.name.clone(),
        label: label.map(ToOwned::to_owned),
        created_ms: now().1,
        parent: history.base(),
        tree: scanned.top.to_string(),
        entries: scanned.entries,
        bytes: scanned.bytes,
        left_out: scanned
            .left_out
            .into_iter()
            .map(|one| LeftOut { path: ByteText(one.path), why: one.why.to_owned() })
            .collect(),
        left_out_count: scanned.left_out_count,
    })
}

fn remove_tree(facility: &Facility, name: &str) -> io::Result<()> {
    removal::empty(beneath::directory(facility.directory(), name)?.as_fd())?;
    Ok(rustix::fs::unlinkat(facility.directory(), name, AtFlags::REMOVEDIR)?)
}

fn top_of(one: &Named, facility: &Facility) -> Result<ObjectId, StateError> {
    one.record.top().ok_or_else(|| StateError::Record {
        facility: facility.name.clone(),
        file: one.id.clone(),
        why: "its tree has no name".to_owned(),
    })
}
