//! Breaks in the chain of receipts that a person has looked at: `receipts/breaks`.
//!
//! ```text
//!  chain  damaged ─▶ chain.damaged-RUN, kept     the next run begins a new chain; verify names the old one and fails
//!  nexus receipt close CHAIN ─▶ a line in breaks  verify names the break each time, and judges the rest
//! ```
//! Lines are only ever added, and a later line for the same chain counts. A line that cannot be read closes nothing.

use super::files;
use crate::chain::ChainEnd;
use nexus_model::{Digest, RunId};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

const NAME: &str = "breaks";
const FORM: &str = "nexus.break/1";
/// Bytes that are read of the file; a line has about 250.
const MAX_BYTES: u64 = 4 << 20;

/// A chain that ended by a break and was closed by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// The chain that ended.
    pub chain: RunId,
    /// The number after its last receipt.
    pub next: u64,
    /// The lowest number that is kept.
    pub floor: u64,
    /// The hash of its last receipt.
    pub last: Digest,
    /// The time at which the chain was closed, in milliseconds since 1970 in UTC, by the machine's clock.
    pub closed_unix_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    schema: String,
    #[serde(flatten)]
    broken: Break,
}

/// Content of the file of recorded breaks.
#[derive(Debug, Default)]
pub struct Breaks {
    /// The recorded breaks, one for each chain.
    pub all: Vec<Break>,
    /// Lines that cannot be read.
    pub unreadable: usize,
}

impl Breaks {
    /// Reads the file of a directory with receipts.
    pub fn read(directory: &OwnedFd) -> io::Result<Self> {
        let content = match files::read(directory, NAME, MAX_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut found = Self::default();
        for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Line>(line) {
                Ok(line) if line.schema == FORM => {
                    found.all.retain(|known| known.chain != line.broken.chain);
                    found.all.push(line.broken);
                }
                Ok(_) | Err(_) => found.unreadable += 1,
            }
        }
        Ok(found)
    }

    /// Returns the ends of the closed chains.
    pub fn ends(&self) -> Vec<ChainEnd> {
        self.all.iter().map(|one| ChainEnd { chain: one.chain, next: one.next, floor: one.floor }).collect()
    }
}

/// Adds a line. The caller holds the chain's lock.
pub fn add(directory: &OwnedFd, broken: Break) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(directory, NAME, flags, Mode::from_raw_mode(0o600))?);
    let mut text = serde_json::to_string(&Line { schema: FORM.to_owned(), broken })?;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    // After a line that was cut off.
    if last != *b"\n" {
        text.insert(0, '\n');
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    files::sync(directory)
}
