//! Merges two versions of a text that came from one base. Pure but for the clock of the deadline.
//!
//! ```text
//!  base ─ lines ─▶ changes of ours, changes of theirs ─▶ groups that touch ─┬─ of one side: taken
//!                                                                          ├─ of both, the same text: taken once
//!                                                                          └─ of both, different: an overlap
//! ```
//! Changes of neighbouring lines count as an overlap, as in git. Markers of conflicts are never written: with any overlap
//! there is no merged text.

use crate::review::diff::lines::{ops, split_lines};
use similar::DiffOp;
use std::ops::Range;
use std::time::Instant;

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merged {
    /// The text with the changes of both sides.
    Text(Vec<u8>),
    /// The number of places that both sides changed, and not to the same text.
    Overlaps(usize),
}

/// One place where a side differs from the base, in numbers of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    base: Range<usize>,
    side: Range<usize>,
}

/// Merges what two sides made out of a base. With a deadline that passes, a side counts as one large change.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8], deadline: Option<Instant>) -> Merged {
    let (base, ours, theirs) = (split_lines(base), split_lines(ours), split_lines(theirs));
    let (left, right) = (changes(&base, &ours, deadline), changes(&base, &theirs, deadline));
    let (mut left, mut right) = (&left[..], &right[..]);
    let (mut out, mut at, mut overlaps): (Vec<&[u8]>, usize, usize) = (Vec::new(), 0, 0);
    while let Some(start) = [left.first(), right.first()].into_iter().flatten().map(|one| one.base.start).min() {
        let mut end = start;
        let (mut of_left, mut of_right) = (0, 0);
        loop {
            let before = (of_left, of_right);
            for (side, count) in [(left, &mut of_left), (right, &mut of_right)] {
                if let Some(change) = side.get(*count).filter(|change| change.base.start <= end) {
                    end = end.max(change.base.end);
                    *count += 1;
                }
            }
            if before == (of_left, of_right) {
                break;
            }
        }
        out.extend(&base[at..start]);
        let one = text(&left[..of_left], &ours, start..end);
        let other = text(&right[..of_right], &theirs, start..end);
        match (one, other) {
            (Some(one), Some(other)) if one != other => overlaps += 1,
            (Some(one), _) | (None, Some(one)) => out.extend(one),
            (None, None) => {}
        }
        (left, right, at) = (&left[of_left..], &right[of_right..], end);
    }
    out.extend(&base[at..]);
    // A line without its end can only be the last one.
    overlaps += out.iter().rev().skip(1).filter(|line| !line.ends_with(b"\n")).count();
    if overlaps == 0 { Merged::Text(out.concat()) } else { Merged::Overlaps(overlaps) }
}

/// Returns the lines that a side has for a range of the base; `None` where it did not change that.
fn text<'a>(changes: &[Change], side: &'a [&'a [u8]], base: Range<usize>) -> Option<&'a [&'a [u8]]> {
    let (first, last) = (changes.first()?, changes.last()?);
    let start = first.side.start - (first.base.start - base.start);
    let end = last.side.end + (base.end - last.base.end);
    side.get(start..end)
}

fn changes(base: &[&[u8]], side: &[&[u8]], deadline: Option<Instant>) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    for op in ops(base, side, deadline) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let change = Change { base: op.old_range(), side: op.new_range() };
        match found.last_mut() {
            Some(last) if last.base.end == change.base.start && last.side.end == change.side.start => {
                (last.base.end, last.side.end) = (change.base.end, change.side.end);
            }
            _ => found.push(change),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Result<String, usize> {
        match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), None) {
            Merged::Text(text) => Ok(String::from_utf8(text).unwrap()),
            Merged::Overlaps(count) => Err(count),
        }
    }

    /// One line for each letter.
    fn lines(letters: &str) -> String {
        letters.chars().flat_map(|letter| [letter, '\n']).collect()
    }

    fn of(base: &str, ours: &str, theirs: &str) -> Result<String, usize> {
        merged(&lines(base), &lines(ours), &lines(theirs)).map(|text| text.replace('\n', ""))
    }

    #[test]
    fn changes_of_both_sides_come_together() {
        for (base, ours, theirs, wanted) in [
            ("abcdef", "Abcdef", "abcdeF", "AbcdeF"),
            ("abcdef", "abdef", "abcdefg", "abdefg"),
            ("abcdef", "xabcdef", "abcdef", "xabcdef"),
            ("abcdef", "abcdef", "ab", "ab"),
            ("abcdef", "aXcdef", "aXcdeF", "aXcdeF"),
            ("abcdefghi", "AbcdefghI", "abcdEfghi", "AbcdEfghI"),
            ("ab", "ab", "ab", "ab"),
            ("", "a", "a", "a"),
        ] {
            assert_eq!(of(base, ours, theirs).as_deref(), Ok(wanted), "{base} {ours} {theirs}");
            assert_eq!(of(base, theirs, ours).as_deref(), Ok(wanted), "{base} {theirs} {ours}");
        }
    }

    #[test]
    fn a_place_that_both_changed_is_never_guessed() {
        for (base, ours, theirs, wanted) in [
            ("abc", "aXc", "aYc", 1),
            // Neighbours, and one within what the other took away.
            ("abcd", "aXcd", "abYd", 1),
            ("abcdef", "af", "abcXef", 1),
            ("ab", "axb", "ayb", 1),
            ("", "a", "b", 1),
            ("abcdefg", "XbcdefY", "VbcdefW", 2),
            ("abc", "", "abX", 1),
        ] {
            assert_eq!(of(base, ours, theirs), Err(wanted), "{base} {ours} {theirs}");
            assert_eq!(of(base, theirs, ours), Err(wanted), "{base} {theirs} {ours}");
        }
    }

    #[test]
    fn a_last_line_without_its_end_joins_no_other() {
        assert_eq!(merged("a\nb\nc", "A\nb\nc", "a\nb\nC"), Ok("A\nb\nC".into()));
        assert_eq!(merged("a\nb\nc", "a\nb\nc\nd\n", "x\na\nb\nc"), Ok("x\na\nb\nc\nd\n".into()));
        assert_eq!(merged("a\nb", "a\nb\n", "a\nb\nc\n"), Err(1));
    }

    #[test]
    fn a_merge_with_one_side_unchanged_is_the_other_side() {
        let texts = ["", "a\n", "a\nb\n", "b\na\n", "a\na\nb\na\n", "c", "a\nc"];
        for base in texts {
            for side in texts {
                assert_eq!(merged(base, base, side), Ok(side.to_owned()), "{base:?} {side:?}");
                assert_eq!(merged(base, side, base), Ok(side.to_owned()), "{base:?} {side:?}");
                assert_eq!(merged(base, side, side), Ok(side.to_owned()), "{base:?} {side:?}");
            }
        }
    }

    #[test]
    fn a_deadline_that_passed_merges_nothing_wrongly() {
        let late = Some(Instant::now());
        let of = |ours: &str, theirs: &str| merge(b"a\nb\nc\nd\ne\n", ours.as_bytes(), theirs.as_bytes(), late);
        assert_eq!(of("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n"), Merged::Text(b"A\nb\nc\nd\nE\n".to_vec()));
        assert_eq!(of("A\nb\nC\nd\ne\n", "a\nB\nc\nd\ne\n"), Merged::Overlaps(1));
    }
}
