//! Starting one command: a child that shares our memory until it executes, like vfork(2).
//!
//! ```text
//!  guest ──clone(CLONE_VM | CLONE_VFORK)──▶ child: session, stdio, (terminal,) cwd, proof, exec
//!    └─ stands still until the child has executed or ended, then reads in `Job` how far it came
//! ```
//! Sharing memory saves the copy of all page tables, and needs no pipe to report an error.

use crate::{proof, signals};
use nexus_model::frames::{ExecRequest, ExecStage};
use nexus_model::proof::ProofItem;
use rustix::fd::{AsRawFd, OwnedFd};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

/// How far a command came.
#[derive(Debug)]
pub enum Outcome {
    /// It runs, as this process.
    Running(i32, Vec<ProofItem>),
    /// A check saw what it must not see; nothing was executed.
    ProofFailed(Vec<ProofItem>),
    /// It could not be executed.
    Failed(ExecStage, i32),
}

struct Job<'a> {
    request: &'a ExecRequest,
    stdio: [c_int; 3],
    /// Whether stdin is a terminal that the session takes.
    terminal: bool,
    cwd: CString,
    files: Vec<CString>,
    argv: Vec<*const c_char>,
    script_argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    proof: Vec<ProofItem>,
    failure: Option<(ExecStage, i32)>,
}

const STACK: usize = 256 * 1024;
const SHELL: &CStr = c"/bin/sh";

/// What a command has as stdin, stdout and stderr.
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

/// Starts a command.
pub fn spawn(request: &ExecRequest, stdio: &Stdio) -> Outcome {
    let strings = |items: &mut dyn Iterator<Item = Vec<u8>>| items.map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = strings(&mut request.argv.iter().map(|item| item.0.clone()));
    let env = strings(&mut request.env.iter().map(|(name, value)| [&name.0[..], b"=", &value.0[..]].concat()));
    let files = strings(&mut candidates(request).into_iter());
    let (Ok(argv), Ok(env), Ok(files), Ok(cwd)) = (argv, env, files, CString::new(request.cwd.0.clone())) else {
        return Outcome::Failed(ExecStage::Prepare, libc::EINVAL);
    };
    let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    let mut script_argv: Vec<*const c_char> = vec![SHELL.as_ptr(), std::ptr::null()];
    script_argv.extend(argv.iter().skip(1).map(|text| text.as_ptr()).chain([std::ptr::null()]));
    let mut job = Job {
        request,
        stdio: stdio.numbers(),
        terminal: matches!(stdio, Stdio::Terminal(_)),
        cwd,
        files,
        argv: pointers(&argv),
        script_argv,
        envp: pointers(&env),
        proof: Vec::new(),
        failure: None,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / 16);
    // SAFETY: the stack is memory of ours of STACK bytes, used from its upper end, aligned to 16. CLONE_VFORK keeps
    // this process (which has one thread) still until the child has executed or ended, so `job` and the stack live
    // and are not touched from both sides at once.
    let pid = unsafe {
        let top = stack.as_mut_ptr().byte_add(STACK).cast::<c_void>();
        libc::clone(
            child_main,
            top,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut job).cast::<c_void>(),
        )
    };
    if pid < 0 {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
        return Outcome::Failed(ExecStage::Spawn, errno);
    }
    match job.failure {
        Some((stage, errno)) => Outcome::Failed(stage, errno),
        None if job.proof.iter().all(ProofItem::holds) => Outcome::Running(pid, job.proof),
        None => Outcome::ProofFailed(job.proof),
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
        .filter(|folder| !folder.is_empty())
        .map(|folder| [folder, b"/", &name.0[..]].concat())
        .collect()
}

extern "C" fn child_main(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passed a pointer to its job and stands still until this function is done with it.
    let job = unsafe { &mut *argument.cast::<Job<'_>>() };
    if let Err((stage, error)) = child(job) {
        job.failure = Some((stage, error.raw_os_error().unwrap_or(libc::EIO)));
    }
    // The exit code is not looked at: `failure` or the proof tells.
    0
}

/// Ends only without an exec: with an error, or with a proof that does not hold.
fn child(job: &mut Job<'_>) -> Result<(), (ExecStage, io::Error)> {
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
    job.proof = proof::attempt(&job.request.proof);
    if !job.proof.iter().all(ProofItem::holds) {
        return Ok(());
    }
    Err((ExecStage::Exec, execute(job)))
}

fn take_stdio(stdio: [c_int; 3]) -> io::Result<()> {
    for (wanted, fd) in (0..3).zip(stdio) {
        // SAFETY: plain numbers; 0 to 2 are replaced by descriptors that came with the request, which are above 2.
        if unsafe { libc::dup2(fd, wanted) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: marks whatever else is open to be closed by the exec; this copy of the table is the child's own.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    use nexus_model::frames::ProofPlan;

    fn request(argv0: &str, path: &str) -> ExecRequest {
        ExecRequest {
            exec: 1,
            leader: true,
            argv: vec![argv0.into()],
            env: vec![("PATH".into(), path.into())],
            cwd: "/".into(),
            proof: ProofPlan::default(),
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
}
