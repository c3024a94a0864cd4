//! The lock of a facility: one directive at a time, and no claim that is over.
//!
//! ```text
//!  acquire(directive, fence) ─┬─ flock is held          ─▶ Busy: by whom
//!                             ├─ same directive, fence ≤ the noted one ─▶ Stale: that claim ran or was replaced
//!                             ├─ the directive ended here ─▶ Ended: whatever its fence, which a restored control plane raises
//!                             └─ free                   ─▶ note {directive, fence}, synced ─▶ Lock ─drop─▶ free
//!  the holder dies ─▶ the kernel frees the lock; the note stays and tells the next one whose work was cut off
//! ```
//! The control plane's lock only schedules. This one decides, because it is on the machine where the work is. The note outlives a
//! crash, so that a claim that began once never begins again on this territory.

use crate::{beneath, ended};
use nexus_model::ids::DirectiveId;
use rustix::fd::AsFd;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Name of the file.
pub(crate) const FILE: &str = "lock";
/// Longest note, in bytes.
const MAX_NOTE: u64 = 4096;

/// The claim that holds a facility, or held it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Directive of the claim.
    pub directive: DirectiveId,
    /// Number of the claim; each later claim of the directive has a larger one.
    pub fence: u64,
}

/// Reason for which a claim does not get the facility.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another directive works in it.
    #[error("the facility is in use{}", holder.map(|claim| format!(" by the directive {}", claim.directive)).unwrap_or_default())]
    Busy {
        /// The claim that holds it; `None` while it is being noted.
        holder: Option<Claim>,
    },
    /// The same or a later claim of the directive began here.
    #[error("the directive {} began here with the fence {}, and this claim has {fence}: it is over", noted.directive, noted.fence)]
    Stale {
        /// The claim that began.
        noted: Claim,
        /// Fence of the claim that is refused.
        fence: u64,
    },
    /// The directive ended here, and its end was final.
    #[error(
        "the directive {directive} ended in this facility already: the control plane that gave it out again does not know its end, as \
         after the restore of a backup"
    )]
    Ended {
        /// The directive that ended.
        directive: DirectiveId,
    },
    /// The file cannot be read or written.
    #[error("the lock of the facility cannot be used: {0}")]
    Io(#[from] io::Error),
}

impl LockError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "facility_busy",
            Self::Stale { .. } => "stale_fence",
            Self::Ended { .. } => "directive_ended",
            Self::Io(_) => "facility",
        }
    }
}

/// Holds a facility for one claim until it is dropped, or its process dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The directives that ended here; `None` for the upkeep.
    ended: Option<File>,
    /// The claim that was noted before, and whether its holder let go of the facility in order.
    pub before: Option<Noted>,
}

/// The note in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// Names the claim.
    #[serde(flatten)]
    pub claim: Claim,
    /// True if its holder let go in order, and did not die.
    #[serde(default)]
    pub released: bool,
}

impl Lock {
    /// Takes the lock in the directory of a facility for a claim.
    pub(crate) fn acquire(facility: impl AsFd, claim: Claim) -> Result<Self, LockError> {
        let file = beneath::file(&facility, FILE, true)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = noted(&file).ok().flatten().map(|noted| noted.claim);
                return Err(LockError::Busy { holder });
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        let before = noted(&file)?;
        if let Some(noted) = before.map(|noted| noted.claim)
            && noted.directive == claim.directive
            && claim.fence <= noted.fence
        {
            return Err(LockError::Stale { noted, fence: claim.fence });
        }
        let ended = beneath::file(&facility, ended::FILE, true)?;
        if ended::has(&ended, claim.directive)? {
            return Err(LockError::Ended { directive: claim.directive });
        }
        note(&file, Noted { claim, released: false })?;
        // A power cut must not let the claim begin again. Only the content counts: no time stamp waits for the disk.
        file.sync_data()?;
        Ok(Self { file, ended: Some(ended), before })
    }

    /// Takes the lock of a facility for work that no claim does, such as its removal or a snapshot: none is noted.
    pub(crate) fn for_upkeep(facility: impl AsFd) -> Result<Self, LockError> {
        let file = beneath::file(facility, FILE, true)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { before: noted(&file).ok().flatten(), ended: None, file }),
            Err(Errno::WOULDBLOCK) => {
                Err(LockError::Busy { holder: noted(&file).ok().flatten().map(|noted| noted.claim) })
            }
            Err(error) => Err(LockError::Io(error.into())),
        }
    }

    /// Releases the facility and notes that its work is complete: the next holder does not look for interrupted work. A power cut may lose
    /// the note; then the next holder looks in vain. `is_final` says that the directive never runs again, so that every later claim of it is
    /// refused.
    pub fn release(self, is_final: bool) -> io::Result<()> {
        let noted = noted(&self.file)?;
        if let (true, Some(noted), Some(ended)) = (is_final, noted, &self.ended) {
            ended::add(ended, noted.claim.directive)?;
        }
        match noted {
            Some(noted) => note(&self.file, Noted { released: true, ..noted }),
            None => Ok(()),
        }
    }
}

impl Drop for Lock {
    /// Unlocks by name: a process that another thread is just starting has a copy of the descriptor until its exec, and the lock of
    /// flock(2) stays for as long as any copy is open.
    fn drop(&mut self) {
        // An error leaves the lock to the close that follows.
        rustix::fs::flock(&self.file, FlockOperation::Unlock).ok();
    }
}

/// Remembers that the directive ended here, if it was the last holder and its process died. The caller has made sure that no directive holds
/// the facility now.
pub(crate) fn end_of_the_dead(facility: impl AsFd, directive: DirectiveId) -> io::Result<()> {
    let last = noted(&beneath::file(&facility, FILE, true)?)?;
    let ended = beneath::file(&facility, ended::FILE, true)?;
    let is_last = last.is_some_and(|last| last.claim.directive == directive && !last.released);
    if is_last && !ended::has(&ended, directive)? { ended::add(&ended, directive) } else { Ok(()) }
}

/// Takes the lock if the directive was the last holder and its process died. The note stays.
pub(crate) fn hold_of_the_dead(facility: impl AsFd, directive: DirectiveId) -> io::Result<Option<Lock>> {
    let file = beneath::file(&facility, FILE, true)?;
    let before = noted(&file)?;
    if !before.is_some_and(|last| last.claim.directive == directive && !last.released) {
        return Ok(None);
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { file, ended: None, before })),
        // As good: its removal holds it.
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn noted(file: &File) -> io::Result<Option<Noted>> {
    let mut bytes = vec![0; MAX_NOTE as usize];
    let count = file.read_at(&mut bytes, 0)?;
    let text = bytes.get(..count).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(text).map(Some).map_err(io::Error::from)
}

/// Writes the note. A note is padded to one length, so that no end of a longer one is left behind it.
fn note(file: &File, noted: Noted) -> io::Result<()> {
    let mut text = serde_json::to_string(&noted)?;
    while text.len() < 160 {
        text.push(' ');
    }
    text.push('\n');
    file.write_all_at(text.as_bytes(), 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_is_free_though_a_starting_process_has_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let facility = File::open(directory.path()).unwrap();
        let (first, second) = (DirectiveId::new(), DirectiveId::new());
        for is_released in [false, true] {
            let held = Lock::acquire(&facility, Claim { directive: first, fence: 1 + u64::from(is_released) }).unwrap();
            let copy = held.file.try_clone().unwrap();
            assert!(matches!(Lock::for_upkeep(&facility), Err(LockError::Busy { .. })));
            if is_released {
                held.release(false).unwrap();
            } else {
                drop(held);
            }
            drop(Lock::for_upkeep(&facility).unwrap());
            drop(copy);
        }
        Lock::acquire(&facility, Claim { directive: second, fence: 1 }).unwrap();
    }
}
