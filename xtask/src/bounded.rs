//! Runs a command to its end with a limit of time, as a person or with a pipe as its standard input.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// End of a command and its output.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The exit code; `None` after a signal or at the limit of time.
    pub code: Option<i32>,
    /// Set when the command was killed at the limit of time.
    pub timed_out: bool,
    /// Time that it and the children that it waited for were on a processor; zero when the kernel does not say.
    pub computed: Duration,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// Returns the exit and what the command said, for a report.
    pub fn describe(&self) -> String {
        let code = match (self.timed_out, self.code) {
            (true, _) => "did not end in time".to_owned(),
            (false, Some(code)) => format!("exit {code}"),
            (false, None) => "killed by a signal".to_owned(),
        };
        let said: Vec<&str> = [self.stdout.trim(), self.stderr.trim()].into_iter().filter(|s| !s.is_empty()).collect();
        if said.is_empty() { code } else { format!("{code}: {}", said.join(" | ")) }
    }
}

/// A started command whose output goes to nameless files: a process that it leaves behind cannot hold up the reader.
pub struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    end: Instant,
}

/// Starts a command that gets `input` through a pipe, or nothing when that is empty.
pub fn start(command: &mut Command, input: &str, limit: Duration) -> io::Result<Running> {
    let nameless =
        |name| -> io::Result<File> { Ok(File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?)) };
    let (stdout, stderr) = (nameless("stdout")?, nameless("stderr")?);
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(input.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    Ok(Running { child, stdout, stderr, end: Instant::now() + limit })
}

impl Running {
    /// Returns what it has written to its standard output so far.
    pub fn stdout_so_far(&self) -> io::Result<String> {
        text(&self.stdout)
    }

    /// Waits for the end; kills the command at its limit of time.
    pub fn wait(mut self) -> io::Result<Ended> {
        let timed_out = !has_ended_by(&self.child, self.end)?;
        if timed_out {
            self.child.kill()?;
        }
        // The kernel knows it until the process is reaped.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let status = self.child.wait()?;
        Ok(Ended {
            computed: computed(&stat).unwrap_or_default(),
            code: if timed_out { None } else { status.code() },
            timed_out,
            stdout: text(&self.stdout)?,
            stderr: text(&self.stderr)?,
        })
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command, input: &str, limit: Duration) -> io::Result<Ended> {
    start(command, input, limit)?.wait()
}

/// Waits until a child has ended, but not longer than until `end`. The child is not reaped.
fn has_ended_by(child: &Child, end: Instant) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut ended, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the time on a processor from a process's `stat` (proc_pid_stat(5)): its own in user mode and in the kernel, and that of
/// the children that it waited for.
fn computed(stat: &str) -> Option<Duration> {
    // The name of the program stands in parentheses, and may hold some.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok());
    let ticks: u64 = ticks.sum::<Option<u64>>()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(ticks.checked_mul(1000)?.checked_div(per_second)?))
}

/// Reads a file from its beginning; its offset, which the writer shares, stays.
fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, done as u64)? {
            0 => break,
            length => done += length,
        }
    }
    bytes.truncate(done);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_on_a_processor_is_that_of_a_program_and_its_children() {
        let per_second = rustix::param::clock_ticks_per_second();
        let stat = format!("7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 {per_second} 0 {per_second} {per_second} 20 0");
        assert_eq!(computed(&stat), Some(Duration::from_secs(3)));
        assert_eq!(computed(""), None);
        assert_eq!(computed("7 (a) S 1 7 7 0 -1 4194560 1 2 3 4 x 0 0 0"), None);
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("/bin/sh -c '{script}'; exit 3")]);
        let ended = run(&mut command, "", Duration::from_secs(60)).unwrap();
        assert_eq!(ended.code, Some(3));
        assert!(ended.computed > Duration::ZERO, "{ended:?}");
    }
}
