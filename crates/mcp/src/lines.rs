//! Cuts the input into lines of bounded length.

/// Longest message of a client: a file that is written is in one.
pub const MAX_LINE: usize = 8 << 20;

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line, without its end.
    Whole(Vec<u8>),
    /// A line that was longer than a message may be; nothing of it was kept.
    TooLong,
}

/// Puts lines together from bytes as they come.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    skips: bool,
}

impl Lines {
    /// Takes bytes and returns the lines that they end.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Line> {
        let mut found = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.partial);
            found.push(if std::mem::take(&mut self.skips) { Line::TooLong } else { Line::Whole(line) });
        }
        self.keep(bytes);
        found
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skips || self.partial.len() + bytes.len() > MAX_LINE {
            self.skips = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_are_cut() {
        let text = b"one\n\ntwo and more\nrest";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let found: Vec<Line> = text.chunks(size).flat_map(|piece| lines.push(piece)).collect();
            let expected = [&b"one"[..], b"", b"two and more"].map(|line| Line::Whole(line.to_vec()));
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept_and_the_next_one_counts() {
        let mut lines = Lines::default();
        for _ in 0..20 {
            assert!(lines.push(&vec![b'x'; 1 << 20]).is_empty());
            assert!(lines.partial.len() <= MAX_LINE);
        }
        assert_eq!(lines.push(b"\nnext\n"), [Line::TooLong, Line::Whole(b"next".to_vec())]);
    }
}
