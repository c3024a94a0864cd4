//! Streams in pieces of every size against a search through the whole.

use super::*;
use crate::redact::{Redaction, forms};
use crate::value::SecretValue;
use proptest::prelude::*;

fn redaction(values: &[(&str, &[u8])]) -> Redaction {
    let all: Vec<_> =
        values.iter().map(|(name, value)| (*name, SecretValue::new(Zeroizing::new(value.to_vec())))).collect();
    Redaction::new(all.iter().map(|(name, value)| (*name, value)))
}

fn redacted(redaction: &Redaction, pieces: &[&[u8]]) -> String {
    let mut stream = redaction.stream();
    let mut out: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
    out.extend(stream.finish());
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn a_value_is_replaced_in_whatever_pieces_it_comes() {
    let one = redaction(&[("T", b"hunter2-hunter2")]);
    let text = b"the value hunter2-hunter2, and hunter2-hunter once; hunter2-hunter2hunter2-hunter2.";
    let wanted = "the value [secret T], and hunter2-hunter once; [secret T].";
    for size in [1, 2, 3, 7, 16, 1000] {
        assert_eq!(redacted(&one, &text.chunks(size).collect::<Vec<_>>()), wanted, "{size}");
    }
}

#[test]
fn only_the_beginning_of_a_value_waits() {
    let mut stream = redaction(&[("T", b"hunter2")]).stream();
    assert_eq!(stream.push(b"$ "), b"$ ");
    assert_eq!(stream.push(b"ls hun"), b"ls ");
    assert_eq!(stream.push(b"ger\n"), b"hunger\n");
    assert_eq!(stream.push(b"hunter2"), b"[secret T]", "a whole value does not wait");
    assert_eq!(stream.push(b"hunt"), b"");
    assert_eq!(stream.finish(), b"hunt");
}

#[test]
fn a_terminal_shows_what_is_typed_at_once() {
    let one = redaction(&[("T", b"hunter2")]);
    let mut stream = one.terminal();
    assert_eq!(stream.push(b"h"), b"h");
    assert_eq!(stream.push(b"e"), b"e");
    assert_eq!(stream.push(b"hu"), b"hu");
    assert_eq!(stream.push(b"nt"), b"");
    assert_eq!(stream.push(b"er2 h"), b"[secret T] h");
    assert_eq!(stream.push(b"unter2"), b"[secret T]");
    assert_eq!(stream.push(b"hunt"), b"");
    assert_eq!(stream.push(b"x"), b"huntx");
}

#[test]
fn values_that_overlap_and_contain_each_other_are_covered_whole() {
    let several = redaction(&[("A", b"abcdef"), ("B", b"defghi"), ("C", b"cdefgh-long"), ("D", b"bcde")]);
    for (text, wanted) in [
        ("xabcdefghix", "x[secret A]x"),
        ("xbcdex", "x[secret D]x"),
        ("xcdefgh-lonx", "xcdefgh-lonx"),
        ("xcdefgh-longx", "x[secret C]x"),
        ("abcde", "a[secret D]"),
    ] {
        assert_eq!(redacted(&several, &[text.as_bytes()]), wanted);
        assert_eq!(redacted(&several, &text.as_bytes().chunks(1).collect::<Vec<_>>()), wanted);
    }
}

#[test]
fn a_long_value_of_equal_bytes_costs_no_more_than_its_length() {
    let long = redaction(&[("A", &vec![b'a'; crate::MAX_BYTES])]);
    let mut stream = long.stream();
    let began = std::time::Instant::now();
    let mut out = Vec::new();
    for _ in 0..64 {
        out.extend(stream.push(&vec![b'a'; crate::MAX_BYTES]));
        out.extend(stream.push(b"b"));
    }
    out.extend(stream.finish());
    assert_eq!(out, "[secret A]b".repeat(64).into_bytes());
    // Some hundred milliseconds; more than an hour where each byte costs the length of the value.
    assert!(began.elapsed().as_secs() < 60);
}

/// All parts of a text that have one of the forms, by brute force.
fn covered(text: &[u8], forms: &[Vec<u8>]) -> Vec<bool> {
    let mut covered = vec![false; text.len()];
    for form in forms {
        for at in (0..text.len()).filter(|at| text[*at..].starts_with(form)) {
            covered[at..at + form.len()].fill(true);
        }
    }
    covered
}

proptest! {
    #[test]
    fn a_stream_is_redacted_as_a_search_through_the_whole_says(
        values in proptest::collection::vec("[ab/ ]{4,7}", 1..4),
        text in "[abYWIEvQgLyA/% 0-9]{0,200}",
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        terminal: bool,
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).filter(|value| value.trim().len() >= 4).collect();
        let named: Vec<_> = values.iter().map(|value| ("N", value.as_bytes())).collect();
        let redaction = redaction(&named);
        let all: Vec<Vec<u8>> = values.iter().flat_map(|value| forms::of(value.as_bytes())).map(|form| form.to_vec()).collect();
        let mut text = text.into_bytes();
        for (place, form) in places.iter().filter(|_| !all.is_empty()) {
            let at = place.index(text.len() + 1);
            text.splice(at..at, form.get(&all).iter().copied());
        }
        let covered = covered(&text, &all);
        let mut wanted = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            match (covered[at], at > 0 && covered[at - 1]) {
                (true, true) => {}
                (true, false) => wanted.extend(b"[secret N]"),
                (false, _) => wanted.push(*byte),
            }
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut stream = if terminal { redaction.terminal() } else { redaction.stream() };
        let mut out: Vec<u8> = cuts.windows(2).flat_map(|pair| stream.push(&text[pair[0]..pair[1]])).collect();
        out.extend(stream.finish());
        if terminal {
            // Beside that, at most two bytes before each value.
            prop_assert!(all.iter().all(|form| !out.windows(form.len()).any(|part| part == form) || b"[secret N]".windows(form.len()).any(|part| part == form)));
        } else {
            prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&wanted));
        }
    }
}
