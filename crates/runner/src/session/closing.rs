//! The last step of a supervisor: its clients learn how the sandbox ended.

use crate::live::attendant::{Attendant, Interrupts};
use crate::live::control::SandboxControl;
use crate::session::hub::Hub;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Time that clients have for the last output, while they take any.
const CLOSING: Duration = Duration::from_secs(5);

/// Sends every client the end of the sandbox, and waits until all have read it. The wait ends when no client reads
/// anything for `CLOSING`.
pub fn closing(hub: &mut Hub, signals: &dyn Interrupts) -> io::Result<()> {
    let mut inside = SandboxControl::over();
    let mut progress = hub.progress();
    let mut until = Instant::now() + CLOSING;
    loop {
        hub.tick(Instant::now(), &mut inside)?;
        if hub.progress() != progress {
            progress = hub.progress();
            until = Instant::now() + CLOSING;
        }
        let left = until.saturating_duration_since(Instant::now());
        // A client that is about to connect finds the socket until the very end.
        let left = if hub.is_deserted() { Duration::ZERO } else { left };
        let mut watched = Vec::new();
        hub.watch(&inside, &mut watched);
        let mut list: Vec<_> = watched.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let found = match poll(&mut list, Some(&timeout)) {
            Ok(found) => found,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let ready: Vec<_> = watched.iter().zip(&list).map(|((token, ..), fd)| (*token, fd.revents())).collect();
        if found == 0 || !signals.take()?.is_empty() {
            return Ok(());
        }
        for (token, found) in ready.into_iter().filter(|(_, found)| !found.is_empty()) {
            hub.ready(token, found, &mut inside)?;
        }
    }
}
