//! Programs that run other programs, or programs that they read.

/// Programs that run a program which follows among their words.
const WRAPPERS: &[&str] = &[
    "env",
    "nice",
    "nohup",
    "timeout",
    "time",
    "stdbuf",
    "setsid",
    "ionice",
    "chrt",
    "taskset",
    "xargs",
    "command",
    "exec",
    "builtin",
    "busybox",
    "toybox",
    "chroot",
    "unshare",
    "nsenter",
    "setarch",
    "linux32",
    "linux64",
    "watch",
    "parallel",
    "flock",
    "strace",
    "ltrace",
    "gdb",
    "valgrind",
    "tini",
    "dumb-init",
    "faketime",
    "proot",
    "fakeroot",
    "systemd-run",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "nix-shell",
    "nix",
    "npx",
    "uvx",
    "script",
    "ssh",
    "find",
    "fd",
    "git",
    "numactl",
    "prlimit",
    "cgexec",
    "firejail",
    "bwrap",
    "catchsegv",
    "rlwrap",
    "unbuffer",
    "expect",
    "torsocks",
    "proxychains",
    "tsocks",
    "start-stop-daemon",
    "daemonize",
    "at",
    "batch",
    "nix-store",
    "poetry",
    "uv",
    "make",
    "tar",
    "rsync",
    "cpulimit",
    "eatmydata",
    "dbus-run-session",
    "xvfb-run",
    "wine",
    "qemu-x86_64",
    "trap",
    "alias",
    "source",
    ".",
];
/// Programs that read command lines or programs from their words.
const INTERPRETERS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "mksh",
    "ash",
    "fish",
    "csh",
    "tcsh",
    "rbash",
    "eval",
    "su",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "php",
    "lua",
    "tclsh",
    "osascript",
    "sed",
    "vim",
    "vi",
    "ed",
    "ex",
    "emacs",
    "python",
    "pwsh",
    "R",
    "Rscript",
    "julia",
    "sqlite3",
    "psql",
    "mysql",
];
/// Programs that give another user's rights.
pub(super) const ESCALATES: &[&str] = &[
    "sudo", "sudoedit", "doas", "su", "pkexec", "runuser", "gosu", "su-exec", "run0", "setcap", "setpriv", "capsh",
    "calife",
];
/// Returns the name of a program, without its directory.
pub(super) fn base(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

/// Reports whether a name is that of an interpreter, whatever its version.
pub(super) fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    INTERPRETERS.contains(&plain) || INTERPRETERS.contains(&name)
}

fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux")
        || name.starts_with("ld-musl")
        || name.starts_with("ld.so")
        || name.starts_with("ld-2.")
}

/// Reports whether a program runs another one among its words.
pub(super) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.contains(&name) || ESCALATES.contains(&name) || is_loader(name)
}

/// Shells.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "pwsh"];

/// Reports whether a name is that of a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}
