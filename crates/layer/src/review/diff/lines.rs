//! The difference of two texts, line by line. Pure but for the clock of the deadline.
//!
//! The worst case of a line comparison grows with the square of the text, and the texts are a hostile command's. So
//! there is a deadline; a file that misses it is shown as replaced between its first and its last difference.

use crate::review::diff::model::{Hunk, Line, LineTag};
use nexus_model::ByteText;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};
use std::collections::HashMap;
use std::time::Instant;

/// With more lines than this between the first and the last difference (both sides together), nothing is compared.
const MAX_LINES: usize = 400_000;

/// Splits a text into lines, each with its newline.
pub(crate) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the places where two texts differ, with `context` lines around each. `None` sets no deadline.
#[must_use]
pub fn hunks(old: &[u8], new: &[u8], context: usize, deadline: Option<Instant>) -> Vec<Hunk> {
    let (old, new) = (split_lines(old), split_lines(new));
    let ops = ops(&old, &new, deadline);
    if ops.iter().all(|op| matches!(op, DiffOp::Equal { .. })) {
        return Vec::new();
    }
    group_diff_ops(ops, context).iter().map(|group| hunk(group, &old, &new)).collect()
}

/// Returns the operations that make the new lines of the old ones. After the deadline all between the first and the last
/// difference is one replacement.
pub(crate) fn ops(old: &[&[u8]], new: &[&[u8]], deadline: Option<Instant>) -> Vec<DiffOp> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (old_mid, new_mid) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if old_mid.len() + new_mid.len() <= MAX_LINES && !late() {
        // Numbers are compared faster than lines; the table's hash is seeded, so lines cannot be made to collide.
        let mut table = HashMap::new();
        let (a, b) = (numbers(&mut table, old), numbers(&mut table, new));
        let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
        if !late() {
            return ops;
        }
    }
    let equal = |old_index, new_index, len| DiffOp::Equal { old_index, new_index, len };
    let replaced =
        DiffOp::Replace { old_index: start, old_len: old_mid.len(), new_index: start, new_len: new_mid.len() };
    let mut ops = vec![equal(0, 0, start)];
    if !old_mid.is_empty() || !new_mid.is_empty() {
        ops.push(replaced);
    }
    ops.push(equal(old.len() - end, new.len() - end, end));
    ops.retain(|op| !matches!(op, DiffOp::Equal { len: 0, .. }));
    ops
}

fn numbers<'a>(table: &mut HashMap<&'a [u8], usize>, lines: &[&'a [u8]]) -> Vec<usize> {
    let mut number = |line: &&'a [u8]| {
        let next = table.len();
        *table.entry(line).or_insert(next)
    };
    lines.iter().map(&mut number).collect()
}

fn hunk(group: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) -> Hunk {
    let mut lines = Vec::new();
    let mut add = |tag: LineTag, all: &[&[u8]]| {
        lines.extend(all.iter().map(|text| Line { tag, text: ByteText(text.to_vec()) }));
    };
    for op in group {
        match op {
            DiffOp::Equal { .. } => add(LineTag::Context, &old[op.old_range()]),
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                add(LineTag::Removed, &old[op.old_range()]);
                add(LineTag::Added, &new[op.new_range()]);
            }
        }
    }
    let side = |skipped: LineTag, first: usize| {
        let count = lines.iter().filter(|line| line.tag != skipped).count();
        // Without lines there is no first one: the number is that of the line before.
        (if count == 0 { first } else { first + 1 }, count)
    };
    let (first_old, first_new) = group.first().map_or((0, 0), |op| (op.old_range().start, op.new_range().start));
    let (old_start, old_lines) = side(LineTag::Added, first_old);
    let (new_start, new_lines) = side(LineTag::Removed, first_new);
    Hunk { old_start, old_lines, new_start, new_lines, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn one(old: &str, new: &str, context: usize) -> Hunk {
        let mut all = hunks(old.as_bytes(), new.as_bytes(), context, None);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn ranges_are_counted_as_git_counts_them() {
        let range = |hunk: &Hunk| (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines);
        assert_eq!(range(&one("", "a\nb\n", 3)), (0, 0, 1, 2));
        assert_eq!(range(&one("a\n", "", 3)), (1, 1, 0, 0));
        assert_eq!(range(&one("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nx\n", 3)), (2, 4, 2, 4));
        assert_eq!(range(&one("1\n2\n3\n", "1\n2\nx\n3\n", 0)), (2, 0, 3, 1));
    }

    #[test]
    fn a_text_that_takes_too_long_is_shown_as_replaced() {
        let text =
            |from: usize| (from..from + 2000).fold(String::new(), |text, line| text + &format!("{}\n", line % 97));
        let (old, new) = (format!("same\n{}end\n", text(0)), format!("same\n{}end\n", text(3)));
        let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let late = hunks(old.as_bytes(), new.as_bytes(), 3, Some(past));
        assert_eq!((late.len(), late[0].old_lines, late[0].new_lines), (1, 2002, 2002));
        let in_time = hunks(old.as_bytes(), new.as_bytes(), 3, None);
        let changed = |hunks: &[Hunk]| {
            hunks.iter().map(|h| h.lines.iter().filter(|l| l.tag != LineTag::Context).count()).sum::<usize>()
        };
        assert!(changed(&in_time) < 100, "{}", changed(&in_time));
    }

    /// The worst inputs that we know: no line in common, few different lines in random order, a long repetition.
    #[test]
    fn hostile_texts_of_the_largest_size_end_in_time() {
        const LINES: usize = 190_000;
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let mut text = |line: &mut dyn FnMut(usize, u64) -> String| {
            (0..LINES).fold(String::new(), |text, at| text + &line(at, random()) + "\n").into_bytes()
        };
        let cases = [
            (text(&mut |at, _| format!("a{at}")), text(&mut |at, _| format!("b{at}"))),
            (text(&mut |_, random| (random % 2).to_string()), text(&mut |_, random| (random % 2).to_string())),
            (text(&mut |_, random| (random % 500).to_string()), text(&mut |_, random| (random % 500).to_string())),
            (text(&mut |at, _| (at % 2).to_string()), text(&mut |at, _| (at % 3).to_string())),
            (text(&mut |at, _| at.to_string()), text(&mut |at, _| (LINES - at).to_string())),
        ];
        for (number, (old, new)) in cases.iter().enumerate() {
            let started = Instant::now();
            let found = hunks(old, new, 3, started.checked_add(Duration::from_millis(300)));
            assert!(started.elapsed() < Duration::from_secs(5), "case {number} took {:?}", started.elapsed());
            assert!(!found.is_empty());
        }
    }
}
