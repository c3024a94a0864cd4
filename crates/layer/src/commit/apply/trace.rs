//! Follows the times at which the directories that steps act in last changed, so that a commit sets such a time back
//! only where no other process changed the directory. Pure.

use crate::meta::{FileId, FsTime};
use std::collections::HashMap;

#[derive(Debug)]
struct Trace {
    /// Before the first step.
    first: FsTime,
    /// After the latest step.
    last: FsTime,
    /// It changed between two steps.
    foreign: bool,
    /// It had changed before the first step, since the run started.
    late: bool,
}

/// Identity and device of a directory: a snapshot of a subvolume of btrfs has the same inodes and times of birth.
pub(super) type DirectoryId = (FileId, (u32, u32));

#[derive(Debug, Default)]
pub(super) struct Traces(HashMap<DirectoryId, Trace>);

impl Traces {
    /// Notes the time before a step in a directory. `late` tells whether it has changed since the run started, but by an earlier commit of
    /// the same layer.
    pub(super) fn before(&mut self, id: DirectoryId, mtime: FsTime, late: bool) {
        let trace = self.0.entry(id).or_insert(Trace { first: mtime, last: mtime, foreign: false, late });
        trace.foreign |= trace.last != mtime;
    }

    /// Notes the time after it.
    pub(super) fn after(&mut self, id: DirectoryId, mtime: FsTime) {
        if let Some(trace) = self.0.get_mut(&id) {
            trace.last = mtime;
        }
    }

    /// Reports whether a directory has the time that a step gave to it or, without a step, the `planned` one.
    pub(super) fn is_ours(&self, id: DirectoryId, now: FsTime, planned: Option<FsTime>) -> bool {
        match self.0.get(&id) {
            None => planned == Some(now),
            Some(trace) => !trace.foreign && trace.last == now && planned.is_none_or(|planned| planned == trace.first),
        }
    }

    /// Reports whether a directory in which steps acted has changed by these alone since the run started.
    pub(super) fn is_of_steps_alone(&self, id: DirectoryId, now: FsTime) -> bool {
        self.0.get(&id).is_some_and(|trace| !trace.late && !trace.foreign && trace.last == now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DirectoryId = (FileId { ino: 7, born: None }, (8, 1));

    fn at(sec: i64) -> FsTime {
        FsTime { sec, nsec: 0 }
    }

    #[test]
    fn a_change_before_between_or_after_the_steps_is_foreign() {
        let steps = |times: &[(i64, i64)]| {
            let mut traces = Traces::default();
            for (before, after) in times {
                traces.before(ID, at(*before), false);
                traces.after(ID, at(*after));
            }
            traces
        };
        assert!(steps(&[(1, 2), (2, 3)]).is_ours(ID, at(3), Some(at(1))));
        assert!(steps(&[(1, 2), (2, 3)]).is_ours(ID, at(3), None));
        assert!(!steps(&[(1, 2), (2, 3)]).is_ours(ID, at(3), Some(at(0))), "before the first step");
        assert!(!steps(&[(1, 2), (4, 5)]).is_ours(ID, at(5), Some(at(1))), "between two steps");
        assert!(!steps(&[(1, 2)]).is_ours(ID, at(3), Some(at(1))), "after the last step");
        assert!(steps(&[]).is_ours(ID, at(1), Some(at(1))) && !steps(&[]).is_ours(ID, at(2), Some(at(1))));
    }

    #[test]
    fn a_directory_is_of_the_steps_alone_unless_it_was_late_or_changed_meanwhile() {
        let steps = |late: bool, times: &[(i64, i64)]| {
            let mut traces = Traces::default();
            for (before, after) in times {
                traces.before(ID, at(*before), late);
                traces.after(ID, at(*after));
            }
            traces
        };
        assert!(steps(false, &[(1, 2), (2, 3)]).is_of_steps_alone(ID, at(3)));
        assert!(!steps(true, &[(1, 2), (2, 3)]).is_of_steps_alone(ID, at(3)), "before the first step");
        assert!(!steps(false, &[(1, 2), (4, 5)]).is_of_steps_alone(ID, at(5)), "between two steps");
        assert!(!steps(false, &[(1, 2)]).is_of_steps_alone(ID, at(3)), "after the last step");
        assert!(!steps(false, &[]).is_of_steps_alone(ID, at(1)), "no step acted in it");
    }
}
