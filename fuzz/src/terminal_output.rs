//! The filter of a sandbox's output: nothing that a terminal obeys comes out, however the stream is cut.

use nexus_terminal::{Filter, Mode};

/// The first byte says in which pieces the rest arrives.
pub fn terminal(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    for mode in [Mode::Plain, Mode::Interactive] {
        let out = shown(mode, stream, stream.len().max(1));
        harmless(mode, &out);
        assert_eq!(shown(mode, &out, out.len().max(1)), out, "what came out does not pass as it is");
        assert_eq!(shown(mode, stream, usize::from(*step) + 1), out, "cut into {}", usize::from(*step) + 1);
        ends_clean(mode, stream);
    }
}

fn shown(mode: Mode, stream: &[u8], step: usize) -> Vec<u8> {
    let (mut filter, mut out) = (Filter::new(mode), Vec::new());
    for piece in stream.chunks(step) {
        let before = out.len();
        filter.push(piece, &mut out);
        // Only ever whole characters and sequences: another stream may be shown in between.
        harmless(mode, &out[before..]);
    }
    out
}

/// Putting back is done once, and puts nothing out that would not pass.
fn ends_clean(mode: Mode, stream: &[u8]) {
    let mut filter = Filter::new(mode);
    filter.push(stream, &mut Vec::new());
    let end = filter.put_back();
    harmless(Mode::Interactive, &end);
    assert!(mode == Mode::Interactive || matches!(&end[..], b"" | b"\x1b[0m"), "{end:?}");
    assert!(filter.put_back().is_empty());
}

/// Reads the output by hand and knows nothing of the filter: characters, and sequences by their first and last bytes
/// (ECMA-48, 5.4).
fn harmless(mode: Mode, out: &[u8]) {
    let Ok(text) = std::str::from_utf8(out) else { panic!("{out:?} is not UTF-8") };
    let plain = mode == Mode::Plain;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{8}' | '\t' | '\n' | '\r' => {}
            '\u{7}' | '\u{b}' | '\u{c}' | '\u{e}' | '\u{f}' if !plain => {}
            '\u{1b}' => sequence(plain, &mut rest, text),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => panic!("{c:?} turns the text: {text:?}"),
            c => assert!(!c.is_control(), "{c:?} in {text:?}"),
        }
    }
}

fn sequence(plain: bool, rest: &mut std::str::Chars<'_>, text: &str) {
    match rest.next() {
        Some('[') => {}
        Some('7' | '8' | 'D' | 'E' | 'M' | '=' | '>') if !plain => return,
        Some('(' | ')' | '*' | '+') if !plain => {
            let set = rest.next();
            assert!(matches!(set, Some('0' | 'A' | 'B' | '1' | '2')), "character set {set:?} in {text:?}");
            return;
        }
        found => panic!("ESC {found:?} in {text:?}"),
    }
    let mut inner = String::new();
    let last = loop {
        match rest.next() {
            Some(c @ ' '..='?') => inner.push(c),
            Some(c @ '@'..='~') => break c,
            found => panic!("a sequence is cut by {found:?}: {text:?}"),
        }
    };
    let mark: String = inner.chars().filter(|c| !matches!(c, '0'..='9' | ';' | ':')).collect();
    let first: u32 = inner
        .trim_start_matches(['?', '>'])
        .split([';', ':', ' '])
        .next()
        .map_or(0, |number| number.parse().unwrap_or_default());
    let fine = match (mark.as_str(), last) {
        ("", 'm') => true,
        _ if plain => false,
        ("" | "?", 'K')
        | (" ", 'q')
        | ("", 'A'..='I' | 'L' | 'M' | 'P' | 'S' | 'X' | 'Z' | '@' | '`' | 'a' | 'd' | 'e' | 'f' | 'r') => true,
        ("", 'T') => !inner.contains(';'),
        ("" | "?", 'J') => first < 3,
        ("", 'b') => first < 10_000,
        ("", 'h' | 'l') => first == 4,
        ("", 's' | 'u') => first == 0,
        // The modes that answer, print, resize or report what the mouse selects.
        ("?", 'h' | 'l') => {
            !inner.contains(';') && ![2, 3, 4, 5, 18, 19, 38, 40, 42, 80, 95, 1001, 1046].contains(&first)
        }
        _ => false,
    };
    assert!(fine, "ESC [ {inner} {last} in {text:?}");
}
