//! Writes the audit log to a file.

use crate::audit::event::{AuditError, Event};
use crate::seams::Sink;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// Sink that appends lines to a file, up to a bound.
///
/// A line that is written only in part (a disk that fills up) must not run together with the next one: a reader would
/// lose both, and a hostile name could be placed to look like a line of its own.
pub struct FileSink {
    inner: Mutex<Inner>,
    max_bytes: u64,
}

struct Inner {
    file: File,
    written: u64,
    torn: bool,
}

impl FileSink {
    /// Appends at most `max_bytes` to `file`, which should be opened for appending and have no other writer.
    pub fn new(file: File, max_bytes: u64) -> Self {
        Self { inner: Mutex::new(Inner { file, written: 0, torn: false }), max_bytes }
    }
}

impl Sink for FileSink {
    fn record(&self, event: &Event) -> Result<(), AuditError> {
        let line = event.line()?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.written.saturating_add(line.len() as u64) > self.max_bytes {
            return Err(AuditError::Full { max_bytes: self.max_bytes });
        }
        if inner.torn {
            inner.put(b"\n")?;
            inner.torn = false;
        }
        inner.put(line.as_bytes())
    }
}

impl Inner {
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), AuditError> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(AuditError::Write { source: ErrorKind::WriteZero.into() }),
                Ok(count) => {
                    self.written += count as u64;
                    bytes = &bytes[count..];
                    self.torn = !bytes.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(AuditError::Write { source }),
            }
        }
        Ok(())
    }
}
