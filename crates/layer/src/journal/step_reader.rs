//! The steps of a journal, read one by one: those of a large commit stay in the file.

use crate::databases::companions::is_tied;
use crate::journal::seen::Seen;
use crate::journal::step::{SetDir, Step};
use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// So many steps are kept in memory; with more of them, all stay in the file.
pub(crate) const IN_MEMORY: usize = 16;

/// So many steps are read at once where they are read from the last one on.
const BLOCK: usize = 256;

/// The steps of a decided commit.
#[derive(Debug)]
pub(crate) struct Steps {
    /// So many are kept.
    limit: usize,
    first: Vec<Step>,
    file: Option<InFile>,
    count: usize,
    several: Vec<Several>,
    has_units: bool,
    top: Option<Box<SetDir>>,
}

#[derive(Debug, Clone)]
struct InFile {
    file: Arc<File>,
    /// Offset of the line of the first step, in bytes.
    from: u64,
}

/// A file with several names, or a directory, that a step displaces, or any file that one holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Several {
    /// The entry as the plan saw it.
    pub(crate) old: Seen,
    /// A step displaces it; otherwise one only gives it a further name.
    pub(crate) is_displaced: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            limit: IN_MEMORY,
            first: Vec::new(),
            file: None,
            count: 0,
            several: Vec::new(),
            has_units: false,
            top: None,
        }
    }
}

impl Steps {
    /// Keeps all steps in memory.
    pub(crate) fn all_in_memory() -> Self {
        Self { limit: usize::MAX, ..Self::default() }
    }

    /// Notes a step. Only the first ones are kept.
    pub(crate) fn add(&mut self, step: Step) {
        let old = match &step {
            Step::Hold { old, .. } => Some((old, false)),
            other => other.displaces().map(|old| (old, true)),
        };
        // One that is held has several from then on.
        if let Some((old, is_displaced)) = old.filter(|(old, is_displaced)| old.links > 1 || !is_displaced) {
            self.several.push(Several { old: *old, is_displaced });
        }
        if let Step::SetDir(set) = &step
            && set.path.0.is_empty()
            && set.was.is_some()
        {
            self.top = Some(Box::new(set.clone()));
        }
        self.has_units |= step.path().is_some_and(|path| is_tied(&path.0));
        self.count += 1;
        if self.count <= self.limit {
            self.first.push(step);
        }
    }

    /// Tells where the lines of the steps are: in `file`, from the byte `from` on.
    pub(crate) fn lie_in(&mut self, file: File, from: u64) {
        if self.count > self.limit {
            self.file = Some(InFile { file: Arc::new(file), from });
            self.first = Vec::new();
        }
    }

    /// Returns the number of steps.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the files with several names that steps hold or displace.
    pub(crate) fn several(&self) -> &[Several] {
        &self.several
    }

    /// Reports whether a step may belong to a unit.
    pub(crate) fn has_units(&self) -> bool {
        self.has_units
    }

    /// Returns the change of the workspace's own directory, if there is one.
    pub(crate) fn top(&self) -> Option<&SetDir> {
        self.top.as_deref()
    }

    /// Reads the steps in their order.
    pub(crate) fn each(&self) -> impl Iterator<Item = io::Result<Step>> + use<> {
        let lines = self.file.clone().map(|InFile { file, from }| Lines {
            file: BufReader::with_capacity(1 << 16, At { file, from }),
            left: self.count,
            line: Vec::new(),
        });
        // In memory there are few.
        self.first.clone().into_iter().map(Ok).chain(lines.into_iter().flatten())
    }

    /// Reads the steps from the last one to the first, each with its number. Of those in the file one block is in
    /// memory.
    pub(crate) fn each_back(&self) -> io::Result<impl Iterator<Item = io::Result<(usize, Step)>> + use<>> {
        let mut starts = Vec::new();
        if let Some(InFile { file, from }) = &self.file {
            let mut at = *from;
            let mut lines = BufReader::with_capacity(1 << 16, At { file: file.clone(), from: at });
            for number in 0..self.count {
                if number % BLOCK == 0 {
                    starts.push(at);
                }
                at += lines.skip_until(b'\n')? as u64;
            }
        }
        let file = self.file.as_ref().map(|InFile { file, .. }| file.clone());
        Ok(Back { file, starts, block: self.first.clone(), left: self.count })
    }
}

/// Reads a file from a place on, whatever its own position is.
pub(crate) struct At<F> {
    pub(crate) file: F,
    pub(crate) from: u64,
}

impl<F: Borrow<File>> Read for At<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.borrow().read_at(buffer, self.from)?;
        self.from += count as u64;
        Ok(count)
    }
}

struct Lines {
    file: BufReader<At<Arc<File>>>,
    left: usize,
    line: Vec<u8>,
}

impl Iterator for Lines {
    type Item = io::Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.line.clear();
        let read = self.file.read_until(b'\n', &mut self.line);
        Some(read.and_then(|_| Ok(serde_json::from_slice(&self.line)?)))
    }
}

/// Steps from the last one to the first.
struct Back {
    file: Option<Arc<File>>,
    /// Offsets of the blocks that are still to be read.
    starts: Vec<u64>,
    /// The steps that come next, the last one first.
    block: Vec<Step>,
    left: usize,
}

impl Back {
    fn read_block(&mut self) -> io::Result<()> {
        if let (Some(file), Some(from)) = (&self.file, self.starts.pop()) {
            let file = BufReader::with_capacity(1 << 16, At { file: file.clone(), from });
            let lines = Lines { file, left: self.left - self.starts.len() * BLOCK, line: Vec::new() };
            self.block = lines.collect::<io::Result<_>>()?;
        }
        Ok(())
    }
}

impl Iterator for Back {
    type Item = io::Result<(usize, Step)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left > 0
            && self.block.is_empty()
            && let Err(error) = self.read_block()
        {
            self.left = 0;
            return Some(Err(error));
        }
        self.left = self.left.checked_sub(1)?;
        // A step that is missing must not pass for the end.
        let step = self.block.pop().ok_or_else(|| io::Error::other("a step of the journal is missing"));
        Some(step.map(|step| (self.left, step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn steps_are_read_backwards_from_memory_and_by_blocks() {
        for count in [0, 1, IN_MEMORY, IN_MEMORY + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"{\"header\":1}\n").unwrap();
            let mut steps = Steps::default();
            for number in 0..count {
                let step = Step::Strip {
                    path: format!("path {number}").as_str().into(),
                    names: Vec::new(),
                    marks: Vec::new(),
                    is_edit: false,
                };
                serde_json::to_writer(&file, &step).unwrap();
                file.write_all(b"\n").unwrap();
                steps.add(step);
            }
            file.write_all(b"{\"steps\":0}\n").unwrap();
            steps.lie_in(file, 13);
            let forward: Vec<_> = steps.each().map(Result::unwrap).enumerate().collect();
            let mut back: Vec<_> = steps.each_back().unwrap().map(Result::unwrap).collect();
            back.reverse();
            assert_eq!(back.len(), count);
            assert_eq!(back, forward);
        }
    }

    #[test]
    fn a_journal_that_lost_its_end_is_an_error_also_backwards() {
        let mut steps = Steps::default();
        for _ in 0..=BLOCK {
            steps.add(Step::Strip { path: "x".into(), names: Vec::new(), marks: Vec::new(), is_edit: false });
        }
        steps.lie_in(tempfile::tempfile().unwrap(), 0);
        let read: Vec<_> = steps.each_back().unwrap().collect();
        assert!(read.len() == 1 && read[0].is_err(), "{read:?}");
    }
}
