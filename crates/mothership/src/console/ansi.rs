//! Output of a sandbox as lines of text with classes. A parser reads the bytes; colours and weights become classes, a carriage
//! return and the erasing of a line act on that line, and every other sequence is dropped: nothing reaches the page as it came.

use super::html::Html;
use vte::{Params, Parser, Perform};

/// Longest line, in characters. A longer one goes on in a line of its own.
const MAX_LINE: usize = 4_096;

/// Look of a piece of text: indexes of classes, not values of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    colour: Option<u8>,
    bold: bool,
    faint: bool,
    italic: bool,
    underline: bool,
}

const COLOURS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

impl Style {
    fn classes(self) -> String {
        let colour = self.colour.and_then(|colour| COLOURS.get(usize::from(colour)).copied());
        let flags = [(self.bold, "b"), (self.faint, "f"), (self.italic, "i"), (self.underline, "u")];
        let names = colour.into_iter().chain(flags.into_iter().filter(|(on, _)| *on).map(|(_, name)| name));
        names.collect::<Vec<_>>().join(" ")
    }
}

/// A line with its colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    runs: Vec<(Style, String)>,
    length: usize,
}

impl Line {
    /// Returns the text alone.
    pub fn text(&self) -> String {
        self.runs.iter().map(|(_, text)| text.as_str()).collect()
    }

    fn push(&mut self, style: Style, c: char) {
        self.length += 1;
        match self.runs.last_mut() {
            Some((last, text)) if *last == style => text.push(c),
            _ => self.runs.push((style, c.to_string())),
        }
    }

    /// Writes the line into a page.
    pub fn write(&self, html: &mut Html) {
        for (style, text) in &self.runs {
            if *style == Style::default() {
                html.text(text);
            } else {
                html.leaf("span", &[("class", &style.classes())], text);
            }
        }
    }
}

/// Reader of one stream, piece by piece. Colours are reset at each line, so that a line looks the same wherever a page begins.
#[derive(Default)]
pub struct Reader {
    parser: Parser,
    state: State,
}

#[derive(Default)]
struct State {
    style: Style,
    line: Line,
    /// A carriage return came: what follows replaces the line, unless the line ends there.
    returned: bool,
    lines: Vec<Line>,
}

impl Reader {
    /// Takes bytes and returns the lines that ended in them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Line> {
        self.parser.advance(&mut self.state, bytes);
        std::mem::take(&mut self.state.lines)
    }

    /// Returns whether a line is open.
    pub fn is_open(&self) -> bool {
        self.state.line.length > 0
    }

    /// Returns the line that has not ended.
    pub fn open(&self) -> &Line {
        &self.state.line
    }
}

impl State {
    fn end(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
        self.style = Style::default();
        self.returned = false;
    }

    fn begin_again(&mut self) {
        if std::mem::take(&mut self.returned) {
            self.line = Line::default();
        }
    }

    fn colours(&mut self, params: &Params) {
        let mut all = params.iter();
        while let Some(param) = all.next() {
            let [code, rest @ ..] = param else { continue };
            match code {
                0 => self.style = Style::default(),
                1 => self.style.bold = true,
                2 => self.style.faint = true,
                3 => self.style.italic = true,
                4 => self.style.underline = rest.first() != Some(&0),
                22 => (self.style.bold, self.style.faint) = (false, false),
                23 => self.style.italic = false,
                24 => self.style.underline = false,
                30..=37 => self.style.colour = Some((code - 30) as u8),
                90..=97 => self.style.colour = Some((code - 90) as u8),
                39 => self.style.colour = None,
                38 | 48 => {
                    let mut values: Vec<u16> = rest.to_vec();
                    if values.is_empty() {
                        // The older form has its values in parameters of their own.
                        let kind = all.next().and_then(|param| param.first().copied()).unwrap_or_default();
                        values.push(kind);
                        let count = if kind == 2 { 3 } else { 1 };
                        values.extend(all.by_ref().take(count).filter_map(|param| param.first().copied()));
                    }
                    if *code == 38 {
                        self.style.colour = nearest(&values);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the colour of the eight that is nearest to one of 256 or of 16 million.
fn nearest(values: &[u16]) -> Option<u8> {
    let (red, green, blue) = match values {
        [5, index @ 0..=15, ..] => return Some((index % 8) as u8),
        [5, index @ 16..=231, ..] => {
            let index = index - 16;
            let level = |part: u16| part * 51;
            (level(index / 36), level(index / 6 % 6), level(index % 6))
        }
        [5, index @ 232..=255, ..] => {
            let grey = (index - 232) * 10 + 8;
            (grey, grey, grey)
        }
        [2, .., red, green, blue] => (*red, *green, *blue),
        _ => return None,
    };
    let half = red.max(green).max(blue) / 2;
    let bit = |part: u16| u8::from(part > half && part > 40);
    let index = bit(red) | bit(green) << 1 | bit(blue) << 2;
    Some(index)
}

impl Perform for State {
    fn print(&mut self, c: char) {
        self.begin_again();
        if self.line.length >= MAX_LINE {
            let style = self.style;
            self.end();
            self.style = style;
        }
        let style = self.style;
        self.line.push(style, c);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end(),
            b'\r' => self.returned = true,
            b'\t' => self.print('\t'),
            0x08 => {}
            // A character that does nothing here is shown for what it is.
            byte => self.print(char::from(byte)),
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if ignore || !intermediates.is_empty() {
            return;
        }
        match action {
            'm' => self.colours(params),
            'K' => {
                let whole = params.iter().next().and_then(|param| param.first().copied()).unwrap_or_default();
                if whole == 2 || self.returned {
                    self.line = Line::default();
                    self.returned = false;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markup(bytes: &[u8]) -> String {
        let mut reader = Reader::default();
        let mut html = Html::default();
        for line in reader.push(bytes) {
            line.write(&mut html);
            html.raw("|");
        }
        reader.open().write(&mut html);
        html.markup().to_owned()
    }

    #[test]
    fn colours_become_classes_and_end_with_their_line() {
        assert_eq!(markup(b"\x1b[31mred\x1b[0m plain\n"), "<span class=\"c1\">red</span> plain|");
        assert_eq!(markup(b"\x1b[1;4;32mx\ny"), "<span class=\"c2 b u\">x</span>|y");
        assert_eq!(
            markup(b"\x1b[38;5;196mr\x1b[38;2;0;0;250mb\x1b[38:2::0:250:0mg"),
            "<span class=\"c1\">r</span><span class=\"c4\">b</span><span class=\"c2\">g</span>"
        );
        assert_eq!(
            markup(b"\x1b[48;5;31mx"),
            "x",
            "a background is no colour of the text, and its values are no codes"
        );
    }

    #[test]
    fn what_is_drawn_over_is_gone_and_what_acts_is_dropped() {
        assert_eq!(markup(b"10%\r50%\r100%\n"), "100%|");
        assert_eq!(markup(b"line\r\nnext"), "line|next");
        assert_eq!(markup(b"abc\r\x1b[Kx\n"), "x|");
        for acts in [
            &b"\x1b]0;title\x07"[..],
            b"\x1b]52;c;Zm9v\x07",
            b"\x1b]8;;javascript:alert(1)\x1b\\",
            b"\x1b[2J\x1b[H",
            b"\x1bP+q544e\x1b\\",
            b"\x1b_apc\x1b\\",
            b"\x1b[6n\x1b[c",
            b"\x1b[?1049h",
            b"\x1b[8mhidden-is-shown\x1b[0m",
        ] {
            let shown = markup(&[b"<", acts, b">"].concat());
            let shown = shown.replace("hidden-is-shown", "");
            assert_eq!(shown, "&lt;&gt;", "{acts:?}");
        }
        // A character of C1 does not act in UTF-8 text, and is seen.
        assert!(markup("a\u{9b}2Jb".as_bytes()).starts_with('a'), "{}", markup("a\u{9b}2Jb".as_bytes()));
    }

    #[test]
    fn a_line_without_an_end_does_not_grow_without_bound() {
        let mut reader = Reader::default();
        let lines = reader.push(&vec![b'x'; 10 * MAX_LINE + 5]);
        assert_eq!((lines.len(), reader.open().text().len()), (10, 5));
    }
}
