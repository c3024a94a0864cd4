//! Syncs a tree to disk: file by file if there are few, so that the commit does not wait for the writes of other processes, and
//! otherwise with one syncfs(2) call.

use crate::beneath::{Doing as _, IoFailure, MAX_NAMED, Workspace, check_depth, join, names, open_file};
use crate::faults::Faults;
use crate::meta::{EntryType, stat};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::AsFd as _;

/// Entries that are synced one by one; with more of them the whole file system is.
const ONE_BY_ONE: usize = 1000;

/// Syncs everything in `tree`.
pub(crate) fn sync_tree(tree: &Workspace, faults: &Faults) -> Result<(), IoFailure> {
    let everything = || faults.sync(|| Ok(rustix::fs::syncfs(tree.fd())?)).doing("sync", b"");
    let (mut files, mut dirs) = (Vec::new(), vec![Vec::new()]);
    let mut next = 0;
    while let Some(path) = dirs.get(next).cloned() {
        next += 1;
        if path.len() > MAX_NAMED || check_depth(&path).is_err() {
            return everything();
        }
        let dir = match tree.readable_dir(&path) {
            // A mode that keeps its owner out: nothing is opened up before the decision.
            Err(error) if is_closed(&error) => return everything(),
            other => other.doing("open", &path)?,
        };
        for name in names(dir.as_fd()).doing("list", &path)? {
            let entry = join(&path, &name);
            let kind = match stat(dir.as_fd(), &name) {
                Err(error) if is_closed(&error) => return everything(),
                other => other.doing("look at", &entry)?.kind,
            };
            match kind {
                EntryType::Directory => dirs.push(entry),
                EntryType::File => files.push(entry),
                // Links and the like have no content of their own.
                EntryType::Symlink | EntryType::Fifo | EntryType::Socket | EntryType::Device => {}
            }
            if files.len() + dirs.len() > ONE_BY_ONE {
                return everything();
            }
        }
    }
    for path in &files {
        let (parent, name) = crate::beneath::split(path);
        let dir = tree.dir(parent).doing("open", parent)?;
        match open_file(dir.as_fd(), name, OFlags::RDONLY) {
            Ok(file) => faults.sync(|| Ok(rustix::fs::fdatasync(&file)?)).doing("sync", path)?,
            Err(error) if is_closed(&error) => return everything(),
            Err(error) => return Err(error).doing("open", path),
        }
    }
    for path in dirs.iter().rev() {
        let dir = tree.readable_dir(path).doing("open", path)?;
        faults.sync(|| Ok(rustix::fs::fsync(&dir)?)).doing("sync", path)?;
    }
    Ok(())
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
