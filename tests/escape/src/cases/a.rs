//! Rows of section A: processes, kernel surface, seccomp.

use super::case::{Case, How, Kind, Stage, bad, good, row};
use crate::answer::Answer;
use crate::context::Context;
use crate::probes::{a_ipc, a_kernel, a_process, a_syscalls as s, a_tracing as t, confinement as w};
use crate::sys::{ask, socket};

/// Answers of a default-deny filter: EPERM for calls that exist, ENOSYS for those that should look absent.
const DENIED: &[&str] = &["EPERM", "ENOSYS"];
const NO_FAMILY: &[&str] = &["EPERM", "EAFNOSUPPORT", "EACCES"];
const NO_NAMESPACE: &[&str] = &["EPERM"];
const NO_CLONE3: &[&str] = &["ENOSYS"];
const NO_GATE: &[&str] = &["ENOSYS", "killed:SIGSYS"];
const HIDDEN: &[&str] = &["ENOENT", "EACCES"];
const UNREADABLE: &[&str] = &["EACCES", "EPERM"];
const ABSENT: &[&str] = &["absent", "ENOENT", "EACCES"];

fn unshare(flags: i32) -> crate::answer::Answer {
    ask(libc::SYS_unshare, &[flags as usize])
}

/// Processes, namespaces, descriptors, sockets.
pub const CASES: &[Case] = &[
    bad("A01", "no_new_privs", |_| a_process::status_value("NoNewPrivs"), &["1"]),
    bad("A01", "seccomp_mode", |_| a_process::status_value("Seccomp"), &["2"]),
    bad("A01", "capabilities", a_process::capabilities, &["none"]),
    bad("A01", "become_root", a_process::become_root, &["EPERM", "EINVAL"]),
    bad("A01", "securebits", w::securebits, &["locked"]),
    bad("A01", "init_capabilities", w::init_capabilities, &["none"]),
    good("A01", "stay_myself", a_process::stay_myself),
    bad("A02", "mnt", |c| a_process::namespace(c, "mnt"), &["differs"]),
    bad("A02", "pid", |c| a_process::namespace(c, "pid"), &["differs"]),
    bad("A02", "net", |c| a_process::namespace(c, "net"), &["differs"]),
    bad("A02", "ipc", |c| a_process::namespace(c, "ipc"), &["differs"]),
    bad("A02", "uts", |c| a_process::namespace(c, "uts"), &["differs"]),
    bad("A02", "user", |c| a_process::namespace(c, "user"), &["differs"]),
    bad("A02", "cgroup", |c| a_process::namespace(c, "cgroup"), &["differs"]),
    bad("A02", "no_route", w::route, &["ENETUNREACH"]),
    Case { expect: &["same"], ..good("A02", "own_is_stable", a_process::namespace_is_stable) },
    bad("A03", "host_arguments", a_process::host_arguments, &["absent"]),
    bad("A03", "signal_host", a_process::signal_host, &["ESRCH"]),
    bad("A03", "init_memory", |c| w::open_of_init(c, "mem"), UNREADABLE),
    bad("A03", "init_environment", |c| w::open_of_init(c, "environ"), UNREADABLE),
    bad("A03", "init_maps", |c| w::open_of_init(c, "maps"), UNREADABLE),
    bad("A03", "init_descriptors", w::descriptors_of_init, UNREADABLE),
    bad("A03", "secret_in_memory", w::secret_in_memory, &["absent"]),
    Case { expect: &["seen"], ..good("A03", "own_arguments", a_process::own_arguments) },
    good("A03", "signal_child", a_process::signal_child),
    bad("A04", "uid_map", a_process::uid_map, &["not-root"]),
    bad("A04", "groups", w::groups, &["none"]),
    bad("A04", "gid_map", a_process::gid_map, &["not-root"]),
    bad(
        "A04",
        "core_pattern",
        |_| crate::probes::b_view::open_for_writing("/proc/sys/kernel/core_pattern"),
        &["EACCES", "EROFS", "ENOENT"],
    ),
    good("A04", "read_sysctl", |_| crate::probes::b_view::read("/proc/sys/vm/overcommit_memory")),
    bad("A05", "netlink_audit", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT), NO_FAMILY),
    bad("A05", "netlink_uevent", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT), NO_FAMILY),
    bad("A05", "netlink_netfilter", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER), NO_FAMILY),
    bad("A05", "netlink_generic", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC), NO_FAMILY),
    bad("A05", "netlink_sock_diag", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG), NO_FAMILY),
    bad("A05", "netlink_high_bits", a_kernel::netlink_high_bits, NO_FAMILY),
    bad("A05", "vsock", |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0), NO_FAMILY),
    bad("A05", "packet", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0), NO_FAMILY),
    bad("A05", "packet_high_bits", a_kernel::packet_high_bits, NO_FAMILY),
    bad("A05", "af_alg", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0), NO_FAMILY),
    bad("A05", "xdp", |_| socket(libc::AF_XDP, libc::SOCK_RAW, 0), NO_FAMILY),
    bad("A05", "kcm", |_| socket(41, libc::SOCK_DGRAM, 0), NO_FAMILY),
    bad("A05", "raw_icmp", |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP), NO_FAMILY),
    bad("A05", "raw_icmp6", |_| socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6), NO_FAMILY),
    good("A05", "inet", |_| socket(libc::AF_INET, libc::SOCK_STREAM, 0)),
    good("A05", "inet_datagram", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, 0)),
    good("A05", "inet6", |_| socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)),
    good("A05", "unix", |_| socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)),
    good("A05", "socketpair", a_kernel::socketpair),
    good("A05", "netlink_route", |_| {
        socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    }),
    bad("A06", "unshare_user", |_| unshare(libc::CLONE_NEWUSER), NO_NAMESPACE),
    bad("A06", "unshare_mount", |_| unshare(libc::CLONE_NEWNS), NO_NAMESPACE),
    bad("A06", "unshare_pid", |_| unshare(libc::CLONE_NEWPID), NO_NAMESPACE),
    bad("A06", "unshare_net", |_| unshare(libc::CLONE_NEWNET), NO_NAMESPACE),
    bad("A06", "unshare_ipc", |_| unshare(libc::CLONE_NEWIPC), NO_NAMESPACE),
    bad("A06", "unshare_uts", |_| unshare(libc::CLONE_NEWUTS), NO_NAMESPACE),
    bad("A06", "unshare_cgroup", |_| unshare(libc::CLONE_NEWCGROUP), NO_NAMESPACE),
    bad("A06", "unshare_time", |_| unshare(0x80), NO_NAMESPACE),
    bad("A06", "unshare_user_and_mount", |_| unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS), NO_NAMESPACE),
    bad("A06", "clone_user", |_| a_kernel::clone_with(libc::CLONE_NEWUSER), NO_NAMESPACE),
    bad("A06", "clone_mount", |_| a_kernel::clone_with(libc::CLONE_NEWNS), NO_NAMESPACE),
    bad("A06", "clone_user_and_net", |_| a_kernel::clone_with(libc::CLONE_NEWUSER | libc::CLONE_NEWNET), NO_NAMESPACE),
    bad("A06", "clone3_user", |_| a_kernel::clone3_with(libc::CLONE_NEWUSER), NO_CLONE3),
    bad("A06", "clone3_plain", |_| a_kernel::clone3_with(0), NO_CLONE3),
    bad("A06", "setns", a_kernel::setns_own, NO_NAMESPACE),
    good("A06", "unshare_fs", |_| unshare(libc::CLONE_FS)),
    good("A06", "clone_plain", |_| a_kernel::clone_with(0)),
    good("A06", "fork", a_kernel::fork),
    good("A06", "thread", a_kernel::thread),
    bad("A09", "int80", a_kernel::int80, NO_GATE),
    bad("A09", "int80_unshare", a_kernel::int80_unshare, NO_GATE),
    bad("A09", "x32", a_kernel::x32, NO_GATE),
    good("A09", "native", a_kernel::getpid),
    bad("A12", "connect", a_ipc::abstract_connect, &["ECONNREFUSED", "EPERM"]),
    bad("A12", "listed", a_ipc::abstract_listed, ABSENT),
    good("A12", "own", a_ipc::abstract_own),
    bad("A13", "tmp", |c| a_ipc::path_connect(c, "tmp"), HIDDEN),
    bad("A13", "run", |c| a_ipc::path_connect(c, "run"), HIDDEN),
    bad("A13", "side", |c| a_ipc::path_connect(c, "side"), HIDDEN),
    bad("A13", "agent_variable", |_| a_ipc::variable("SSH_AUTH_SOCK"), &["unset"]),
    bad("A13", "secret_variable", |_| a_ipc::variable("NEXUS_ESCAPE_SECRET"), &["unset"]),
    bad("A13", "callers_environment", a_process::callers_environment, &["absent"]),
    bad("A13", "tmp_above_root", |c| w::connect_above_root(c, "tmp"), HIDDEN),
    bad("A13", "run_above_root", |c| w::connect_above_root(c, "run"), HIDDEN),
    bad("A13", "side_above_root", |c| w::connect_above_root(c, "side"), HIDDEN),
    good("A13", "own", a_ipc::path_own),
    bad("A15", "descriptors", a_process::descriptors, &["none"]),
    bad("A15", "through_descriptor", a_process::through_descriptor, &["none"]),
    bad("A15", "through_others_descriptors", a_process::through_others_descriptors, &["none"]),
    bad("A15", "open_directories", w::open_directories, &["none"]),
    good("A15", "standard_descriptors", a_process::standard_descriptors),
    bad("A16", "shm", a_ipc::shm_by_key, &["ENOENT", "EPERM", "ENOSYS"]),
    bad("A16", "shm_by_id", a_ipc::shm_by_id, &["EINVAL", "EPERM", "ENOSYS"]),
    bad("A16", "msg", a_ipc::msg_by_key, &["ENOENT", "EPERM", "ENOSYS"]),
    bad("A16", "sem", a_ipc::sem_by_key, &["ENOENT", "EPERM", "ENOSYS"]),
    bad("A16", "mqueue", a_ipc::mqueue, &["ENOENT", "EPERM", "ENOSYS"]),
    good("A16", "own_shm", a_ipc::shm_own),
    bad("A17", "limit", a_process::core_limits, &["1"]),
    bad("A17", "raise", a_process::raise_core_limit, &["stays"]),
    bad("A17", "lower", a_process::lower_core_limit, &["stays"]),
    good("A17", "lower_another", a_process::lower_limit),
];

/// System calls that no workload needs.
pub const SYSCALLS: &[Case] = &[
    bad("A07", "mount", s::mount, DENIED),
    bad("A07", "umount2", s::umount, DENIED),
    bad("A07", "pivot_root", s::pivot_root, DENIED),
    bad("A07", "chroot", s::chroot, DENIED),
    bad("A07", "fsopen", s::fsopen, DENIED),
    bad("A07", "fsconfig", s::fsconfig, DENIED),
    bad("A07", "fsmount", s::fsmount, DENIED),
    bad("A07", "fspick", s::fspick, DENIED),
    bad("A07", "move_mount", s::move_mount, DENIED),
    bad("A07", "open_tree", s::open_tree, DENIED),
    bad("A07", "open_tree_clone", s::open_tree_clone, DENIED),
    bad("A07", "mount_setattr", s::mount_setattr, DENIED),
    good("A07", "statfs", s::statfs),
    bad("A08", "bpf", s::bpf, DENIED),
    bad("A08", "perf_event_open", s::perf_event_open, DENIED),
    bad("A08", "userfaultfd", s::userfaultfd, DENIED),
    bad("A08", "userfaultfd_user", s::userfaultfd_user, DENIED),
    bad("A08", "keyctl", s::keyctl, DENIED),
    bad("A08", "callers_key", w::callers_key, &["EPERM", "ENOSYS", "ENOKEY"]),
    bad("A08", "add_key", s::add_key, DENIED),
    bad("A08", "request_key", s::request_key, DENIED),
    bad("A08", "io_uring_setup", s::io_uring_setup, DENIED),
    bad("A08", "io_uring_enter", s::io_uring_enter, DENIED),
    bad("A08", "io_uring_register", s::io_uring_register, DENIED),
    bad("A08", "kexec_load", s::kexec_load, DENIED),
    bad("A08", "kexec_file_load", s::kexec_file_load, DENIED),
    bad("A08", "init_module", s::init_module, DENIED),
    bad("A08", "finit_module", s::finit_module, DENIED),
    bad("A08", "delete_module", s::delete_module, DENIED),
    bad("A08", "ptrace_host", s::ptrace_host, &["EPERM", "ENOSYS", "ESRCH"]),
    bad("A08", "ptrace_me", s::ptrace_me, DENIED),
    bad("A08", "process_vm_readv", s::process_vm_readv, DENIED),
    bad("A08", "process_vm_writev", s::process_vm_writev, DENIED),
    bad("A08", "pidfd_getfd", s::pidfd_getfd, DENIED),
    bad("A08", "kcmp", s::kcmp, DENIED),
    bad("A08", "open_by_handle_at", s::open_by_handle_at, DENIED),
    bad("A08", "syslog", s::syslog, DENIED),
    bad("A08", "swapon", s::swapon, DENIED),
    bad("A08", "swapoff", s::swapoff, DENIED),
    bad("A08", "reboot", s::reboot, DENIED),
    bad("A08", "acct", s::acct, DENIED),
    bad("A08", "sethostname", s::sethostname, DENIED),
    bad("A08", "fanotify_init", s::fanotify_init, DENIED),
    good("A08", "memfd_create", s::memfd_create),
    good("A08", "epoll_create", s::epoll_create),
    good("A08", "own_name", s::own_name),
];

const fn steered(name: &'static str, probe: fn(&Context) -> Answer, expect: &'static [&'static str]) -> Case {
    row("A18", name, Kind::Malicious, How::Probe(Stage::Tracing, probe), expect)
}

const fn traced(name: &'static str, probe: fn(&Context) -> Answer) -> Case {
    row("A18", name, Kind::Harmless, How::Probe(Stage::Tracing, probe), &["ok"])
}

/// Tracing in a sandbox that allows it.
pub const TRACING: &[Case] = &[
    steered("seize_init", t::seize_init, &["EPERM"]),
    steered("init_memory", t::init_memory, &["EACCES", "EPERM"]),
    steered("read_init", t::read_init, &["EPERM"]),
    steered("compare_with_init", t::compare_with_init, &["EPERM"]),
    steered("steered_calls", t::steered_calls, &["refused"]),
    steered("suspend_filter", t::suspend_filter, &["EPERM"]),
    traced("trace_child", t::trace_child),
    traced("read_child", t::read_child),
];
