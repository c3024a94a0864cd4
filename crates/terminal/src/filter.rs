//! Filters the output of a sandbox down to what a terminal of the caller may show.
//!
//! ```text
//!  text ──▶ copied as it is ──────────────────────────────┐
//!    │ ESC                                                ▼
//!    └──▶ parser, byte by byte ─▶ allowed? written again ▶ out       until the parser is back at text
//! ```
//! Nothing of a sequence passes as it came: what is allowed is written again from its parts, so that a terminal and
//! this parser cannot see two different things in the same bytes. What is not allowed is dropped without a trace.
//! Text is copied in blocks, without the parser, since most output is text.

use crate::allow;
use crate::left::Left;
use crate::mode::Mode;
use vte::{Params, Parser, Perform};

/// Filter of one stream. The stream may be cut into pieces at any byte.
pub struct Filter {
    parser: Parser,
    state: State,
    /// The start of a character whose end has not come yet.
    cut: Vec<u8>,
    in_sequence: bool,
}

struct State {
    mode: Mode,
    left: Left,
    out: Vec<u8>,
    /// True if the byte that was just parsed brought the parser back to text.
    at_text: bool,
    /// The byte that was just parsed.
    byte: u8,
}

const ESC: u8 = 0x1b;
/// Number of bytes that are checked together.
const BLOCK: usize = 64;

impl Filter {
    /// Creates a filter at the start of a stream.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let state = State { mode, left: Left::default(), out: Vec::new(), at_text: false, byte: 0 };
        Self { parser: Parser::new(), state, cut: Vec::new(), in_sequence: false }
    }

    /// Takes a piece of the stream; adds what may be shown to `out`, only ever whole sequences and characters.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.state.out = std::mem::take(out);
        let joined;
        let mut rest = bytes;
        if !self.cut.is_empty() {
            joined = [&std::mem::take(&mut self.cut), bytes].concat();
            rest = &joined;
        }
        while !rest.is_empty() {
            let used = if self.in_sequence { self.sequence(rest) } else { self.text(rest) };
            rest = &rest[used..];
        }
        *out = std::mem::take(&mut self.state.out);
    }

    /// Forgets an incomplete sequence: the bytes that follow do not belong to it.
    pub fn interrupt(&mut self) {
        self.parser = Parser::new();
        self.in_sequence = false;
        self.cut.clear();
    }

    /// Returns the bytes that undo the terminal settings left over from this stream. Each setting is undone once; the
    /// filter stays usable.
    #[must_use]
    pub fn put_back(&mut self) -> Vec<u8> {
        self.interrupt();
        std::mem::take(&mut self.state.left).put_back()
    }

    /// Filters text up to the next sequence. Returns the number of bytes that were used.
    fn text(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == ESC).unwrap_or(bytes.len());
        if end == 0 {
            self.in_sequence = true;
            return self.sequence(bytes);
        }
        let (text, is_last) = (&bytes[..end], end == bytes.len());
        // Checked as a whole this is much faster than looked at in chunks.
        if let Ok(text) = std::str::from_utf8(text) {
            self.state.characters(text);
            return end;
        }
        let mut at = 0;
        for chunk in text.utf8_chunks() {
            self.state.characters(chunk.valid());
            at += chunk.valid().len() + chunk.invalid().len();
            // What ends in the middle of a character may go on in the next piece.
            let incomplete = is_last
                && at == text.len()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if incomplete {
                self.cut = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                self.state.character(char::REPLACEMENT_CHARACTER);
            }
        }
        end
    }

    /// Parses a sequence until it is certain that text follows. Returns the number of bytes that were used.
    fn sequence(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            self.state.at_text = false;
            self.state.byte = *byte;
            self.parser.advance(&mut self.state, std::slice::from_ref(byte));
            // An ESC starts the next sequence, whatever it ended.
            if self.state.at_text && *byte != ESC {
                self.in_sequence = false;
                return at + 1;
            }
        }
        bytes.len()
    }
}

impl State {
    fn character(&mut self, c: char) {
        let mut bytes = [0; 4];
        self.out.extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
    }

    /// Writes the characters outside of sequences that may be shown, and executes allowed control characters.
    fn characters(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut done = 0;
        while done < bytes.len() {
            let clean = clean(&bytes[done..]);
            self.out.extend_from_slice(&bytes[done..done + clean]);
            done += clean;
            let Some(byte) = bytes.get(done) else { return };
            done += 1;
            match byte {
                // The first half of U+0080 to U+00BF.
                0xc2 => {
                    let second = bytes.get(done).copied().unwrap_or_default();
                    done += 1;
                    if second >= 0xa0 {
                        self.out.extend_from_slice(&[0xc2, second]);
                    }
                }
                // The first third of U+2000 to U+2FFF.
                0xe2 => {
                    let rest = bytes.get(done..done + 2).unwrap_or_default();
                    done += 2;
                    if !turns(rest) {
                        self.out.push(0xe2);
                        self.out.extend_from_slice(rest);
                    }
                }
                _ => self.execute(*byte),
            }
        }
    }
}

/// Reports whether these bytes after 0xE2 make a character that turns the reading direction (U+202A to U+202E, U+2066
/// to U+2069): with such characters a terminal shows another text than was printed (CVE-2021-42574).
fn turns(rest: &[u8]) -> bool {
    matches!(rest, [0x80, 0xaa..=0xae] | [0x81, 0xa6..=0xa9])
}

/// Returns the number of bytes at the start that may be copied unchanged. The bytes must be UTF-8.
fn clean(bytes: &[u8]) -> usize {
    let blocks = bytes.chunks_exact(BLOCK).take_while(|block| !block.iter().fold(false, |any, byte| any | odd(*byte)));
    let start = blocks.count() * BLOCK;
    bytes[start..].iter().position(|byte| odd(*byte)).map_or(bytes.len(), |at| start + at)
}

/// Reports whether a byte needs inspection: a control character, or the first byte of a character that may be one of C1
/// or turn the text.
#[allow(clippy::needless_bitwise_bool, reason = "without branches a whole block is looked at in a few instructions")]
fn odd(byte: u8) -> bool {
    ((byte < 0x20) & (byte != b'\n') & (byte != b'\r') & (byte != b'\t'))
        | (byte == 0x7f)
        | (byte == 0xc2)
        | (byte == 0xe2)
}

impl Perform for State {
    fn print(&mut self, c: char) {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if !c.is_control() && !turns {
            self.character(c);
        }
        self.at_text = true;
    }

    fn execute(&mut self, byte: u8) {
        if allow::c0(self.mode, byte) {
            self.left.shift(byte);
            self.out.push(byte);
        }
        // CAN and SUB end whatever sequence there was.
        if matches!(byte, 0x18 | 0x1a) {
            self.at_text = true;
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if !ignore {
            allow::control(self.mode, params, intermediates, action, &mut self.left, &mut self.out);
        }
        self.at_text = true;
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], ignore: bool, byte: u8) {
        if !ignore {
            allow::escape(self.mode, intermediates, byte, &mut self.left, &mut self.out);
        }
        self.at_text = true;
    }

    fn osc_dispatch(&mut self, _params: &[&[u8]], _bell_terminated: bool) {
        // Ended by ESC, a sequence follows.
        self.at_text = self.byte == 0x07;
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
