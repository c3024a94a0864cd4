//! The system calls of Linux on x86_64: names and numbers.
//!
//! The table is complete up to Linux 7.0 (numbers 0 to 336 and 424 to 471). It
//! must be: a profile that names a call is refused when the name is not here,
//! and a number that is not here is answered with ENOSYS (`plan.rs`), so a
//! forgotten line would break programs and never open a hole.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "the seccomp filter knows the system calls of x86_64 Linux alone; another \
     architecture needs its own table of numbers here, its own AUDIT_ARCH value \
     in compile.rs, and a review of every argument rule in profiles/*.json \
     (clone, for one, has its flags elsewhere on s390)"
);

/// One system call: its name and its number.
type Call = (&'static str, u32);

/// Turns `SYS_read` into `("read", 0)`.
const fn named(constant: &'static str, number: libc::c_long) -> Call {
    (constant.split_at("SYS_".len()).1, number as u32)
}

macro_rules! from_libc {
    ($($constant:ident)*) => {
        &[$(named(stringify!($constant), libc::$constant)),*]
    };
}

macro_rules! by_number {
    ($($name:ident = $number:literal,)*) => { &[$((stringify!($name), $number)),*] };
}

/// The calls whose numbers libc holds, sorted by name for the binary search.
const FROM_LIBC: &[Call] = from_libc! {
    SYS__sysctl SYS_accept SYS_accept4 SYS_access SYS_acct SYS_add_key SYS_adjtimex
    SYS_afs_syscall SYS_alarm SYS_arch_prctl SYS_bind SYS_bpf SYS_brk SYS_capget SYS_capset
    SYS_chdir SYS_chmod SYS_chown SYS_chroot SYS_clock_adjtime SYS_clock_getres SYS_clock_gettime
    SYS_clock_nanosleep SYS_clock_settime SYS_clone SYS_clone3 SYS_close SYS_close_range
    SYS_connect SYS_copy_file_range SYS_creat SYS_delete_module SYS_dup SYS_dup2 SYS_dup3
    SYS_epoll_create SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_ctl_old SYS_epoll_pwait
    SYS_epoll_pwait2 SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_eventfd2 SYS_execve
    SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate
    SYS_fanotify_init SYS_fanotify_mark SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchmodat2
    SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_finit_module SYS_flistxattr
    SYS_flock SYS_fork SYS_fremovexattr SYS_fsconfig SYS_fsetxattr SYS_fsmount SYS_fsopen
    SYS_fspick SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv
    SYS_futimesat SYS_get_mempolicy SYS_get_robust_list SYS_get_thread_area SYS_getcpu SYS_getcwd
    SYS_getdents SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpgrp SYS_getpid SYS_getpmsg SYS_getppid SYS_getpriority
    SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid
    SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr
    SYS_init_module SYS_inotify_add_watch SYS_inotify_init SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_io_cancel SYS_io_destroy SYS_io_getevents SYS_io_setup SYS_io_submit SYS_io_uring_enter
    SYS_io_uring_register SYS_io_uring_setup SYS_ioctl SYS_ioperm SYS_iopl SYS_ioprio_get
    SYS_ioprio_set SYS_kcmp SYS_kexec_file_load SYS_kexec_load SYS_keyctl SYS_kill
    SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lchown
    SYS_lgetxattr SYS_link SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lookup_dcookie
    SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_lstat SYS_madvise SYS_mbind SYS_membarrier
    SYS_memfd_create SYS_memfd_secret SYS_migrate_pages SYS_mincore SYS_mkdir SYS_mkdirat
    SYS_mknod SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_modify_ldt SYS_mount
    SYS_mount_setattr SYS_move_mount SYS_move_pages SYS_mprotect SYS_mq_getsetattr SYS_mq_notify
    SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_mseal SYS_msgctl
    SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap
    SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_nfsservctl SYS_open
    SYS_open_by_handle_at SYS_open_tree SYS_openat SYS_openat2 SYS_pause SYS_perf_event_open
    SYS_personality SYS_pidfd_getfd SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe SYS_pipe2
    SYS_pivot_root SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_poll SYS_ppoll SYS_prctl
    SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_madvise SYS_process_mrelease
    SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6 SYS_ptrace SYS_putpmsg SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_quotactl SYS_quotactl_fd SYS_read SYS_readahead SYS_readlink
    SYS_readlinkat SYS_readv SYS_reboot SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages
    SYS_removexattr SYS_rename SYS_renameat SYS_renameat2 SYS_request_key SYS_restart_syscall
    SYS_rmdir SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity
    SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp
    SYS_security SYS_select SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile
    SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_mempolicy SYS_set_mempolicy_home_node
    SYS_set_robust_list SYS_set_thread_area SYS_set_tid_address SYS_setdomainname SYS_setfsgid
    SYS_setfsuid SYS_setgid SYS_setgroups SYS_sethostname SYS_setitimer SYS_setns SYS_setpgid
    SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid
    SYS_setsockopt SYS_settimeofday SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt
    SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd SYS_signalfd4 SYS_socket SYS_socketpair
    SYS_splice SYS_stat SYS_statfs SYS_statx SYS_swapoff SYS_swapon SYS_symlink SYS_symlinkat
    SYS_sync SYS_sync_file_range SYS_syncfs SYS_sysfs SYS_sysinfo SYS_syslog SYS_tee SYS_tgkill
    SYS_time SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime
    SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times
    SYS_tkill SYS_truncate SYS_tuxcall SYS_umask SYS_umount2 SYS_uname SYS_unlink SYS_unlinkat
    SYS_unshare SYS_uselib SYS_userfaultfd SYS_ustat SYS_utime SYS_utimensat SYS_utimes SYS_vfork
    SYS_vhangup SYS_vmsplice SYS_vserver SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// The calls that libc has no constant for, from the kernel's syscall_64.tbl.
const NOT_IN_LIBC: &[Call] = by_number! {
    create_module = 174,
    get_kernel_syms = 177,
    query_module = 178,
    io_pgetevents = 333,
    uretprobe = 335,
    uprobe = 336,
    cachestat = 451,
    map_shadow_stack = 453,
    futex_wake = 454,
    futex_wait = 455,
    futex_requeue = 456,
    statmount = 457,
    listmount = 458,
    lsm_get_self_attr = 459,
    lsm_set_self_attr = 460,
    lsm_list_modules = 461,
    setxattrat = 463,
    getxattrat = 464,
    listxattrat = 465,
    removexattrat = 466,
    open_tree_attr = 467,
    file_getattr = 468,
    file_setattr = 469,
    listns = 470,
    rseq_slice_yield = 471,
};

/// Names that OCI files carry for the sake of other architectures (most are
/// the second halves of 32-bit calls). They mean nothing on x86_64, so they
/// are accepted and compiled to nothing. Any other unknown name is an error: a
/// misspelt refusal must not vanish.
const ELSEWHERE: &[&str] = &[
    "_llseek", "_newselect", "arm_fadvise64_64", "arm_sync_file_range", "breakpoint",
    "cacheflush", "chown32", "clock_adjtime64", "clock_getres_time64", "clock_gettime64",
    "clock_nanosleep_time64", "clock_settime64", "fadvise64_64", "fchown32", "fcntl64",
    "fstat64", "fstatat64", "fstatfs64", "ftruncate64", "futex_time64", "getegid32",
    "geteuid32", "getgid32", "getgroups32", "getresgid32", "getresuid32", "getuid32",
    "io_pgetevents_time64", "ipc", "lchown32", "lstat64", "mmap2",
    "mq_timedreceive_time64", "mq_timedsend_time64", "ppoll_time64", "pselect6_time64",
    "recv", "recvmmsg_time64", "riscv_flush_icache", "riscv_hwprobe",
    "rt_sigtimedwait_time64", "s390_pci_mmio_read", "s390_pci_mmio_write",
    "s390_runtime_instr", "sched_rr_get_interval_time64", "semtimedop_time64", "send",
    "sendfile64", "set_tls", "setfsgid32", "setfsuid32", "setgid32", "setgroups32",
    "setregid32", "setresgid32", "setresuid32", "setreuid32", "setuid32", "sigprocmask",
    "sigreturn", "socketcall", "stat64", "statfs64", "stime", "swapcontext",
    "sync_file_range2", "timer_gettime64", "timer_settime64", "timerfd_gettime64",
    "timerfd_settime64", "truncate64", "ugetrlimit", "umount", "utimensat_time64",
    "waitpid",
];

/// The number of a system call, or `None` when x86_64 has no call of this name.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    match FROM_LIBC.binary_search_by_key(&name, |call| call.0) {
        Ok(found) => Some(FROM_LIBC[found].1),
        Err(_) => NOT_IN_LIBC.iter().find(|call| call.0 == name).map(|call| call.1),
    }
}

/// The name of a system call, or `None` when the table does not know the number.
#[must_use]
pub fn name(number: u32) -> Option<&'static str> {
    all().find(|call| call.1 == number).map(|call| call.0)
}

/// Returns whether a name is known to belong to other architectures only.
#[must_use]
pub fn is_elsewhere(name: &str) -> bool {
    ELSEWHERE.binary_search(&name).is_ok()
}

/// Every system call of the table, in no particular order.
pub fn all() -> impl Iterator<Item = (&'static str, u32)> {
    FROM_LIBC.iter().chain(NOT_IN_LIBC).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lists_are_sorted_for_the_binary_search() {
        assert!(FROM_LIBC.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ELSEWHERE.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_number_of_the_kernel_table_has_exactly_one_name() {
        let numbers: BTreeSet<u32> = all().map(|call| call.1).collect();
        let wanted: BTreeSet<u32> = (0..=336).chain(424..=471).collect();
        assert_eq!(numbers, wanted);
        assert_eq!(all().count(), wanted.len());
    }

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        for (call, nr) in all() {
            assert_eq!(number(call), Some(nr), "{call}");
            assert_eq!(name(nr), Some(call), "{nr}");
            assert!(!is_elsewhere(call), "{call}");
        }
        assert_eq!(number("openat2"), Some(437));
        assert_eq!(number("no_such_call"), None);
        assert_eq!(name(400), None);
        assert!(is_elsewhere("socketcall"));
    }
}
