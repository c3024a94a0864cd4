//! The directory of receipts, and their chain.
//!
//! ```text
//!  receipts/ 0700   RUN.json            one receipt
//!                   chain               a head and one line per receipt, in the order in which they were issued
//!                   chain.damaged-RUN   one that could not be read when that run ended
//!                   breaks              chains that a person closed
//! ```
//! A receipt names the one before it, so that runs that end together have to queue: they lock `chain` for the time of
//! one signature and one small file. A lock that does not come (its holder was stopped) costs the receipt its place,
//! never the run its receipt. The receipt is written first and noted afterwards: a kill between leaves one that no
//! other follows, and nothing that looks like a removal.
//!
//! Lines have one length, so that the last one and the one to prune are found without reading the others.

use super::breaks::{self, Break, Breaks};
use super::files::{self, DirectoryError};
use crate::chain::ChainEnd;
use crate::form::{ChainPlace, MAX_BYTES, Sealed};
use nexus_model::Digest;
use nexus_model::RunId;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of receipts that are kept.
pub const KEEP: u64 = 10_000;
/// Number of receipts that are pruned at once.
const BATCH: u64 = 64;
/// Time that a receipt waits for the lock of the chain. The work under the lock takes far less than a millisecond.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const CHAIN: &str = "chain";
const SUFFIX: &str = ".json";
/// `RUN HASH\n`: 36, 64 and two more.
const LINE: u64 = 102;
const HEAD: &str = "nexus.chain/1";

/// The open directory with the receipts.
#[derive(Debug)]
pub struct Store {
    directory: OwnedFd,
    path: PathBuf,
}

/// A receipt that was stored.
#[derive(Debug)]
pub struct Stored {
    /// The path of the stored file.
    pub path: PathBuf,
    /// The signed file, and its hash.
    pub sealed: Sealed,
    /// The reason why the receipt has no place in the chain, or is not noted there.
    pub unchained: Option<String>,
    /// The reason is that another run held the chain.
    pub is_busy: bool,
}

/// Reason why a receipt was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The receipt could not be signed.
    #[error("it could not be signed: {0}")]
    Sign(serde_json::Error),
    /// The file could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The path of the receipt.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl StoreError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sign(_) | Self::Write { .. } => "receipt",
        }
    }
}

impl Store {
    /// Opens the directory of the receipts, and makes it if it is missing.
    pub fn open(state: &Path) -> Result<Self, DirectoryError> {
        let path = state.join("receipts");
        Ok(Self { directory: files::directory(&path)?, path })
    }

    /// Returns the path of a run's receipt, whether or not it exists.
    pub fn place(&self, run: RunId) -> PathBuf {
        self.path.join(name(run))
    }

    /// Stores a receipt that `make` makes for the next place in the chain; `make` gets `None` if no place could be had.
    /// With `durable`, receipt and chain are on the disk when this returns; other receipts do not wait for that.
    pub fn append(
        &self,
        run: RunId,
        durable: bool,
        make: impl FnOnce(Option<ChainPlace>) -> Result<Sealed, StoreError>,
    ) -> Result<Stored, StoreError> {
        let (chain, mut unchained, is_busy) = match Chain::lock(&self.directory, run) {
            Ok(chain) => (Some(chain), None, false),
            Err(error) => (None, Some(error.to_string()), error.kind() == io::ErrorKind::TimedOut),
        };
        let place = chain.as_ref().map(Chain::place);
        let sealed = make(place)?;
        let path = self.place(run);
        let failed = |source| StoreError::Write { path: path.clone(), source };
        if !files::write_new(&self.directory, &name(run), &sealed.file, false).map_err(failed)? {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        if let Some(chain) = chain {
            let floor = chain.noted.next_floor();
            let noted = chain.note(run, &sealed.hash).and_then(|()| chain.prune(&self.directory, floor));
            unchained = noted.err().map(|error| error.to_string());
        }
        if durable {
            self.sync(run).map_err(failed)?;
        }
        Ok(Stored { path, sealed, unchained, is_busy })
    }

    /// Writes a receipt, the chain and their names to the disk. Runs outside of the lock: a slow disk must not cost
    /// another run its place in the chain.
    fn sync(&self, run: RunId) -> io::Result<()> {
        for file in [&*name(run), CHAIN] {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.directory, file, flags, Mode::empty()) {
                Ok(file) => rustix::fs::fsync(file)?,
                // There is none where it could not be locked.
                Err(Errno::NOENT) if file == CHAIN => {}
                Err(error) => return Err(error.into()),
            }
        }
        files::sync(&self.directory)
    }

    /// Reads a receipt's file.
    pub fn read(&self, run: RunId) -> io::Result<Vec<u8>> {
        files::read(&self.directory, &name(run), MAX_BYTES as u64 + 1)
    }

    /// Returns all runs with a receipt, the latest first.
    pub fn runs(&self) -> io::Result<Vec<RunId>> {
        let names = files::names(&self.directory)?;
        let mut runs: Vec<RunId> = names.iter().filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect();
        // Ids are ordered by time.
        runs.sort_unstable_by(|a, b| b.cmp(a));
        Ok(runs)
    }

    /// Reads the chain's own note of its end.
    pub fn end(&self) -> io::Result<Option<ChainEnd>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, CHAIN, flags, Mode::empty()) {
            Ok(file) => Ok(Noted::read(&File::from(file))?.map(|noted| noted.end())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the breaks that were recorded.
    pub fn breaks(&self) -> io::Result<Breaks> {
        Breaks::read(&self.directory)
    }

    /// Records that a chain has ended by a break.
    pub fn close(&self, broken: Break) -> io::Result<()> {
        let chain = Chain::lock(&self.directory, RunId::new())?;
        if chain.noted.id == broken.chain {
            return Err(io::Error::other("another run has gone on with this chain"));
        }
        breaks::add(&self.directory, broken)
    }

    /// Removes the receipts of a closed chain, after its record says that they are not kept. Returns the number
    /// removed.
    pub fn forget(&self, broken: Break, runs: &[RunId]) -> io::Result<u64> {
        self.close(broken)?;
        runs.iter().try_for_each(|run| files::remove(&self.directory, &name(*run)))?;
        Ok(runs.len() as u64)
    }

    /// Removes all but the latest `keep` receipts. Returns how many went.
    pub fn prune(&self, keep: u64) -> io::Result<u64> {
        let chain = Chain::lock(&self.directory, RunId::new())?;
        chain.prune(&self.directory, chain.noted.next.saturating_sub(keep))
    }
}

fn name(run: RunId) -> String {
    format!("{run}{SUFFIX}")
}

/// State of a chain as its file notes it.
#[derive(Debug, Clone, Copy)]
struct Noted {
    id: RunId,
    floor: u64,
    next: u64,
    last: Option<Digest>,
}

impl Noted {
    /// Reads the note; `None` if the file is empty or cannot be understood.
    fn read(file: &File) -> io::Result<Option<Self>> {
        // A line that was cut off in the middle is not counted and written over.
        let lines = file.metadata()?.len() / LINE;
        if lines < 2 {
            return Ok(None);
        }
        let mut line = [0; LINE as usize];
        file.read_exact_at(&mut line, 0)?;
        let Some((id, floor)) = parse_head(&line) else { return Ok(None) };
        file.read_exact_at(&mut line, (lines - 1) * LINE)?;
        let Some((_, last)) = parse_line(&line) else { return Ok(None) };
        Ok(Some(Self { id, floor, next: lines - 1, last: Some(last) }))
    }

    fn end(&self) -> ChainEnd {
        ChainEnd { chain: self.id, next: self.next, floor: self.floor }
    }

    /// Returns the floor after the next receipt. Receipts are pruned in batches, so that most runs prune nothing.
    fn next_floor(&self) -> u64 {
        let wanted = (self.next + 1).saturating_sub(KEEP);
        if wanted >= self.floor + BATCH { wanted } else { self.floor }
    }
}

/// The chain's file, locked.
struct Chain {
    file: File,
    noted: Noted,
}

impl Chain {
    fn lock(directory: &OwnedFd, run: RunId) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            let file = Self::wait(directory, deadline)?;
            // The process that held the lock may have put the file aside.
            if !is_chain(directory, &file)? {
                continue;
            }
            if let Some(noted) = Noted::read(&file)? {
                return Ok(Self { file, noted });
            }
            if file.metadata()?.len() == 0 {
                return Ok(Self { file, noted: Noted { id: run, floor: 0, next: 0, last: None } });
            }
            // A chain that cannot be read cannot go on. It is kept, a new one begins, and verification reports it.
            rustix::fs::renameat(directory, CHAIN, directory, format!("{CHAIN}.damaged-{run}"))?;
        }
    }

    /// Opens the file and waits for its lock.
    fn wait(directory: &OwnedFd, deadline: Instant) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, CHAIN, flags, Mode::from_raw_mode(0o600))?);
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another run holds the chain and does not go on",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the place of the next receipt. Its floor already takes account of the pruning that follows.
    fn place(&self) -> ChainPlace {
        let Noted { id, next, last, .. } = self.noted;
        ChainPlace { chain: id, seq: next, previous: last, floor: self.noted.next_floor() }
    }

    fn note(&self, run: RunId, hash: &Digest) -> io::Result<()> {
        let line = format!("{run} {}\n", hash.hex());
        if self.noted.next == 0 {
            let text = head(self.noted.id, 0) + &line;
            return self.file.write_all_at(text.as_bytes(), 0);
        }
        self.file.write_all_at(line.as_bytes(), (self.noted.next + 1) * LINE)
    }

    /// Removes what lies below the floor. Its note comes before anything is removed, so that nothing is missed.
    fn prune(&self, directory: &OwnedFd, floor: u64) -> io::Result<u64> {
        if floor <= self.noted.floor {
            return Ok(0);
        }
        self.file.write_all_at(head(self.noted.id, floor).as_bytes(), 0)?;
        let mut gone = 0;
        for seq in self.noted.floor..floor {
            let mut line = [0; LINE as usize];
            self.file.read_exact_at(&mut line, (seq + 1) * LINE)?;
            if let Some((run, _)) = parse_line(&line) {
                files::remove(directory, &name(run))?;
                gone += 1;
            }
        }
        // Their lines are not needed any more either; a file system that cannot make holes keeps them.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The last line stays, whatever goes: the next receipt is chained to it.
        let lines = floor.min(self.noted.next.saturating_sub(1));
        if lines == 0 {
            return Ok(gone);
        }
        match rustix::fs::fallocate(&self.file, flags, LINE, lines * LINE) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(gone),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reports whether the open file still has the name of the chain.
fn is_chain(directory: &OwnedFd, file: &File) -> io::Result<bool> {
    let open = rustix::fs::fstat(file)?;
    match rustix::fs::statat(directory, CHAIN, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn head(chain: RunId, floor: u64) -> String {
    let text = format!("{HEAD} {chain} {floor:020}");
    format!("{text:<width$}\n", width = LINE as usize - 1)
}

fn parse_head(line: &[u8]) -> Option<(RunId, u64)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    if words.next()? != HEAD {
        return None;
    }
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn parse_line(line: &[u8]) -> Option<(RunId, Digest)> {
    let (run, hash) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split_once(' ')?;
    Some((run.parse().ok()?, Digest::from_hex(hash)?))
}

#[cfg(test)]
#[path = "receipts_tests.rs"]
mod tests;
