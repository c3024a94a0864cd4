//! Turns a plan into a journal in two passes over its steps: the first collects their requirements, the second stages files and
//! writes the steps. Neither pass holds all steps in memory.

use crate::beneath::{Doing as _, IoFailure, Workspace, names, unlink_if_there};
use crate::commit::decide::immovable::{self, Trial};
use crate::commit::decide::steps_of_plan::{Sink, emit, moved_from, parents};
use crate::commit::decide::survey::{Needs, Survey};
use crate::decide::partial::arrivals;
use crate::decide::plan::CommitPlan;
use crate::disk::identity::Home;
use crate::disk::upper::{open_index, open_upper};
use crate::entries::protected::Rules;
use crate::entries::tree::LayerTree;
use crate::faults::Phase;
use crate::journal::file::{BACK, Header, JOURNAL, Journal, SlotPlace, VERSION, Writing, sync_directory};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Slot, Staged, Step};
use crate::journal::step_reader::IN_MEMORY;
use crate::meta::{FileId, FsTime, stat, stat_if_there};
use crate::moves::beside::BESIDE;
use crate::notes::marks_back;
use crate::notes::removing::{LEAVING_NOTE, REMOVING};
use crate::notes::returned;
use crate::places::writers::OpenElsewhere;
use crate::staging::stage::{Staging, StagingTrees, remove_slots};
use crate::store::layer::Layer;
use crate::store::layer::index_notes::write_notes;
use crate::store::locked::is_run_id;
use crate::store::open_for_recovery::is_going_back;
use nexus_model::ByteText;
use std::collections::HashMap;
use std::os::fd::AsFd as _;

/// Stages what each step needs and writes it down.
struct Record<'a, 'b> {
    upper: &'b Workspace,
    staging: &'b mut Option<Staging<'a>>,
    writing: &'b mut Writing,
    last: Option<(Slot, Seen)>,
    /// Overlay's marks of the last one.
    marks: Vec<ByteText>,
    directories: HashMap<Slot, FileId>,
}

impl Sink for Record<'_, '_> {
    fn stage(&mut self, slot: Slot, staged: Staged) -> Result<(), IoFailure> {
        let Some(staging) = self.staging.as_mut() else {
            return Err(std::io::Error::other("there is no staging directory")).doing("stage", b"");
        };
        let made = staging.make(slot, &staged)?;
        self.last = Some((slot, made));
        self.marks = staging.marks(slot, &staged)?;
        if staged == Staged::Directory {
            self.directories.insert(slot, made.id);
        }
        Ok(())
    }

    fn step(&mut self, mut step: Step) -> Result<(), IoFailure> {
        match &mut step {
            Step::Put(put) if put.new.is_none() => {
                let last = self.last.filter(|(slot, _)| put.from == Origin::Slot(*slot));
                put.new = last.map(|(_, made)| made);
                put.strip.append(&mut self.marks);
            }
            Step::SetDir(set) if set.id.is_none() => {
                set.id = set.slot.and_then(|slot| self.directories.get(&slot)).copied();
            }
            Step::Strip { path, names, marks, .. } => *marks = marks_back::values(self.upper, &path.0, names)?,
            _ => {}
        }
        if let Step::Put(put) = &mut step
            && !put.strip.is_empty()
        {
            put.marks = match (&put.from, &self.staging) {
                (Origin::Layer, _) => marks_back::values(self.upper, &put.path.0, &put.strip)?,
                (Origin::Slot(slot), Some(staging)) => staging.values(*slot, &put.strip)?,
                (Origin::Slot(_), None) => Vec::new(),
            };
        }
        self.writing.step(step)
    }
}

/// The place of a commit's staging directory.
fn place(tree: &LayerTree) -> SlotPlace {
    if tree.same_mount { SlotPlace::Layer } else { SlotPlace::Workspace }
}

impl Layer {
    /// Looks what the steps of a plan need, and what is in their way: what the file system will not move, and, if
    /// asked for, the files which they displace and a process has open for writing. Afterwards the tree says if the commit
    /// can move entries of the layer.
    pub(crate) fn survey(
        &self,
        workspace: &Workspace,
        tree: &mut LayerTree,
        (rules, plan): (&Rules, &CommitPlan),
        asks_for_writers: bool,
    ) -> Result<Needs, IoFailure> {
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        let trial = |place| {
            let (root, base, run) = (&*self.root, workspace, &*self.run);
            let stage =
                StagingTrees { root, upper: &upper, index: None, base, run, mode: self.mode, faults: &self.faults };
            Trial::new(stage, &self.layers, place)
        };
        let apart = immovable::inspect(tree, plan, trial)?;
        if !apart.is_empty() {
            return Ok(Needs { in_the_way: apart, ..Needs::default() });
        }
        tree.first_other = self.first_other(workspace)?;
        let open = asks_for_writers.then(|| OpenElsewhere::new(workspace));
        let mut survey = Survey { needs: Needs::default(), open, trial: trial(place(tree)) };
        let emitted = emit(tree, rules, plan, &mut survey);
        let Survey { needs, open, trial } = survey;
        emitted.and(trial.end())?;
        let mut in_the_way = open.map(OpenElsewhere::found).unwrap_or_default();
        in_the_way.extend(needs.in_the_way);
        Ok(Needs { in_the_way, ..needs })
    }

    /// Returns when the oldest of the other layers began that this user has. Where another user may have layers of the
    /// workspace, that is never known.
    fn first_other(&self, workspace: &Workspace) -> Result<FsTime, IoFailure> {
        let top = stat(workspace.fd(), b"").doing("look at", b"")?;
        if top.uid != rustix::process::geteuid().as_raw() {
            return Ok(FsTime::MIN);
        }
        let listed = self.layers.readable_dir(b"").doing("open", b"")?;
        let mut first = FsTime::MAX;
        for name in names(listed.as_fd()).doing("list", b"")? {
            let is_other = std::str::from_utf8(&name).is_ok_and(|name| is_run_id(name) && name != self.run);
            if is_other && let Some(layer) = stat_if_there(self.layers.fd(), &name).doing("look at", &name)? {
                first = first.min(layer.id.born.unwrap_or(FsTime::MIN));
            }
        }
        Ok(first)
    }

    /// Writes the journal of a plan. The tree is needed no more afterwards.
    pub(crate) fn decide(
        &self,
        workspace: &Workspace,
        mut tree: LayerTree,
        rules: &Rules,
        mut plan: CommitPlan,
        needs: &Needs,
    ) -> Result<Journal, IoFailure> {
        self.faults.check(Phase::Stage).doing("stage", b"")?;
        let copied_up = self.copy_up(workspace, &mut tree, &plan)?;
        let slots = place(&tree);
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        let index = open_index(&self.root)?;
        let stage = StagingTrees {
            root: &self.root,
            upper: &upper,
            index: index.as_ref(),
            base: workspace,
            run: &self.run,
            mode: self.mode,
            faults: &self.faults,
        };
        let mut staging = if needs.slots {
            Some(stage.begin(slots, needs.staged)?)
        } else {
            // What an earlier try left behind is nothing that this commit displaces.
            remove_slots(&self.root, workspace, &self.run, slots, &self.faults)?;
            None
        };
        let id = workspace.identity().doing("look at", b"")?;
        let path = self.home.as_ref().map_or_else(|| workspace.path().into(), |home| home.path.clone());
        let parents = parents(&tree, &plan);
        // One that is gone keeps its renamed directory back, when that is taken.
        let left = moved_from(&tree, &plan).into_iter().filter_map(|path| workspace.stat(&path.0).ok().flatten());
        let moved_from = left.map(|found| found.id).collect();
        let header = Header {
            version: VERSION,
            run: self.run.clone(),
            home: Home { path, id },
            mode: self.mode,
            slots,
            parents,
            moved_from,
            keep: std::mem::take(&mut plan.keep),
            keep_in_index: std::mem::take(&mut plan.keep_in_index),
            parked: (),
            committed: (),
            rewritten: std::mem::take(&mut plan.rewritten),
            borrowers: crate::git::borrowers::new_ones(&tree, &upper, workspace),
            started: self.started,
            clock: self.clock.clone(),
            top: self.top.clone(),
            ours: crate::entries::tree::CommittedEntry::with_arrivals(
                &[&self.ours[..], &copied_up].concat(),
                arrivals(&tree),
            ),
        };
        if plan.parked.len() != 0 {
            write_notes(&self.root, &tree, &self.faults)?;
        }
        let parked = plan.parked.written(&tree, rules);
        let header = header.with_lists(parked, plan.committed.written(&tree, rules));
        let mut writing = Writing::begin(&self.root, &header)?;
        let mut record = Record {
            upper: &upper,
            staging: &mut staging,
            writing: &mut writing,
            last: None,
            marks: Vec::new(),
            directories: HashMap::new(),
        };
        let recorded = emit(&tree, rules, &plan, &mut record);
        let closed = staging.as_mut().map_or(Ok(()), Staging::close);
        recorded.and(closed)?;
        if let Some(staging) = &staging {
            staging.sync()?;
        }
        if is_going_back(&self.root)? {
            // Of one that was taken back: it must not be taken for a word about this one.
            unlink_if_there(self.root.fd(), BACK.as_bytes()).doing("remove", BACK.as_bytes())?;
            sync_directory(&self.root, &self.faults)?;
        }
        // Of an earlier commit of a part of this layer.
        returned::clear(&self.root)?;
        for name in [BESIDE, LEAVING_NOTE, REMOVING] {
            unlink_if_there(self.root.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
        }
        self.faults.check(Phase::WriteJournal).doing("write", JOURNAL.as_bytes())?;
        // Small lists are at hand; large ones are read again when the tree is gone.
        let is_small = plan.parked.len() + plan.committed.len() <= IN_MEMORY;
        let lists = is_small.then(|| {
            let list = |report: &crate::decide::report::Report| report.lines(&tree, rules).collect();
            (list(&plan.parked), list(&plan.committed))
        });
        let header = header.without_lists();
        drop((tree, plan));
        let header = lists.map(|(parked, committed)| header.with_lists(parked, committed));
        // Last: after an error the caller takes nothing for decided.
        writing.publish(&self.root, header, &self.faults)
    }
}
