//! A01 to A04, A15, A17: what a process inside is, and which processes it can see.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::sys::{self, ask};
use std::fs;

fn status_field(field: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(|rest| rest.trim().to_owned()))
}

/// The value of one field of `/proc/self/status`.
pub fn status_value(field: &str) -> Answer {
    Answer::of(status_field(field).unwrap_or_else(|| "absent".to_owned()))
}

/// Reports whether any of the five capability sets holds anything.
pub fn capabilities(_: &Context) -> Answer {
    let mut seen = String::new();
    let mut empty = true;
    for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let value = status_field(field).unwrap_or_else(|| "absent".to_owned());
        empty &= u64::from_str_radix(&value, 16) == Ok(0);
        seen = format!("{seen}{field}={value} ");
    }
    Answer::choose(empty, "none", "some").with(seen.trim())
}

/// Becomes uid 0 of the namespace.
pub fn become_root(_: &Context) -> Answer {
    ask(libc::SYS_setresuid, &[0, 0, 0])
}

/// Twin: keeps the uid that it has.
pub fn stay_myself(_: &Context) -> Answer {
    let own = sys::uid() as usize;
    ask(libc::SYS_setresuid, &[own, own, own])
}

/// Reports whether a namespace is the host's.
pub fn namespace(context: &Context, name: &str) -> Answer {
    use std::os::unix::fs::MetadataExt;
    match (fs::metadata(format!("/proc/self/ns/{name}")), context.namespaces.get(name)) {
        (Ok(own), Some(host)) => Answer::choose(own.ino() == *host, "same", "differs"),
        (Err(error), _) => Answer::from_error(&error),
        (_, None) => Answer::of("host-unknown"),
    }
}

/// Twin: the same namespace read twice.
pub fn namespace_is_stable(_: &Context) -> Answer {
    use std::os::unix::fs::MetadataExt;
    let read = || fs::metadata("/proc/self/ns/mnt").map(|found| found.ino()).ok();
    Answer::choose(read().is_some() && read() == read(), "same", "differs")
}

/// Pids that `/proc` shows.
pub fn visible_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn someone_has(file: &str, needle: &str) -> Answer {
    if needle.is_empty() {
        return Answer::of("no-needle");
    }
    let has = |pid: &i32| {
        fs::read(format!("/proc/{pid}/{file}"))
            .is_ok_and(|found| found.windows(needle.len()).any(|window| window == needle.as_bytes()))
    };
    Answer::choose(visible_pids().iter().any(has), "seen", "absent")
}

/// The arguments of a process of the host.
pub fn host_arguments(context: &Context) -> Answer {
    someone_has("cmdline", &context.host_label)
}

/// The caller's environment, in any process: PID 1 inside is forked from the caller and may still carry it.
pub fn callers_environment(context: &Context) -> Answer {
    someone_has("environ", &context.secret)
}

/// Twin: a process sees itself.
pub fn own_arguments(_: &Context) -> Answer {
    someone_has("cmdline", "probe")
}

/// Signals a process of the host by its number there.
pub fn signal_host(context: &Context) -> Answer {
    if context.host_pid <= 1 {
        return Answer::of("host-unknown");
    }
    sys::kill(context.host_pid, 0).into()
}

/// Twin: signals its own child.
pub fn signal_child(_: &Context) -> Answer {
    match sys::fork() {
        Ok(0) => {
            sys::pause();
            sys::leave(0)
        }
        Ok(child) => {
            let answer = sys::kill(child, libc::SIGKILL).into();
            sys::wait(child, true);
            answer
        }
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// Reports whether some uid inside is uid 0 outside (CVE-2022-0492's family: root's files are then writable).
pub fn uid_map(_: &Context) -> Answer {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else { return Answer::of("unreadable") };
    let zero = map.lines().any(|line| line.split_whitespace().nth(1) == Some("0"));
    Answer::choose(zero || map.trim().is_empty(), "host-root", "not-root")
        .with(map.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The same for groups.
pub fn gid_map(_: &Context) -> Answer {
    let Ok(map) = fs::read_to_string("/proc/self/gid_map") else { return Answer::of("unreadable") };
    let zero = map.lines().any(|line| line.split_whitespace().nth(1) == Some("0"));
    Answer::choose(zero || map.trim().is_empty(), "host-root", "not-root")
}

/// Descriptors above 2 (runc CVE-2024-21626, CVE-2016-9962).
pub fn descriptors(context: &Context) -> Answer {
    Answer::choose(context.leaked.is_empty(), "none", "some").with(format!("{:?}", context.leaked))
}

/// Reads the canary relative to any directory that leaked in.
pub fn through_descriptor(context: &Context) -> Answer {
    let relative = context.canary_side.strip_prefix("/").unwrap_or(&context.canary_side);
    let path = sys::c_path(relative);
    let reached = context
        .leaked
        .iter()
        .any(|fd| sys::call(libc::SYS_openat, &[*fd as usize, sys::address(path.as_bytes_with_nul()), 0]).is_ok());
    Answer::choose(reached, "reached", "none")
}

/// Reads the canary through the descriptors of every process that can be seen, PID 1 included.
pub fn through_others_descriptors(context: &Context) -> Answer {
    let relative = context.canary_side.strip_prefix("/").unwrap_or(&context.canary_side);
    for pid in visible_pids() {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in entries.flatten() {
            if fs::File::open(entry.path().join(relative)).is_ok() {
                return Answer::of("reached").with(entry.path().display().to_string());
            }
        }
    }
    Answer::of("none")
}

/// Twin: the three that everybody has.
pub fn standard_descriptors(_: &Context) -> Answer {
    let open = (0..3_usize).all(|fd| sys::call(libc::SYS_fcntl, &[fd, libc::F_GETFD as usize]).is_ok());
    Answer::choose(open, "ok", "closed")
}

fn core_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: limit is a live structure.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) };
    limit
}

/// Both limits on core files. With exactly 1 the kernel starts no core handler on the host (core(5)), where it would run as
/// root with this process's memory.
pub fn core_limits(_: &Context) -> Answer {
    let libc::rlimit { rlim_cur, rlim_max } = core_limit();
    Answer::choose((rlim_cur, rlim_max) == (1, 1), "1", "not-1").with(format!("{rlim_cur} {rlim_max}"))
}

/// Sets both limits and answers with what they are then.
fn set_core_limit(both: libc::rlim_t) -> Answer {
    let wanted = libc::rlimit { rlim_cur: both, rlim_max: both };
    // SAFETY: wanted is a live structure.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const wanted) };
    let error = sys::errno();
    let libc::rlimit { rlim_cur, rlim_max } = core_limit();
    let said = if result == 0 { "ok".to_owned() } else { errno_name(error) };
    Answer::choose((rlim_cur, rlim_max) == (1, 1), "stays", "changed").with(said)
}

/// Raises the limit.
pub fn raise_core_limit(_: &Context) -> Answer {
    set_core_limit(core_limit().rlim_max.max(4096))
}

/// Lowers it to 0, with which the kernel starts a core handler again.
pub fn lower_core_limit(_: &Context) -> Answer {
    set_core_limit(0)
}

/// Twin: lowers another limit.
pub fn lower_limit(_: &Context) -> Answer {
    let wanted = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: wanted is a live structure.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) };
    if result == 0 { Answer::of("ok") } else { Answer::of(errno_name(sys::errno())) }
}
