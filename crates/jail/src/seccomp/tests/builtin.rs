//! The default profile, call by call, in harmless and malicious pairs.

use std::collections::BTreeSet;

use super::interpret::{SeccompData, run};
use super::{Action, Permissions, Program, answer, default_profile};
use crate::seccomp::table;

const EPERM: Action = Action::Errno(1);
const EINVAL: Action = Action::Errno(22);
const ENOSYS: Action = Action::Errno(38);
const EAFNOSUPPORT: Action = Action::Errno(97);
/// Something in the upper half of a register, which the kernel does not read.
const DIRT: u64 = 0xdead_beef << 32;

/// Holds each call of a pair to its answer, also with dirt in the upper half
/// of each register.
#[track_caller]
fn pair(call: &str, harmless: &[&[u64]], malicious: &[&[u64]], refusal: Action) {
    let program = Program::builtin(Permissions::default());
    for (calls, wanted) in [(harmless, Action::Allow), (malicious, refusal)] {
        for arguments in calls {
            assert_eq!(answer(&program, call, arguments), wanted, "{call} {arguments:#x?}");
            let dirty: Vec<u64> = arguments.iter().map(|argument| argument | DIRT).collect();
            assert_eq!(answer(&program, call, &dirty), wanted, "{call} {dirty:#x?}");
        }
    }
}

#[track_caller]
fn each(calls: &str, wanted: Action) {
    let program = Program::builtin(Permissions::default());
    for call in calls.split_whitespace() {
        for arguments in [[0; 6], [u64::MAX; 6]] {
            assert_eq!(answer(&program, call, &arguments), wanted, "{call}");
        }
    }
}

#[test]
fn every_call_of_the_kernel_is_named_in_the_profile() {
    // A developer who adds a call to the table has to say what becomes of it.
    let profile = default_profile();
    let named: BTreeSet<&str> = profile.rules().iter().flat_map(|r| &r.names).map(String::as_str).collect();
    let known: BTreeSet<&str> = table::all().map(|call| call.0).collect();
    assert_eq!(named, known);
}

#[test]
fn every_rule_says_why_it_is_there() {
    for rule in default_profile().rules() {
        let comment = rule.comment.as_deref().unwrap_or_default();
        assert!(!comment.is_empty(), "{:?}", rule.names);
    }
}

#[test]
fn rules_with_different_answers_never_overlap() {
    // libseccomp and this crate resolve overlaps differently; see profile.rs.
    use crate::seccomp::{Rule, Test};
    let disjoint = |a: &Rule, b: &Rule| {
        a.conditions.iter().any(|x| {
            b.conditions.iter().any(|y| match (x.test, y.test) {
                (Test::MaskedEq { mask: m, value: v }, Test::MaskedEq { mask: n, value: w }) => {
                    x.argument == y.argument && (v ^ w) & m & n != 0
                }
                (Test::Eq(v), Test::Ne(w)) | (Test::Ne(v), Test::Eq(w)) => x.argument == y.argument && v == w,
                _ => false,
            })
        })
    };
    let profile = default_profile();
    for (index, a) in profile.rules().iter().enumerate() {
        for b in &profile.rules()[index + 1..] {
            let shared = a.names.iter().any(|name| b.names.contains(name));
            assert!(!shared || a.action == b.action || disjoint(a, b), "{a:?} {b:?}");
        }
    }
}

#[test]
fn foreign_architectures_and_x32_are_killed() {
    let program = Program::builtin(Permissions::default());
    let getpid = SeccompData::native(39, &[]);
    assert_eq!(run(&program, &getpid).action, Action::Allow);
    // int 0x80 and 32-bit code come as AUDIT_ARCH_I386; getpid is 20 there.
    for architecture in [0x4000_0003, 0xc000_00b7, 0] {
        assert_eq!(run(&program, &SeccompData { architecture, ..getpid }).action, Action::KillProcess);
    }
    for number in [0x4000_0000, 0x4000_0000 + 39, 0x4000_0000 + 520, u32::MAX] {
        assert_eq!(run(&program, &SeccompData::native(number, &[])).action, Action::KillProcess);
    }
}

#[test]
fn numbers_without_a_call_are_not_there() {
    let program = Program::builtin(Permissions::default());
    // 512 to 547 are the x32 calls; kernels before 5.4 ran them without the bit.
    for number in (337..424).chain(472..600).chain([1000, 0x3fff_ffff]) {
        assert_eq!(run(&program, &SeccompData::native(number, &[])).action, ENOSYS, "{number}");
    }
}

#[test]
fn calls_that_hide_their_flags_behind_pointers_are_not_there() {
    each("vmsplice remap_file_pages", ENOSYS);
    each("clone3 openat2 fchmodat2 statmount listmount listns file_setattr", ENOSYS);
}

#[test]
fn calls_that_reach_out_of_the_sandbox_are_refused() {
    each("io_uring_setup io_uring_enter io_uring_register add_key keyctl request_key", EPERM);
    each("bpf perf_event_open userfaultfd process_vm_readv process_vm_writev process_madvise", EPERM);
    each("kcmp pidfd_getfd open_by_handle_at fanotify_init setns chroot", EPERM);
    each("mount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr", EPERM);
    each("mount_setattr kexec_load kexec_file_load init_module finit_module delete_module reboot", EPERM);
    each("swapon swapoff acct syslog quotactl quotactl_fd settimeofday clock_settime sethostname", EPERM);
    each("setdomainname iopl ioperm vhangup lookup_dcookie nfsservctl uselib sysfs ustat _sysctl", EPERM);
}

#[test]
fn ordinary_work_is_allowed() {
    each("read write lseek close dup2 pipe2 rename unlink link symlink stat fstat access", Action::Allow);
    each("tee splice sync syncfs", Action::Allow);
    each("execve fork vfork wait4 exit_group munmap mprotect futex epoll_wait statx getdents64", Action::Allow);
    each("bind listen accept4 connect seccomp landlock_create_ruleset prctl", Action::Allow);
    each("get_mempolicy set_mempolicy mbind pidfd_open rseq", Action::Allow);
}

#[test]
fn tracing_needs_the_permission_to_debug_and_nothing_else_changes() {
    let plain = Program::builtin(Permissions::default());
    let debug = Program::builtin(Permissions { debug: true, layered: false });
    for (call, number) in table::all() {
        let data = SeccompData::native(number, &[]);
        let (without, with) = (run(&plain, &data).action, run(&debug, &data).action);
        if ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"].contains(&call) {
            assert_eq!((without, with), (EPERM, Action::Allow));
        } else {
            assert_eq!(without, with, "{call}");
        }
    }
}

#[test]
fn modes_with_setuid_or_setgid_are_refused() {
    let bad = [0o4755, 0o2755, 0o6755, 0o4000];
    for mode in bad {
        pair("chmod", &[&[1, 0o755], &[1, 0o1777]], &[&[1, mode]], EPERM);
        pair("fchmod", &[&[1, 0o755]], &[&[1, mode]], EPERM);
        pair("creat", &[&[1, 0o755]], &[&[1, mode]], EPERM);
        pair("mkdir", &[&[1, 0o1777]], &[&[1, mode]], EPERM);
        pair("mkdirat", &[&[1, 1, 0o755]], &[&[1, 1, mode]], EPERM);
        pair("fchmodat", &[&[1, 1, 0o755]], &[&[1, 1, mode]], EPERM);
    }
}

#[test]
fn open_looks_at_the_mode_only_when_a_file_may_be_made() {
    let (creat, tmpfile) = (0o100, 0o20_200_000);
    for mode in [0o4755, 0o2755, 0o6000] {
        pair("open", &[&[1, 2, mode], &[1, creat, 0o755]], &[&[1, creat, mode], &[1, tmpfile, mode]], EPERM);
        // __O_TMPFILE without O_DIRECTORY is refused by the kernel; not left to it.
        pair("open", &[&[1, 0o200_000, mode]], &[&[1, 0o20_000_000, mode]], EPERM);
        pair(
            "openat",
            &[&[9, 1, 2, mode], &[9, 1, creat, 0o644], &[9, 1, tmpfile, 0o600]],
            &[&[9, 1, creat, mode], &[9, 1, creat | 1, mode], &[9, 1, tmpfile | 2, mode]],
            EPERM,
        );
    }
}

#[test]
fn mknod_makes_files_fifos_and_sockets_and_no_devices_or_whiteouts() {
    let (regular, fifo, socket) = (0o100_644, 0o010_644, 0o140_755);
    let (character, block, directory, link) = (0o020_666, 0o060_666, 0o040_755, 0o120_777);
    let whiteout = 0o020_000; // with device 0:0
    pair(
        "mknod",
        &[&[1, regular, 0], &[1, fifo, 0], &[1, socket, 0], &[1, 0o644, 0]],
        &[
            &[1, character, 0x103],
            &[1, block, 0],
            &[1, whiteout, 0],
            &[1, directory],
            &[1, link],
            &[1, 0o104_755],
            &[1, 0o012_755],
            &[1, 0o4755],
        ],
        EPERM,
    );
    pair(
        "mknodat",
        &[&[9, 1, regular, 0], &[9, 1, fifo, 0], &[9, 1, socket, 0], &[9, 1, 0o600, 0]],
        &[&[9, 1, character, 0x103], &[9, 1, block, 0], &[9, 1, whiteout, 0], &[9, 1, 0o142_755]],
        EPERM,
    );
}

#[test]
fn renames_leave_no_whiteout_behind() {
    pair(
        "renameat2",
        &[&[9, 1, 9, 1, 0], &[9, 1, 9, 1, 1], &[9, 1, 9, 1, 2]],
        &[&[9, 1, 9, 1, 4], &[9, 1, 9, 1, 5]],
        EPERM,
    );
}

#[test]
fn ioctl_types_into_no_terminal() {
    // TCGETS, TIOCGWINSZ, TIOCSWINSZ, FIONREAD, FIONBIO, FIOCLEX, TIOCSPTLCK, FICLONE, the neighbours
    let harmless = [
        0x5401,
        0x5413,
        0x5414,
        0x541b,
        0x5421,
        0x5451,
        0x4004_5431,
        0x4004_9409,
        0x5410,
        0x5411,
        0x541d,
        0x541e,
        0x541a,
        0x5418,
    ];
    for command in harmless {
        pair("ioctl", &[&[0, command, 1]], &[&[0, 0x5412, 1], &[0, 0x541c, 1], &[0, 0x5423, 1]], EPERM);
    }
    let program = Program::builtin(Permissions::default());
    for command in 0..0x2_0000_u64 {
        let wanted = if matches!(command, 0x5412 | 0x541c | 0x5423) { EPERM } else { Action::Allow };
        assert_eq!(answer(&program, "ioctl", &[0, command]), wanted, "{command:#x}");
    }
    for bit in 17..32 {
        for refused in [0x5412, 0x541c, 0x5423] {
            assert_eq!(answer(&program, "ioctl", &[0, refused | 1 << bit]), Action::Allow, "bit {bit}");
        }
    }
}

#[test]
fn the_limit_on_core_files_stays() {
    let (core, open_files) = (4, 7);
    // Success for a call that is not made.
    let done = Action::Errno(0);
    pair("setrlimit", &[&[0, 9], &[open_files, 9], &[13, 9]], &[&[core, 9], &[core | 1 << 32, 9]], done);
    pair("prlimit64", &[&[0, open_files, 9, 0], &[0, 15, 9, 9]], &[&[0, core, 9, 9], &[0, core, 1 << 35, 9]], EINVAL);
    let program = Program::builtin(Permissions::default());
    for core in [core, core | DIRT] {
        assert_eq!(answer(&program, "prlimit64", &[0, core, 9, 0]), done, "setting");
        assert_eq!(answer(&program, "prlimit64", &[0, core, 0, 9]), Action::Allow, "asking");
    }
    for limit in (0..16).filter(|limit| *limit != core) {
        assert_eq!(answer(&program, "prlimit64", &[0, limit, 9]), Action::Allow, "{limit}");
        assert_eq!(answer(&program, "setrlimit", &[limit, 9]), Action::Allow, "{limit}");
    }
}

#[test]
fn no_page_comes_from_the_pool_of_huge_pages() {
    let (enomem, private_anonymous, huge) = (Action::Errno(12), 0x22, 0x4_0000);
    let sizes = [huge, huge | 21 << 26, huge | 30 << 26];
    for flags in sizes {
        let malicious: &[&[u64]] = &[&[0, 1 << 21, 3, private_anonymous | flags]];
        // MAP_NORESERVE, MAP_POPULATE and MAP_STACK are the neighbours.
        let harmless: &[&[u64]] =
            &[&[0, 1 << 21, 3, private_anonymous], &[0, 1 << 21, 3, private_anonymous | 0x2_c000]];
        pair("mmap", harmless, malicious, enomem);
        pair("memfd_create", &[&[1, 0], &[1, 0xb]], &[&[1, 4], &[1, 7], &[1, 4 | 21 << 26]], enomem);
        // With all flags the kernel says EINVAL, by which Chromium knows that the call is there.
        pair("memfd_create", &[&[1, 0], &[1, 32]], &[&[1, 36], &[1, 0xffff_ffff], &[1, u64::MAX]], Action::Errno(22));
    }
    pair("shmget", &[&[0, 1 << 21, 0o1600], &[0, 1 << 21, 0o11600]], &[&[0, 1 << 21, 0o5600]], EPERM);
}

#[test]
fn fcntl_takes_no_lease_and_no_delegation() {
    let (lease, delegation) = (1024, 1040);
    let harmless: &[&[u64]] = &[&[0, 3, 0], &[0, 1030, 0], &[0, 1031, 9]];
    pair("fcntl", harmless, &[&[0, lease, 0], &[0, lease | 1 << 32, 1], &[0, delegation, 1]], EPERM);
    let program = Program::builtin(Permissions::default());
    for command in 0..4096 {
        let is_known = matches!(command, 0..=17 | 36..=38 | 1025..=1039);
        let wanted = if is_known { Action::Allow } else { EPERM };
        assert_eq!(answer(&program, "fcntl", &[0, command]), wanted, "{command}");
    }
    for bit in 12..32 {
        for command in [0, 3, 37, 1030] {
            assert_eq!(answer(&program, "fcntl", &[0, command | 1 << bit]), EPERM, "bit {bit}");
        }
    }
}

#[test]
fn sockets_are_unix_tcp_udp_and_routing_netlink() {
    let flags = 0o2_004_000; // SOCK_CLOEXEC | SOCK_NONBLOCK
    pair("socket", &[&[1, 1, 0], &[1, 2 | flags, 0], &[1, 5, 0], &[16, 3 | flags, 0], &[16, 2, 0]], &[], EPERM);
    for domain in [2, 10] {
        pair(
            "socket",
            &[&[domain, 1, 0], &[domain, 1 | flags, 6], &[domain, 2, 0], &[domain, 2 | flags, 17]],
            // Raw in all forms, ICMP raw and ping, packet in disguise, SCTP twice, DCCP, UDP-Lite, L2TP.
            &[
                &[domain, 3, 0],
                &[domain, 3, 6],
                &[domain, 3, 17],
                &[domain, 10, 6],
                &[domain, 10, 17],
                &[domain, 2, 6],
                &[domain, 1, 17],
                &[domain, 3 | flags, 255],
                &[domain, 3, 1],
                &[domain, 2, 1],
                &[domain, 10, 768],
                &[domain, 1, 132],
                &[domain, 5, 132],
                &[domain, 6, 33],
                &[domain, 2, 136],
                &[domain, 2, 115],
            ],
            EPERM,
        );
        pair("socket", &[&[domain, 1, 6]], &[&[domain, 1, 262]], Action::Errno(93));
    }
    for domain in (0..64).filter(|domain| ![1, 2, 10, 16].contains(domain)) {
        pair("socket", &[], &[&[domain, 1, 0], &[domain, 2, 0], &[domain, 3, 0], &[domain, 5, 6]], EAFNOSUPPORT);
    }
    for protocol in 1..32 {
        pair("socket", &[&[16, 3, 0]], &[&[16, 3, protocol]], EAFNOSUPPORT);
    }
    pair("socket", &[], &[&[64, 1, 0], &[1 << 31 | 1, 1, 0], &[1 << 31 | 2, 1, 0], &[1 << 16, 1, 0]], EPERM);
}

#[test]
fn socket_pairs_are_unix() {
    pair("socketpair", &[&[1, 1, 0]], &[&[2, 1, 0], &[30, 1, 0], &[16, 3, 0]], EPERM);
}

#[test]
fn no_new_namespaces() {
    let fork = 0x0120_0011; // what fork of glibc passes
    let thread = 0x003d_0f00;
    for flag in [0x2_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        pair("clone", &[&[fork], &[thread]], &[&[fork | flag], &[thread | flag]], EPERM);
        pair("unshare", &[], &[&[flag], &[flag | 0x200]], EPERM);
    }
    let program = Program::builtin(Permissions::default());
    for flags in [0x200, 0x400, 0x4_0000, 0x600] {
        assert_eq!(answer(&program, "unshare", &[flags]), Action::Allow);
    }
    // CLONE_NEWTIME, UNSHARE_EMPTY_MNTNS (Linux 7.0), and flags above bit 31.
    for flags in [0x80, 0x10_0000, 1 << 37] {
        assert_eq!(answer(&program, "unshare", &[flags]), EPERM);
    }
}

#[test]
fn personalities_that_weaken_memory_layout_are_refused() {
    let asked = u64::from(u32::MAX);
    pair(
        "personality",
        &[&[0], &[8], &[0x2_0000], &[0x2_0008], &[0x4_0000], &[0x4_0008], &[asked]],
        &[&[0x002_0000 | 0x4_0000], &[0x010_0000], &[0x040_0000], &[0x2_0001], &[4]],
        EPERM,
    );
}

#[test]
fn urgent_data_is_refused_whatever_the_socket() {
    let oob = Action::Errno(95);
    for call in ["sendto", "recvfrom", "sendmmsg", "recvmmsg"] {
        pair(call, &[&[0, 1, 2, 0], &[1, 1, 1, 0x4000], &[1, 1, 1, 0x40]], &[&[0, 1, 2, 1], &[0, 1, 2, 0x4041]], oob);
    }
    for call in ["sendmsg", "recvmsg"] {
        pair(call, &[&[0, 1, 0], &[1, 1, 0x4000]], &[&[0, 1, 1], &[0, 0, 0x4041]], oob);
    }
}

#[test]
fn pages_of_the_own_process_alone_are_moved() {
    for call in ["move_pages", "migrate_pages"] {
        pair(call, &[&[0, 1], &[0, 9]], &[&[1, 1], &[u64::MAX >> 32, 0], &[2, 9]], EPERM);
    }
}

#[test]
fn in_a_layer_setgid_is_allowed_and_nothing_else_but_sync_changes() {
    let layered = Permissions { layered: true, debug: false };
    let (plain, program) = (Program::builtin(Permissions::default()), Program::builtin(layered));
    let modes = [("chmod", 1), ("fchmod", 1), ("mkdir", 1), ("fchmodat", 2), ("mkdirat", 2)];
    for (call, at) in modes {
        for (mode, wanted) in [(0o2775, Action::Allow), (0o755, Action::Allow), (0o4755, EPERM), (0o6755, EPERM)] {
            let mut arguments = [0; 4];
            arguments[at] = mode | DIRT;
            assert_eq!(answer(&program, call, &arguments), wanted, "{call} {mode:o}");
        }
    }
    for (call, number) in table::all() {
        for arguments in [[0; 6], [u64::MAX; 6], [4, 2, 2, 2, 2, 2]] {
            let data = SeccompData::native(number, &arguments);
            let (without, with) = (run(&plain, &data).action, run(&program, &data).action);
            match call {
                "sync" => assert_eq!((without, with), (Action::Allow, Action::Errno(0))),
                _ => assert_eq!(without, with, "{call} {arguments:?}"),
            }
        }
    }
}
