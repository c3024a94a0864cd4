//! Turns signals into events that a thread can wait for with poll(2).
//!
//! A byte on a socket wakes the waiting thread, and a flag for each signal says which it was: a handler may do no
//! more.

use crate::failure::Failure;
use nexus_runner::live::attendant::Interrupts;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH, SIGXFSZ};
use std::any::Any;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that end `nexus` by default.
const ENDING: &[i32] = &[SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// The signal on which a service reads its settings again.
pub const RELOAD: u8 = SIGHUP as u8;
/// Signals about the terminal.
const TERMINAL: &[i32] = &[SIGWINCH, SIGTSTP, SIGCONT];

/// Turns a write beyond `ulimit -f` into an error (EFBIG) instead of death: this process may hold the only copy of
/// the user's work. The handler does nothing, and a command that is executed gets the default back.
pub fn survive_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Signals that were caught.
pub struct Signals {
    wake: UnixStream,
    ours: UnixStream,
    flags: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Catches those that end the process, but for those that the caller ignores (`nohup`, background jobs of scripts):
    /// they were not meant for what it starts.
    pub fn catch() -> io::Result<Self> {
        let mut signals = Self::none()?;
        for signal in ENDING {
            if !nexus_driver_namespace::is_ignored(*signal)? {
                signals.add(*signal)?;
            }
        }
        Ok(signals)
    }

    /// Catches those that end the process, also those that the caller ignores: for a process of its own.
    pub fn catch_all() -> io::Result<Self> {
        let mut signals = Self::none()?;
        ENDING.iter().try_for_each(|signal| signals.add(*signal))?;
        Ok(signals)
    }

    /// Catches those that end a service, also those that the caller ignores, and [`RELOAD`], which ends nothing.
    pub fn catch_for_service() -> io::Result<Self> {
        let mut signals = Self::none()?;
        ENDING.iter().filter(|signal| **signal != SIGHUP).try_for_each(|signal| signals.add(*signal))?;
        nexus_driver_namespace::while_held(&[SIGHUP], || signals.note(SIGHUP))?;
        Ok(signals)
    }

    fn none() -> io::Result<Self> {
        let (wake, ours) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        ours.set_nonblocking(true)?;
        Ok(Self { wake, ours, flags: Vec::new() })
    }

    /// Catches those about the terminal, too.
    pub fn and_terminal(&mut self) -> io::Result<()> {
        TERMINAL.iter().try_for_each(|signal| self.add(*signal))
    }

    /// Catches one more. It is held meanwhile: one that came between two of the steps would set its flag and wake no
    /// process, or be lost.
    fn add(&mut self, signal: i32) -> io::Result<()> {
        nexus_driver_namespace::while_held(&[signal], || self.register(signal))
    }

    fn register(&mut self, signal: i32) -> io::Result<()> {
        if ENDING.contains(&signal) {
            // The sender of the signal does not wait for a caller that takes nothing.
            signal_hook::flag::register(signal, crate::terminal::out::ended_flag())?;
        }
        self.note(signal)
    }

    fn note(&mut self, signal: i32) -> io::Result<()> {
        let flag = Arc::new(AtomicBool::new(false));
        // The flag before the wake: handlers run in the order in which they were registered.
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
        signal_hook::low_level::pipe::register(signal, self.ours.try_clone()?)?;
        self.flags.push((signal, flag));
        Ok(())
    }

    /// Returns the signals that came since the last call.
    pub fn take(&self) -> io::Result<Vec<u8>> {
        let mut bytes = [0u8; 64];
        match (&self.wake).read(&mut bytes) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let came = self.flags.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        Ok(came.map(|(signal, _)| *signal as u8).collect())
    }
}

/// Looks at signals that wait for the thread which takes them.
pub struct Pending {
    wake: UnixStream,
    flags: Vec<(i32, Arc<AtomicBool>)>,
}

impl Pending {
    /// Returns a signal that ends the process and was not taken yet.
    pub fn ending(&self) -> Option<u8> {
        let came = |(signal, flag): &&(i32, Arc<AtomicBool>)| ENDING.contains(signal) && flag.load(Ordering::SeqCst);
        self.flags.iter().find(came).map(|(signal, _)| *signal as u8)
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Signals {
    /// Returns a view for another thread, which takes nothing.
    pub fn pending(&self) -> io::Result<Pending> {
        let flags = self.flags.iter().map(|(signal, flag)| (*signal, Arc::clone(flag))).collect();
        Ok(Pending { wake: self.wake.try_clone()?, flags })
    }

    /// Reports whether one of the signals that end the process came since the last call.
    pub fn ending(&self) -> io::Result<bool> {
        Ok(self.take()?.iter().any(|number| ENDING.contains(&i32::from(*number))))
    }
}

/// Holds off the same signals as [`hold`], for a library.
pub fn hold_any() -> io::Result<Box<dyn Any>> {
    Ok(Box::new(Signals::catch()?))
}

/// Keeps signals that would end this process from ending it in the middle of a decision. They stay caught to its end,
/// which comes right after.
pub fn hold() -> Result<Signals, Failure> {
    Signals::catch().map_err(|error| {
        let message = format!("signals cannot be held off: {error}");
        Failure::refused("signals", message, "nothing was changed")
    })
}

impl Interrupts for Signals {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn take(&self) -> io::Result<Vec<u8>> {
        Signals::take(self)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
