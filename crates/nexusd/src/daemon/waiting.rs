//! The kept files that wait for the control plane: while there are too many of them, no work is claimed that would add to them.

use crate::claims::Note;
use crate::spool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Directives whose kept files may wait, each with a thread of its own.
const MAX_DIRECTIVES: usize = 16;
/// Bytes of them on the disk of this territory.
const MAX_BYTES: u64 = 2 << 30;

/// Counts what waits.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Count>);

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    directives: usize,
    bytes: u64,
}

/// The kept files of one directive, until they are there or given up.
#[derive(Debug)]
pub struct Upload<'a> {
    waiting: &'a Waiting,
    bytes: u64,
}

impl Waiting {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the kept files of a claim; `None` where it has none.
    pub fn begin(&self, note: &Note) -> Option<Upload<'_>> {
        let files = spool::manifest(note)?.artifacts;
        if !files.iter().any(nexus_facility::artifacts::Artifact::is_file) {
            return None;
        }
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
        Some(self.add(bytes))
    }

    fn add(&self, bytes: u64) -> Upload<'_> {
        let mut count = self.count();
        *count = Count { directives: count.directives + 1, bytes: count.bytes.saturating_add(bytes) };
        Upload { waiting: self, bytes }
    }

    /// Refuses more work while too much waits.
    pub fn check(&self) -> Result<(), String> {
        let Count { directives, bytes } = *self.count();
        if directives >= MAX_DIRECTIVES {
            return Err(format!("the kept files of {directives} directives wait for the control plane"));
        }
        if bytes >= MAX_BYTES {
            return Err(format!("{bytes} bytes of kept files wait for the control plane"));
        }
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let mut count = self.waiting.count();
        *count =
            Count { directives: count.directives.saturating_sub(1), bytes: count.bytes.saturating_sub(self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_work_is_claimed_while_too_many_kept_files_wait() {
        let waiting = Waiting::default();
        let mut many: Vec<_> = (0..MAX_DIRECTIVES - 1).map(|_| waiting.add(1)).collect();
        assert_eq!(waiting.check(), Ok(()));
        many.push(waiting.add(1));
        assert!(waiting.check().unwrap_err().contains("of 16 directives"));
        many.pop();
        assert_eq!(waiting.check(), Ok(()));
        drop(many);
        let large = waiting.add(MAX_BYTES);
        assert!(waiting.check().unwrap_err().contains("bytes"));
        drop(large);
        assert_eq!(waiting.check(), Ok(()));
    }
}
