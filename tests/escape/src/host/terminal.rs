//! The operator's terminal: a pseudo-terminal on which the driver is started as from a login shell. What reaches the
//! operator is what is shown there and what waits in its input queue for the next program that reads.

use super::bench::{Bench, Job};
use super::inspect::wait_until;
use super::world::{WorldError, making};
use crate::sys::{self, call};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Keys to type, and the text that must be shown before.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    /// Wait for this.
    pub after: &'a str,
    /// Then type this.
    pub keys: &'a str,
}

/// State of the operator's terminal in the end.
#[derive(Debug)]
pub struct Shown {
    /// Everything that was sent to the terminal.
    pub text: String,
    /// Input that waits to be read: the next program would take it for typed.
    pub typed: String,
    /// End of the driver, or a word that it did not end.
    pub end: String,
}

impl Shown {
    /// A few words for the detail of an answer.
    pub fn summary(&self) -> String {
        let tail: String = self.text.chars().rev().take(160).collect::<Vec<_>>().into_iter().rev().collect();
        format!("{}; shown {tail:?}; typed {:?}", self.end, self.typed)
    }
}

struct Terminal {
    master: File,
    slave: OwnedFd,
}

impl Terminal {
    fn make() -> io::Result<Self> {
        let failed = io::Error::from_raw_os_error;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let master = sys::open("/dev/ptmx", flags | libc::O_NONBLOCK, 0).map_err(failed)?;
        let unlock = 0_i32;
        let number = master.as_raw_fd() as usize;
        call(libc::SYS_ioctl, &[number, libc::TIOCSPTLCK as usize, sys::address(&unlock)]).map_err(failed)?;
        // Not by its name, which may lie in another mount of devpts.
        let slave = call(libc::SYS_ioctl, &[number, libc::TIOCGPTPEER as usize, flags as usize]).map_err(failed)?;
        let size: [u16; 4] = [24, 80, 0, 0];
        call(libc::SYS_ioctl, &[number, libc::TIOCSWINSZ as usize, sys::address(&size)]).map_err(failed)?;
        // SAFETY: the kernel just returned this descriptor and no other value owns it.
        Ok(Self { master: master.into(), slave: unsafe { OwnedFd::from_raw_fd(slave as i32) } })
    }

    /// Takes the bytes that have arrived; none is not an error.
    fn take(&self, text: &mut Vec<u8>) {
        let mut chunk = [0_u8; 4096];
        while let Ok(count @ 1..) = (&self.master).read(&mut chunk) {
            text.extend_from_slice(&chunk[..count]);
        }
    }

    /// Returns the bytes that wait for the next reader, raw.
    fn left_to_read(&self) -> io::Result<Vec<u8>> {
        let number = self.slave.as_raw_fd();
        // SAFETY: an all-zero termios is a valid value, which tcgetattr replaces.
        let mut raw: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: a live descriptor and a live structure for each call.
        let set = unsafe {
            libc::tcgetattr(number, &raw mut raw) == 0 && {
                libc::cfmakeraw(&raw mut raw);
                raw.c_cc[libc::VMIN] = 0;
                raw.c_cc[libc::VTIME] = 0;
                libc::tcsetattr(number, libc::TCSANOW, &raw const raw) == 0
            }
        };
        if !set {
            return Err(io::Error::last_os_error());
        }
        let mut queue = vec![0_u8; 4096];
        let count = File::from(self.slave.try_clone()?).read(&mut queue)?;
        queue.truncate(count);
        Ok(queue)
    }
}

/// Makes the terminal on descriptor 0 the controlling one of a session of its own; called between fork and exec.
fn take_terminal() -> io::Result<()> {
    let failed = io::Error::from_raw_os_error;
    call(libc::SYS_setsid, &[]).map_err(failed)?;
    call(libc::SYS_ioctl, &[0, libc::TIOCSCTTY as usize, 0]).map_err(failed)?;
    Ok(())
}

/// Runs a job on a new terminal until it ends; a driver that is still there after `limit` is killed.
pub fn run(bench: &Bench, job: &Job, keys: &[Keys], limit: Duration) -> Result<Shown, WorldError> {
    let terminal = making("a terminal", Terminal::make())?;
    let mut command = bench.prepared(job)?;
    for stream in 0..3 {
        let end = Stdio::from(making("an end of the terminal", terminal.slave.try_clone())?);
        match stream {
            0 => command.stdin(end),
            1 => command.stdout(end),
            _ => command.stderr(end),
        };
    }
    command.env("TERM", "xterm");
    // SAFETY: the closure only makes system calls and allocates nothing.
    unsafe { command.pre_exec(take_terminal) };
    let mut child = making(command.get_program().to_string_lossy().into_owned(), command.spawn())?;
    let (mut text, mut pending, mut status) = (Vec::new(), keys.iter().peekable(), None);
    wait_until(limit, || {
        status = child.try_wait().ok().flatten();
        terminal.take(&mut text);
        if let Some(next) = pending.peek()
            && String::from_utf8_lossy(&text).contains(next.after)
            && (&terminal.master).write_all(next.keys.as_bytes()).is_ok()
        {
            pending.next();
        }
        status.is_some() || bench.stop.load(Ordering::Relaxed)
    });
    if status.is_none() {
        making("the end of the driver", child.kill())?;
        making("the end of the driver", child.wait().map(drop))?;
    }
    // What was sent just before the end is in the terminal already: both ends are in one kernel.
    terminal.take(&mut text);
    let typed = making("the terminal's queue", terminal.left_to_read())?;
    Ok(Shown {
        text: String::from_utf8_lossy(&text).into_owned(),
        typed: String::from_utf8_lossy(&typed).into_owned(),
        end: match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("exit {code}"),
            Some((None, signal)) => format!("signal {signal:?}"),
            None => "overdue".to_owned(),
        },
    })
}
