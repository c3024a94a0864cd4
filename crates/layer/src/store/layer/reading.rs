//! Reads a layer from its directory, or from the memory that it was in.

use super::{Layer, LayerMode, ReadLayerError};
use crate::beneath::{Doing as _, IoFailure, Workspace, is_empty};
use crate::decide::plan::{CommitPlan, plan, report};
use crate::disk::top_directory::TopAttrs;
use crate::disk::upper::{open_index, open_upper, reopen_upper};
use crate::disk::xattr;
use crate::entries::changes::{ChangeSet, Conflict};
use crate::entries::marks::LowerFs;
use crate::entries::protected::Rules;
use crate::entries::tree::LayerTree;
use crate::entries::yours::Yours;
use crate::faults::Phase;
use crate::git::stash::Stash;
use crate::read::walk::{Walk, WalkError};
use crate::store::pool::PROBE;
use nexus_git::reads::Reads;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

impl Layer {
    /// Lists the changes of the layer against the workspace. Changes nothing.
    pub fn changes(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ReadLayerError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(ChangeSet::default()) };
        Ok(ChangeSet { changes: report(&tree, rules) })
    }

    /// Lists the conflicts that a commit under these rules would find now, but for files that are open elsewhere and what the
    /// file system will not move. Changes nothing.
    pub fn conflicts(&self, workspace: &Workspace, rules: &Rules) -> Result<Vec<Conflict>, ReadLayerError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(Vec::new()) };
        Ok(plan(&tree, rules).conflicts)
    }

    /// Reads the layer; `None` where nothing changed.
    pub(crate) fn read(&self, workspace: &Workspace, rules: &Rules) -> Result<Option<LayerTree>, ReadLayerError> {
        match &self.upper_fd {
            None => self.read_directory(workspace, rules),
            Some(upper) => {
                let io = |source| ReadLayerError::Io { source };
                let index = self.memory_index(upper).map_err(io)?;
                let upper = reopen_upper(upper).doing("open", b"upper").map_err(io)?;
                self.read_upper(&Workspace::from_fd(upper), index, workspace, rules)
            }
        }
    }

    /// Reads the layer from its directory; `None` where nothing changed.
    pub(crate) fn read_directory(
        &self,
        workspace: &Workspace,
        rules: &Rules,
    ) -> Result<Option<LayerTree>, ReadLayerError> {
        let io = |source| ReadLayerError::Io { source };
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper").map_err(io)?);
        self.read_upper(&upper, open_index(&self.root).map_err(io)?, workspace, rules)
    }

    /// Adds what the contents tell of last copies to the plan of a commit.
    pub(crate) fn note_copies(
        &self,
        workspace: &Workspace,
        tree: &LayerTree,
        plan: &mut CommitPlan,
    ) -> Result<(), IoFailure> {
        if plan.parked.len() == 0 {
            return Ok(());
        }
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        crate::last_copies::copies::note_copies(tree, plan, &upper, workspace);
        Ok(())
    }

    /// Adds what git keeps of uncommitted changes to the plan of a commit. Returns the commits to name.
    pub(crate) fn note_stashes(
        &self,
        workspace: &Workspace,
        tree: &LayerTree,
        plan: &mut CommitPlan,
    ) -> Result<Vec<Stash>, IoFailure> {
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        let mut found = crate::last_copies::autostash::note_stashes(tree, plan, &upper, workspace);
        let of_refs = crate::last_copies::waiting_refs::note_refs(tree, plan, &upper, workspace);
        crate::last_copies::waiting_refs::remember(&self.root, &of_refs, &self.faults)?;
        found.extend(of_refs);
        let states = plan.states.as_deref().unwrap_or_default();
        for one in &mut found {
            let objects = crate::last_copies::waiting_refs::waiting_objects(tree, states, one);
            one.objects = objects.map(|path| self.upper().join(std::ffi::OsStr::from_bytes(&path)));
        }
        Ok(found)
    }

    fn read_upper(
        &self,
        upper: &Workspace,
        index: Option<Workspace>,
        base: &Workspace,
        rules: &Rules,
    ) -> Result<Option<LayerTree>, ReadLayerError> {
        let io = |source| ReadLayerError::Io { source };
        self.faults.check(Phase::ReadLayer).doing("read", b"upper").map_err(io)?;
        // The way of most runs: one call shows that there is nothing.
        let again = upper.readable_dir(b"").doing("open", b"upper").map_err(io)?;
        let own = TopAttrs::read(self.mode, upper.fd()).doing("look at", b"upper").map_err(io)?;
        let top = self.top.as_ref().filter(|top| top.is_changed(self.mode, &own)).map(|top| (top, own));
        if top.is_none() && is_empty(again.as_fd()).doing("list", b"upper").map_err(io)? {
            return Ok(None);
        }
        if self.mode == LayerMode::Root {
            let seen = xattr::list(self.root.fd(), b"").doing("list the attributes of", b"").map_err(io)?;
            if !seen.iter().any(|name| name == PROBE) {
                return Err(ReadLayerError::Blind);
            }
        }
        let filesystem = rustix::fs::fstatfs(base.fd()).doing("look at the file system of", b"").map_err(io)?;
        let lower = LowerFs::of(filesystem.f_type as u64);
        let started = self.threshold().map_err(io)?;
        let root = self.upper_fd.is_none().then_some(&*self.root);
        let (mode, ours, reads, is_part) = (self.mode, &*self.ours, Reads::default(), self.is_part);
        let indexes = &*super::index_notes::notes(&self.root);
        let index_at_start = self.index_at_start.as_ref();
        let walk = Walk {
            upper,
            root,
            index,
            base,
            mode,
            lower,
            started,
            top,
            ours,
            rules,
            indexes,
            index_at_start,
            reads,
            is_part,
        };
        let mut tree = walk.read().map_err(|error| match error {
            WalkError::Io(source) => ReadLayerError::Io { source },
            WalkError::Mark { path, source } => ReadLayerError::Marks { reason: format!("{path:?}: {source}") },
            other @ (WalkError::Twice { .. } | WalkError::Redirect { .. }) => {
                ReadLayerError::Marks { reason: other.to_string() }
            }
        })?;
        Yours::bring_merged(&rules.theirs, &mut tree);
        Ok(Some(tree))
    }
}
