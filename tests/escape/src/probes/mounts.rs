//! Every mount inside, against a table of what may be mounted where and with which flags.

use crate::answer::Answer;
use crate::context::Context;
use crate::probes::confinement::ELSEWHERE;
use std::path::Path;

/// The flags that count, in the order in which they are compared.
const FLAGS: [&str; 3] = ["ro", "nosuid", "nodev"];

const CLOSED: &[&str] = &["ro", "nosuid", "nodev"];
const OPEN: &[&str] = &["nosuid", "nodev"];
/// A device, or a cover of `/proc`, which is one.
const DEVICE: &[&str] = &["nosuid"];

/// Returns the flags that a mount at this place must have, or none where nothing may be mounted.
fn expected(context: &Context, place: &str) -> Option<&'static [&'static str]> {
    let path = Path::new(place);
    let system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
    match place {
        "/" | "/proc" | ELSEWHERE => Some(CLOSED),
        "/dev/pts" => Some(DEVICE),
        "/tmp" | "/var/tmp" | "/home/nexus" | "/run" | "/dev/shm" => Some(OPEN),
        _ if path.starts_with("/proc") || path.starts_with("/dev") => Some(DEVICE),
        _ if system.iter().any(|system| path.starts_with(system)) => Some(CLOSED),
        _ if path == context.read_only || context.hidden.iter().any(|hidden| path == hidden) => Some(CLOSED),
        _ if path == context.workspace || path == context.read_write => Some(OPEN),
        _ => None,
    }
}

/// Compares each line of mountinfo (proc(5)) with the table; a second mount on the root is the host's.
pub fn every_mount(context: &Context) -> Answer {
    match std::fs::read_to_string("/proc/self/mountinfo") {
        Ok(list) => evaluate(context, &list),
        Err(error) => Answer::from_error(&error),
    }
}

/// Files and directories of `/proc` that a sandbox covers, where the kernel has them.
pub const COVERED: [&str; 15] = [
    "kcore",
    "keys",
    "key-users",
    "timer_list",
    "sysrq-trigger",
    "kallsyms",
    "cmdline",
    "config.gz",
    "interrupts",
    "latency_stats",
    "sched_debug",
    "softirqs",
    "acpi",
    "asound",
    "scsi",
];

/// Reports whether each of them is covered: what one of them shows without its cover depends on the user.
pub fn covers(_: &Context) -> Answer {
    let Ok(list) = std::fs::read_to_string("/proc/self/mountinfo") else { return Answer::of("unreadable") };
    let is_mount = |place: &str| list.lines().any(|line| line.split(' ').nth(4) == Some(place));
    let places = COVERED.map(|name| format!("/proc/{name}"));
    let bare: Vec<&String> = places.iter().filter(|place| Path::new(place).exists() && !is_mount(place)).collect();
    Answer::choose(bare.is_empty(), "covered", "bare").with(format!("{bare:?}"))
}

fn evaluate(context: &Context, list: &str) -> Answer {
    let mut wrong = Vec::new();
    let mut roots = 0;
    // The sandbox's own file system in memory, which a profile also shows where a toolchain wants to write.
    let own = list.lines().find(|line| line.split(' ').nth(4) == Some("/tmp")).and_then(|line| line.split(' ').nth(2));
    for line in list.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(place), Some(options)) = (fields.get(4), fields.get(5)) else {
            wrong.push(line.to_owned());
            continue;
        };
        roots += usize::from(*place == "/");
        let options: Vec<&str> = options.split(',').collect();
        let is_own = own.is_some() && fields.get(2).copied() == own && *place != "/";
        let missing = match expected(context, place).or(is_own.then_some(OPEN)) {
            // More flags than are asked for are not a hole; a writable directory that is not is seen by its twins.
            Some(flags) => flags.iter().any(|flag| !options.contains(flag)),
            None => true,
        };
        if missing {
            let seen: Vec<&str> = FLAGS.into_iter().filter(|flag| options.contains(flag)).collect();
            wrong.push(format!("{place} {}", seen.join(",")));
        }
    }
    if roots != 1 {
        wrong.push(format!("{roots} mounts at /"));
    }
    Answer::choose(wrong.is_empty(), "as-planned", "differs").with(wrong.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(list: &str) -> String {
        let context = Context { workspace: "/w".into(), read_only: "/r".into(), ..Context::default() };
        evaluate(&context, list).answer
    }

    #[test]
    fn the_own_memory_of_a_sandbox_may_be_shown_anywhere() {
        let list = |device: &str, flags: &str| {
            format!(
                "1 0 0:1 / / ro,nosuid,nodev - tmpfs none rw\n2 1 0:2 /t /tmp rw,nosuid,nodev - tmpfs none rw\n\
                 3 1 {device} /c /x/pkg {flags} - tmpfs none rw\n"
            )
        };
        assert_eq!(evaluated(&list("0:2", "rw,nosuid,nodev")), "as-planned");
        assert_eq!(evaluated(&list("0:2", "rw,nosuid")), "differs");
        assert_eq!(evaluated(&list("0:3", "rw,nosuid,nodev")), "differs");
    }

    #[test]
    fn a_mount_without_a_flag_or_a_place_is_seen() {
        let root = "1 0 0:1 / / ro,nosuid,nodev - tmpfs none rw\n";
        let with = |line: &str| evaluated(&format!("{root}2 1 0:2 / {line} - x none rw\n"));
        assert_eq!(with("/usr ro,nosuid,nodev,relatime"), "as-planned");
        for line in [
            "/usr ro,nodev",
            "/usr/local rw,nosuid,nodev",
            "/w rw,nosuid",
            "/r rw,nosuid,nodev",
            "/proc rw,nosuid,nodev",
            "/sys ro,nosuid,nodev",
            "/ ro,nosuid,nodev",
        ] {
            assert_eq!(with(line), "differs", "{line}");
        }
    }
}
