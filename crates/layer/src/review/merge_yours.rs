//! Merges the two versions of a file in conflict, where it is known what both were made of.
//!
//! ```text
//!  merge_yours: what git had at the start ─▶ keep_yours ─▶ merge ─┬─ no overlap: copy the run's version to NAME.theirs-RUN
//!                                                                └─ otherwise: nothing was changed, and the file waits
//!  plan: the workspace still has what was merged? ─▶ the text comes in the place of the run's version
//! ```
//! Both versions stay beside the merged one: a merge knows lines, not what they mean.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_dir, open_file, split, unlink_if_there};
use crate::disk::upper::open_upper;
use crate::entries::yours::{Merge, Yours};
use crate::git::bases::BaseNote;
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::read::compare::{same_attrs, same_bytes};
use crate::review::keep_yours::YoursError;
use crate::review::merge::{Merged, merge};
use crate::store::layer::{Layer, LayerMode};
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::reader::Reader;
use nexus_model::ByteText;
use rustix::fs::OFlags;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// A larger version (bytes) is not merged.
const MAX_TEXT: u64 = 8 << 20;
/// The time for the comparison of lines.
const TIME: Duration = Duration::from_secs(4);
/// git's own rule: a NUL among the first bytes makes a file binary.
const LOOKED_AT: usize = 8000;

impl Layer {
    /// Saves both versions of a file in conflict beside it, and merges them. After an error nothing was changed.
    pub fn merge_yours(&self, workspace: &Workspace, path: &ByteText) -> Result<Yours, YoursError> {
        self.merge_yours_of(workspace, path, path)
    }

    /// As [`Layer::merge_yours`], for a file at `path` in the layer that the workspace still has at `from`.
    pub fn merge_yours_of(&self, workspace: &Workspace, path: &ByteText, from: &ByteText) -> Result<Yours, YoursError> {
        let no = |why| YoursError::NotMerged { path: from.clone(), why };
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        let version = upper.stat(&path.0).doing("look at", &path.0)?;
        let Some(version) = version.filter(|meta| meta.kind == EntryType::File) else {
            return Err(no("the run left no file there"));
        };
        if version.links > 1 {
            return Err(no("the run gave the file several names"));
        }
        let Some(now) = workspace.stat(&from.0).doing("look at", &from.0)? else {
            return Err(no("you removed it"));
        };
        let theirs = text(&upper, path)?;
        if now.kind == EntryType::File {
            text(workspace, from)?;
        }
        let Some(note) = self.base_of(from) else { return Err(no(no_base(workspace))) };
        let Some(base) = base(workspace, &note) else {
            return Err(no("git has no longer what the file was when the run began"));
        };
        let mut yours = self.keep_yours_of(workspace, path, from)?;
        match self.merged(workspace, &upper, (&yours, &version), (&base, &theirs)) {
            Ok(merge) => {
                yours.merged = Some(merge);
                Ok(yours)
            }
            Err(error) => {
                self.forget_yours(workspace, &yours)?;
                Err(error)
            }
        }
    }

    fn merged(
        &self,
        workspace: &Workspace,
        upper: &Workspace,
        (yours, version): (&Yours, &Meta),
        (base, theirs): (&[u8], &[u8]),
    ) -> Result<Merge, YoursError> {
        let (path, at) = (&yours.from, &yours.path);
        let no = |why| YoursError::NotMerged { path: path.clone(), why };
        let (Some(copy), Some(seen)) = (&yours.copy, &yours.seen) else { return Err(no("you removed it")) };
        if seen.mode != version.mode {
            return Err(no("the two versions have other modes"));
        }
        // The merged file gets those of the run's version.
        let (parent, name) = split(&path.0);
        let from = upper.dir(split(&at.0).0).doing("open", &at.0)?;
        let to = workspace.dir(parent).doing("open", parent)?;
        // An ordinary user brings all files as its own.
        if self.mode == LayerMode::Root && (seen.uid, seen.gid) != (version.uid, version.gid) {
            return Err(no("the two versions have other owners"));
        }
        if !same_attrs(self.mode, from.as_fd(), to.as_fd(), name).doing("read the attributes of", &path.0)? {
            return Err(no("the two versions have other extended attributes or access lists"));
        }
        let ours = text(workspace, copy)?;
        let text = match merge(base, &ours, theirs, Instant::now().checked_add(TIME)) {
            Merged::Text(text) => text,
            Merged::Overlaps(places) => return Err(YoursError::Overlap { path: path.clone(), places }),
        };
        let Some((beside, made)) = self.kept_beside(&from, &to, name, b"theirs") else {
            return Err(no(
                "other files have the names under which the run's version is kept beside it (FILE.theirs-RUN)",
            ));
        };
        let copy: ByteText = [&path.0[..path.0.len() - name.len()], &beside[..]].concat().into();
        let synced = made.and_then(|()| {
            rustix::fs::fsync(open_file(to.as_fd(), &beside, OFlags::RDONLY)?)?;
            Ok(rustix::fs::fsync(open_dir(to.as_fd(), b"", OFlags::RDONLY)?)?)
        });
        if let Err(source) = synced {
            unlink_if_there(to.as_fd(), &beside).doing("remove", &copy.0)?;
            return Err(YoursError::Io(IoFailure { doing: "copy", path: path.clone(), source }));
        }
        let made = stat_if_there(to.as_fd(), &beside).doing("look at", &copy.0)?;
        // A process that wrote to it since it was made wrote to a file of its own.
        let is_whole = same_bytes(from.as_fd(), to.as_fd(), name, &beside).doing("read", &copy.0)?;
        Ok(Merge { made: made.filter(|_| is_whole), copy, text })
    }
}

/// Returns why it is not known what a file was when the run began.
fn no_base(workspace: &Workspace) -> &'static str {
    match workspace.stat(b".git") {
        Ok(None) => {
            "git did not have the file as it was when the run began: there is no repository at the top of the workspace, where \
             alone Nexus looks for one"
        }
        Ok(Some(found)) if found.kind != EntryType::Directory => {
            "git did not have the file as it was when the run began, as far as Nexus looks: the repository is elsewhere (a linked \
             worktree or a submodule)"
        }
        _ => "git did not have the file as it was when the run began, so that nothing tells the changes apart",
    }
}

/// Reads what a file was when the run began, if the repository still has it.
fn base(workspace: &Workspace, note: &BaseNote) -> Option<Vec<u8>> {
    // Without trees: one object is read.
    let mut reader = Reader::of(&[(workspace, b".git")], id_lengths, false).ok()??;
    let id = reader.id(note.id.as_bytes())?;
    let content = reader.blob(&id).ok()??;
    // git changed what it took up (line ends, filters): the blob is not what the file was.
    (content.len() as u64 == note.size && is_text(&content)).then_some(content)
}

/// Reads a version that can be merged.
fn text(tree: &Workspace, path: &ByteText) -> Result<Vec<u8>, YoursError> {
    let no = |why| YoursError::NotMerged { path: path.clone(), why };
    let (parent, name) = split(&path.0);
    let read = || {
        let file = open_file(tree.dir(parent)?.as_fd(), name, OFlags::RDONLY)?;
        let size = stat(file.as_fd(), b"")?.size;
        let mut content = Vec::new();
        std::fs::File::from(file).take(size.min(MAX_TEXT + 1)).read_to_end(&mut content)?;
        Ok::<_, io::Error>(content)
    };
    let content = read().doing("read", &path.0)?;
    if content.len() as u64 > MAX_TEXT {
        return Err(no("it is too large"));
    }
    if is_text(&content) { Ok(content) } else { Err(no("it is not a text")) }
}

fn is_text(content: &[u8]) -> bool {
    !content[..content.len().min(LOOKED_AT)].contains(&0)
}
