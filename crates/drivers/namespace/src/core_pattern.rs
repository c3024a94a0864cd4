//! Decides from `kernel.core_pattern` if a crash inside stays inside.
//!
//! ```text
//!  "core", "/var/x"   a file       no byte: the limit of 1 is less than any dump   (RLIMIT_CORE, nexus-jail)
//!  "|/usr/bin/x"      a program    not started: the kernel asks for exactly 1       (a limit of 0 ─▶ nothing is launched)
//!  "@/x", "@@/x"      a socket     connected to, whatever the limit                ─▶ nothing is launched
//! ```
//! For a socket (Linux 6.16) the kernel connects with its own rights to a path below the root of the host's first process
//! and sends the memory of the process that crashed. It asks for no limit, no Landlock domain and no namespace
//! (`coredump_sock_connect` of fs/coredump.c, `unix_find_bsd` of net/unix/af_unix.c), and a process cannot make itself
//! undumpable beyond its next exec.

use std::io;
use std::path::Path;

/// Holds the pattern that the kernel uses.
pub const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// Sets a pattern with which crashes inside stay inside.
pub const FIX: &str = "sysctl -w kernel.core_pattern=core (or a program: '|/path/of/a/handler %P')";

/// Reads the pattern. `limit` is the one on core files that a sandbox gets. Returns why nothing may be launched.
pub fn check(file: &Path, limit: u64) -> Result<(), String> {
    match std::fs::read(file) {
        Ok(pattern) if limit != 1 && pattern.starts_with(b"|") => Err(format!(
            "kernel.core_pattern names a program ({}), which a crash inside would start as root of this machine: the \
             hard limit on core files is {limit} (ulimit -Hc), and with 1 alone the kernel starts none",
            String::from_utf8_lossy(&pattern[1..]).trim_end()
        )),
        Ok(pattern) => socket_of(&pattern).map_or(Ok(()), |socket| Err(refusal(&socket))),
        // A kernel without core dumps.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

fn refusal(socket: &str) -> String {
    format!(
        "kernel.core_pattern names a socket ({socket}): a crash inside would connect to a service of this machine and \
         send it what the command likes"
    )
}

/// Returns the socket that a pattern names. The kernel looks at the first character alone.
fn socket_of(pattern: &[u8]) -> Option<String> {
    pattern.starts_with(b"@").then(|| String::from_utf8_lossy(pattern).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_names_a_socket_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (pattern, is_refused) in [
            ("core\n", false),
            ("", false),
            ("\n", false),
            ("|/usr/share/apport/apport -p%p\n", false),
            ("/var/cores/@%e\n", false),
            ("core@host\n", false),
            // The kernel takes this for the name of a file.
            (" @/run/x\n", false),
            ("@/run/x.sock\n", true),
            ("@@/run/x.sock\n", true),
            ("@", true),
        ] {
            std::fs::write(file.path(), pattern).unwrap();
            assert_eq!(check(file.path(), 1).is_err(), is_refused, "{pattern:?}");
        }
        std::fs::write(file.path(), b"@/run/\xff.sock\n").unwrap();
        assert!(check(file.path(), 1).unwrap_err().contains("(@/run/\u{fffd}.sock)"));
    }

    #[test]
    fn a_pattern_that_names_a_program_is_refused_where_the_limit_is_zero() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (pattern, limit, is_refused) in
            [("|/usr/lib/handler %p\n", 0, true), ("|/usr/lib/handler %p\n", 1, false), ("core\n", 0, false)]
        {
            std::fs::write(file.path(), pattern).unwrap();
            assert_eq!(check(file.path(), limit).is_err(), is_refused, "{pattern:?}, {limit}");
        }
        std::fs::write(file.path(), "|/usr/lib/handler %p\n").unwrap();
        assert!(check(file.path(), 0).unwrap_err().contains("(/usr/lib/handler %p)"));
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_refused() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(check(&top.path().join("missing"), 1), Ok(()));
        assert!(check(top.path(), 1).is_err());
    }
}
