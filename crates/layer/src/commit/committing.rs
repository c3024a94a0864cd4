//! Commits a layer: reads it, plans, writes the journal, and brings the steps to the workspace.

use crate::beneath::{Doing as _, Workspace, is_other_mount};
use crate::commit::decide::survey::Needs;
use crate::commit::forward::{CommitFinished, go_on, roll_forward};
use crate::decide::plan::{CommitPlan, park_all, plan};
use crate::entries::changes::ChangeSet;
use crate::entries::protected::Rules;
use crate::entries::tree::{LayerTree, Role};
use crate::faults::{Comparison, Phase};
use crate::journal::file::{NEW, SlotPlace, sync_directory};
use crate::meta::EntryType;
use crate::places::commit_places::LayerDirectories;
use crate::staging::stage::remove_slots;
use crate::store::layer::{CommitError, CommitState, Committed, Layer};
use crate::store::removal::remove_layer;

impl Layer {
    /// Commits the changes to the workspace, as far as the rules allow. No process may still run in the layer.
    ///
    /// After [`CommitError::Read`], [`CommitError::Damaged`], [`CommitError::Altered`] and [`CommitError::Prepare`]
    /// the layer is unchanged and may be parked. After [`CommitError::TakenBack`] the workspace is as before, and the layer may
    /// be parked too.
    pub fn commit(&self, workspace: &Workspace, rules: &Rules) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        self.make_own().map_err(prepare)?;
        // First, because it may take seconds: what changes in the workspace meanwhile is seen by the reading.
        self.sync_upper().map_err(prepare)?;
        let Some(mut tree) = self.read_directory(workspace, rules)? else {
            let left = remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?;
            return Ok(Committed { left: left.into_iter().collect(), ..Committed::nothing() });
        };
        self.check_whole(&tree)?;
        self.faults.check(Phase::PlanCommit).doing("plan", b"").map_err(prepare)?;
        let mut plan = plan(&tree, rules);
        self.note_copies(workspace, &tree, &mut plan).map_err(prepare)?;
        let stashes = self.note_stashes(workspace, &tree, &mut plan).map_err(prepare)?;
        let asks_for_writers = self.faults.compares(Comparison::OpenElsewhere);
        let needs = self.survey(workspace, &mut tree, (rules, &plan), asks_for_writers).map_err(prepare)?;
        if needs.in_the_way.is_empty() {
            let done = self.carry_out(workspace, tree, rules, plan, &needs)?;
            return Ok(done.naming(stashes));
        }
        let nothing = park_all(&tree, needs.in_the_way);
        self.carry_out(workspace, tree, rules, nothing, &Needs::default())
    }

    /// Refuses a damaged layer. A parked layer whose files have other sizes than when it was parked was damaged, by a
    /// power cut for instance.
    pub(crate) fn check_whole(&self, tree: &LayerTree) -> Result<(), CommitError> {
        for node in tree.nodes.iter().filter(|node| node.role == Role::Entry && node.meta.kind == EntryType::File) {
            if self.recorded.size(&node.path.0).is_some_and(|size| size != node.meta.size) {
                return Err(CommitError::Damaged { run: self.run.clone(), path: node.path.text() });
            }
        }
        self.check_unaltered(tree)
    }

    /// Commits what was planned.
    pub(crate) fn carry_out(
        &self,
        workspace: &Workspace,
        tree: LayerTree,
        rules: &Rules,
        plan: CommitPlan,
        needs: &Needs,
    ) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        if needs.steps == 0 {
            let CommitPlan { committed, parked, conflicts, .. } = plan;
            let changes = ChangeSet { changes: committed.lines(&tree, rules).collect() };
            let mut result = Committed { changes, conflicts, ..Committed::nothing() };
            if parked.len() == 0 {
                result.left.extend(remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?);
            } else {
                result.state = CommitState::Parked;
                result.parked = self.write_parked(workspace, tree, rules, &parked).map_err(prepare)?;
            }
            return Ok(result);
        }
        let slots = if tree.same_mount { SlotPlace::Layer } else { SlotPlace::Workspace };
        let journal = match self.decide(workspace, tree, rules, plan, needs) {
            Ok(journal) => journal,
            Err(source) => {
                // Nothing was decided. What was staged goes, if it can; the next try clears it otherwise.
                remove_slots(&self.root, workspace, &self.run, slots, &self.faults).ok();
                crate::beneath::unlink_if_there(self.root.fd(), NEW.as_bytes()).ok();
                return Err(prepare(source));
            }
        };
        let interrupted = |source| CommitError::Interrupted { run: self.run.clone(), source };
        self.faults.check(Phase::SyncJournal).doing("sync", b"").map_err(interrupted)?;
        sync_directory(&self.root, &self.faults).map_err(interrupted)?;
        let directories = LayerDirectories { layers: &self.layers, root: &self.root, base: workspace, run: &self.run };
        let outcome = match roll_forward(&directories, &journal, &self.faults, false) {
            Ok(outcome) => outcome,
            Err(failure) if is_other_mount(&failure.source) && self.is_half_way().map_err(interrupted)? => {
                return self.take_back(workspace, rules, &journal, failure);
            }
            // Every step may be repeated, and most errors do not come twice.
            Err(_) => go_on(&directories, &journal, &self.faults).map_err(interrupted)?,
        };
        let CommitFinished { committed, parked, conflicts, unwatched, left, stashes } =
            CommitFinished::new(journal, outcome);
        let state = if committed.is_empty() { CommitState::Parked } else { CommitState::Committed };
        let changes = ChangeSet { changes: committed };
        Ok(Committed { state, changes, parked, conflicts, unwatched, left, stashes })
    }
}
