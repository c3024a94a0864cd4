//! A05, A06, A09: socket families, namespaces, and doors into the kernel that a filter may have forgotten.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::sys::{self, address, ask, call};

/// `socket(AF_PACKET)` with a bit above the 32 that the kernel looks at: a filter that compares 64 bits lets it pass.
pub fn packet_high_bits(_: &Context) -> Answer {
    let family = libc::AF_PACKET as usize | (1 << 32);
    ask(libc::SYS_socket, &[family, libc::SOCK_RAW as usize, 0])
}

/// The same, for a family that works for ordinary users too.
pub fn netlink_high_bits(_: &Context) -> Answer {
    let protocol = libc::NETLINK_KOBJECT_UEVENT as usize | (1 << 32);
    ask(libc::SYS_socket, &[libc::AF_NETLINK as usize, libc::SOCK_RAW as usize, protocol])
}

/// Twin: a connected pair.
pub fn socketpair(_: &Context) -> Answer {
    let mut pair = [0_i32; 2];
    ask(libc::SYS_socketpair, &[libc::AF_UNIX as usize, libc::SOCK_STREAM as usize, 0, sys::address_mut(&mut pair)])
}

/// `clone(2)` with namespace flags. The child ends at once.
pub fn clone_with(flags: i32) -> Answer {
    let flags = (flags | libc::SIGCHLD) as usize;
    finish_clone(call(libc::SYS_clone, &[flags, 0, 0, 0, 0]))
}

/// `clone3(2)`: its flags are behind a pointer that a filter cannot read, so the call as a whole has to be absent.
pub fn clone3_with(flags: i32) -> Answer {
    let arguments: [u64; 8] = [flags as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    finish_clone(call(libc::SYS_clone3, &[address(&arguments), size_of_val(&arguments)]))
}

fn finish_clone(result: Result<i64, i32>) -> Answer {
    match result {
        Ok(0) => sys::leave(0),
        Ok(child) => Answer::choose(sys::wait(child as i32, true).is_some(), "ok", "lost"),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// Joins the user namespace of the caller again, or the network namespace when that one is refused by its kind.
pub fn setns_own(_: &Context) -> Answer {
    use std::os::fd::AsRawFd;
    match sys::open("/proc/self/ns/uts", libc::O_RDONLY, 0) {
        Ok(namespace) => ask(libc::SYS_setns, &[namespace.as_raw_fd() as usize, 0]),
        // A number that is not open tells a filter (EPERM) from the kernel (EBADF).
        Err(_) => ask(libc::SYS_setns, &[1000, 0]),
    }
}

/// Twin: a thread by the library, which tries clone3 first and must fall back.
pub fn thread(_: &Context) -> Answer {
    match std::thread::Builder::new().spawn(|| 7) {
        Ok(handle) => Answer::choose(matches!(handle.join(), Ok(7)), "ok", "lost"),
        Err(error) => Answer::from_error(&error),
    }
}

/// Twin: a plain fork.
pub fn fork(_: &Context) -> Answer {
    match sys::fork() {
        Ok(0) => sys::leave(0),
        Ok(child) => Answer::choose(sys::wait(child, true) == Some(0), "ok", "lost"),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// `getpid` by the 32-bit gate: a filter that looks at numbers only takes it for another call (CVE-2014-0038's kind).
#[cfg(target_arch = "x86_64")]
pub fn int80(_: &Context) -> Answer {
    let mut number: i64 = 20; // getpid of i386
    // SAFETY: the gate takes the number in eax and no arguments; it clobbers r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") number, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if number == i64::from(std::process::id()) { Answer::of("ok") } else { Answer::of(errno_name(-number as i32)) }
}

/// `unshare` by the 32-bit gate: there a different number stands for it.
#[cfg(target_arch = "x86_64")]
pub fn int80_unshare(_: &Context) -> Answer {
    let mut number: i64 = 310; // unshare of i386, with no flags: changes nothing
    // SAFETY: no pointers; rbx is saved because LLVM keeps it for itself.
    unsafe {
        std::arch::asm!(
            "push rbx", "xor ebx, ebx", "int 0x80", "pop rbx",
            inout("rax") number, out("r8") _, out("r9") _, out("r10") _, out("r11") _
        );
    }
    if number == 0 { Answer::of("ok") } else { Answer::of(errno_name(-number as i32)) }
}

/// `getpid` by the x32 table.
#[cfg(target_arch = "x86_64")]
pub fn x32(_: &Context) -> Answer {
    ask(libc::SYS_getpid | 0x4000_0000, &[])
}

/// Other machines have no such gate.
#[cfg(not(target_arch = "x86_64"))]
pub fn int80(_: &Context) -> Answer {
    Answer::of("not-this-machine")
}

/// Other machines have no such gate.
#[cfg(not(target_arch = "x86_64"))]
pub fn int80_unshare(_: &Context) -> Answer {
    Answer::of("not-this-machine")
}

/// Other machines have no such table.
#[cfg(not(target_arch = "x86_64"))]
pub fn x32(_: &Context) -> Answer {
    Answer::of("not-this-machine")
}

/// Twin: the native call.
pub fn getpid(_: &Context) -> Answer {
    ask(libc::SYS_getpid, &[])
}
