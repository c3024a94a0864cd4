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
}

/// The directories by identity.
#[derive(Debug, Default)]
pub(super) struct Traces(HashMap<FileId, Trace>);

impl Traces {
    /// Notes the time before a step in a directory.
    pub(super) fn before(&mut self, id: FileId, mtime: FsTime) {
        let trace = self.0.entry(id).or_insert(Trace { first: mtime, last: mtime, foreign: false });
        trace.foreign |= trace.last != mtime;
    }

    /// Notes the time after it.
    pub(super) fn after(&mut self, id: FileId, mtime: FsTime) {
        if let Some(trace) = self.0.get_mut(&id) {
            trace.last = mtime;
        }
    }

    /// Reports whether a directory has the time that a step gave to it or, without a step, the `planned` one.
    pub(super) fn is_ours(&self, id: FileId, now: FsTime, planned: Option<FsTime>) -> bool {
        match self.0.get(&id) {
            None => planned == Some(now),
            Some(trace) => !trace.foreign && trace.last == now && planned.is_none_or(|planned| planned == trace.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId { ino: 7, born: None };

    fn at(sec: i64) -> FsTime {
        FsTime { sec, nsec: 0 }
    }

    #[test]
    fn a_change_before_between_or_after_the_steps_is_foreign() {
        let steps = |times: &[(i64, i64)]| {
            let mut traces = Traces::default();
            for (before, after) in times {
                traces.before(ID, at(*before));
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
}
