//! The default filter in the kernel. A filter binds one thread and what it
//! starts, so each test confines a thread of its own; only calls whose answer
//! is the death of the process run in a forked child.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Permissions, Program};
use crate::seccomp::{install, table};

fn set_no_new_privs() {
    // SAFETY: prctl with PR_SET_NO_NEW_PRIVS takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Runs a check in a new thread under the default filter.
fn confined(check: impl FnOnce() + Send) {
    let run = || {
        set_no_new_privs();
        install(&Program::builtin(Permissions::default())).expect("the kernel takes the program");
        check();
    };
    let result = std::thread::scope(|scope| scope.spawn(run).join());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Makes a call by name with plain numbers and gives back its errno, 0 if it
/// succeeded.
#[track_caller]
fn errno(call: &str, arguments: &[i64]) -> i32 {
    let number = i64::from(table::number(call).unwrap_or_else(|| panic!("no call is named {call}")));
    errno_of_number(number, arguments)
}

fn errno_of_number(number: i64, given: &[i64]) -> i32 {
    let mut a = [0; 6];
    a[..given.len()].copy_from_slice(given);
    // SAFETY: the tests pass null, descriptors, numbers, or the address of a
    // string that outlives the call; no call here writes through a pointer.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// A C string and its address, for calls that take a path.
fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero byte")
}

fn address(text: &std::ffi::CStr) -> i64 {
    text.as_ptr() as i64
}

#[test]
fn threads_and_children_start_and_ordinary_work_goes_on() {
    confined(|| {
        let sum = std::thread::spawn(|| (1..=8).sum::<i32>()).join().expect("the thread ends");
        assert_eq!(sum, 36);
        let output = Command::new("/bin/sh").args(["-c", "echo $((40 + 2)) | cat"]).output().expect("a child starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
        assert!(output.status.success(), "{output:?}");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("TCP on loopback");
        let address = listener.local_addr().expect("bound");
        std::net::TcpStream::connect(address).expect("TCP connects");
        std::net::UdpSocket::bind("127.0.0.1:0").expect("UDP on loopback");
        std::os::unix::net::UnixStream::pair().expect("a pair of Unix sockets");
    });
}

#[test]
fn the_filter_reaches_children_and_survives_exec() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tool");
    fs::write(&file, "").expect("written");
    let chmod =
        |mode: &str| Command::new("chmod").arg(mode).arg(&file).output().expect("chmod starts").status.success();
    confined(|| {
        assert!(chmod("755"));
        assert!(!chmod("4755"));
    });
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o7777, 0o755);
    assert!(chmod("4755"), "without the filter the same command works");
}

#[test]
fn no_file_becomes_setuid() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = directory.path().join("old");
    fs::write(&old, "").expect("written");
    let (old_c, new_c) = (c_path(&old), c_path(&directory.path().join("new")));
    let (old_at, new_at) = (address(&old_c), address(&new_c));
    let cwd = i64::from(libc::AT_FDCWD);
    confined(|| {
        assert_eq!(errno("chmod", &[old_at, 0o755]), 0);
        for mode in [0o4755, 0o2755] {
            assert_eq!(errno("chmod", &[old_at, mode]), libc::EPERM);
            assert_eq!(errno("fchmodat", &[cwd, old_at, mode]), libc::EPERM);
            assert_eq!(errno("openat", &[cwd, new_at, 0o101, mode]), libc::EPERM);
            assert_eq!(errno("creat", &[new_at, mode]), libc::EPERM);
            assert_eq!(errno("mkdir", &[new_at, mode]), libc::EPERM);
            assert_eq!(errno("mknod", &[new_at, 0o100_000 | mode]), libc::EPERM);
            assert_eq!(errno("openat", &[cwd, old_at, 0, mode]), 0, "garbage in the mode of a plain open");
        }
        assert_eq!(errno("fchmodat2", &[cwd, old_at, 0o4755, 0]), libc::ENOSYS);
        assert_eq!(errno("openat2", &[cwd, old_at, 0, 0]), libc::ENOSYS);
        assert!(!directory.path().join("new").exists());
        assert_eq!(errno("mkdir", &[new_at, 0o755]), 0);
    });
    let mode = fs::metadata(&old).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn no_devices_and_no_whiteouts_but_fifos() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bad, good) = (c_path(&directory.path().join("bad")), c_path(&directory.path().join("good")));
    let cwd = i64::from(libc::AT_FDCWD);
    confined(|| {
        assert_eq!(errno("mknod", &[address(&bad), 0o020_666, 0]), libc::EPERM);
        assert_eq!(errno("mknodat", &[cwd, address(&bad), 0o060_666, 0x700]), libc::EPERM);
        assert_eq!(errno("mknod", &[address(&good), 0o010_644, 0]), 0);
        // RENAME_WHITEOUT
        let rename = [cwd, address(&good), cwd, address(&bad), 4];
        assert_eq!(errno("renameat2", &rename), libc::EPERM);
        assert!(!directory.path().join("bad").exists());
    });
}

#[test]
fn refused_calls_fail_with_the_errno_of_the_profile() {
    let outside = errno("ioctl", &[-1, 0x5412, 0]);
    assert_eq!(outside, libc::EBADF, "without the filter the kernel gets to look at the descriptor");
    confined(|| {
        assert_eq!(errno("clone3", &[0, 0]), libc::ENOSYS);
        assert_eq!(errno("mmap", &[0, 1 << 21, 3, 0x4_0022, -1, 0]), libc::ENOMEM);
        assert_eq!(errno("mmap", &[0, 1 << 21, 3, 0x22, -1, 0]), 0);
        for call in ["memfd_secret", "io_destroy", "io_submit", "lsm_list_modules"] {
            assert_eq!(errno(call, &[0, 0, 0]), libc::ENOSYS, "{call}");
        }
        for flag in [0x2_0000, 0x80, 0x1000_0000, 0x4000_0000] {
            assert_eq!(errno("unshare", &[flag]), libc::EPERM);
        }
        assert_eq!(errno("unshare", &[0x200]), 0, "CLONE_FS belongs to no namespace");
        assert_eq!(errno("clone", &[0x1000_0011]), libc::EPERM);
        assert_eq!(errno("setns", &[-1, 0]), libc::EPERM);
        assert_eq!(errno("io_uring_setup", &[1, 0]), libc::EPERM);
        assert_eq!(errno("keyctl", &[0, -3, 0]), libc::EPERM);
        assert_eq!(errno("bpf", &[0, 0, 0]), libc::EPERM);
        assert_eq!(errno("ptrace", &[0, 0, 0]), libc::EPERM);
        assert_eq!(errno("userfaultfd", &[0]), libc::EPERM);
        assert_eq!(errno("mount", &[0, 0, 0, 0, 0]), libc::EPERM);
        assert_eq!(errno("fsopen", &[0, 0]), libc::EPERM);
        for terminal_input in [0x5412, 0x541c, 0x5412 | 1 << 32, 0x541c | 1 << 63] {
            assert_eq!(errno("ioctl", &[-1, terminal_input, 0]), libc::EPERM);
        }
        assert_eq!(errno("ioctl", &[-1, 0x5401, 0]), libc::EBADF, "TCGETS reaches the kernel");
        assert_eq!(errno("personality", &[0x010_0000]), libc::EPERM, "MMAP_PAGE_ZERO");
        assert_eq!(errno("personality", &[0x004_0000]), 0, "ADDR_NO_RANDOMIZE");
        assert_eq!(errno("setrlimit", &[4, 0]), 0, "RLIMIT_CORE: success without reading the limit from address 0");
        assert_eq!(errno("fcntl", &[0, 1024, 0]), libc::EPERM, "F_SETLEASE");
        assert_eq!(errno("fcntl", &[0, 1040, 0]), libc::EPERM, "F_SETDELEG");
        assert_eq!(errno("fcntl", &[-1, 1025, 0]), libc::EBADF, "F_GETLEASE reaches the kernel");
        assert_eq!(errno("io_setup", &[1, 0]), libc::ENOSYS);
        assert_eq!(errno("personality", &[0xffff_ffff]), 0);
        for number in [400, 520, 600, 5000] {
            assert_eq!(errno_of_number(number, &[]), libc::ENOSYS);
        }
    });
}

#[test]
fn sockets_of_other_families_do_not_exist() {
    confined(|| {
        for family in [libc::AF_ALG, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_XDP] {
            assert_eq!(errno("socket", &[family.into(), 3, 0]), libc::EAFNOSUPPORT, "family {family}");
        }
        assert_eq!(errno("socket", &[16, 3, 0]), 0, "routing netlink");
        assert_eq!(errno("socket", &[16, 3, 16]), libc::EAFNOSUPPORT, "generic netlink");
        assert_eq!(errno("socket", &[2, 3, 1]), libc::EPERM, "raw ICMP");
        assert_eq!(errno("socket", &[2, 10, 0x300]), libc::EPERM, "packet socket in the disguise of IPv4");
        assert_eq!(errno("socket", &[2, 1, 262]), libc::EPROTONOSUPPORT, "multipath TCP");
    });
}

/// Runs `call` in a forked child under the filter, and gives the signal that
/// killed the child, or 0.
fn death(call: fn()) -> i32 {
    let program = Program::builtin(Permissions::default());
    // SAFETY: the child makes system calls alone (prctl, seccomp, `call`,
    // _exit); it neither allocates nor returns.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1, "{}", io::Error::last_os_error());
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || install(&program).is_err() {
                libc::_exit(1);
            }
            call();
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call and `child` is ours.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert_ne!(status, 1 << 8, "the child could not install the filter");
    if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }
}

#[test]
fn calls_of_foreign_abis_kill_the_process() {
    let native = || {
        // SAFETY: getpid takes nothing.
        unsafe { libc::syscall(libc::SYS_getpid) };
    };
    assert_eq!(death(native), 0);
    let x32 = || {
        // SAFETY: getpid takes nothing.
        unsafe { libc::syscall(0x4000_0000 + libc::SYS_getpid) };
    };
    assert_eq!(death(x32), libc::SIGSYS);
    let i386 = || {
        // SAFETY: 20 is getpid of i386; it touches rax alone, and int 0x80
        // zeroes r8 to r11 on some kernels, which is declared.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") 20_u64 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        };
    };
    // A kernel without 32-bit support kills the process before the filter does.
    let signal = death(i386);
    assert!([libc::SIGSYS, libc::SIGSEGV].contains(&signal), "signal {signal}");
}

#[test]
fn a_filter_is_refused_when_it_is_empty_or_too_long_for_the_length_field() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            set_no_new_privs();
            let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
            // 65537 would be 1 in 16 bits: a program that allows everything.
            for length in [0, 65_537] {
                let error = install(&vec![allow; length]).expect_err("refused");
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{length}");
            }
        });
    });
}
