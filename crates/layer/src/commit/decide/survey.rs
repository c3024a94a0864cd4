//! Collects the resources that the steps of a plan need, and the obstacles to them.

use crate::beneath::{Doing as _, IoFailure};
use crate::commit::decide::immovable::Trial;
use crate::commit::decide::steps_of_plan::Sink;
use crate::entries::changes::Conflict;
use crate::journal::step::{Origin, Slot, Staged, Step};
use crate::places::writers::OpenElsewhere;
use nexus_model::ByteText;

/// Requirements of the steps of a plan.
#[derive(Default)]
pub(crate) struct Needs {
    /// Number of steps.
    pub(crate) steps: usize,
    /// Number of entries that have to be staged.
    pub(super) staged: usize,
    /// Set if there has to be a staging directory.
    pub(super) slots: bool,
    /// Files with this content, by the path of the layer that it stands for.
    pub(crate) written: Vec<ByteText>,
    /// Conflicts of the workspace as it is: files that a process has open for writing, and what the file system will not move.
    pub(crate) in_the_way: Vec<Conflict>,
}

/// Looks what the steps of a plan need.
pub(super) struct Survey<'a> {
    pub(super) needs: Needs,
    pub(super) open: Option<OpenElsewhere<'a>>,
    pub(super) trial: Trial<'a>,
}

impl Sink for Survey<'_> {
    fn stage(&mut self, _: Slot, staged: Staged) -> Result<(), IoFailure> {
        self.needs.staged += 1;
        if let Staged::Bytes { like, .. } = staged {
            self.needs.written.push(like);
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), IoFailure> {
        self.needs.steps += 1;
        let from_slot = |from: &Origin| matches!(from, Origin::Slot(_));
        self.needs.slots |= matches!(step, Step::Hold { .. } | Step::Take { .. })
            || matches!(&step, Step::Put(put) if from_slot(&put.from));
        if let Some(open) = &mut self.open {
            open.inspect(&step).doing("ask for writers of", step.path().map_or(&b""[..], |path| &path.0))?;
        }
        self.needs.in_the_way.extend(self.trial.refuses(&step)?);
        Ok(())
    }
}
