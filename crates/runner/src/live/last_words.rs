//! Keeps the last output of a command, for advice about a command that failed.

use crate::live::output::Stream;

/// The bytes of each stream that are looked at.
const LOOKED_AT: usize = 16 << 10;

/// Holds the last bytes of both streams.
#[derive(Debug, Default)]
pub struct LastWords {
    streams: [Vec<u8>; 2],
}

impl LastWords {
    /// Takes output of one stream.
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

    /// Reports whether the last output of a stream has one of these texts in it.
    pub fn has(&self, all: &[&str]) -> bool {
        let said = |words: &&str| {
            self.streams.iter().any(|stream| {
                let last = &stream[stream.len().saturating_sub(LOOKED_AT)..];
                last.windows(words.len()).any(|window| window == words.as_bytes())
            })
        };
        all.iter().any(said)
    }
}

impl LastWords {
    /// Returns the last lines of stderr and then of stdout, on which a command with a terminal says everything, each from
    /// the last one back.
    pub fn last_lines(&self) -> impl Iterator<Item = &[u8]> {
        let [out, err] = &self.streams;
        [err, out].into_iter().flat_map(|stream| {
            let last = &stream[stream.len().saturating_sub(LOOKED_AT)..];
            last.split(|byte| *byte == b'\n').rev()
        })
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

    fn found(pieces: &[&[u8]]) -> bool {
        let mut words = LastWords::default();
        for piece in pieces {
            words.take(Stream::Err, piece);
        }
        words.has(&["one of these", "has encountered a fatal error"])
    }

    #[test]
    fn words_are_found_also_in_pieces_and_only_at_the_end() {
        let words = b"LeakSanitizer has encountered a fatal error";
        assert!(found(&[words]));
        assert!(found(&[&words[..10], &words[10..]]));
        assert!(found(&[&vec![b'x'; 100_000], words, &[b'y'; 10_000]]));
        assert!(found(&[&[b'x'; 16_000], &[b'x'; 16_000], words]));
        assert!(!found(&[words, &vec![b'y'; 20_000]]));
        assert!(!found(&[words, &[b'y'; 10_000], &[b'y'; 10_000]]));
        assert!(!found(&[b"an ordinary error"]));
        assert!(!found(&[]));
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
    fn what_is_kept_is_bounded() {
        let mut words = LastWords::default();
        for _ in 0..1000 {
            words.take(Stream::Out, &[b'z'; 1000]);
        }
        assert!(words.streams[0].len() <= 2 * LOOKED_AT);
    }
}
