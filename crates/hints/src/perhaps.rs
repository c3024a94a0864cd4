//! Recognizes in the last output of a failed command that it needed a feature that is off by default.
//!
//! The kernel does not report which system call a seccomp filter refused. The error messages of well-known programs show it, but a
//! command may print these words for another reason, so the advice begins with `perhaps`.

use nexus_runner::live::last_words::LastWords;

/// Printed by programs that may not trace another process: LeakSanitizer, gdb and strace.
const TRACING: &[&str] = &[
    "LeakSanitizer has encountered a fatal error",
    "ptrace: Operation not permitted",
    "PTRACE_TRACEME: Operation not permitted",
    "PTRACE_TRACEME, ...): Operation not permitted",
    "attach: ptrace(PTRACE_",
];

/// Printed by git when it may not make a lock: in a direct run `.git` is read-only.
const LOCKING: &[&str] = &[".lock': Read-only file system"];
/// Printed by git when its configuration has a cover of its own.
const CONFIGURING: &[&str] = &["config: Device or resource busy", "config.lock': Read-only file system"];

/// Printed by Java where its settings, which distributions keep in `/etc`, are not shown.
const JAVA: &[&str] = &["Error loading java.security file"];

/// Printed by programs that may make no namespace: unshare, bubblewrap, Chromium, podman.
const NAMESPACES: &[&str] = &[
    "unshare failed: Operation not permitted",
    "No permissions to create a new namespace",
    "No permissions to creat",
    "No usable sandbox!",
    "Failed to move to new namespace",
    "cannot clone: Operation not permitted",
    "clone: Operation not permitted",
    "user namespaces are not enabled",
];

/// Printed by programs that may not mount.
const MOUNTING: &[&str] = &["mount: only root can", "must be superuser to use mount", "mount: permission denied"];

/// Printed by sudo where no process can gain rights.
const PRIVILEGES: &[&str] = &["\"no new privileges\" flag is set", "sudo must be owned by uid 0"];

/// Printed by ping, which may open neither a raw socket nor one for ICMP.
const ECHO: &[&str] = &[
    "ping: prctl: Operation not permitted",
    "ping: socktype: SOCK_RAW",
    "ping: socktype: SOCK_DGRAM",
    "ping: socket: Operation not permitted",
    "ping: Lacking privilege for raw socket",
    "ping: permission denied (are you root?)",
];

/// Printed by clients of container engines, whose sockets are not shown.
const ENGINES: &[&str] = &[
    "Cannot connect to the Docker daemon",
    "failed to connect to the docker API",
    "trying to connect to the Docker daemon socket",
    "Cannot connect to Podman",
];

/// Printed by package managers of the system, which is read-only.
const SYSTEM_PACKAGES: &[&str] = &[
    "Unable to acquire the dpkg frontend lock",
    "Could not open lock file /var/lib/",
    "dpkg: error: requested operation requires superuser privilege",
    "This command has to be run with superuser privileges",
];

/// Printed by programs that could start no further process or thread.
const PROCESSES: &[&str] = &[
    "fork: retry: Resource temporarily unavailable",
    "fork: Resource temporarily unavailable",
    "fork failed: resource temporarily unavailable",
    "Cannot fork",
    "cannot fork",
    "can't start new thread",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    "unable to create native thread",
    "pthread_create failed",
    "OS can't spawn worker thread",
];

/// Reports whether a command seems to have reached the limit of processes and threads.
pub fn wanted_processes(words: &LastWords) -> bool {
    words.has(PROCESSES)
}

/// Returns the code and the text of the advice for a command that failed. `traces` tells whether it was allowed to
/// trace, `opens_git` whether a direct run let git write; `None` for a run that was not direct.
pub fn advice(words: &LastWords, traces: bool, opens_git: Option<bool>) -> Option<(&'static str, &'static str)> {
    if !traces && words.has(TRACING) {
        return Some((
            "tracing",
            "perhaps: tracing of processes is refused by default, and LeakSanitizer (a part of AddressSanitizer), \
             debuggers and strace need it; allow it with --allow-ptrace",
        ));
    }
    if words.has(JAVA) {
        return Some((
            "java",
            "perhaps: the settings of this Java are in /etc, which is not shown; --profile java shows them",
        ));
    }
    if words.has(NAMESPACES) || words.has(MOUNTING) {
        return Some((
            "namespaces",
            "perhaps: the command makes namespaces or mounts of its own, which are refused inside and no flag allows. Switch the \
             command's own sandbox off, for example with --no-sandbox of Chromium.",
        ));
    }
    if words.has(PRIVILEGES) {
        return Some((
            "privileges",
            "perhaps: sudo cannot work, since no process inside gains rights. Call the command without sudo.",
        ));
    }
    if words.has(ECHO) {
        return Some((
            "ping",
            "perhaps: ping needs a raw socket or one for ICMP, which no command inside can make and no flag allows. Ask by TCP: \
             curl, or nc -z HOST PORT.",
        ));
    }
    if words.has(ENGINES) {
        return Some((
            "engine",
            "perhaps: the socket of a container engine is never shown inside, and no flag shows it, since a process that reaches it has the \
             whole machine. Call the engine outside of the sandbox.",
        ));
    }
    if words.has(SYSTEM_PACKAGES) {
        return Some((
            "system_packages",
            "perhaps: the system is read-only inside, so that nothing can be installed in it, also as root. Install it outside, or \
             into the workspace or $HOME.",
        ));
    }
    match opens_git {
        Some(false) if words.has(LOCKING) || words.has(CONFIGURING) => Some((
            "direct_git",
            "perhaps: a direct run keeps .git read-only; --direct-git lets git write to it, except for its configuration \
             and hooks",
        )),
        Some(true) if words.has(CONFIGURING) => Some((
            "direct_git",
            "perhaps: a direct run keeps the configuration of git read-only, also with --direct-git; to change it, leave \
             --direct out",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_runner::live::output::Stream;

    #[test]
    fn a_leak_sanitizer_that_may_not_trace_is_recognized() {
        let mut words = LastWords::default();
        assert_eq!(advice(&words, false, None), None);
        words.take(Stream::Err, b"LeakSanitizer has encountered a fatal error");
        assert!(advice(&words, false, None).is_some() && advice(&words, true, None).is_none());
    }

    #[test]
    fn refused_namespaces_and_sudo_are_recognized() {
        let code = |said: &str| {
            let mut words = LastWords::default();
            words.take(Stream::Err, said.as_bytes());
            super::advice(&words, false, None).map(|(code, _)| code)
        };
        assert_eq!(code("unshare: unshare failed: Operation not permitted\n"), Some("namespaces"));
        assert_eq!(code("mount: only root can use \"--types\" option\n"), Some("namespaces"));
        assert_eq!(code("sudo: The \"no new privileges\" flag is set\n"), Some("privileges"));
        assert_eq!(code("Cannot connect to the Docker daemon at unix:///x. Is it running?\n"), Some("engine"));
        let dpkg = "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n";
        assert_eq!(code(dpkg), Some("system_packages"));
        assert_eq!(code("ping: prctl: Operation not permitted\n"), Some("ping"));
        assert_eq!(code("ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\n"), Some("ping"));
        assert_eq!(code("chmod: Operation not permitted\n"), None);
    }

    #[test]
    fn the_words_of_git_name_the_flag_of_a_direct_run() {
        let advice = |said: &str, opens_git| {
            let mut words = LastWords::default();
            words.take(Stream::Err, said.as_bytes());
            super::advice(&words, true, opens_git).map_or("", |(_, text)| text)
        };
        let lock = "fatal: Unable to create '/w/.git/index.lock': Read-only file system\n";
        let busy = "error: could not write config file .git/config: Device or resource busy\n";
        assert!(advice(lock, Some(false)).contains("--direct-git"));
        assert_eq!((advice(lock, Some(true)), advice(lock, None), advice("fatal: x", Some(false))), ("", "", ""));
        assert!(advice(busy, Some(true)).contains("leave --direct out"));
    }
}
