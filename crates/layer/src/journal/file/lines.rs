//! The text of a journal: a line for the header, one for each step, and a closing line.

use super::header::{Closing, Header, VERSION};
use crate::journal::step::Step;
use crate::journal::step_reader::Steps;
use serde::Deserialize as _;
use std::io::{BufRead, Write};

/// The lines of a journal, as far as its version is known.
pub(super) enum Lines {
    /// The journal has this version, which is not [`VERSION`].
    Version(u32),
    /// The header, the steps, and the byte at which the steps begin.
    Known { header: Box<Header>, steps: Steps, from: u64 },
}

/// Reads the lines of a journal to its end.
pub(super) fn read_lines(file: impl BufRead, mut steps: Steps) -> std::io::Result<Lines> {
    let bad = |why: &dyn std::fmt::Display| Err(std::io::Error::other(format!("not a whole journal: {why}")));
    let mut lines = Counted { of: file, bytes: 0 };
    match version(lines.fill_buf()?) {
        Some(VERSION) => {}
        Some(other) => return Ok(Lines::Version(other)),
        None => return bad(&"it does not begin with its version"),
    }
    let header = match Header::deserialize(&mut serde_json::Deserializer::from_reader(&mut lines)) {
        Ok(header) => Box::new(header),
        Err(error) => return bad(&error),
    };
    let mut line = Vec::new();
    lines.read_until(b'\n', &mut line)?;
    if line != b"\n" {
        return bad(&"its first line does not end");
    }
    let from = lines.bytes;
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return bad(&"its end is missing");
        }
        let error = match serde_json::from_slice::<Step>(&line) {
            Ok(step) => {
                steps.add(step);
                continue;
            }
            Err(error) => error,
        };
        return match serde_json::from_slice::<Closing>(&line) {
            Ok(closing) if closing.steps == steps.count() => Ok(Lines::Known { header, steps, from }),
            Ok(_) => bad(&"steps are missing"),
            Err(_) => bad(&error),
        };
    }
}

/// Reads the version that the first line of a journal names. Every version names it first.
fn version(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(b"{\"version\":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// A file that counts the bytes that are written or read.
pub(super) struct Counted<F> {
    pub of: F,
    pub bytes: u64,
}

impl<F: Write> Write for Counted<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.of.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.of.flush()
    }
}

impl<F: BufRead> std::io::Read for Counted<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.of.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<F: BufRead> BufRead for Counted<F> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.of.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes += count as u64;
        self.of.consume(count);
    }
}
