//! Lists and opens the files of a workspace as a run left them, before the user decides about its changes.
//!
//! It merges the workspace and the layer in its own code, as a diff does: it mounts no overlay and follows no link.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_no_way, join, names, open_file, split};
use crate::entries::protected::Rules;
use crate::meta::{EntryType, Meta, stat_if_there};
use crate::review::diff::views::{self, Place};
use crate::review::diff::{DiffError, Trees};
use crate::store::layer::Layer;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

/// Entries that are looked at, at most.
const MAX_ENTRIES: usize = 1_000_000;

/// A file or a link as the run left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAfter {
    /// Its path relative to the workspace.
    pub path: Vec<u8>,
    /// Its type: a regular file or a link.
    pub kind: EntryType,
    /// Bytes of a regular file.
    pub size: u64,
    /// Permission bits (`07777`).
    pub mode: u32,
    place: Place,
}

/// The files of a workspace as a run left them.
pub struct FilesAfter<'a> {
    base: &'a Workspace,
    upper: Option<Workspace>,
    index: Option<Workspace>,
    /// The files that were asked for, in the order of their paths.
    pub files: Vec<FileAfter>,
    /// A directory could not be looked into, or there are too many entries.
    pub incomplete: bool,
}

impl Layer {
    /// Lists the files and links whose path is `wanted`, as the workspace would have them with all changes of the layer.
    pub fn files_after<'a>(
        &self,
        workspace: &'a Workspace,
        rules: &Rules,
        wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<FilesAfter<'a>, DiffError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(files_of(workspace, wanted)?) };
        let Trees { base, upper, index } = self.trees(workspace)?;
        let views = views::gather(&tree, workspace, rules, MAX_ENTRIES)?;
        let is_old = |path: &[u8]| views.old.contains_key(path) || views.new.contains_key(path);
        let mut after = files_of(base, &|path| wanted(path) && !is_old(path))?;
        for (path, one) in views.new {
            if wanted(&path) {
                after.add(path, one.place, &one.meta);
            }
        }
        after.files.sort_by(|one, other| one.path.cmp(&other.path));
        after.incomplete |= views.incomplete;
        (after.upper, after.index) = (Some(upper), index);
        Ok(after)
    }
}

/// Lists the files and links of a directory whose path is `wanted`.
pub fn files_of<'a>(workspace: &'a Workspace, wanted: &dyn Fn(&[u8]) -> bool) -> Result<FilesAfter<'a>, IoFailure> {
    let mut after = FilesAfter { base: workspace, upper: None, index: None, files: Vec::new(), incomplete: false };
    let mut left = MAX_ENTRIES;
    let mut stack = vec![Vec::new()];
    while let Some(path) = stack.pop() {
        let dir = match workspace.readable_dir(&path) {
            Ok(dir) => dir,
            Err(error) if is_no_way(&error) => {
                after.incomplete = true;
                continue;
            }
            Err(error) => return Err(error).doing("open", &path),
        };
        for name in names(dir.as_fd()).doing("list", &path)? {
            if left == 0 {
                after.incomplete = true;
                return Ok(after);
            }
            left -= 1;
            let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &path)? else { continue };
            let path = join(&path, &name);
            if meta.kind == EntryType::Directory {
                stack.push(path);
            } else if wanted(&path) {
                after.add(path.clone(), Place::Base(path.into()), &meta);
            }
        }
    }
    after.files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(after)
}

impl FilesAfter<'_> {
    fn add(&mut self, path: Vec<u8>, place: Place, meta: &Meta) {
        if matches!(meta.kind, EntryType::File | EntryType::Symlink) {
            self.files.push(FileAfter { path, kind: meta.kind, size: meta.size, mode: meta.mode, place });
        }
    }

    /// Opens a regular file for reading. Returns an error if a link or a FIFO has replaced it meanwhile.
    pub fn open(&self, one: &FileAfter) -> io::Result<File> {
        let (dir, name) = self.dir(one)?;
        Ok(File::from(open_file(dir.as_fd(), &name, OFlags::RDONLY)?))
    }

    /// Returns the target of a link without following it.
    pub fn target(&self, one: &FileAfter) -> io::Result<Vec<u8>> {
        let (dir, name) = self.dir(one)?;
        Ok(rustix::fs::readlinkat(dir.as_fd(), name.as_slice(), Vec::new())?.into_bytes())
    }

    fn dir(&self, one: &FileAfter) -> io::Result<(std::os::fd::OwnedFd, Vec<u8>)> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (tree, path) = match &one.place {
            Place::Base(path) => (self.base, path),
            Place::Upper(path) => (self.upper.as_ref().ok_or_else(missing)?, path),
            Place::Index(path) => (self.index.as_ref().ok_or_else(missing)?, path),
        };
        let (parent, name) = split(&path.0);
        Ok((tree.dir(parent)?, name.to_vec()))
    }
}
