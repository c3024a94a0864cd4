//! A18: what tracing reaches in a sandbox that allows it (`--allow-ptrace`), and what it must not.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::sys::{self, address, address_mut, ask, call};

/// PTRACE_O_SUSPEND_SECCOMP (ptrace(2)): the filter of the traced process is passed by.
const SUSPEND_SECCOMP: usize = 1 << 21;

/// The process that must stay out of reach: PID 1 of the sandbox. Where a process of the host can be seen that one takes its
/// place, since not every machine lets its root trace the first process of all.
pub fn init(context: &Context) -> usize {
    let pid = context.host_pid;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let label = context.host_label.as_bytes();
    let seen = !label.is_empty() && line.windows(label.len()).any(|window| window == label);
    if seen { pid as usize } else { 1 }
}

fn ptrace(request: libc::c_uint, pid: usize, addr: usize, data: usize) -> Result<i64, i32> {
    call(libc::SYS_ptrace, &[request as usize, pid, addr, data])
}

/// Attaches to PID 1 without stopping it. Outside of a sandbox the end of this probe lets it go.
pub fn seize_init(context: &Context) -> Answer {
    ptrace(libc::PTRACE_SEIZE, init(context), 0, 0).into()
}

/// Opens the memory of PID 1.
pub fn init_memory(context: &Context) -> Answer {
    sys::open(format!("/proc/{}/mem", init(context)), libc::O_RDONLY, 0).into()
}

/// Reads the memory of PID 1 by the system call; nothing is mapped at the address, which the kernel looks at later.
pub fn read_init(context: &Context) -> Answer {
    let mut to = [0_u8; 8];
    let local = [address_mut(&mut to), to.len()];
    let remote = [0x1000_usize, 8];
    ask(libc::SYS_process_vm_readv, &[init(context), address(&local), 1, address(&remote), 1, 0])
}

/// Compares a descriptor of PID 1 with one of its own.
pub fn compare_with_init(context: &Context) -> Answer {
    ask(libc::SYS_kcmp, &[init(context), std::process::id() as usize, 0, 0, 0])
}

/// A child that stops for its tracer and then asks for its parent's number again and again.
fn traced_child() -> Result<usize, i32> {
    match sys::fork()? {
        0 => {
            if call(libc::SYS_ptrace, &[libc::PTRACE_TRACEME as usize]).is_err() {
                sys::leave(1);
            }
            sys::either_way(sys::kill(std::process::id() as i32, libc::SIGSTOP));
            loop {
                sys::either_way(call(libc::SYS_getppid, &[]));
            }
        }
        pid => match sys::wait(pid, true) {
            Some(status) if libc::WIFSTOPPED(status) => Ok(pid as usize),
            _ => Err(libc::ECHILD),
        },
    }
}

/// Kills and reaps a process.
fn end(pid: usize) {
    sys::either_way(sys::kill(pid as i32, libc::SIGKILL));
    sys::wait(pid as i32, true);
}

/// Stops it at its next system call or at the end of one.
fn next_stop(pid: usize) -> Result<libc::user_regs_struct, i32> {
    ptrace(libc::PTRACE_SYSCALL, pid, 0, 0)?;
    match sys::wait(pid as i32, true) {
        Some(status) if libc::WIFSTOPPED(status) => {}
        _ => return Err(libc::ECHILD),
    }
    // SAFETY: a structure of numbers, of which zero is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, pid, 0, address_mut(&mut registers))?;
    Ok(registers)
}

/// Calls that no sandbox allows. With all bits set in each argument none of them does anything where it is allowed.
const REFUSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_modify_ldt,
];

/// Lets a traced child begin an allowed call and makes another one of it before the kernel runs it, for every refused call.
/// `refused` when each was.
pub fn steered_calls(_: &Context) -> Answer {
    let pid = match traced_child() {
        Ok(pid) => pid,
        Err(number) => return Answer::of(errno_name(number)),
    };
    let reached: Result<Vec<String>, i32> =
        REFUSED.iter().filter_map(|number| steer(pid, *number).transpose()).collect();
    end(pid);
    match reached {
        Ok(reached) if reached.is_empty() => Answer::of("refused"),
        Ok(reached) => Answer::of("reached").with(reached.join(" ")),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// Steers the child into one call. What the kernel answered, unless it was a refusal.
fn steer(pid: usize, number: i64) -> Result<Option<String>, i32> {
    let entry = next_stop(pid)?;
    let all = u64::MAX;
    let other = libc::user_regs_struct {
        orig_rax: number as u64,
        rdi: all,
        rsi: all,
        rdx: all,
        r10: all,
        r8: all,
        r9: all,
        ..entry
    };
    ptrace(libc::PTRACE_SETREGS, pid, 0, address(&other))?;
    let exit = next_stop(pid)?;
    let answered = exit.rax as i64;
    // Back to where it was, for the next round.
    let back = libc::user_regs_struct { rax: entry.orig_rax, orig_rax: all, rip: entry.rip.wrapping_sub(2), ..entry };
    ptrace(libc::PTRACE_SETREGS, pid, 0, address(&back))?;
    let refused = [-i64::from(libc::EPERM), -i64::from(libc::ENOSYS)].contains(&answered);
    Ok((!refused).then(|| format!("{number}:{answered}")))
}

/// Asks the kernel to pass the filter of a traced child by.
pub fn suspend_filter(_: &Context) -> Answer {
    let pid = match traced_child() {
        Ok(pid) => pid,
        Err(number) => return Answer::of(errno_name(number)),
    };
    let answer = ptrace(libc::PTRACE_SETOPTIONS, pid, 0, SUSPEND_SECCOMP).into();
    end(pid);
    answer
}

/// Twin: stops a child at a call and at its end, and finds the number of this process as its answer.
pub fn trace_child(_: &Context) -> Answer {
    let pid = match traced_child() {
        Ok(pid) => pid,
        Err(number) => return Answer::of(errno_name(number)),
    };
    let seen = next_stop(pid).and_then(|_| next_stop(pid)).map(|registers| registers.rax);
    end(pid);
    match seen {
        Ok(parent) => Answer::choose(parent == u64::from(std::process::id()), "ok", "wrong").with(parent.to_string()),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// Twin: reads the memory of a child.
pub fn read_child(_: &Context) -> Answer {
    let (word, mut to) = ([7_u8; 8], [0_u8; 8]);
    let pid = match traced_child() {
        Ok(pid) => pid,
        Err(number) => return Answer::of(errno_name(number)),
    };
    let local = [address_mut(&mut to), to.len()];
    let remote = [address(&word), word.len()];
    let answer: Answer = ask(libc::SYS_process_vm_readv, &[pid, address(&local), 1, address(&remote), 1, 0]);
    end(pid);
    if answer.answer == "ok" && to != word { Answer::of("wrong") } else { answer }
}
