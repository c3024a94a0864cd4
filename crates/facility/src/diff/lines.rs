//! The difference of two texts, line by line. Pure but for the clock of the deadline.
//!
//! The worst case of a line comparison grows with the square of the text, and the texts are a hostile command's. So
//! there is a deadline; a file that misses it is shown as replaced between its first and its last difference.

use crate::diff::model::{Hunk, Line, LineTag};
use nexus_model::ByteText;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};
use std::collections::HashMap;
use std::time::Instant;

/// With more lines than this between the first and the last difference (both sides together), nothing is compared.
const MAX_LINES: usize = 400_000;

/// The lines of a text, each with its newline.
pub(crate) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The places where two texts differ, with `context` lines around each. `None` as deadline is none at all.
#[must_use]
pub fn hunks(old: &[u8], new: &[u8], context: usize, deadline: Option<Instant>) -> Vec<Hunk> {
    let (old, new) = (split_lines(old), split_lines(new));
    let ops = ops(&old, &new, deadline);
    if ops.iter().all(|op| matches!(op, DiffOp::Equal { .. })) {
        return Vec::new();
    }
    group_diff_ops(ops, context).iter().map(|group| hunk(group, &old, &new)).collect()
}

fn ops(old: &[&[u8]], new: &[&[u8]], deadline: Option<Instant>) -> Vec<DiffOp> {
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
    let replaced = DiffOp::Replace {
        old_index: start,
        old_len: old_mid.len(),
        new_index: start,
        new_len: new_mid.len(),
    };
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
