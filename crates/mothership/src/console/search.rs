//! Looks for text in the whole output of a directive, and counts the lines that a page leaves out.
//!
//! ```text
//!  store ─▶ a queue of chunks for each stream ─▶ the older of both heads ─▶ Sheet: rows ─▶ those that have the text, counted
//! ```
//! A step holds one answer of the store for each stream, however long the output is.

use super::ansi::Line;
use super::log::{MAX_ROWS, Piece, Place, Row, Rows, START, Sheet, Source, Window, load, read};
use crate::http::Problem;
use nexus_api::conduits::Stream;
use std::collections::VecDeque;

/// Longest text that is looked for, in characters.
pub const MAX_TEXT: usize = 200;
/// Bytes of output that one search reads.
const MAX_SEARCHED: usize = 256 * 1024 * 1024;

/// Text that is looked for. A text without capital letters finds both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needle {
    text: String,
    is_exact: bool,
}

impl Needle {
    /// Reads the text of a form; `None` where there is nothing to look for.
    pub fn read(text: Option<&str>) -> Option<Self> {
        let text: String = text?.chars().take(MAX_TEXT).collect();
        let is_exact = text.chars().any(char::is_uppercase);
        Some(Self { text, is_exact }).filter(|needle| !needle.text.is_empty())
    }

    /// Returns the text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether a line has the text. Colours that begin within it do not matter.
    pub fn is_in(&self, line: &Line) -> bool {
        let text = line.text();
        if self.is_exact { text.contains(&self.text) } else { text.to_lowercase().contains(&self.text) }
    }
}

/// Lines that have a text.
#[derive(Debug, Default)]
pub struct Found {
    /// Some of them, in the order of a page.
    pub rows: Vec<Row>,
    /// Number of all of them.
    pub count: usize,
    /// The output is longer than what a search reads.
    pub is_cut: bool,
}

/// Chunks of one stream that were read and not yet taken.
struct Queue {
    stream: Stream,
    waiting: VecDeque<Piece>,
    after: i64,
    is_over: bool,
}

/// Both streams, chunk after chunk, in the order of a page.
struct Walk<'a> {
    source: Source<'a>,
    upto: Option<[i64; 2]>,
    queues: [Queue; 2],
}

impl<'a> Walk<'a> {
    fn new(source: Source<'a>, from: Place, upto: Option<[i64; 2]>) -> Self {
        // The chunk before says whether the first one begins within a line.
        let queue = |stream, seq: i64| Queue { stream, waiting: VecDeque::new(), after: seq - 2, is_over: false };
        Self { source, upto, queues: [queue(Stream::Stdout, from.out.seq), queue(Stream::Stderr, from.err.seq)] }
    }

    async fn next(&mut self) -> Result<Option<Piece>, Problem> {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.waiting.is_empty() && !queue.is_over {
                let bound = self.upto.map_or(i64::MAX, |next| next[index]);
                let loaded = load(self.source, queue.stream, queue.after, bound).await?;
                queue.after = loaded.last;
                queue.is_over = loaded.pieces.is_empty();
                queue.waiting.extend(loaded.pieces);
            }
        }
        let [out, err] = &mut self.queues;
        let first = match (out.waiting.front(), err.waiting.front()) {
            (Some(one), Some(other)) if other.at < one.at => err,
            (None, Some(_)) => err,
            _ => out,
        };
        Ok(first.waiting.pop_front())
    }
}

/// Finds a text in the output and leaves out the first `skip` lines that have it.
pub async fn find(source: Source<'_>, upto: Option<[i64; 2]>, needle: &Needle, skip: usize) -> Result<Found, Problem> {
    let mut walk = Walk::new(source, START, upto);
    let (mut sheet, mut found, mut read) = (Sheet::new(START), Found::default(), 0);
    let mut take = |row: Row| {
        if needle.is_in(&row.line) {
            if found.count >= skip && found.rows.len() < MAX_ROWS {
                found.rows.push(row);
            }
            found.count += 1;
        }
    };
    let mut is_cut = false;
    while let Some(piece) = walk.next().await? {
        read += piece.bytes.len();
        if read > MAX_SEARCHED {
            is_cut = true;
            break;
        }
        sheet.push(&piece, &mut take);
    }
    sheet.end(&mut take);
    found.is_cut = is_cut;
    Ok(found)
}

/// Reads what follows a place, or where that is much, its end alone with the number of lines before it.
pub async fn read_end(source: Source<'_>, from: Place, next: [i64; 2], live: bool) -> Result<Rows, Problem> {
    let near = Place::near_end(next);
    let near = Place { out: near.out.max(from.out), err: near.err.max(from.err) };
    let mut rows = read(source, near, live.then_some(next), Window::Last).await?;
    let before = if near == from { 0 } else { between(source, from, near).await? };
    let count = before + rows.left_out;
    rows.gap = (count > 0).then_some((count, from));
    Ok(rows)
}

/// Counts the lines that begin between two places.
async fn between(source: Source<'_>, from: Place, to: Place) -> Result<usize, Problem> {
    // A line that begins before the second place ends in its chunk at the latest.
    let mut walk = Walk::new(source, from, Some([to.out.seq + 1, to.err.seq + 1]));
    let (mut sheet, mut count) = (Sheet::new(from), 0);
    while let Some(piece) = walk.next().await? {
        sheet.push(&piece, &mut |row: Row| {
            let end = if row.stream == Stream::Stdout { to.out } else { to.err };
            count += usize::from(row.label < end);
        });
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::ansi::Reader;

    fn line(bytes: &[u8]) -> Line {
        Reader::default().push(bytes).remove(0)
    }

    #[test]
    fn a_text_without_capitals_finds_both_and_colours_do_not_matter() {
        let needle = |text| Needle::read(Some(text)).unwrap();
        let red = line(b"an \x1b[31mErr\x1b[0mor came\n");
        assert!(needle("error").is_in(&red) && needle("Error").is_in(&red));
        assert!(!needle("ERROR").is_in(&red) && !needle("31m").is_in(&red));
        assert_eq!(Needle::read(Some("")), None);
        assert_eq!(needle(&"x".repeat(500)).text().len(), MAX_TEXT);
    }
}
