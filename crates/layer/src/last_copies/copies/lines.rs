//! Compares contents by whole lines, where pieces in any place say too little. Pure.

use std::collections::HashSet;

/// The bytes of the longest line that is looked at.
pub(super) const LONGEST: usize = 32;

/// The line of a content that is read byte by byte.
#[derive(Debug, Default)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// Takes the next byte. Returns the line that ends with it, without the blanks around it; `None` in a line and for a long one.
    pub(super) fn add(&mut self, byte: u8) -> Option<Vec<u8>> {
        if byte == b'\n' {
            return self.end();
        }
        if self.0.len() <= LONGEST {
            self.0.push(byte);
        }
        None
    }

    /// Ends the last line.
    pub(super) fn end(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.0);
        (line.len() <= LONGEST).then(|| line.trim_ascii().to_vec())
    }
}

/// Looks for all lines of a tiny content in another one.
#[derive(Debug)]
pub(super) struct Lines {
    missing: HashSet<Vec<u8>>,
    line: Line,
}

impl Lines {
    pub(super) fn of(content: &[u8]) -> Self {
        let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        Self { missing: lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect(), line: Line::default() }
    }

    /// Takes the next bytes of the other content.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(line) = self.line.add(*byte) {
                self.missing.remove(&line);
            }
        }
    }

    /// Tells whether the other content has each of the lines.
    pub(super) fn are_all_there(mut self) -> bool {
        if let Some(line) = self.line.end() {
            self.missing.remove(&line);
        }
        self.missing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_line_is_no_line() {
        for (content, other, wanted) in [
            ("TIMEOUT=3\n", "TIMEOUT=30\n", false),
            ("TIMEOUT=30\n", "TIMEOUT=3\n", false),
            ("on\n", "version=1\nlong text here\n", false),
            ("a=1\nb=2\n", "b=2\n\n  a=1 \nmore", true),
            ("a=1\nb=2", "a=1", false),
            ("last", "a line that is longer than all that is looked at\nlast", true),
            ("last", &format!("{}last\n", " ".repeat(40)), false),
            ("\n \n", "", true),
        ] {
            let mut lines = Lines::of(content.as_bytes());
            other.as_bytes().chunks(5).for_each(|block| lines.add(block));
            assert_eq!(lines.are_all_there(), wanted, "{content:?} {other:?}");
        }
    }
}
