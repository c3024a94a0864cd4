//! Prints a notice when the end of a run takes long, and lets a signal stop it: only the size of the layer limits the time that
//! reading the changes takes.
//!
//! ```text
//!  the layer is read ──3 s──▶ said ──signal─┬─ nothing decided: this process ends, as if it had been killed, and the
//!                                           │                  next command parks the changes, or removes them
//!                                           └─ a commit is decided: it goes on, since its workspace is half old
//! ```

use crate::notices::tell;
use crate::signals::{Pending, Signals};
use nexus_model::RunId;
use nexus_runner::state::note;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time until a person hears of it.
const SAID_AFTER: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };
/// Time between two looks while signals that end nothing wait for the main thread.
const PAUSE: Duration = Duration::from_millis(20);

/// A thread that watches until it is dropped.
pub struct SlowEnd {
    over: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SlowEnd {
    /// Starts to watch the end of a run whose layer is on a disk at `layer`.
    pub fn watch(signals: &Signals, run: RunId, layer: &Path, discards: bool) -> io::Result<Self> {
        let (over, there) = UnixStream::pair()?;
        let watched = Watched { pending: signals.pending()?, over: there, run, layer: layer.to_owned(), discards };
        let thread = std::thread::Builder::new().name("slow end".to_owned()).spawn(move || watched.watch())?;
        Ok(Self { over: Some(over), thread: Some(thread) })
    }
}

impl Drop for SlowEnd {
    fn drop(&mut self) {
        drop(self.over.take());
        // What it could not watch is not watched.
        self.thread.take().map(JoinHandle::join).transpose().ok();
    }
}

struct Watched {
    pending: Pending,
    over: UnixStream,
    run: RunId,
    layer: PathBuf,
    /// The changes are thrown away.
    discards: bool,
}

impl Watched {
    fn watch(&self) -> io::Result<()> {
        if self.is_over_within(&SAID_AFTER)? {
            return Ok(());
        }
        tell(
            "The command has ended, and nexus still looks at what it changed. SIGTERM or Ctrl-C leaves that to the next command.",
        );
        let mut is_said = false;
        loop {
            if let Some(signal) = self.pending.ending() {
                if !self.is_decided() {
                    self.leave(signal);
                }
                if !std::mem::replace(&mut is_said, true) {
                    tell("The commit is decided, and nexus finishes it.");
                }
            }
            if self.is_over()? {
                return Ok(());
            }
        }
    }

    /// Waits for the end, but only for so long.
    fn is_over_within(&self, limit: &Timespec) -> io::Result<bool> {
        counted(poll(&mut [PollFd::new(&self.over, PollFlags::IN)], Some(limit)))
    }

    /// Waits for a signal or the end, and reports whether it was the end.
    fn is_over(&self) -> io::Result<bool> {
        let over = PollFd::new(&self.over, PollFlags::IN);
        let signal = PollFd::from_borrowed_fd(self.pending.as_fd(), PollFlags::IN);
        let mut both = [over, signal];
        counted(poll(&mut both, None))?;
        let is_over = !both[0].revents().is_empty();
        if !is_over {
            std::thread::sleep(PAUSE);
        }
        Ok(is_over)
    }

    /// Reports whether a commit was decided. One that is decided right after this answer is finished by the next
    /// command.
    fn is_decided(&self) -> bool {
        ["journal", "journal.done"].iter().any(|name| self.layer.join(name).exists())
    }

    fn leave(&self, signal: u8) -> ! {
        tell(&left_to_others(&self.layer, self.run, self.discards));
        std::process::exit(128 + i32::from(signal))
    }
}

/// Marks a layer that is thrown away as gone, and returns what becomes of the changes.
fn left_to_others(layer: &Path, run: RunId, discards: bool) -> String {
    let so = "A signal ended nexus before it had read what the run changed, so there is no receipt.";
    let parks = format!("The next command parks the changes: nexus changes show --run {run}.");
    if !discards {
        return format!("{so} {parks}");
    }
    match note::mark_gone(layer) {
        Ok(()) => format!("{so} The changes are thrown away: later commands remove them."),
        Err(error) => format!("{so} The changes cannot be marked as thrown away ({error}). {parks}"),
    }
}

/// Reports whether poll(2) found anything.
fn counted(found: Result<usize, Errno>) -> io::Result<bool> {
    match found {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_while_changes_are_discarded_parks_nothing() {
        let layer = tempfile::tempdir().unwrap();
        std::fs::write(layer.path().join("run.json"), "{}").unwrap();
        let said = left_to_others(layer.path(), RunId::new(), false);
        assert!(said.contains("parks the changes") && !note::is_going(layer.path()).unwrap(), "{said}");
        let said = left_to_others(layer.path(), RunId::new(), true);
        assert!(!said.contains("parks") && note::is_going(layer.path()).unwrap(), "{said}");
    }
}
