//! Recognizes, in the last output of a command that failed, that it wanted something that is off unless asked for.
//!
//! The kernel tells nobody which call a filter refused. The words of well-known programs do, and so the advice begins with
//! `perhaps`: a command may print these words for another reason.

use super::output::Stream;

/// The bytes of each stream that are looked at.
const LOOKED_AT: usize = 16 << 10;

/// What programs print when they may not trace another process: LeakSanitizer, gdb and strace.
const TRACING: &[&str] = &[
    "LeakSanitizer has encountered a fatal error",
    "ptrace: Operation not permitted",
    "PTRACE_TRACEME: Operation not permitted",
    "PTRACE_TRACEME, ...): Operation not permitted",
    "attach: ptrace(PTRACE_",
];

/// What git prints when it may not make a lock: in a direct run `.git` is read-only.
const LOCKING: &[&str] = &[".lock': Read-only file system"];
/// What git prints when its configuration has a cover of its own.
const CONFIGURING: &[&str] = &["config: Device or resource busy", "config.lock': Read-only file system"];

/// What Java prints where its settings, which distributions keep in `/etc`, are not shown.
const JAVA: &[&str] = &["Error loading java.security file"];

/// The last bytes of both streams.
#[derive(Debug, Default)]
pub struct LastWords {
    streams: [Vec<u8>; 2],
}

impl LastWords {
    /// Takes output.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let kept = &mut self.streams[stream as usize];
        if let Some(last) = bytes.len().checked_sub(LOOKED_AT) {
            kept.clear();
            kept.extend_from_slice(&bytes[last..]);
            return;
        }
        // Moved seldom: only when twice as much is there as is looked at.
        if kept.len() + bytes.len() > 2 * LOOKED_AT {
            kept.drain(..kept.len() - LOOKED_AT);
        }
        kept.extend_from_slice(bytes);
    }

    /// Returns the code and the text of the advice for a command that failed. `traces` tells whether it was allowed to trace, `opens_git` whether a
    /// direct run let git write; `None` for a run that was not direct.
    pub fn advice(&self, traces: bool, opens_git: Option<bool>) -> Option<(&'static str, &'static str)> {
        if !traces && self.has(TRACING) {
            return Some((
                "tracing",
                "perhaps: tracing of processes is refused by default, and LeakSanitizer (a part of AddressSanitizer), \
                 debuggers and strace need it; allow it with --allow-ptrace",
            ));
        }
        if self.has(JAVA) {
            return Some((
                "java",
                "perhaps: the settings of this Java are in /etc, which is not shown; --profile java shows them",
            ));
        }
        match opens_git {
            Some(false) if self.has(LOCKING) || self.has(CONFIGURING) => Some((
                "direct_git",
                "perhaps: a direct run keeps .git read-only; --direct-git lets git write to it, except for its configuration \
                 and hooks",
            )),
            Some(true) if self.has(CONFIGURING) => Some((
                "direct_git",
                "perhaps: a direct run keeps the configuration of git read-only, also with --direct-git; to change it, leave \
                 --direct out",
            )),
            _ => None,
        }
    }

    fn has(&self, all: &[&str]) -> bool {
        let said = |words: &&str| {
            self.streams.iter().any(|stream| {
                let last = &stream[stream.len().saturating_sub(LOOKED_AT)..];
                last.windows(words.len()).any(|window| window == words.as_bytes())
            })
        };
        all.iter().any(said)
    }
}

/// The longest name of a command that is looked up.
const MAX_NAME: usize = 64;

impl LastWords {
    /// Returns the name of the command that a shell said last it did not find.
    pub fn missing_command(&self) -> Option<String> {
        let [out, err] = &self.streams;
        // A command with a terminal says everything on it.
        [err, out].into_iter().find_map(|stream| {
            let last = &stream[stream.len().saturating_sub(LOOKED_AT)..];
            last.split(|byte| *byte == b'\n').rev().find_map(missing_in)
        })
    }
}

/// Reads `bash: line 1: NAME: command not found` and `/bin/sh: 1: NAME: not found`.
fn missing_in(line: &[u8]) -> Option<String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let rest = line.strip_suffix(b": command not found").or_else(|| line.strip_suffix(b": not found"))?;
    let name = rest.rsplit(|byte| *byte == b' ').next()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-".contains(byte);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && name.iter().all(is_plain) && !name.starts_with(b".");
    is_name.then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(pieces: &[&[u8]]) -> bool {
        let mut words = LastWords::default();
        for piece in pieces {
            words.take(Stream::Err, piece);
        }
        words.advice(false, None).is_some()
    }

    #[test]
    fn the_words_are_found_also_in_pieces_and_only_at_the_end() {
        let words = b"LeakSanitizer has encountered a fatal error";
        assert!(advised(&[words]));
        assert!(advised(&[&words[..10], &words[10..]]));
        assert!(advised(&[&vec![b'x'; 100_000], words, &[b'y'; 10_000]]));
        assert!(advised(&[&[b'x'; 16_000], &[b'x'; 16_000], words]));
        assert!(!advised(&[words, &vec![b'y'; 20_000]]));
        assert!(!advised(&[words, &[b'y'; 10_000], &[b'y'; 10_000]]));
        assert!(!advised(&[b"an ordinary error"]));
        assert!(!advised(&[]));
    }

    #[test]
    fn a_shell_names_the_command_that_it_did_not_find() {
        let missing = |text: &str| {
            let mut words = LastWords::default();
            words.take(Stream::Err, text.as_bytes());
            words.missing_command()
        };
        for text in [
            "bash: line 1: cargo: command not found\n",
            "/bin/sh: 1: cargo: not found\n",
            "x: not found\nsh: 1: cargo: not found\r\nmore\n",
        ] {
            assert_eq!(missing(text).as_deref(), Some("cargo"), "{text}");
        }
        let long = format!("sh: 1: {}: not found", "x".repeat(65));
        for text in ["sh: 1: ../../x: not found", "sh: 1: ~/x: not found", "sh: 1: \u{1b}[2J: not found", &long, ""] {
            assert_eq!(missing(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_words_of_git_name_the_flag_of_a_direct_run() {
        let advice = |said: &str, opens_git| {
            let mut words = LastWords::default();
            words.take(Stream::Err, said.as_bytes());
            words.advice(true, opens_git).map_or("", |(_, text)| text)
        };
        let lock = "fatal: Unable to create '/w/.git/index.lock': Read-only file system\n";
        let busy = "error: could not write config file .git/config: Device or resource busy\n";
        assert!(advice(lock, Some(false)).contains("--direct-git"));
        assert_eq!((advice(lock, Some(true)), advice(lock, None), advice("fatal: x", Some(false))), ("", "", ""));
        assert!(advice(busy, Some(true)).contains("leave --direct out"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut words = LastWords::default();
        for _ in 0..1000 {
            words.take(Stream::Out, &[b'z'; 1000]);
        }
        assert!(words.streams[0].len() <= 2 * LOOKED_AT);
    }
}
