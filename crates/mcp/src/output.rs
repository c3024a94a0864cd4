//! Keeps the output of commands: the first and the last part in memory for an answer, the latest bytes of a command that still runs, and all
//! of it in a file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

/// Number of the latest bytes of a running command that can be read again.
const LIVE: usize = 1 << 20;
/// Longest line that is looked at and shown; a longer one is cut.
const MAX_LINE: usize = 4096;
/// Number of bytes at the end of an output in which its last lines are looked for.
const TAIL_WINDOW: u64 = 1 << 20;

/// The first and the last part of a stream.
#[derive(Debug)]
pub struct KeptBytes {
    room: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes of the whole stream.
    pub total: u64,
}

impl KeptBytes {
    /// Keeps at most `room` bytes of the stream, half of them from its start.
    pub fn new(room: usize) -> Self {
        Self { room, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let first = (self.room / 2).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..first]);
        self.tail.extend(&bytes[first..]);
        let over = self.tail.len().saturating_sub(self.room - self.room / 2);
        self.tail.drain(..over);
    }

    /// Bytes that are not kept.
    pub fn cut(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns what is kept, as one piece.
    pub fn bytes(&self) -> Vec<u8> {
        self.head.iter().chain(&self.tail).copied().collect()
    }

    /// Returns what is kept, with a mark where something is missing.
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        match self.cut() {
            0 => String::from_utf8_lossy(&self.bytes()).into_owned(),
            cut => format!(
                "{}\n[... {cut} bytes left out; read_output shows them ...]\n{}",
                String::from_utf8_lossy(&self.head),
                String::from_utf8_lossy(&tail)
            ),
        }
    }
}

/// The output of one command while it runs.
#[derive(Debug)]
pub struct Capture {
    /// Bytes of standard output.
    pub out: KeptBytes,
    /// Bytes of standard error.
    pub err: KeptBytes,
    /// Bytes that came too fast for this process; the file has them.
    pub missed: u64,
    live: VecDeque<u8>,
    taken: u64,
    fresh: u64,
}

impl Capture {
    /// Keeps so many bytes of each stream.
    pub fn new(room: usize) -> Self {
        Self {
            out: KeptBytes::new(room),
            err: KeptBytes::new(room),
            missed: 0,
            live: VecDeque::new(),
            taken: 0,
            fresh: 0,
        }
    }

    /// Takes bytes of one stream.
    pub fn push(&mut self, is_err: bool, bytes: &[u8]) {
        let stream = if is_err { &mut self.err } else { &mut self.out };
        stream.push(bytes);
        self.taken += bytes.len() as u64;
        self.live.extend(bytes);
        self.live.drain(..self.live.len().saturating_sub(LIVE));
    }

    /// Returns what came since the last call, at most its last bytes, and the number of bytes so far; `None` if nothing came.
    pub fn news(&mut self, most: usize) -> Option<(String, u64)> {
        let new = usize::try_from(self.taken - self.fresh).unwrap_or(usize::MAX).min(most).min(self.live.len());
        self.fresh = self.taken;
        let bytes: Vec<u8> = self.live.iter().skip(self.live.len() - new).copied().collect();
        (new > 0).then(|| (String::from_utf8_lossy(&bytes).into_owned(), self.taken))
    }

    /// Returns what can be read again while the command runs.
    pub fn source(&self) -> Source {
        let bytes: Vec<u8> = self.live.iter().copied().collect();
        Source { first: self.taken - bytes.len() as u64, end: self.taken, reader: Box::new(Cursor::new(bytes)) }
    }
}

/// A source of bytes that can be read from any offset.
trait Place: Read + Seek + Send {}
impl<T: Read + Seek + Send> Place for T {}

/// An output that is open for reading.
pub struct Source {
    /// The offset of the first byte that can be read.
    pub first: u64,
    /// The offset behind the last byte.
    pub end: u64,
    reader: Box<dyn Place>,
}

/// Lines that were found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of the line, from 1, and its text.
    pub lines: Vec<(u64, String)>,
    /// True if further lines hold the text.
    pub has_more: bool,
}

impl Source {
    /// Opens the file with all output of a command.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { first: 0, end: file.metadata()?.len(), reader: Box::new(file) })
    }

    /// Reads at most `most` bytes from an offset on. An offset before the first byte means the first byte.
    pub fn range(&mut self, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let from = from.clamp(self.first, self.end);
        self.reader.seek(SeekFrom::Start(from - self.first))?;
        let mut bytes = Vec::new();
        self.reader.by_ref().take(most.min(self.end - from)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the last lines.
    pub fn last_lines(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let bytes = self.range(self.end.saturating_sub(TAIL_WINDOW), TAIL_WINDOW)?;
        let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let start = if count == 0 { bytes.len() } else { ends.take(count).nth(count - 1).unwrap_or(0) };
        Ok(bytes[start..].to_vec())
    }

    /// Returns the first and the last part, of so many bytes together, with a mark where something is missing; and the bytes that are.
    pub fn ends(&mut self, room: u64) -> io::Result<(String, u64)> {
        let mut kept = KeptBytes::new(usize::try_from(room).unwrap_or(usize::MAX));
        let first = self.range(0, room / 2)?;
        kept.push(&first);
        let rest = self.end - self.first - first.len() as u64;
        let last = rest.min(room - room / 2);
        kept.total += rest - last;
        kept.push(&self.range(self.end - last, last)?);
        Ok((kept.text(), kept.cut()))
    }

    /// Finds lines that hold a text.
    pub fn lines_with(&mut self, text: &str, most: usize) -> io::Result<Found> {
        self.reader.seek(SeekFrom::Start(0))?;
        let (mut found, mut line, mut number) = (Found { lines: Vec::new(), has_more: false }, Vec::new(), 1);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = self.reader.read(&mut buffer)?;
            for byte in &buffer[..count] {
                if *byte != b'\n' {
                    if line.len() < MAX_LINE {
                        line.push(*byte);
                    }
                    continue;
                }
                if !found.inspect(&line, number, text, most) {
                    return Ok(found);
                }
                line.clear();
                number += 1;
            }
            if count == 0 {
                if !line.is_empty() {
                    found.inspect(&line, number, text, most);
                }
                return Ok(found);
            }
        }
    }
}

impl Found {
    /// Takes a line that holds the text; `false` when there are enough.
    fn inspect(&mut self, line: &[u8], number: u64, text: &str, most: usize) -> bool {
        let line = String::from_utf8_lossy(line);
        if !line.contains(text) {
            return true;
        }
        if self.lines.len() >= most {
            self.has_more = true;
            return false;
        }
        self.lines.push((number, line.into_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        let mut capture = Capture::new(16);
        capture.push(false, text.as_bytes());
        capture.source()
    }

    #[test]
    fn the_first_and_the_last_part_are_kept_and_what_is_missing_is_counted() {
        let mut kept = KeptBytes::new(10);
        for byte in b"0123456789abcdef" {
            kept.push(&[*byte]);
        }
        assert_eq!((kept.bytes(), kept.cut(), kept.total), (b"01234bcdef".to_vec(), 6, 16));
        assert!(kept.text().contains("6 bytes left out"));
        let mut short = KeptBytes::new(10);
        short.push(b"0123456789");
        assert_eq!((short.text().as_str(), short.cut()), ("0123456789", 0));
    }

    #[test]
    fn what_is_new_is_given_once() {
        let mut capture = Capture::new(10);
        assert_eq!(capture.news(100), None);
        capture.push(false, b"one ");
        capture.push(true, b"two");
        assert_eq!(capture.news(100), Some(("one two".to_owned(), 7)));
        assert_eq!(capture.news(100), None);
        capture.push(false, b"0123456789");
        assert_eq!(capture.news(4), Some(("6789".to_owned(), 17)));
    }

    #[test]
    fn an_output_is_read_by_place_by_its_end_and_by_text() {
        let text = "first\nsecond line\nthird\nlast line";
        assert_eq!(source(text).range(6, 6).unwrap(), b"second");
        assert_eq!(source(text).range(900, 6).unwrap(), b"");
        assert_eq!(source(text).last_lines(2).unwrap(), b"third\nlast line");
        assert_eq!(source("a\nb\n").last_lines(1).unwrap(), b"b\n");
        assert_eq!(source(text).last_lines(99).unwrap(), text.as_bytes());
        assert_eq!(source(text).last_lines(0).unwrap(), b"");
        let found = source(text).lines_with("line", 10).unwrap();
        assert_eq!(found.lines, [(2, "second line".to_owned()), (4, "last line".to_owned())]);
        assert!(!found.has_more);
        let found = source(text).lines_with("line", 1).unwrap();
        assert_eq!((found.lines.len(), found.has_more), (1, true));
    }

    #[test]
    fn the_ends_of_an_output_are_read_without_the_middle() {
        let (text, cut) = source("0123456789abcdef").ends(10).unwrap();
        assert!(text.starts_with("01234\n[") && text.ends_with("]\nbcdef"), "{text}");
        assert_eq!(cut, 6);
        assert_eq!(source("0123456789").ends(10).unwrap(), ("0123456789".to_owned(), 0));
        assert_eq!(source("").ends(10).unwrap(), (String::new(), 0));
    }

    #[test]
    fn only_the_end_of_a_long_output_is_there_while_the_command_runs() {
        let mut capture = Capture::new(10);
        for _ in 0..3 {
            capture.push(false, &vec![b'x'; LIVE]);
        }
        capture.push(false, b"end");
        let mut source = capture.source();
        assert_eq!((source.first, source.end), (2 * LIVE as u64 + 3, 3 * LIVE as u64 + 3));
        assert_eq!(source.range(0, 5).unwrap(), b"xxxxx");
        assert_eq!(source.range(source.end - 3, 5).unwrap(), b"end");
    }
}
