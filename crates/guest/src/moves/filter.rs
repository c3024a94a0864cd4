//! The filter that tells PID 1 of renames and hard links, and of processes that give up rights of their own by Landlock.
//! It refuses nothing: the sandbox's own filter does that, and of two
//! filters the stricter answer counts.
//!
//! A call whose last argument carries [`PASS`] in its upper half passes unseen. The kernel ignores that half, so that it changes
//! nothing about the call; the helper calls in this way. A command that does so as well gets what the kernel gives, EXDEV.

use super::listener::Listener;
use super::place::Place;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_FILTER_FLAG_NEW_LISTENER,
    SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF, sock_filter,
};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;

/// In the upper half of the flags of renameat2(2) and linkat(2), which are 32 bits wide.
pub(super) const PASS: u64 = 0x6e78_7573;

/// Offset of the call's number in `struct seccomp_data`, and that of the upper half of the fifth argument.
const NUMBER: u32 = 0;
const UPPER_HALF_OF_FLAGS: u32 = 16 + 8 * 4 + 4;

/// Calls without flags.
const PLAIN: [libc::c_long; 4] =
    [libc::SYS_rename, libc::SYS_renameat, libc::SYS_link, libc::SYS_landlock_restrict_self];
/// Calls with flags as their fifth argument.
const WITH_FLAGS: [libc::c_long; 2] = [libc::SYS_renameat2, libc::SYS_linkat];

/// ```text
///  load number;  plain? ─▶ tell;  with flags? ─▶ inspect;  allow
///  inspect: load upper half of flags;  PASS? ─▶ allow
///  tell: notify
/// ```
fn program() -> Vec<sock_filter> {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |k: u32, jt: usize| sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: jt as u8, jf: 0, k };
    let load = BPF_LD | BPF_W | BPF_ABS;
    let calls = PLAIN.len() + WITH_FLAGS.len();
    // Places: the load, one jump for each call, allow, inspect (load, jump), tell, allow.
    let (inspect, tell) = (1 + calls + 1, 1 + calls + 3);
    let mut program = vec![statement(load, NUMBER)];
    for (numbers, goal) in [(&PLAIN[..], tell), (&WITH_FLAGS[..], inspect)] {
        for number in numbers {
            let next = program.len() + 1;
            program.push(jump(*number as u32, goal - next));
        }
    }
    program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    program.push(statement(load, UPPER_HALF_OF_FLAGS));
    program.push(jump(PASS as u32, 1));
    program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    program
}

/// Puts this process under the filter, with a descriptor for the notifications. A caller waits for the
/// answer also when a signal comes that does not kill it: a call is done once, and not interrupted and repeated.
pub(super) fn install() -> io::Result<Listener> {
    let filter = program();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: `program` points to valid instructions that live until the call returns; the kernel copies them.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program)) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for the call, closed on exec.
    Ok(Listener::new(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }))
}

/// renameat2(2), unseen by the filter.
pub(super) fn rename(old: &Place, new: &Place, flags: u32) -> Result<(), Errno> {
    unseen(libc::SYS_renameat2, old, new, flags)
}

/// linkat(2), unseen by the filter.
pub(super) fn link(old: &Place, new: &Place, flags: u32) -> Result<(), Errno> {
    unseen(libc::SYS_linkat, old, new, flags)
}

fn unseen(call: libc::c_long, old: &Place, new: &Place, flags: u32) -> Result<(), Errno> {
    let text = |name: &[u8]| CString::new(name).map_err(|_| Errno::INVAL);
    let (from, to) = (text(&old.name)?, text(&new.name)?);
    let flags = u64::from(flags) | PASS << 32;
    let (above, below) = (old.directory.as_raw_fd(), new.directory.as_raw_fd());
    // SAFETY: both names are C strings that live until the call returns; the rest are numbers.
    let done = unsafe { libc::syscall(call, above, from.as_ptr(), below, to.as_ptr(), flags) };
    if done == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program for a call, as the kernel does: its number, and the upper half of its fifth argument.
    fn answer(number: libc::c_long, upper: u32) -> u32 {
        let program = program();
        let (mut at, mut held) = (0, 0);
        loop {
            let one = program[at];
            at += 1;
            match u32::from(one.code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    held = if one.k == NUMBER { number as u32 } else { upper };
                }
                code if code == BPF_RET | BPF_K => return one.k,
                _ => at += usize::from(if held == one.k { one.jt } else { one.jf }),
            }
        }
    }

    #[test]
    fn renames_links_and_landlock_are_reported_and_nothing_else() {
        let renames = [libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2];
        let told = [&renames[..], &[libc::SYS_link, libc::SYS_linkat, libc::SYS_landlock_restrict_self]].concat();
        for number in 0..500 {
            let expected = if told.contains(&number) { SECCOMP_RET_USER_NOTIF } else { SECCOMP_RET_ALLOW };
            assert_eq!(answer(number, 0), expected, "call {number}");
        }
    }

    #[test]
    fn calls_of_the_helper_pass() {
        for number in WITH_FLAGS {
            assert_eq!(answer(number, PASS as u32), SECCOMP_RET_ALLOW);
            assert_eq!(answer(number, 1), SECCOMP_RET_USER_NOTIF);
        }
        for number in PLAIN {
            assert_eq!(answer(number, PASS as u32), SECCOMP_RET_USER_NOTIF, "it has no flags");
        }
    }
}
