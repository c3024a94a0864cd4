//! Runs one probe in its own forked child, so that a kill by seccomp is an observation and not the end of the batch.

use crate::answer::{Answer, signal_name};
use crate::context::Context;
use crate::sys;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

/// Runs `probe` in a child and returns what it saw, `killed:SIGNAL`, or `hung` after `limit`.
pub fn observe(probe: fn(&Context) -> Answer, context: &Context, limit: Duration) -> Answer {
    let mut ends = [0_i32; 2];
    if let Err(number) = sys::call(libc::SYS_pipe2, &[sys::address_mut(&mut ends), libc::O_CLOEXEC as usize]) {
        return Answer::of("no-pipe").with(crate::answer::errno_name(number));
    }
    // SAFETY: the kernel just returned both descriptors and no other value owns them.
    let (mut reader, mut writer) =
        unsafe { (std::fs::File::from_raw_fd(ends[0]), std::fs::File::from_raw_fd(ends[1])) };
    match sys::fork() {
        Err(number) => Answer::of("no-fork").with(crate::answer::errno_name(number)),
        Ok(0) => {
            drop(reader);
            let answer = std::panic::catch_unwind(|| probe(context)).unwrap_or_else(|_| Answer::of("panicked"));
            let mut line = serde_json::to_vec(&answer).unwrap_or_default();
            line.push(b'\n');
            let written = writer.write_all(&line);
            sys::leave(i32::from(written.is_err()));
        }
        Ok(child) => {
            drop(writer);
            collect(&mut reader, child, limit)
        }
    }
}

fn collect(reader: &mut std::fs::File, child: i32, limit: Duration) -> Answer {
    let deadline = Instant::now() + limit;
    let mut line = Vec::new();
    let mut status = None;
    // A grandchild may hold the pipe open, so the end of the child counts as well as the end of the pipe.
    while !line.ends_with(b"\n") {
        if readable(reader, Duration::from_millis(20)) {
            let mut chunk = [0_u8; 4096];
            match reader.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(count) => line.extend_from_slice(&chunk[..count]),
            }
        } else if status.is_some() {
            break;
        } else {
            status = sys::wait(child, false);
        }
        if Instant::now() > deadline {
            let killed = sys::kill(child, libc::SIGKILL);
            sys::wait(child, true);
            return Answer::of("hung").with(format!("after {limit:?}, kill: {killed:?}"));
        }
    }
    let status = status.or_else(|| sys::wait(child, true)).unwrap_or(0);
    if let Ok(answer) = serde_json::from_slice::<Answer>(&line) {
        return answer;
    }
    if libc::WIFSIGNALED(status) {
        return Answer::of(format!("killed:{}", signal_name(libc::WTERMSIG(status))));
    }
    Answer::of("no-answer").with(format!("wait status {status:#x}"))
}

fn readable(reader: &std::fs::File, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) };
    ready > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(probe: fn(&Context) -> Answer) -> String {
        observe(probe, &Context::default(), Duration::from_millis(400)).answer
    }

    #[test]
    fn a_killed_probe_is_seen_as_killed_and_a_hung_one_as_hung() {
        assert_eq!(see(|_| Answer::of("value")), "value");
        assert_eq!(
            see(|_| {
                sys::kill(std::process::id() as i32, libc::SIGSYS).expect("kill");
                Answer::of("survived")
            }),
            "killed:SIGSYS"
        );
        assert_eq!(
            see(|_| {
                sys::pause();
                Answer::of("woke")
            }),
            "hung"
        );
    }
}
