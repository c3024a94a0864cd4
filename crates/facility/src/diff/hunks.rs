//! Applies some of the hunks of a file. Pure.

use crate::diff::lines::split_lines;
use crate::diff::model::{Content, FileDiff, LineTag};
use std::collections::BTreeSet;

/// Why hunks cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The change of this file has no hunks.
    #[error("this change has no lines to choose from")]
    NoText,
    /// There are fewer hunks.
    #[error("there is no hunk {hunk}, only {count} of them, counted from 0")]
    NoSuchHunk {
        /// The number asked for, from 0.
        hunk: usize,
        /// How many there are.
        count: usize,
    },
    /// The old content is not the one that the diff was made of.
    #[error("the content is not the one that was compared, at line {line}")]
    Mismatch {
        /// Where, from 1.
        line: usize,
    },
}

/// The old content with the chosen hunks (numbers from 0, in any order) and without the others.
pub fn apply_hunks(old: &[u8], file: &FileDiff, chosen: &[usize]) -> Result<Vec<u8>, ApplyError> {
    let Content::Text { hunks } = &file.content else { return Err(ApplyError::NoText) };
    let chosen: BTreeSet<usize> = chosen.iter().copied().collect();
    if let Some(hunk) = chosen.last().copied().filter(|last| *last >= hunks.len()) {
        return Err(ApplyError::NoSuchHunk { hunk, count: hunks.len() });
    }
    let lines = split_lines(old);
    let mut result = Vec::with_capacity(old.len());
    let mut at = 0;
    // All hunks are checked, also those that are not chosen: the numbers mean something only for this very content.
    for (number, hunk) in hunks.iter().enumerate() {
        let start = if hunk.old_lines == 0 { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        if start < at || start > lines.len() {
            return Err(ApplyError::Mismatch { line: start + 1 });
        }
        lines[at..start].iter().for_each(|line| result.extend_from_slice(line));
        at = start;
        let take = chosen.contains(&number);
        for line in &hunk.lines {
            if line.tag != LineTag::Added {
                if lines.get(at) != Some(&line.text.0.as_slice()) {
                    return Err(ApplyError::Mismatch { line: at + 1 });
                }
                at += 1;
            }
            let kept = match line.tag {
                LineTag::Context => true,
                LineTag::Removed => !take,
                LineTag::Added => take,
            };
            if kept {
                result.extend_from_slice(&line.text.0);
            }
        }
    }
    lines[at..].iter().for_each(|line| result.extend_from_slice(line));
    Ok(result)
}
