//! The differences of a workspace from a checkpoint, as lines, as JSON and as a diff.

use super::failed;
use crate::failure::Failure;
use nexus_facility::checkpoints::Present;
use nexus_facility::checkpoints::states::Side;
use nexus_facility::snapshots::{Change, ChangeKind};
use nexus_layer::meta::EntryType;
use nexus_layer::review::diff::applies::set_applies;
use nexus_layer::review::diff::lines::hunks;
use nexus_layer::review::diff::{Blob, Content, Diff, DiffKind, DiffOptions, FileDiff};
use nexus_model::ByteText;
use std::time::Instant;

/// Returns the word for a kind of change.
pub fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Type => "type",
        ChangeKind::Attributes => "attributes",
    }
}

/// Makes a diff of changes.
pub fn diff(present: &mut Present, changes: &[Change]) -> Result<Diff, Failure> {
    let options = DiffOptions::default();
    let deadline = Instant::now().checked_add(options.total_time);
    let mut left = options.max_text_total;
    let mut files = Vec::new();
    for change in changes.iter().filter(|change| !change.path.is_empty()).take(options.max_files) {
        let most = options.max_text.min(left);
        let mut side = |now: bool| present.side(now, &change.path, most).map_err(|error| failed(&error));
        let (old, new) = (side(false)?, side(true)?);
        left = left.saturating_sub(length(old.as_ref()) + length(new.as_ref()));
        // What is of another type now is one file that went and one that came.
        let is_other = kind_of(old.as_ref()) != kind_of(new.as_ref());
        let pairs =
            if old.is_some() && new.is_some() && is_other { vec![(old, None), (None, new)] } else { vec![(old, new)] };
        for (old, new) in pairs {
            files.extend(file(&change.path, old.as_ref(), new.as_ref(), &options, deadline));
        }
    }
    set_applies(&mut files);
    Ok(Diff { files, incomplete: changes.len() > options.max_files })
}

fn length(side: Option<&Side>) -> u64 {
    side.and_then(|side| side.bytes.as_ref()).map_or(0, |bytes| bytes.len() as u64)
}

fn kind_of(side: Option<&Side>) -> Option<EntryType> {
    use nexus_facility::checkpoints::states::Kind;
    side.map(|side| match side.kind() {
        Kind::File => EntryType::File,
        Kind::Directory => EntryType::Directory,
        Kind::Link => EntryType::Symlink,
    })
}

fn file(
    path: &[u8],
    old: Option<&Side>,
    new: Option<&Side>,
    options: &DiffOptions,
    deadline: Option<Instant>,
) -> Option<FileDiff> {
    let file_type = kind_of(new).or(kind_of(old))?;
    let kind = match (old, new) {
        (None, _) => DiffKind::Added,
        (_, None) => DiffKind::Deleted,
        _ => DiffKind::Modified,
    };
    let mode = |side: Option<&Side>| side.map(Side::mode);
    Some(FileDiff {
        path: ByteText(path.to_vec()),
        kind,
        file_type,
        old_mode: mode(old),
        new_mode: mode(new),
        rename_from: None,
        similarity: None,
        content: content(old, new, file_type, options, deadline),
        applies: false,
        protected: None,
        other_names: 0,
    })
}

fn content(
    old: Option<&Side>,
    new: Option<&Side>,
    file_type: EntryType,
    options: &DiffOptions,
    deadline: Option<Instant>,
) -> Content {
    if file_type == EntryType::Directory {
        return Content::None;
    }
    let text = |side: Option<&Side>| match side {
        None => Some(Vec::new()),
        Some(side) => side.text().filter(|text| !text.contains(&0)).map(<[u8]>::to_vec),
    };
    let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').count().saturating_sub(1);
    match (text(old), text(new)) {
        (Some(old), Some(new)) if lines(&old).max(lines(&new)) <= options.max_lines => {
            if old == new {
                return Content::None;
            }
            let own = Instant::now().checked_add(options.file_time);
            let deadline = [own, deadline].into_iter().flatten().min();
            Content::Text { hunks: hunks(&old, &new, options.context, deadline) }
        }
        _ => {
            let blob = |side: Option<&Side>| side.map(|side| Blob { size: side.size(), hash: side.hash() });
            Content::Binary { old: blob(old), new: blob(new) }
        }
    }
}
