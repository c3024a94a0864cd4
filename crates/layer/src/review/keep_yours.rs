//! Saves the workspace's version of a file beside it, so that a commit may put the run's version in its place.
//!
//! ```text
//!  keep_yours: look ─▶ copy to NAME.yours-RUN ─▶ look again: the same? ─▶ Yours { what was seen }
//!                      a copy of these bytes is there from an accept that was killed ─▶ that one
//!                      something else is there ─▶ NAME.yours-RUN-2, and so on
//!  plan: the file is still what was seen? ─▶ no conflict           else a conflict, as without it
//! ```
//! The commit compares again before it exchanges anything, so that an edit after the copy is found and stays.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_dir, open_file, split, unlink_if_there};
use crate::disk::copy::{Attrs, copy_entry};
use crate::disk::upper::open_upper;
use crate::entries::yours::{Yours, is_same};
use crate::fold::fold;
use crate::meta::{EntryType, stat_if_there};
use crate::read::compare::same_bytes;
use crate::store::layer::Layer;
use nexus_model::ByteText;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The most copies of one file that are kept beside it for one run.
const MAX_COPIES: usize = 9;

/// Error of saving the workspace's version of a file beside it. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum YoursError {
    /// A copy cannot stand for it.
    #[error("{path:?} {why}")]
    NotAFile {
        /// The path in conflict.
        path: ByteText,
        /// The fact for which it is left alone.
        why: &'static str,
    },
    /// The two versions cannot be merged.
    #[error("{path:?} cannot be merged: {why}")]
    NotMerged {
        /// The path in conflict.
        path: ByteText,
        /// The fact for which there is no merge.
        why: &'static str,
    },
    /// Both versions changed the same lines.
    #[error("{path:?} cannot be merged: both versions changed the same lines, in {places} {}", if *places == 1 { "place" } else { "places" })]
    Overlap {
        /// The path in conflict.
        path: ByteText,
        /// The number of places.
        places: usize,
    },
    /// It changed while it was copied.
    #[error("{path:?} is being written")]
    Written {
        /// The path in conflict.
        path: ByteText,
    },
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl Layer {
    /// Copies the workspace's version of a path in conflict to a name beside it.
    pub fn keep_yours(&self, workspace: &Workspace, path: &ByteText) -> Result<Yours, YoursError> {
        self.keep_yours_of(workspace, path, path)
    }

    /// As [`Layer::keep_yours`], for a file at `path` in the layer that the workspace still has at `from`, since the run renamed a
    /// directory around it.
    pub fn keep_yours_of(&self, workspace: &Workspace, path: &ByteText, from: &ByteText) -> Result<Yours, YoursError> {
        let no = |why| YoursError::NotAFile { path: from.clone(), why };
        let (parent, name) = split(&from.0);
        let is_git = |path: &ByteText| path.0.split(|byte| *byte == b'/').any(|part| fold(part).as_ref() == b".git");
        if is_git(path) || is_git(from) {
            return Err(no("belongs to git, whose files depend on each other"));
        }
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        match upper.stat(&path.0).doing("look at", &path.0)? {
            Some(found) if found.kind == EntryType::File || found.is_whiteout() => {}
            Some(_) | None => return Err(no("is not a file that the run changed itself")),
        }
        let now = workspace.stat(&from.0).doing("look at", &from.0)?;
        let yours = Yours { path: path.clone(), from: from.clone(), copy: None, made: None, seen: None, merged: None };
        let Some(before) = now else { return Ok(yours) };
        if before.kind != EntryType::File || before.links > 1 {
            return Err(no("is not a plain file with one name in the workspace"));
        }
        let directory = workspace.dir(parent).doing("open", parent)?;
        let Some((beside, made)) = self.kept_beside(&directory, &directory, name, b"yours") else {
            return Err(no("has many versions kept beside it already"));
        };
        let copy: ByteText = [&from.0[..from.0.len() - name.len()], &beside[..]].concat().into();
        let as_made = stat_if_there(directory.as_fd(), &beside).doing("look at", &copy.0)?;
        let synced = made.and_then(|()| {
            rustix::fs::fsync(open_file(directory.as_fd(), &beside, OFlags::RDONLY)?)?;
            Ok(rustix::fs::fsync(open_dir(directory.as_fd(), b"", OFlags::RDONLY)?)?)
        });
        let after = synced.and_then(|()| stat_if_there(directory.as_fd(), name));
        let yours = Yours { copy: Some(copy), made: as_made, seen: Some(before), ..yours };
        let error = match after {
            Ok(Some(after)) if yours.seen.as_ref().is_some_and(|before| is_same(before, &after)) => return Ok(yours),
            Ok(_) => YoursError::Written { path: from.clone() },
            Err(source) => YoursError::Io(IoFailure { doing: "copy", path: from.clone(), source }),
        };
        self.forget_yours(workspace, &yours)?;
        Err(error)
    }

    /// Copies a file of `from` to the first name beside it in `to` that is free or holds its copy already. `None` where other things
    /// have all these names, parts of copies too.
    pub(crate) fn kept_beside(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &[u8],
        whose: &[u8],
    ) -> Option<(Vec<u8>, io::Result<()>)> {
        (1..=MAX_COPIES).find_map(|number| {
            let beside = self.name_beside(name, whose, number);
            match self.kept(from.as_fd(), to.as_fd(), name, &beside) {
                Ok(false) => None,
                Ok(true) => Some((beside, Ok(()))),
                Err(error) => Some((beside, Err(error))),
            }
        })
    }

    /// Returns the name of a copy. The end is random: runs of one minute begin alike, and a run could guess a name that it has to
    /// itself.
    fn name_beside(&self, name: &[u8], whose: &[u8], number: usize) -> Vec<u8> {
        let end = &self.run.as_bytes()[self.run.len().saturating_sub(8)..];
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        [name, b".", whose, b"-", end, number.as_bytes()].concat()
    }

    /// Copies a file to a name beside it, and reports that it is there; an earlier accept that was killed may have made the copy.
    /// `false` where something else has the name.
    fn kept(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8], beside: &[u8]) -> io::Result<bool> {
        match copy_entry(from, name, to, beside, Attrs::Content(self.mode)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = stat_if_there(to, beside)?;
                let is_plain = found.is_some_and(|found| found.kind == EntryType::File && found.links == 1);
                Ok(is_plain && same_bytes(from, to, name, beside)?)
            }
            other => other.map(|()| true),
        }
    }

    /// Removes copies that no commit followed. A copy that a process wrote to since stays.
    pub fn forget_yours(&self, workspace: &Workspace, yours: &Yours) -> Result<(), IoFailure> {
        let merged = yours.merged.as_ref().map(|merge| (&merge.copy, &merge.made));
        for (copy, made) in yours.copy.iter().map(|copy| (copy, &yours.made)).chain(merged) {
            let (parent, name) = split(&copy.0);
            let directory = workspace.dir(parent).doing("open", parent)?;
            let now = stat_if_there(directory.as_fd(), name).doing("look at", &copy.0)?;
            if now.is_some_and(|now| made.as_ref().is_some_and(|made| is_same(made, &now))) {
                unlink_if_there(directory.as_fd(), name).doing("remove", &copy.0)?;
            }
        }
        Ok(())
    }
}
