//! The record of everything that the test saw of a fleet, in order. No entry comes from the database or from a log of the product.

use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A call of a daemon about a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Started,
    Chunk,
    Finished,
    Other,
}

/// A fault that the test made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL, and a start of the next process.
    Kill,
    /// SIGSTOP, and SIGCONT before a lease is over.
    Stop,
    /// SIGSTOP for longer than a lease.
    StopBeyondLease,
    /// No connection goes through.
    Cut,
    /// Requests arrive, and their answers do not.
    LoseAnswers,
    /// The wall clock of the control plane is set.
    Clock,
}

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "snake_case")]
pub enum Seen {
    /// A directive was created: the server answered 201.
    Created { id: String, number: usize, facility: usize, requeues: bool },
    /// A user asked for the end.
    Canceled { id: String },
    /// A user read the directive.
    Read { id: String, state: String, reason: Option<String>, exit: Option<i64>, attempt: u64 },
    /// An event reached a subscriber.
    Event { id: String, subscriber: usize, event: String, state: String },
    /// A subscriber had waited until its stream ended with the directive.
    StreamEnded { id: String, subscriber: usize },
    /// The server gave a claim. `arrived` says whether the daemon got the answer.
    Claimed { id: String, daemon: usize, fence: u64, attempt: u64, arrived: bool },
    /// A daemon called, and the server answered.
    Reported {
        id: String,
        daemon: usize,
        fence: u64,
        call: Call,
        status: u16,
        duplicate: bool,
        /// Stream, number and bytes of a chunk.
        chunk: Option<(String, i64, String)>,
        /// Time at which the request came, in milliseconds.
        sent: u64,
    },
    /// Sandboxes in which commands of directives were alive at one moment: number of the directive, and id of the sandbox.
    Alive { sandboxes: Vec<(usize, u64)> },
    /// A fault began or ended.
    Fault { fault: Fault, name: String, begins: bool },
    /// Output that a user read in the end, chunk by chunk.
    Log { id: String, attempt: u64, stream: String, truncated: bool, chunks: Vec<(i64, String)> },
    /// Number of times that the work of a directive is in its workspace.
    Marks { number: usize, count: usize },
    /// Something that is left after all processes have ended.
    Left { what: String },
}

/// One thing with its time, in milliseconds since the beginning by CLOCK_BOOTTIME's monotonic sibling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub at: u64,
    #[serde(flatten)]
    pub seen: Seen,
}

/// Takes entries from all threads of a test.
pub struct Record {
    began: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl Record {
    pub fn new() -> Self {
        Self { began: Instant::now(), entries: Mutex::default() }
    }

    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    pub fn add(&self, seen: Seen) {
        let mut entries = self.entries.lock().unwrap();
        let at = self.now();
        entries.push(Entry { at, seen });
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    /// Waits for an entry.
    pub fn until(&self, what: &str, within: Duration, mut is_it: impl FnMut(&[Entry]) -> bool) {
        let deadline = Instant::now() + within;
        while !is_it(&self.entries.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{what} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
