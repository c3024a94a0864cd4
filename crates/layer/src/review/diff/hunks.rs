//! Applies some of the hunks of a file. Pure.

use crate::review::diff::lines::split_lines;
use crate::review::diff::model::{Content, FileDiff, LineTag};
use std::collections::BTreeSet;

/// Reason for which hunks cannot be applied.
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
        /// Number of hunks of the file.
        count: usize,
    },
    /// The old content is not the one that the diff was made of.
    #[error("the content is not the one that was compared, at line {line}")]
    Mismatch {
        /// Number of the line, from 1.
        line: usize,
    },
}

/// Returns the old content with the chosen hunks (numbers from 0, in any order) and without the others.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::EntryType;
    use crate::review::diff::lines::hunks;
    use crate::review::diff::model::DiffKind;
    use proptest::prelude::*;

    fn file(old: &[u8], new: &[u8], context: usize) -> FileDiff {
        FileDiff {
            path: "f".into(),
            kind: DiffKind::Modified,
            file_type: EntryType::File,
            old_mode: Some(0o644),
            new_mode: Some(0o644),
            rename_from: None,
            similarity: None,
            content: Content::Text { hunks: hunks(old, new, context, None) },
            applies: true,
            protected: None,
            other_names: 0,
        }
    }

    fn count(file: &FileDiff) -> usize {
        match &file.content {
            Content::Text { hunks } => hunks.len(),
            Content::None | Content::Binary { .. } => 0,
        }
    }

    /// Generates a text of few different lines, the last of which may have no newline; and one that was edited from it.
    fn texts() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let line = prop::sample::select(vec!["a\n", "b\n", "c\n", "\n", "x\r\n", "\u{1b}[2K\n", "\\ No newline\n"]);
        let edit = (any::<prop::sample::Index>(), 0..3_usize, prop::collection::vec(line.clone(), 0..3));
        let ends = (prop::option::of("[a-c]{1,2}"), prop::option::of("[a-c]{1,2}"));
        (prop::collection::vec(line, 0..60), prop::collection::vec(edit, 0..6), ends).prop_map(|(old, edits, ends)| {
            let mut new = old.clone();
            for (at, gone, come) in edits {
                let at = at.index(new.len() + 1);
                let end = (at + gone).min(new.len());
                new.splice(at..end, come);
            }
            let text = |lines: Vec<&str>, end: Option<String>| (lines.concat() + &end.unwrap_or_default()).into_bytes();
            (text(old, ends.0), text(new, ends.1))
        })
    }

    proptest! {
        #[test]
        fn all_hunks_give_the_new_content_and_none_the_old((old, new) in texts(), context in 0..4_usize) {
            let file = file(&old, &new, context);
            let all: Vec<usize> = (0..count(&file)).collect();
            prop_assert_eq!(&apply_hunks(&old, &file, &all).unwrap(), &new);
            prop_assert_eq!(&apply_hunks(&old, &file, &[]).unwrap(), &old);
            prop_assert_eq!(all.is_empty(), old == new);
        }

        #[test]
        fn the_order_and_repetition_of_the_choice_do_not_matter(
            (old, new) in texts(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let file = file(&old, &new, 1);
            prop_assume!(count(&file) > 0);
            let mut chosen: Vec<usize> = picks.iter().map(|pick| pick.index(count(&file))).collect();
            let first = apply_hunks(&old, &file, &chosen).unwrap();
            chosen.reverse();
            prop_assert_eq!(&apply_hunks(&old, &file, &chosen).unwrap(), &first);
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(&apply_hunks(&old, &file, &chosen).unwrap(), &first);
        }

        #[test]
        fn some_hunks_and_then_the_rest_give_the_new_content(
            (old, new) in texts(),
            mask in any::<u32>(),
        ) {
            let all = file(&old, &new, 1);
            let chosen: Vec<usize> = (0..count(&all)).filter(|at| mask & (1 << (at % 32)) != 0).collect();
            let part = apply_hunks(&old, &all, &chosen).unwrap();
            let rest = file(&part, &new, 1);
            let whole: Vec<usize> = (0..count(&rest)).collect();
            prop_assert_eq!(apply_hunks(&part, &rest, &whole).unwrap(), new);
            // Each hunk alone changes something, so a part is neither end unless it has none or all of them.
            prop_assert_eq!(part == old, chosen.is_empty());
        }
    }

    #[test]
    fn another_old_content_is_refused_also_where_no_hunk_was_chosen() {
        let text = |changed: &str| format!("{changed}\n2\n3\n4\n5\n6\n7\n8\n9\n").into_bytes();
        let (old, mut new) = (text("1"), text("one"));
        new.extend_from_slice(b"10\n");
        let file = file(&old, &new, 1);
        assert_eq!(count(&file), 2);
        assert_eq!(apply_hunks(&text("other"), &file, &[1]), Err(ApplyError::Mismatch { line: 1 }));
        assert_eq!(apply_hunks(b"", &file, &[]), Err(ApplyError::Mismatch { line: 1 }));
        assert_eq!(apply_hunks(&old, &file, &[2]), Err(ApplyError::NoSuchHunk { hunk: 2, count: 2 }));
    }
}
