//! Raw calls into the kernel, so that no library sits between a probe and what it asks for.

use crate::answer::Answer;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The errno of the last failed call.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Makes any system call with up to six arguments; missing ones are 0.
///
/// Attack code: callers pass pointers to live buffers or values that the kernel refuses, and run in a forked child
/// that is thrown away, so the worst result of a mistake is a wrong answer of that child.
pub fn call(number: i64, arguments: &[usize]) -> Result<i64, i32> {
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: see the contract above; the kernel checks every pointer it is given.
    let result =
        unsafe { libc::syscall(number, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5)) };
    if result == -1 { Err(errno()) } else { Ok(result) }
}

/// The answer of a system call.
pub fn ask(number: i64, arguments: &[usize]) -> Answer {
    call(number, arguments).into()
}

/// The address of a value, as a system call argument.
pub fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>() as usize
}

/// The address of a value that the kernel may write.
pub fn address_mut<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>() as usize
}

/// A path as the kernel wants it. A NUL inside gives the empty path, which the kernel answers with ENOENT.
pub fn c_path(path: impl AsRef<Path>) -> CString {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// `open(2)` with a mode, as a raw call.
pub fn open(path: impl AsRef<Path>, flags: i32, mode: u32) -> Result<OwnedFd, i32> {
    let path = c_path(path);
    let at = libc::AT_FDCWD as usize;
    let number = call(libc::SYS_openat, &[at, address(path.as_bytes_with_nul()), flags as usize, mode as usize])?;
    // SAFETY: the kernel just returned this descriptor and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// Answers a call of `socket(2)`.
pub fn socket(family: i32, kind: i32, protocol: i32) -> Answer {
    ask(libc::SYS_socket, &[family as usize, kind as usize, protocol as usize])
}

/// `fork(2)` in this single-threaded program: `Ok(0)` in the child.
pub fn fork() -> Result<i32, i32> {
    // SAFETY: the program has one thread, so the child may run any code.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(errno()) } else { Ok(pid) }
}

/// Ends this process at once, without destructors and without flushing what the parent also holds.
pub fn leave(code: i32) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { libc::_exit(code) }
}

/// Waits for one child; `None` while it runs when `block` is false, or when it cannot be waited for.
pub fn wait(pid: i32, block: bool) -> Option<i32> {
    let mut status = 0;
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: status is a live integer.
        let got = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        if got == pid {
            return Some(status);
        }
        if got == 0 || errno() != libc::EINTR {
            return None;
        }
    }
}

/// The time of a clock (`clock_gettime(2)`); zero for a clock that the kernel does not have.
pub fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a live structure, and an unknown clock is only refused.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends a signal.
pub fn kill(pid: i32, signal: i32) -> Result<i64, i32> {
    call(libc::SYS_kill, &[pid as usize, signal as usize])
}

/// Blocks until a signal ends this process.
pub fn pause() {
    // SAFETY: pause takes no arguments.
    unsafe { libc::pause() };
}

/// Ignores a signal in this process.
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN is a valid disposition; an invalid signal number is only refused.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// The user that this process runs as.
pub fn uid() -> u32 {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() }
}

/// For the rare step whose outcome does not matter either way, such as clearing away what may be gone already.
pub fn either_way<T, E>(_: Result<T, E>) {}
