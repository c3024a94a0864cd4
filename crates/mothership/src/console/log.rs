//! The output of a directive as rows of a page.
//!
//! ```text
//!  place ─▶ chunks of both streams, by their time ─▶ lines ─▶ rows, and the place of the first line that was not shown
//! ```
//! A line is named by the chunk in which it begins and by its number there: `o41.3` is the third line that begins in chunk 41 of
//! the standard output. A chunk that comes late changes no other name.

use super::ansi::{Line, Reader};
use super::html::Html;
use crate::app::App;
use crate::blobs::BlobId;
use crate::http::Problem;
use crate::store::types::{Account, ChunkBytes, ChunkQuery};
use nexus_api::conduits::{MAX_CHUNK_BYTES, Stream};
use nexus_model::ids::DirectiveId;
use std::fmt;
use std::str::FromStr;

/// Rows of one answer.
pub const MAX_ROWS: usize = 500;
/// Bytes of each stream that one answer reads.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// Chunks of each stream that one answer reads.
const MAX_CHUNKS: u32 = 500;
/// Chunks before the end with which the end begins.
const TAIL_CHUNKS: i64 = 32;

/// A line of one stream: its chunk, and its number among the lines that begin there, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub seq: i64,
    pub line: u32,
}

/// The first line of each stream that was not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub out: Mark,
    pub err: Mark,
}

const FIRST: Mark = Mark { seq: 0, line: 1 };
pub const START: Place = Place { out: FIRST, err: FIRST };

impl Place {
    fn of(&mut self, stream: Stream) -> &mut Mark {
        match stream {
            Stream::Stdout => &mut self.out,
            Stream::Stderr => &mut self.err,
        }
    }

    /// Returns a place that is near the end, for streams that go on with these numbers.
    pub fn near_end(next: [i64; 2]) -> Self {
        let [out, err] = next.map(|next| Mark { seq: (next - TAIL_CHUNKS).max(0), line: 1 });
        Self { out, err }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}.{}-e{}.{}", self.out.seq, self.out.line, self.err.seq, self.err.line)
    }
}

impl FromStr for Place {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (out, err) = text.split_once('-').ok_or(())?;
        let label = |text: &str, sign| {
            let (seq, line) = text.strip_prefix(sign)?.split_once('.')?;
            let seq = seq.parse().ok().filter(|seq| *seq >= 0)?;
            Some(Mark { seq, line: line.parse().ok()? })
        };
        Ok(Self { out: label(out, 'o').ok_or(())?, err: label(err, 'e').ok_or(())? })
    }
}

/// A piece of output with the facts that its rows show.
pub(super) struct Piece {
    pub stream: Stream,
    pub seq: i64,
    pub at: i64,
    pub bytes: Vec<u8>,
}

/// A row of the shown log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub stream: Stream,
    pub label: Mark,
    at: i64,
    pub line: Line,
    /// The line has not ended.
    open: bool,
    /// Place of the page that begins with this row.
    here: Place,
}

/// Rows of a page.
#[derive(Debug)]
pub struct Rows {
    all: Vec<Row>,
    /// Place where the next answer begins.
    pub after: Place,
    /// There is more output already.
    pub more: bool,
    /// Number of rows before these that were left out.
    pub left_out: usize,
    /// Row about lines before these ones: their number, and the place where they begin.
    pub(super) gap: Option<(usize, Place)>,
}

/// Chooses the rows that stay when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    First,
    Last,
}

/// The output of one directive.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub app: &'a App,
    pub account: Account,
    pub id: DirectiveId,
}

/// Pieces of one stream, as one answer of the store has them.
pub(super) struct Loaded {
    pub pieces: Vec<Piece>,
    /// Number of the last piece that was looked at.
    pub last: i64,
    /// The answer ended before the stream did.
    is_full: bool,
}

/// Reads pieces of a stream that follow a number and are below a bound.
pub(super) async fn load(source: Source<'_>, stream: Stream, after: i64, bound: i64) -> Result<Loaded, Problem> {
    let query = ChunkQuery { stream, after, limit: MAX_CHUNKS, max_bytes: MAX_BYTES, attempt: None };
    let stored = source.app.store.chunks(source.account, source.id, query).await?;
    let (mut pieces, mut size, count) = (Vec::new(), 0, stored.len());
    let last = stored.last().map_or(after, |chunk| chunk.seq);
    for chunk in stored.into_iter().filter(|chunk| chunk.seq < bound) {
        let bytes = match chunk.bytes {
            ChunkBytes::Here(bytes) => bytes,
            ChunkBytes::File { account, id, offset, length } => {
                source.app.blobs.read(BlobId { account, id }, offset, length as usize).await?
            }
        };
        size += bytes.len();
        pieces.push(Piece { stream, seq: chunk.seq, at: chunk.created_at, bytes });
    }
    // The answer of the store ends before a chunk that would be too much.
    Ok(Loaded { pieces, last, is_full: count == MAX_CHUNKS as usize || size + MAX_CHUNK_BYTES > MAX_BYTES })
}

/// Reads output of a directive from a place on. While the directive lives, a stream is shown up to its first gap.
pub(super) async fn read(
    source: Source<'_>,
    from: Place,
    upto: Option<[i64; 2]>,
    keep: Window,
) -> Result<Rows, Problem> {
    let (mut pieces, mut is_full) = (Vec::new(), false);
    for (index, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
        let mut from = from;
        // The chunk before says whether the first one begins within a line.
        let after = from.of(stream).seq - 2;
        let loaded = load(source, stream, after, upto.map_or(i64::MAX, |next| next[index])).await?;
        is_full |= loaded.is_full;
        pieces.extend(loaded.pieces);
    }
    // Pieces of one stream stay in their order, also when a late one filled a gap.
    pieces.sort_by_key(|piece| piece.at);
    pieces = in_order(pieces);
    let mut rows = rows(from, &pieces);
    rows.more |= is_full;
    Ok(bounded(rows, keep))
}

/// Gives each stream its own order at the places that its pieces have among those of the other.
fn in_order(pieces: Vec<Piece>) -> Vec<Piece> {
    let streams: Vec<Stream> = pieces.iter().map(|piece| piece.stream).collect();
    let (mut out, mut err): (Vec<Piece>, Vec<Piece>) =
        pieces.into_iter().partition(|piece| piece.stream == Stream::Stdout);
    out.sort_by_key(|piece| std::cmp::Reverse(piece.seq));
    err.sort_by_key(|piece| std::cmp::Reverse(piece.seq));
    streams.into_iter().filter_map(|stream| if stream == Stream::Stdout { out.pop() } else { err.pop() }).collect()
}

/// Reader of one stream.
struct Lines {
    stream: Stream,
    reader: Reader,
    /// Start of the line that has not ended.
    open: Option<Mark>,
    /// First line that is shown.
    from: Mark,
    at: i64,
}

impl Lines {
    fn new(stream: Stream, from: Mark) -> Self {
        Self { stream, reader: Reader::default(), open: None, from, at: 0 }
    }

    /// Takes a piece, hands out its lines, and returns where the first line begins that has not ended.
    fn push(&mut self, piece: &Piece, mut take: impl FnMut(Mark, Line)) -> Mark {
        self.at = piece.at;
        let mut lines = 0;
        for line in self.reader.push(&piece.bytes) {
            let label = self.open.take().unwrap_or_else(|| {
                lines += 1;
                Mark { seq: piece.seq, line: lines }
            });
            take(label, line);
        }
        // A sequence or a character may have lines too: only the end of a line is not a part of a line.
        if piece.bytes.last().is_some_and(|last| *last != b'\n') {
            self.open.get_or_insert(Mark { seq: piece.seq, line: lines + 1 });
        }
        self.open.unwrap_or(Mark { seq: piece.seq + 1, line: 1 })
    }
}

/// Both streams as rows.
pub(super) struct Sheet {
    streams: [Lines; 2],
    /// First line of each stream that has not ended.
    after: Place,
}

impl Sheet {
    pub fn new(from: Place) -> Self {
        Self { streams: [Lines::new(Stream::Stdout, from.out), Lines::new(Stream::Stderr, from.err)], after: from }
    }

    /// Takes the next piece and hands out its rows.
    pub fn push(&mut self, piece: &Piece, take: &mut impl FnMut(Row)) {
        let [out, err] = &mut self.streams;
        let lines = if piece.stream == Stream::Stdout { out } else { err };
        let first = lines.from;
        let mut place = self.after;
        let next = lines.push(piece, |label, line| {
            if label >= first {
                *place.of(piece.stream) = label;
                let (stream, at) = (piece.stream, piece.at);
                take(Row { stream, label, at, line, open: false, here: place });
            }
        });
        *self.after.of(piece.stream) = next.max(first);
    }

    /// Hands out the rows that have not ended.
    pub fn end(self, take: &mut impl FnMut(Row)) {
        for lines in self.streams {
            if let Some(label) = lines.open.filter(|label| *label >= lines.from)
                && lines.reader.is_open()
            {
                let line = lines.reader.open().clone();
                take(Row { stream: lines.stream, label, at: lines.at, line, open: true, here: self.after });
            }
        }
    }
}

fn rows(from: Place, pieces: &[Piece]) -> Rows {
    let (mut sheet, mut all) = (Sheet::new(from), Vec::new());
    let mut take = |row| all.push(row);
    for piece in pieces {
        sheet.push(piece, &mut take);
    }
    let after = sheet.after;
    sheet.end(&mut take);
    Rows { all, after, more: false, left_out: 0, gap: None }
}

fn bounded(mut rows: Rows, keep: Window) -> Rows {
    let excess = rows.all.len().saturating_sub(MAX_ROWS);
    if excess == 0 {
        return rows;
    }
    match keep {
        Window::Last => {
            rows.all.drain(..excess);
            rows.left_out = excess;
        }
        Window::First => {
            let left = rows.all.split_off(MAX_ROWS);
            for stream in [Stream::Stdout, Stream::Stderr] {
                if let Some(row) = left.iter().find(|row| row.stream == stream) {
                    *rows.after.of(stream) = row.label;
                }
            }
            rows.all.retain(|row| !row.open);
            rows.more = true;
        }
    }
    rows
}

fn name(stream: Stream, label: Mark) -> String {
    format!("{}{}.{}", if stream == Stream::Stdout { 'o' } else { 'e' }, label.seq, label.line)
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Writes the rows. `started` is the time that theirs are counted from.
    pub fn write(&self, html: &mut Html, started: Option<i64>) {
        if let Some((count, from)) = self.gap {
            html.raw("<p class=\"muted l gap\">").text(&format!("{count} lines are not shown here. "));
            html.leaf("a", &[("href", &format!("?view=log&from={from}"))], "Show them").raw("</p>");
        }
        write(&self.all, html, started, "");
    }
}

/// Writes rows, each with a link to its place in the output.
pub(super) fn write(rows: &[Row], html: &mut Html, started: Option<i64>, more: &str) {
    for row in rows {
        let name = name(row.stream, row.label);
        let class = match (row.stream, row.open) {
            (Stream::Stdout, false) => "l",
            (Stream::Stdout, true) => "l open",
            (Stream::Stderr, false) => "l e",
            (Stream::Stderr, true) => "l e open",
        };
        let class = format!("{class}{more}");
        html.element("div", &[("class", &class), ("id", &name)], |html| {
            let link = format!("?view=log&from={}#{name}", row.here);
            html.leaf("a", &[("class", "ref"), ("href", &link)], &name);
            let ms = started.map_or(0, |started| (row.at - started).max(0));
            html.leaf("span", &[("class", "t")], &format!("{}:{:02}.{}", ms / 60_000, ms / 1000 % 60, ms / 100 % 10));
            html.element("code", &[], |html| row.line.write(html));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(stream: Stream, seq: i64, at: i64, text: &str) -> Piece {
        Piece { stream, seq, at, bytes: text.as_bytes().to_vec() }
    }

    fn shown(rows: &Rows) -> Vec<(String, String, bool)> {
        rows.all.iter().map(|row| (name(row.stream, row.label), row.line.text(), row.open)).collect()
    }

    fn line(name: &str, text: &str, open: bool) -> (String, String, bool) {
        (name.to_owned(), text.to_owned(), open)
    }

    #[test]
    fn a_line_is_named_by_the_chunk_in_which_it_begins() {
        let (o, e) = (Stream::Stdout, Stream::Stderr);
        let all = [
            piece(o, 0, 1, "one\ntw"),
            piece(e, 0, 2, "warn\n"),
            piece(o, 1, 3, "o\nthree\n\nfo"),
            piece(o, 2, 4, "ur"),
        ];
        let rows = rows(START, &all);
        let expected = [
            line("o0.1", "one", false),
            line("e0.1", "warn", false),
            line("o0.2", "two", false),
            line("o1.1", "three", false),
            line("o1.2", "", false),
            line("o1.3", "four", true),
        ];
        assert_eq!(shown(&rows), expected);
        assert_eq!(rows.after.to_string(), "o1.3-e1.1");
        // From every row of a page on, the page that begins there has the same rows.
        for (index, row) in rows.all.iter().enumerate().filter(|(_, row)| !row.open) {
            let text = row.here.to_string();
            let from: Place = text.parse().unwrap();
            let (out, err) = (from.out.seq - 1, from.err.seq - 1);
            let part: Vec<Piece> = all
                .iter()
                .filter(|piece| piece.seq >= if piece.stream == o { out } else { err })
                .map(|piece| Piece { bytes: piece.bytes.clone(), ..*piece })
                .collect();
            assert_eq!(shown(&super::rows(from, &part)), expected[index..], "{text}");
        }
    }

    #[test]
    fn the_next_page_begins_where_this_one_ends() {
        let text = (0..1_234).fold(String::new(), |text, n| text + &n.to_string() + "\n");
        let all = [piece(Stream::Stdout, 0, 1, &text), piece(Stream::Stdout, 1, 2, "end")];
        let (mut from, mut seen) = (START, Vec::new());
        for _ in 0..3 {
            let page = bounded(rows(from, &all), Window::First);
            assert!(page.all.len() <= MAX_ROWS);
            seen.extend(shown(&page).into_iter().map(|(_, text, _)| text));
            from = page.after;
        }
        let expected: Vec<String> = (0..1_234).map(|n| n.to_string()).chain(["end".to_owned()]).collect();
        assert_eq!(seen, expected);
        let last = bounded(rows(START, &all), Window::Last);
        assert!(last.left_out > 0 && shown(&last).last().unwrap().1 == "end");
    }

    #[test]
    fn a_place_is_read_from_its_own_form_alone() {
        for text in ["", "o1.1", "o1.1-e", "e1.1-o1.1", "o-1.1-e0.1", "o1.1-e1.1-x", "o1.1-e1.x"] {
            assert_eq!(text.parse::<Place>(), Err(()), "{text}");
        }
    }
}
