//! Keeps a layer for a review, or removes it.

use super::{DiscardError, Layer, ParkError};
use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::decide::report::Report;
use crate::disk::sync::sync_tree;
use crate::disk::upper::open_upper;
use crate::entries::changes::{Change, ChangeSet};
use crate::entries::protected::Rules;
use crate::entries::tree::LayerTree;
use crate::faults::Phase;
use crate::journal::file::{PARKED, Parked, ParkedChanges, SlotPlace, VERSION, read, sync_directory, write};
use crate::journal::step_reader::IN_MEMORY;
use crate::moves::leftover::Leftover;
use crate::staging::stage::remove_slots;
use crate::store::layer::index_notes::write_notes;
use crate::store::removal::remove_layer;
use serde::Serialize;
use std::io;

impl Layer {
    /// Keeps the layer for a review and returns its changes.
    pub fn park(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ParkError> {
        let io = |source| ParkError::Io { run: self.run.clone(), source };
        self.make_own().map_err(io)?;
        // Copies of an earlier try to commit.
        remove_slots(&self.root, workspace, &self.run, SlotPlace::Workspace, &self.faults).map_err(io)?;
        self.sync_upper().map_err(io)?;
        let changes = match self.read_directory(workspace, rules)? {
            Some(tree) => {
                let everything = Report::everything(&tree);
                self.write_parked(workspace, tree, rules, &everything)
            }
            None => self.park_as(Vec::<Change>::new()).map(|()| Vec::new()),
        };
        Ok(ChangeSet { changes: changes.map_err(io)? })
    }

    /// Removes the layer and everything in it. Returns what could not be removed.
    pub fn discard(self) -> Result<Option<Leftover>, DiscardError> {
        remove_layer(&self.layers, &self.root, &self.run, &self.faults)
            .map_err(|source| DiscardError { run: self.run.clone(), source })
    }

    /// Syncs the upper directory: a decision on the layer must be able to rely on its bytes after a power cut.
    pub(crate) fn sync_upper(&self) -> Result<(), IoFailure> {
        self.faults.check(Phase::SyncLayer).doing("sync", b"upper")?;
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        sync_tree(&upper, &self.faults)?;
        self.mark_whole()?;
        sync_directory(&self.root, &self.faults)
    }

    /// Parks the layer with these changes, and returns them.
    pub(crate) fn write_parked(
        &self,
        workspace: &Workspace,
        tree: LayerTree,
        rules: &Rules,
        report: &Report,
    ) -> Result<Vec<Change>, IoFailure> {
        write_notes(&self.root, &tree, &self.faults)?;
        self.write_bases(workspace, &tree)?;
        self.park_as(report.written(&tree, rules))?;
        if report.len() <= IN_MEMORY {
            return Ok(report.lines(&tree, rules).collect());
        }
        // Not both in memory.
        drop(tree);
        let parked = read::<Parked>(&self.root, PARKED)?;
        parked
            .map(|parked| parked.changes.changes)
            .ok_or_else(|| io::Error::other("it is gone"))
            .doing("read", PARKED.as_bytes())
    }

    pub(super) fn park_as(&self, changes: impl Serialize) -> Result<(), IoFailure> {
        self.faults.check(Phase::Park).doing("park", b"")?;
        let parked = Parked {
            version: VERSION,
            mode: self.mode,
            started: self.started,
            clock: self.clock.clone(),
            top: self.top.clone(),
            ours: self.ours.clone(),
            changes: ParkedChanges { changes },
            unreached: true,
        };
        write(&self.root, PARKED, &parked, &self.faults)?;
        sync_directory(&self.root, &self.faults)?;
        // The layer's own name, which was made with the run.
        sync_directory(&self.layers, &self.faults)
    }

    /// Brings the layer to its directory, where no other user can reach it.
    pub(crate) fn make_own(&self) -> Result<(), IoFailure> {
        match &self.upper_fd {
            None => self.part_directory(),
            Some(upper) => self.copy_from_memory(upper),
        }
    }
}
