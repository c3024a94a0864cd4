//! Starting one command: a child that reports by a pipe how far it came.
//!
//! ```text
//!  guest ──clone──▶ child: session, stdio, (terminal,) cwd, proof ─▶ pipe, exec      an exec closes the pipe
//!    └─ goes on, and polls the pipe: what is in it at its end is the outcome          (or: failure ─▶ pipe, exit)
//! ```
//! The child has the uid of everything inside, so that a command may stop it at any moment. The guest therefore never
//! waits for it, and shares no memory with it: a child that has not executed after [`TIME_TO_EXEC`] is killed.

use crate::{leave_out, proof, signals};
use nexus_channel::codec::{self, HEADER};
use nexus_channel::frames::{ExecRequest, ExecStage};
use nexus_model::proof::ProofItem;
use rustix::event::PollFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::time::Duration;

/// The time from the clone to the exec after which a child is killed. Half a millisecond is usual.
pub const TIME_TO_EXEC: Duration = Duration::from_secs(10);

/// A bound for what a child reports: a proof has some two thousand bytes.
const MAX_REPORT: usize = 256 * 1024;

/// Progress of a command up to its exec.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command runs, after this proof.
    Running(Vec<ProofItem>),
    /// A check saw what it must not see; nothing was executed.
    ProofFailed(Vec<ProofItem>),
    /// It could not be executed.
    Failed(ExecStage, i32),
}

/// One message of a child. An exec says nothing: it closes the pipe.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Proof(Vec<ProofItem>),
    Failed(ExecStage, i32),
}

/// The guest's end of a child's pipe.
#[derive(Debug)]
pub struct Report {
    /// Is closed by the child when it has executed or ended.
    pub pipe: OwnedFd,
    bytes: Vec<u8>,
}

/// Event of a [`Report::pipe`] that the guest waits for: only its end, which poll(2) always reports. To wake up for the
/// proof too would stop the child on its way to the exec where processors are few. The pipe holds more than a child writes.
pub const END: PollFlags = PollFlags::empty();

impl Report {
    /// Reads what has come. Returns the outcome once the child has closed the pipe.
    pub fn advance(&mut self) -> Option<Outcome> {
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => return Some(outcome(&self.bytes)),
                Ok(count) if self.bytes.len() + count <= MAX_REPORT => self.bytes.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Ok(_) => return Some(Outcome::Failed(ExecStage::Prepare, libc::EMSGSIZE)),
                Err(error) => return Some(Outcome::Failed(ExecStage::Prepare, error.raw_os_error())),
            }
        }
    }
}

/// Evaluates everything that a child reported. A child that was killed before its proof was whole did not start.
fn outcome(mut bytes: &[u8]) -> Outcome {
    let mut proof = Vec::new();
    while let Some((message, rest)) = next_message(bytes) {
        match message {
            Message::Proof(items) => proof = items,
            Message::Failed(stage, errno) => return Outcome::Failed(stage, errno),
        }
        bytes = rest;
    }
    if proof.is_empty() || !bytes.is_empty() {
        Outcome::Failed(ExecStage::Spawn, libc::EINTR)
    } else if proof.iter().all(ProofItem::holds) {
        Outcome::Running(proof)
    } else {
        Outcome::ProofFailed(proof)
    }
}

fn next_message(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let (payload, rest) = rest.split_at_checked(codec::payload_len(*header).ok()?)?;
    Some((codec::decode(payload).ok()?, rest))
}

struct Job<'a> {
    request: &'a ExecRequest,
    stdio: [c_int; 3],
    /// Makes stdin, a terminal, the controlling terminal of the session.
    terminal: bool,
    cwd: CString,
    files: Vec<CString>,
    argv: Vec<*const c_char>,
    script_argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    report: OwnedFd,
}

const SHELL: &CStr = c"/bin/sh";

/// Descriptors that a command has as stdin, stdout and stderr.
pub enum Stdio {
    /// These, and no terminal.
    Three([OwnedFd; 3]),
    /// The slave of a terminal, which becomes the controlling one of the command's session.
    Terminal(OwnedFd),
}

impl Stdio {
    fn numbers(&self) -> [c_int; 3] {
        match self {
            Self::Three(three) => [three[0].as_raw_fd(), three[1].as_raw_fd(), three[2].as_raw_fd()],
            Self::Terminal(slave) => [slave.as_raw_fd(); 3],
        }
    }
}

/// Starts a child for a command, and returns its process id with what it will report.
pub fn spawn(request: &ExecRequest, stdio: &Stdio) -> Result<(i32, Report), (ExecStage, i32)> {
    let strings = |items: &mut dyn Iterator<Item = Vec<u8>>| items.map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = strings(&mut request.argv.iter().map(|item| item.0.clone()));
    let env = strings(&mut request.env.iter().map(|(name, value)| [&name.0[..], b"=", &value.0[..]].concat()));
    let files = strings(&mut candidates(request).into_iter());
    let (Ok(argv), Ok(env), Ok(files), Ok(cwd)) = (argv, env, files, CString::new(request.cwd.0.clone())) else {
        return Err((ExecStage::Prepare, libc::EINVAL));
    };
    let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    let mut script_argv: Vec<*const c_char> = vec![SHELL.as_ptr(), std::ptr::null()];
    script_argv.extend(argv.iter().skip(1).map(|text| text.as_ptr()).chain([std::ptr::null()]));
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (pipe, report) = pipe.map_err(|errno| (ExecStage::Spawn, errno.raw_os_error()))?;
    let mut job = Job {
        request,
        stdio: stdio.numbers(),
        terminal: matches!(stdio, Stdio::Terminal(_)),
        cwd,
        files,
        argv: pointers(&argv),
        script_argv,
        envp: pointers(&env),
        report,
    };
    // SAFETY: a clone without shared memory and without a stack of its own is a fork; all other arguments are unused.
    // This process has one thread, so that its copy may go on with everything, the allocator too.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        0 => {
            // The exit code is not looked at: the report tells.
            let reported = child(&mut job);
            // SAFETY: ends this copy without running anything that belongs to the guest.
            unsafe { libc::_exit(i32::from(reported.is_err())) }
        }
        pid if pid > 0 => Ok((pid as i32, Report { pipe, bytes: Vec::new() })),
        _ => Err((ExecStage::Spawn, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN))),
    }
}

/// The files that a command's name may mean, in order. An empty part of PATH would mean the working directory, which
/// is the workspace; it is left out.
fn candidates(request: &ExecRequest) -> Vec<Vec<u8>> {
    let Some(name) = request.argv.first() else { return Vec::new() };
    if name.0.contains(&b'/') {
        return vec![name.0.clone()];
    }
    let path = request.env.iter().find(|(key, _)| key.0 == b"PATH").map_or(&b"/usr/bin:/bin"[..], |(_, v)| &v.0);
    path.split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| [directory, b"/", &name.0[..]].concat())
        .collect()
}

/// Ends only without an exec: with a failure, or with a proof that does not hold.
fn child(job: &mut Job<'_>) -> io::Result<()> {
    let (stage, error) = match prepare(job) {
        Ok(false) => return Ok(()),
        Ok(true) => (ExecStage::Exec, execute(job)),
        Err(failure) => failure,
    };
    send(&job.report, &Message::Failed(stage, error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Does everything before the exec, and reports the proof. Returns whether it holds.
fn prepare(job: &Job<'_>) -> Result<bool, (ExecStage, io::Error)> {
    let prepare = |error: io::Error| (ExecStage::Prepare, error);
    rustix::process::setsid().map_err(|error| prepare(error.into()))?;
    take_stdio(job.stdio).map_err(prepare)?;
    if job.terminal {
        take_terminal().map_err(prepare)?;
    }
    if !signals::unblock() {
        return Err(prepare(io::Error::last_os_error()));
    }
    rustix::process::chdir(&job.cwd).map_err(|error| (ExecStage::Chdir, error.into()))?;
    let mut proof = proof::attempt(&job.request.proof);
    if !leave_out::confinement().proof {
        for item in proof.iter_mut().filter(|item| !item.holds()) {
            item.seen = item.expected.split('|').next().unwrap_or_default().to_owned();
        }
    }
    let holds = proof.iter().all(ProofItem::holds);
    send(&job.report, &Message::Proof(proof)).map_err(prepare)?;
    Ok(holds)
}

/// Reports to the guest, without waiting: the pipe holds more than a child ever writes.
fn send(report: &OwnedFd, message: &Message) -> io::Result<()> {
    let bytes = codec::encode(message).map_err(io::Error::other)?;
    match rustix::io::write(report, &bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) => Err(error.into()),
    }
}

fn take_stdio(stdio: [c_int; 3]) -> io::Result<()> {
    for (wanted, fd) in (0..3).zip(stdio) {
        // SAFETY: plain numbers; 0 to 2 are replaced by descriptors that came with the request, which are above 2.
        if unsafe { libc::dup2(fd, wanted) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    open_own_null()?;
    if !leave_out::confinement().descriptors {
        return Ok(());
    }
    // SAFETY: marks whatever else is open to be closed by the exec; this copy of the table is the child's own.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of the device `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Replaces the host's `/dev/null` as stdin by the sandbox's own: Landlock lets no command open a file of a mount that is not in the
/// sandbox, and `/dev/stdin` opens the file again.
fn open_own_null() -> io::Result<()> {
    let stat = rustix::fs::fstat(rustix::stdio::stdin())?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if !is_device || (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) != NULL {
        return Ok(());
    }
    let own = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdin(own)?)
}

/// Makes stdin the controlling terminal of this new session, so that Ctrl-C, Ctrl-Z and job control work. Never by
/// stealing: the argument 0 refuses a terminal that another session has (TIOCSCTTY(2const)).
fn take_terminal() -> io::Result<()> {
    // SAFETY: ioctl with plain numbers.
    let taken = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
    if taken == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tries each file as execvp(3) does; returns what stands for all failures.
fn execute(job: &mut Job<'_>) -> io::Error {
    let mut denied = None;
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for file in &job.files {
        // SAFETY: all three are C strings or arrays of them that end with a null pointer and live in `spawn`.
        unsafe { libc::execve(file.as_ptr(), job.argv.as_ptr(), job.envp.as_ptr()) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => last = error,
            Some(libc::EACCES) => denied = Some(error),
            Some(libc::ENOEXEC) => {
                job.script_argv[1] = file.as_ptr();
                // SAFETY: as above; a file without a known format is a script of the shell, as for execvp(3).
                unsafe { libc::execve(SHELL.as_ptr(), job.script_argv.as_ptr(), job.envp.as_ptr()) };
                return io::Error::last_os_error();
            }
            _ => return error,
        }
    }
    denied.unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ByteText;

    fn request(argv0: &str, path: &str) -> ExecRequest {
        ExecRequest {
            exec: 1,
            is_main: true,
            argv: vec![argv0.into()],
            env: vec![("PATH".into(), path.into())],
            cwd: "/".into(),
            proof: Vec::new(),
            terminal: None,
        }
    }

    fn names(argv0: &str, path: &str) -> Vec<ByteText> {
        candidates(&request(argv0, path)).into_iter().map(ByteText).collect()
    }

    #[test]
    fn a_name_is_looked_for_along_path_and_a_path_is_taken_as_it_is() {
        assert_eq!(names("sh", "/a:/b"), ["/a/sh".into(), "/b/sh".into()]);
        assert_eq!(names("./sh", "/a:/b"), ["./sh".into()]);
    }

    #[test]
    fn an_empty_part_of_path_is_not_the_working_directory() {
        assert_eq!(names("sh", ":/b:"), ["/b/sh".into()]);
    }

    fn item(seen: &str) -> ProofItem {
        ProofItem { check: "mount".into(), expected: "EPERM".into(), seen: seen.into() }
    }

    fn said(messages: &[Message]) -> Vec<u8> {
        messages.iter().flat_map(|message| codec::encode(message).unwrap()).collect()
    }

    #[test]
    fn a_child_killed_before_its_whole_proof_has_not_started() {
        let killed = Outcome::Failed(ExecStage::Spawn, libc::EINTR);
        let whole = said(&[Message::Proof(vec![item("EPERM")])]);
        for end in 0..whole.len() {
            assert_eq!(outcome(&whole[..end]), killed, "{end} bytes");
        }
        assert_eq!(outcome(&said(&[Message::Proof(Vec::new())])), killed);
        assert_eq!(outcome(&whole), Outcome::Running(vec![item("EPERM")]));
    }

    #[test]
    fn the_guest_wakes_up_at_the_end_of_a_report_and_not_before() {
        use rustix::event::{PollFd, Timespec, poll};
        let (pipe, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut report = Report { pipe, bytes: Vec::new() };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_ready = |report: &Report| poll(&mut [PollFd::new(&report.pipe, END)], Some(&now)).unwrap() == 1;
        send(&writer, &Message::Proof(vec![item("EPERM")])).unwrap();
        assert!(!is_ready(&report), "the proof alone");
        drop(writer);
        assert!(is_ready(&report), "the end");
        assert_eq!(report.advance(), Some(Outcome::Running(vec![item("EPERM")])));
    }

    #[test]
    fn a_failure_or_a_proof_that_does_not_hold_is_no_start() {
        let failed = Message::Failed(ExecStage::Exec, libc::ENOENT);
        let both = said(&[Message::Proof(vec![item("EPERM")]), failed]);
        assert_eq!(outcome(&both), Outcome::Failed(ExecStage::Exec, libc::ENOENT));
        let open = vec![item("EPERM"), item("ok")];
        assert_eq!(outcome(&said(&[Message::Proof(open.clone())])), Outcome::ProofFailed(open));
    }
}
