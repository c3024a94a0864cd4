//! A07 and A08: system calls that no workload needs, each with arguments that do nothing when they are let through.
//!
//! The arguments are chosen so that root outside a sandbox gets another answer than EPERM or ENOSYS (usually EINVAL,
//! ENOENT or EBADF), because the kernel checks the privilege first and the arguments second.

use crate::answer::Answer;
use crate::context::Context;
use crate::sys::{address, address_mut, ask, c_path, call, errno};

const NOWHERE: &std::ffi::CStr = c"/nexus-escape-nonexistent";
const AT: usize = libc::AT_FDCWD as usize;
const BAD: usize = usize::MAX;

fn text(value: &std::ffi::CStr) -> usize {
    value.as_ptr() as usize
}

/// An unknown file system type: ENODEV for who may mount.
pub fn mount(_: &Context) -> Answer {
    ask(libc::SYS_mount, &[text(c"none"), text(c"/"), text(c"nexus-nonsense"), 0, 0])
}

/// A path that does not exist: ENOENT. The kernel looks up the path first, so only seccomp answers EPERM.
pub fn umount(_: &Context) -> Answer {
    ask(libc::SYS_umount2, &[text(NOWHERE), 0])
}

/// Both paths do not exist.
pub fn pivot_root(_: &Context) -> Answer {
    ask(libc::SYS_pivot_root, &[text(NOWHERE), text(NOWHERE)])
}

/// The new mount calls were the hole of Flatpak CVE-2021-41133.
pub fn fsopen(_: &Context) -> Answer {
    ask(libc::SYS_fsopen, &[text(c"nexus-nonsense"), 0])
}

/// A descriptor that is not open.
pub fn fsconfig(_: &Context) -> Answer {
    ask(libc::SYS_fsconfig, &[1000, 6, 0, 0, 0])
}

/// A descriptor that is not open.
pub fn fsmount(_: &Context) -> Answer {
    ask(libc::SYS_fsmount, &[1000, 0, 0])
}

/// A path that does not exist.
pub fn fspick(_: &Context) -> Answer {
    ask(libc::SYS_fspick, &[AT, text(NOWHERE), 0])
}

/// Descriptors that are not open.
pub fn move_mount(_: &Context) -> Answer {
    ask(libc::SYS_move_mount, &[1000, text(c""), 1000, text(c""), 0x4 | 0x40])
}

/// Without the clone flag this needs no privilege at all.
pub fn open_tree(_: &Context) -> Answer {
    ask(libc::SYS_open_tree, &[AT, text(c"/"), 0x80000])
}

/// A detached copy of the root, gone when the probe ends.
pub fn open_tree_clone(_: &Context) -> Answer {
    ask(libc::SYS_open_tree, &[AT, text(c"/"), 1 | 0x80000])
}

/// A size that is too small: EINVAL.
pub fn mount_setattr(_: &Context) -> Answer {
    ask(libc::SYS_mount_setattr, &[AT, text(NOWHERE), 0, 0, 1])
}

/// Changes nothing: the root stays the root.
pub fn chroot(_: &Context) -> Answer {
    ask(libc::SYS_chroot, &[text(c"/")])
}

/// The harmless twin of the mount family.
pub fn statfs(_: &Context) -> Answer {
    let mut buffer = [0_u64; 64];
    ask(libc::SYS_statfs, &[text(c"/"), address_mut(&mut buffer)])
}

/// An unknown command: EINVAL for who may use bpf.
pub fn bpf(_: &Context) -> Answer {
    ask(libc::SYS_bpf, &[9999, 0, 0])
}

/// A software clock counter on the caller itself.
pub fn perf_event_open(_: &Context) -> Answer {
    let mut attributes = [0_u64; 8];
    attributes[0] = 1 | (64 << 32); // PERF_TYPE_SOFTWARE, size of the first version
    attributes[5] = 0b110_0000; // exclude_kernel, exclude_hv
    ask(libc::SYS_perf_event_open, &[address(&attributes), 0, BAD, BAD, 0])
}

/// Kernel faults too, which is what exploits use to win races.
pub fn userfaultfd(_: &Context) -> Answer {
    ask(libc::SYS_userfaultfd, &[libc::O_CLOEXEC as usize])
}

/// The mode that an ordinary user may have.
pub fn userfaultfd_user(_: &Context) -> Answer {
    ask(libc::SYS_userfaultfd, &[libc::O_CLOEXEC as usize | 1])
}

/// The id of the session keyring, which would be the caller's.
pub fn keyctl(_: &Context) -> Answer {
    ask(libc::SYS_keyctl, &[0, -3_i32 as usize, 1])
}

/// A key in the keyring of this process, gone with it.
pub fn add_key(_: &Context) -> Answer {
    ask(libc::SYS_add_key, &[text(c"user"), text(c"nexus-escape"), text(c"x"), 1, -2_i32 as usize])
}

/// A key that does not exist: ENOKEY.
pub fn request_key(_: &Context) -> Answer {
    ask(libc::SYS_request_key, &[text(c"user"), text(c"nexus-escape-no-such-key"), 0, 0])
}

/// Attempts io_uring_setup(2) with one entry.
pub fn io_uring_setup(_: &Context) -> Answer {
    let mut parameters = [0_u64; 15];
    ask(libc::SYS_io_uring_setup, &[1, address_mut(&mut parameters)])
}

/// A descriptor that is not open.
pub fn io_uring_enter(_: &Context) -> Answer {
    ask(libc::SYS_io_uring_enter, &[1000, 0, 0, 0, 0, 0])
}

/// A descriptor that is not open.
pub fn io_uring_register(_: &Context) -> Answer {
    ask(libc::SYS_io_uring_register, &[1000, 0, 0, 0])
}

/// Flags that no kernel knows.
pub fn kexec_load(_: &Context) -> Answer {
    ask(libc::SYS_kexec_load, &[0, 0, 0, 0xffff])
}

/// A bad descriptor and bad flags.
pub fn kexec_file_load(_: &Context) -> Answer {
    ask(libc::SYS_kexec_file_load, &[BAD, BAD, 0, 0, 0xffff])
}

/// An empty image.
pub fn init_module(_: &Context) -> Answer {
    ask(libc::SYS_init_module, &[0, 0, text(c"")])
}

/// A bad descriptor.
pub fn finit_module(_: &Context) -> Answer {
    ask(libc::SYS_finit_module, &[BAD, text(c""), 0])
}

/// A module that does not exist.
pub fn delete_module(_: &Context) -> Answer {
    ask(libc::SYS_delete_module, &[text(c"nexus_no_such_module"), libc::O_NONBLOCK as usize])
}

/// Attaches to a process of the host and lets go of it at once.
pub fn ptrace_host(context: &Context) -> Answer {
    let pid = context.host_pid as usize;
    let answer = ask(libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, pid, 0, 0]);
    if answer.answer == "ok" {
        // A seized process runs on, and the kernel detaches it when its tracer ends.
        return answer.with("seized the host's process");
    }
    answer
}

/// Asks to be traced by the parent.
pub fn ptrace_me(_: &Context) -> Answer {
    ask(libc::SYS_ptrace, &[libc::PTRACE_TRACEME as usize])
}

/// Reads the caller's own memory.
pub fn process_vm_readv(_: &Context) -> Answer {
    transfer(libc::SYS_process_vm_readv)
}

/// Writes the caller's own memory.
pub fn process_vm_writev(_: &Context) -> Answer {
    transfer(libc::SYS_process_vm_writev)
}

fn transfer(number: i64) -> Answer {
    let mut from = [7_u8; 8];
    let mut to = [0_u8; 8];
    let local = [address_mut(&mut to), to.len()];
    let remote = [address_mut(&mut from), from.len()];
    ask(number, &[std::process::id() as usize, address(&local), 1, address(&remote), 1, 0])
}

/// Fetches a descriptor of the caller itself.
pub fn pidfd_getfd(_: &Context) -> Answer {
    match call(libc::SYS_pidfd_open, &[std::process::id() as usize, 0]) {
        Ok(pidfd) => ask(libc::SYS_pidfd_getfd, &[pidfd as usize, 1, 0]),
        // Without pidfd_open a number that is not open still tells a filter (EPERM) from the kernel (EBADF).
        Err(_) => ask(libc::SYS_pidfd_getfd, &[1000, 1, 0]),
    }
}

/// Compares a descriptor of the caller with itself.
pub fn kcmp(_: &Context) -> Answer {
    let own = std::process::id() as usize;
    ask(libc::SYS_kcmp, &[own, own, 0, 1, 1])
}

/// A handle of no known type: ESTALE for who may open by handle (the "shocker" escape of early Docker).
pub fn open_by_handle_at(_: &Context) -> Answer {
    let handle = [8_u32, 0xff, 0, 0];
    match crate::sys::open("/", libc::O_RDONLY | libc::O_DIRECTORY, 0) {
        Ok(root) => {
            use std::os::fd::AsRawFd;
            ask(libc::SYS_open_by_handle_at, &[root.as_raw_fd() as usize, address(&handle), 0])
        }
        Err(_) => Answer::of("no-root"),
    }
}

/// The size of the kernel's log buffer.
pub fn syslog(_: &Context) -> Answer {
    ask(libc::SYS_syslog, &[10, 0, 0])
}

/// A file that does not exist.
pub fn swapon(_: &Context) -> Answer {
    ask(libc::SYS_swapon, &[text(NOWHERE), 0])
}

/// A file that does not exist.
pub fn swapoff(_: &Context) -> Answer {
    ask(libc::SYS_swapoff, &[text(NOWHERE)])
}

/// Wrong magic numbers: EINVAL for who may reboot, and nothing happens.
pub fn reboot(_: &Context) -> Answer {
    ask(libc::SYS_reboot, &[0, 0, 0, 0])
}

/// A file that does not exist; accounting stays as it is.
pub fn acct(_: &Context) -> Answer {
    ask(libc::SYS_acct, &[text(NOWHERE)])
}

/// A negative length: EINVAL for who may set the name.
pub fn sethostname(_: &Context) -> Answer {
    ask(libc::SYS_sethostname, &[text(c""), BAD])
}

/// A notification group of no use to anybody.
pub fn fanotify_init(_: &Context) -> Answer {
    ask(libc::SYS_fanotify_init, &[0, 0])
}

/// Twin: an anonymous file.
pub fn memfd_create(_: &Context) -> Answer {
    ask(libc::SYS_memfd_create, &[text(c"nexus"), 1])
}

/// Twin: what every runtime with an event loop makes.
pub fn epoll_create(_: &Context) -> Answer {
    ask(libc::SYS_epoll_create1, &[0])
}

/// Twin: the name of this thread.
pub fn own_name(_: &Context) -> Answer {
    let mut name = [0_u8; 16];
    ask(libc::SYS_prctl, &[libc::PR_GET_NAME as usize, address_mut(&mut name)])
}

/// Remounts the read-only directory writable (BoxLite CVE-2026-46695).
pub fn remount_writable(context: &Context) -> Answer {
    let directory = c_path(&context.read_only);
    let flags = (libc::MS_REMOUNT | libc::MS_BIND) as usize;
    // SAFETY: live strings; a failure is the expected result.
    let result = unsafe {
        libc::mount(std::ptr::null(), directory.as_ptr(), std::ptr::null(), flags as libc::c_ulong, std::ptr::null())
    };
    if result == 0 { Answer::of("ok") } else { Answer::of(crate::answer::errno_name(errno())) }
}
