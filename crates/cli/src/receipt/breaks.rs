//! Breaks in the chain of receipts that somebody has looked at: `receipts/breaks`.
//!
//! ```text
//!  chain  damaged ─▶ chain.damaged-RUN, kept     the next run begins a new chain; verify names the old one and fails
//!  nexus receipt close CHAIN ─▶ a line in breaks  verify names the break each time, and judges the rest
//! ```
//! Lines are only ever added, and a later line for the same chain counts. A line that cannot be read closes nothing.

use super::store::Store;
use super::verify::Collected;
use super::{files, issue, utc, verify};
use crate::args::CloseArgs;
use crate::failure::Failure;
use nexus_model::Digest;
use nexus_model::RunId;
use nexus_policy::receipt::ChainEnd;
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
    /// The chain.
    pub chain: RunId,
    /// The number after its last receipt.
    pub next: u64,
    /// The lowest number that is kept.
    pub floor: u64,
    /// The hash of its last receipt.
    pub last: Digest,
    /// When it was closed.
    pub closed_unix_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    schema: String,
    #[serde(flatten)]
    broken: Break,
}

/// What the file says.
#[derive(Debug, Default)]
pub struct Breaks {
    /// One for each chain.
    pub all: Vec<Break>,
    /// Lines that cannot be read.
    pub unreadable: usize,
}

impl Breaks {
    /// Reads the file of a directory with receipts.
    pub fn read(folder: &OwnedFd) -> io::Result<Self> {
        let content = match files::read(folder, NAME, MAX_BYTES) {
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

    /// The ends of the closed chains.
    pub fn ends(&self) -> Vec<ChainEnd> {
        self.all.iter().map(|one| ChainEnd { chain: one.chain, next: one.next, floor: one.floor }).collect()
    }

    /// Sentences for the answer of `verify --chain`.
    pub fn told(&self) -> Vec<String> {
        let of = |one: &Break| {
            let last = one.next.saturating_sub(1);
            format!(
                "a break: the chain of {} ends with number {last}, closed {} UTC",
                one.chain,
                utc(one.closed_unix_ms)
            )
        };
        let mut told: Vec<String> = self.all.iter().map(of).collect();
        if self.unreadable > 0 {
            told.push(format!("{} lines of receipts/{NAME} cannot be read", self.unreadable));
        }
        told
    }
}

/// Adds a line. The caller holds the chain's lock.
pub fn add(folder: &OwnedFd, broken: Break) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(folder, NAME, flags, Mode::from_raw_mode(0o600))?);
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
    files::sync(folder)
}

/// `nexus receipt close`.
pub fn close(args: &CloseArgs) -> Result<String, Failure> {
    let (store, known) = verify::local()?;
    let found = Collected::of(&store, &known.ring())?;
    let chain = args.chain;
    if found.end.is_some_and(|end| end.chain == chain) {
        let message = format!("the chain of {chain} goes on");
        return Err(Failure::refused("chain", message, "only a chain whose note was lost can be closed"));
    }
    let last = found.rings.iter().filter(|ring| ring.place.chain == chain).max_by_key(|ring| ring.place.seq);
    let Some(last) = last else {
        let message = format!("there is no valid receipt of a chain of {chain}");
        return Err(Failure::refused(
            "chain",
            message,
            "nexus receipt verify --chain names the chains that were not continued",
        ));
    };
    let (next, floor) = (last.place.seq + 1, last.place.floor);
    let broken = Break { chain, next, floor, last: last.hash, closed_unix_ms: issue::now_unix_ms() };
    store.close(broken).map_err(|error| failed(&error))?;
    Ok(format!("the chain of {chain} is closed with number {}; verify --chain names the break\n", last.place.seq))
}

/// Removes the receipts of closed chains, where the present chain has as many as are to be kept. Returns how many went.
pub fn prune(store: &Store, keep: u64) -> Result<u64, Failure> {
    let (_, known) = verify::local()?;
    let found = Collected::of(store, &known.ring())?;
    if found.end.is_none_or(|end| end.next - end.floor < keep) {
        return Ok(0);
    }
    let mut gone = 0;
    for one in found.breaks.all.iter().filter(|one| one.floor < one.next) {
        let runs: Vec<RunId> =
            found.rings.iter().filter(|ring| ring.place.chain == one.chain).map(|ring| ring.run_id).collect();
        gone += store.forget(Break { floor: one.next, ..*one }, &runs).map_err(|error| failed(&error))?;
    }
    Ok(gone)
}

fn failed(error: &io::Error) -> Failure {
    let message = format!("the chain of receipts cannot be changed: {error}");
    Failure::refused("receipts", message, "look at the state directory's disk and permissions")
}
