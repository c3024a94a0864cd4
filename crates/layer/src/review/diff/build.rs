//! Compares each pair and describes the difference.

use crate::beneath::IoFailure;
use crate::meta::EntryType;
use crate::review::diff::lines::hunks;
use crate::review::diff::model::{Content, DiffKind, FileDiff, Hunk, LineTag};
use crate::review::diff::options::{DiffOptions, Trees};
use crate::review::diff::pair::Pair;
use crate::review::diff::read::{Body, Reader, blob};
use crate::review::diff::views::Entry;
use nexus_model::ByteText;
use std::time::Instant;

/// A file that was renamed and has less than this in common with its old version (percent) is another file.
const RENAMED: u8 = 50;

/// Describes all pairs that differ.
pub(crate) fn build(
    trees: &Trees<'_>,
    options: &DiffOptions,
    deadline: Option<Instant>,
    pairs: Vec<Pair>,
) -> Result<Vec<FileDiff>, IoFailure> {
    let mut builder = Builder { reader: Reader::new(trees, options, deadline), options, deadline };
    let mut files = Vec::with_capacity(pairs.len());
    for pair in pairs {
        builder.one(pair, &mut files)?;
    }
    files.sort_by(|a, b| (&a.path, a.new_mode.is_some()).cmp(&(&b.path, b.new_mode.is_some())));
    Ok(files)
}

struct Builder<'a> {
    reader: Reader<'a>,
    options: &'a DiffOptions,
    deadline: Option<Instant>,
}

impl Builder<'_> {
    fn one(&mut self, pair: Pair, files: &mut Vec<FileDiff>) -> Result<(), IoFailure> {
        let Pair { path, kind, old, new, rename_from } = pair;
        let (Some(shown), both) = (new.as_ref().or(old.as_ref()), old.as_ref().zip(new.as_ref())) else {
            return Ok(());
        };
        let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.meta.mode);
        let mut file = FileDiff {
            path: ByteText(path),
            kind,
            file_type: shown.meta.kind,
            old_mode: mode(&old),
            new_mode: mode(&new),
            rename_from: None,
            similarity: None,
            content: Content::None,
            applies: false,
            protected: shown.protected.clone(),
            other_names: shown.other_names,
        };
        // A link's own mode means nothing.
        let same_mode = file.old_mode == file.new_mode || file.file_type == EntryType::Symlink;
        // What a directory carried along was not opened by any process.
        let untouched = both.is_some_and(|(old, new)| old.place == new.place);
        let similarity = if untouched {
            100
        } else {
            let (content, similarity) = self.content(old.as_ref(), new.as_ref())?;
            file.content = content;
            similarity
        };
        let Some(from) = rename_from else {
            let is_directory = file.file_type == EntryType::Directory && kind == DiffKind::Modified;
            let nothing = kind == DiffKind::Modified && file.content == Content::None && same_mode && untouched;
            if !nothing || is_directory {
                files.push(file);
            }
            return Ok(());
        };
        if similarity >= RENAMED {
            file.rename_from = Some(ByteText(from));
            file.similarity = Some(similarity);
            files.push(file);
            return Ok(());
        }
        for (path, kind, old, new) in
            [(from, DiffKind::Deleted, old, None), (file.path.0.clone(), DiffKind::Added, None, new)]
        {
            self.one(Pair { path, kind, old, new, rename_from: None }, files)?;
        }
        Ok(())
    }

    /// Returns the difference, and how much is equal in percent.
    fn content(&mut self, old: Option<&Entry>, new: Option<&Entry>) -> Result<(Content, u8), IoFailure> {
        let mut body = |entry: Option<&Entry>| entry.map_or(Ok(None), |entry| self.reader.body(entry));
        let (old, new) = (body(old)?, body(new)?);
        if let (Some(Body::Text(_)) | None, Some(Body::Text(_)) | None) = (&old, &new) {
            let text = |body: Option<Body>| match body {
                Some(Body::Text(text)) => text,
                Some(Body::Blob(_)) | None => Vec::new(),
            };
            let (old, new) = (text(old), text(new));
            if old == new {
                return Ok((Content::None, 100));
            }
            let own = Instant::now().checked_add(self.options.file_time);
            let deadline = [own, self.deadline].into_iter().flatten().min();
            let hunks = hunks(&old, &new, self.options.context, deadline);
            let similarity = similarity(&hunks, old.len(), new.len());
            return Ok((Content::Text { hunks }, similarity));
        }
        let blob = |body: Option<Body>| {
            body.map(|body| match body {
                Body::Text(text) => blob(&text),
                Body::Blob(blob) => blob,
            })
        };
        let (old, new) = (blob(old), blob(new));
        let known = old.as_ref().is_some_and(|old| old.hash.is_some());
        if known && old == new {
            return Ok((Content::None, 100));
        }
        Ok((Content::Binary { old, new }, 0))
    }
}

/// Returns the similarity in percent as git counts it: the bytes that stay, of the longer side; never 100 when
/// something differs.
fn similarity(hunks: &[Hunk], old: usize, new: usize) -> u8 {
    let gone = hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.tag == LineTag::Removed);
    let gone: usize = gone.map(|line| line.text.0.len()).sum();
    let percent = old.saturating_sub(gone) * 100 / old.max(new).max(1);
    u8::try_from(percent).unwrap_or(99).min(99)
}
