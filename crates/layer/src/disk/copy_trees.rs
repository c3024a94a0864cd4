//! Copies whole trees of a layer.
//!
//! ```text
//!  directories, files, links ──▶ everything arrived? ─┬─ yes: marks of directories, deletions ──▶ modes and times
//!                                                     └─ no:  only modes and times
//! ```
//! Overlay's marks on directories (opaque, redirect) and its deletions take something away from the workspace, and they need
//! less room than contents. A copy that ends early, at whatever point, therefore has none of them.

use crate::beneath::{Doing as _, IoFailure, Workspace, check_depth, chmod, join, names, pin, split};
use crate::disk::copy::{Attrs, CopyStage, copy_attrs_by_name, copy_entry, copy_whole, finish, make_whiteout};
use crate::disk::opened::Opened;
use crate::entries::marks::LayerMode;
use crate::meta::{EntryType, Meta, stat};
use rustix::fs::{AtFlags, Mode};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Copies the content of the directories `tops` of one tree into empty ones of the same paths, with names that share a
/// file. Sockets are left out. `opened` knows the modes of what an earlier try opened up. The first error ends the copy.
pub(crate) fn copy_trees(
    from: &Workspace,
    to: &Workspace,
    tops: &[&[u8]],
    mode: LayerMode,
    opened: &mut Opened,
) -> Result<(), IoFailure> {
    TreeCopy::new(from, to, mode, opened, None).run(tops)
}

/// The same for trees that are nowhere else: after an error the rest is copied, as far as that is possible, and the first
/// error is returned. Each file arrives whole or not at all; `stage` holds it until then.
pub(crate) fn rescue_trees(
    from: &Workspace,
    to: &Workspace,
    tops: &[&[u8]],
    mode: LayerMode,
    stage: CopyStage<'_>,
) -> Result<(), IoFailure> {
    TreeCopy::new(from, to, mode, &mut Opened::forgotten(), Some(stage)).run(tops)
}

struct TreeCopy<'a> {
    from: &'a Workspace,
    to: &'a Workspace,
    mode: LayerMode,
    opened: &'a mut Opened,
    /// Holds a file until it is whole. `None` where an error ends the copy.
    stage: Option<CopyStage<'a>>,
    /// The first error.
    failed: Option<IoFailure>,
    /// The path of the copy of each file, by its inode.
    links: HashMap<u64, Vec<u8>>,
    /// Directories that were made, each after the one that it is in.
    dirs: Vec<(Vec<u8>, Meta)>,
    /// Directories to copy.
    stack: Vec<Vec<u8>>,
    /// Overlay's marks that a name is gone.
    whiteouts: Vec<Vec<u8>>,
}

impl<'a> TreeCopy<'a> {
    fn new(
        from: &'a Workspace,
        to: &'a Workspace,
        mode: LayerMode,
        opened: &'a mut Opened,
        stage: Option<CopyStage<'a>>,
    ) -> Self {
        let (links, dirs, stack, whiteouts) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { from, to, mode, opened, stage, failed: None, links, dirs, stack, whiteouts }
    }

    fn run(mut self, tops: &[&[u8]]) -> Result<(), IoFailure> {
        self.stack = tops.iter().map(|top| top.to_vec()).collect();
        while let Some(path) = self.stack.pop() {
            let copied = self.directory(&path);
            self.note(copied)?;
        }
        if let Some(stage) = &self.stage {
            stage.faults.between_calls();
        }
        if self.failed.is_none() {
            let marked = self.take_away();
            self.note(marked)?;
        }
        for (path, meta) in std::mem::take(&mut self.dirs).iter().rev() {
            let finished = self.to.dir(path).and_then(|dir| finish(dir.as_fd(), meta)).doing("copy", path);
            self.note(finished)?;
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Keeps the first error of a copy that goes on.
    fn note(&mut self, copied: Result<(), IoFailure>) -> Result<(), IoFailure> {
        match copied {
            Err(failure) if self.stage.is_some() => {
                self.failed.get_or_insert(failure);
                Ok(())
            }
            other => other,
        }
    }

    fn directory(&mut self, path: &[u8]) -> Result<(), IoFailure> {
        let open = || {
            check_depth(path)?;
            let source = crate::disk::remove::readable_by_force(self.from, path)?;
            let (target, names) = (self.to.dir(path)?, names(source.as_fd())?);
            io::Result::Ok((source, target, names))
        };
        let (source, target, names) = open().doing("copy the directory", path)?;
        for name in names {
            let entry = join(path, &name);
            let copied = self.entry(source.as_fd(), target.as_fd(), &name, &entry).doing("copy", &entry);
            self.note(copied)?;
        }
        Ok(())
    }

    fn entry(&mut self, source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &[u8], entry: &[u8]) -> io::Result<()> {
        let found = stat(source, name)?;
        let meta = Meta { mode: self.opened.mode(entry, &found)?, ..found.clone() };
        match meta.kind {
            EntryType::Directory => {
                rustix::fs::mkdirat(target, name, Mode::from_raw_mode(0o700))?;
                // Also without its attributes it can hold what is in it.
                self.stack.push(entry.to_vec());
                self.dirs.push((entry.to_vec(), meta.clone()));
                copy_attrs_by_name(source, name, target, name, Attrs::Unmarked(self.mode))?;
                // At the end it gets its times and, if the run closed it to its owner, its mode. A copy that is killed before
                // that must not show a mode that the run did not give.
                finish(pin(target, name)?.as_fd(), &Meta { mode: meta.mode | 0o700, ..meta })
            }
            EntryType::Device if meta.is_whiteout() => {
                self.whiteouts.push(entry.to_vec());
                Ok(())
            }
            EntryType::Socket | EntryType::Device => Ok(()),
            EntryType::File | EntryType::Symlink | EntryType::Fifo => {
                if let Some(first) = self.links.get(&meta.id.ino).filter(|_| meta.links > 1) {
                    let (parent, first_name) = split(first);
                    let parent = self.to.dir(parent)?;
                    return Ok(rustix::fs::linkat(parent.as_fd(), first_name, target, name, AtFlags::empty())?);
                }
                let attrs = Attrs::Layer(self.mode);
                match self.stage {
                    Some(stage) => copy_whole(source, name, target, stage, attrs)?,
                    None => copy_entry(source, name, target, name, attrs)?,
                }
                if meta.mode != found.mode {
                    chmod(pin(target, name)?.as_fd(), meta.mode)?;
                }
                self.links.insert(meta.id.ino, entry.to_vec());
                Ok(())
            }
        }
    }

    /// Copies what takes something away from the workspace, the marks of directories and the deletions.
    fn take_away(&self) -> Result<(), IoFailure> {
        for (path, _) in &self.dirs {
            let (parent, name) = split(path);
            let copied = || {
                let (source, target) = (self.from.dir(parent)?, self.to.dir(parent)?);
                copy_attrs_by_name(source.as_fd(), name, target.as_fd(), name, Attrs::Marks(self.mode))
            };
            copied().doing("copy the marks of", path)?;
        }
        for path in &self.whiteouts {
            let (parent, name) = split(path);
            let made = self.to.dir(parent).and_then(|target| make_whiteout(target.as_fd(), name));
            made.doing("copy the deletion of", path)?;
        }
        Ok(())
    }
}
