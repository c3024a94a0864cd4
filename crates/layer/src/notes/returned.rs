//! Records the entries that a rollback moved back to their places in the workspace with the ctime that each move set, and the
//! directories that it moved them in.
//!
//! A later accept treats exactly these ctimes as not changed by another process. The records are not synced: if a power failure
//! loses one, the entry is reported as a conflict.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, open_file, pin, split, unlink_if_there};
use crate::entries::tree::CommittedEntry;
use crate::journal::file::{JOURNAL, OURS, read};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Step};
use crate::journal::step_reader::Steps;
use crate::meta::{EntryType, FileId, FsTime, Meta, stat};
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsFd as _;

/// The notes, in the layer's directory.
const RETURNED: &str = "returned";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: FileId,
    /// `None`: it is about to be moved.
    ctime: Option<FsTime>,
}

/// Notes that an entry is about to be moved to its place.
pub(crate) fn will(root: &Workspace, id: FileId) {
    add(root, &Line { id, ctime: None });
}

/// Notes an entry that is at its place.
pub(crate) fn did(root: &Workspace, now: &Meta) {
    add(root, &Line { id: now.id, ctime: Some(now.ctime) });
}

/// Notes an entry. Without its note an entry is a conflict, which loses nothing.
fn add(root: &Workspace, line: &Line) {
    let write = || -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(root.fd(), RETURNED, flags, Mode::from_raw_mode(0o600))?;
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        std::fs::File::from(file).write_all(&text)
    };
    write().ok();
}

/// Removes the notes of an earlier commit.
pub(crate) fn clear(root: &Workspace) -> Result<(), IoFailure> {
    unlink_if_there(root.fd(), RETURNED.as_bytes()).doing("remove", RETURNED.as_bytes())
}

type Noted = HashMap<FileId, Option<FsTime>>;

fn noted(root: &Workspace) -> Result<Noted, IoFailure> {
    let file = match open_file(root.fd(), RETURNED.as_bytes(), OFlags::RDONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Noted::new()),
        other => std::fs::File::from(other.doing("open", RETURNED.as_bytes())?),
    };
    let mut found = Noted::new();
    for line in io::BufReader::new(file).split(b'\n') {
        // The last one may be incomplete.
        let line = serde_json::from_slice::<Line>(&line.doing("read", RETURNED.as_bytes())?);
        found.extend(line.ok().map(|line| (line.id, line.ctime)));
    }
    Ok(found)
}

/// Adds the time stamps of what a commit moved away before it was taken back, sorted by path. Of two for one path the
/// later one counts.
pub(crate) fn with_stamps_of_a_way_back(
    root: &Workspace,
    mut ours: Vec<CommittedEntry>,
) -> Result<Vec<CommittedEntry>, IoFailure> {
    ours.extend(read::<Vec<CommittedEntry>>(root, OURS)?.into_iter().flatten());
    ours.sort_by_key(|own| own.ctime);
    Ok(CommittedEntry::sorted(ours))
}

/// Adds the time stamps of the entries that a way back moved to their places and that are there as they were. Closes
/// the directories that the commit opened up and did not move.
pub(crate) fn stamps(
    root: &Workspace,
    base: &Workspace,
    steps: &Steps,
    ours: &mut Vec<CommittedEntry>,
) -> Result<(), IoFailure> {
    let noted = noted(root)?;
    let moved = moved(steps).doing("read", JOURNAL.as_bytes())?;
    // What is in a directory comes before it, which may be closed here.
    for step in steps.each_back().doing("read", JOURNAL.as_bytes())? {
        let (_, step) = step.doing("read", JOURNAL.as_bytes())?;
        let (path, old) = match &step {
            Step::Take { at, old, renamed: true, .. } | Step::Hold { at, old, .. } => (at.clone(), old),
            Step::Take { at, old, .. } => (home(&moved, at), old),
            Step::Put(Put { path, old: Some(old), .. }) => (home(&moved, path), old),
            _ => continue,
        };
        // Without its stamp an entry is a conflict at the next accept.
        let Some(now) = base.stat(&path.0).ok().flatten() else { continue };
        if let Some(closed) = close(root, base, &path, old, &now).doing("set the mode of", &path.0)? {
            ours.push(CommittedEntry::new(&path, &closed));
        } else if noted.get(&old.id).is_some_and(|ctime| is_as_returned(old, &now, *ctime)) {
            ours.push(CommittedEntry::new(&path, &now));
        }
    }
    Ok(())
}

/// Closes a directory that was opened up to be moved and did not leave its place. Returns what it is then.
fn close(root: &Workspace, base: &Workspace, path: &ByteText, old: &Seen, now: &Meta) -> io::Result<Option<Meta>> {
    // Root opens none.
    let is_opened = now.mode != old.mode && now.mode == old.mode | 0o700 && !rustix::process::geteuid().is_root();
    if old.kind != EntryType::Directory || !old.is_same_version(now) || !is_opened {
        return Ok(None);
    }
    let (parent, name) = split(&path.0);
    let dir = pin(base.dir(parent)?.as_fd(), name)?;
    if stat(dir.as_fd(), b"")?.id != old.id {
        return Ok(None);
    }
    will(root, old.id);
    chmod(dir.as_fd(), old.mode)?;
    let closed = stat(dir.as_fd(), b"")?;
    did(root, &closed);
    Ok(Some(closed))
}

/// Reports whether an entry is as it was, and as it was returned. The entries of a directory set its time of change.
fn is_as_returned(old: &Seen, now: &Meta, ctime: Option<FsTime>) -> bool {
    let is_same_time = now.kind == EntryType::Directory || ctime.is_none_or(|ctime| ctime == now.ctime);
    old.is_same_version(now) && old.mode == now.mode && is_same_time
}

/// Lists the new places of renamed directories, and their old ones.
fn moved(steps: &Steps) -> io::Result<Vec<(ByteText, ByteText)>> {
    let mut taken = HashMap::new();
    for step in steps.each() {
        if let Step::Take { at, slot, renamed: true, .. } = step? {
            taken.insert(slot, at);
        }
    }
    let mut found = Vec::new();
    for step in steps.each().take_while(|_| !taken.is_empty()) {
        if let Step::Put(Put { path, from: Origin::Slot(slot), .. }) = step?
            && let Some(at) = taken.get(&slot)
        {
            found.push((path, at.clone()));
        }
    }
    Ok(found)
}

/// Returns the place of an entry before the commit, whose steps name it by the place of its directory after the
/// renames. Pure.
fn home(moved: &[(ByteText, ByteText)], path: &ByteText) -> ByteText {
    let rest = |to: &ByteText| path.0.strip_prefix(to.0.as_slice()).filter(|rest| rest.first() == Some(&b'/'));
    let above = moved.iter().filter_map(|(to, at)| rest(to).map(|rest| (rest, at)));
    match above.min_by_key(|(rest, _)| rest.len()) {
        Some((rest, at)) => ByteText([at.0.as_slice(), rest].concat()),
        None => path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ByteText {
        ByteText(text.as_bytes().to_vec())
    }

    #[test]
    fn a_path_in_a_renamed_directory_has_its_old_place() {
        let (e, d, deep, sub) = (text("e"), text("d"), text("e/deep"), text("other/sub"));
        let moved = [(e, d), (deep, sub)];
        for (path, at) in [("e/1", "d/1"), ("e/deep/x", "other/sub/x"), ("e2/1", "e2/1"), ("e", "e"), ("d/1", "d/1")] {
            assert_eq!(home(&moved, &text(path)), text(at), "{path}");
        }
    }
}
