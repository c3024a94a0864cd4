//! Separates a layer from processes that may still have a file or directory of it open, by copying its entries to new inodes.
//!
//! ```text
//!  overlay gone for good ─▶ unreached: the layer's own entries are evaluated, reviewed and moved
//!  anything else ─▶ part: copy to apart/ ─▶ sync ─▶ apart.json ─▶ exchange upper, index ─▶ apart/ (the old ones) goes
//! ```
//! A sandbox can hand a descriptor of a file on to a process that outlives it. What that process writes after the file
//! was evaluated would reach the workspace with the file, or change what was reviewed. The process has no way to a
//! copy, which lies in the layer's directory from the beginning and was never seen through the overlay.

use crate::beneath::{Doing as _, IoFailure, Workspace, unlink_if_there};
use crate::disk::copy::STAGED;
use crate::disk::copy_trees::copy_trees;
use crate::disk::opened::{self, Opened};
use crate::disk::remove::remove_tree;
use crate::disk::sync::sync_tree;
use crate::disk::upper::open_index;
use crate::journal::file::{read, sync_directory, write};
use crate::meta::FileId;
use crate::store::layer::Layer;
use rustix::fs::{Mode, RenameFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

/// The directory of the copies, and later of what they replaced.
const APART: &str = "apart";
/// Says that the copies are whole and on the disk.
pub(crate) const COPIED: &str = "apart.json";
/// Directory in which overlay keeps the files with several names.
const INDEX: &str = "work/index";

/// The copies, by which an interrupted exchange goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Copied {
    upper: FileId,
    index: Option<FileId>,
}

impl Layer {
    /// Records that no process can reach the layer's entries any more: the overlay is unmounted for good, or there
    /// was none.
    pub fn set_unreached(&mut self) {
        self.unreached.store(true, Ordering::Relaxed);
    }

    /// Ensures that only Nexus can write to the entries that are classified, reviewed and committed from here on.
    /// Copies a layer in memory to the layer's directory.
    pub fn part(&mut self) -> Result<(), IoFailure> {
        if let Some(upper) = self.upper_fd.take() {
            let copied = self.copy_from_memory(&upper);
            if copied.is_err() {
                self.upper_fd = Some(upper);
            }
            copied?;
            self.set_unreached();
        }
        self.part_directory()
    }

    /// The same for a layer in its directory.
    pub(crate) fn part_directory(&self) -> Result<(), IoFailure> {
        if self.unreached.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Half a file of a copy from memory that was killed.
        unlink_if_there(self.root.fd(), STAGED).doing("remove", STAGED)?;
        let copied = match read::<Copied>(&self.root, COPIED)? {
            Some(copied) => copied,
            None => match self.copy_apart() {
                Ok(copied) => copied,
                Err(error) => {
                    // Half a copy is of no use and takes room. The next try removes what stays.
                    remove_tree(&self.root, APART.as_bytes()).ok();
                    return Err(error);
                }
            },
        };
        self.exchange("upper", copied.upper)?;
        if let Some(index) = copied.index {
            self.exchange(INDEX, index)?;
        }
        sync_directory(&self.root, &self.faults)?;
        self.unreached.store(true, Ordering::Relaxed);
        // A process may still work in it. What stays is removed with the layer.
        remove_tree(&self.root, APART.as_bytes()).unwrap_or_default();
        unlink_if_there(self.root.fd(), opened::FILE.as_bytes()).doing("remove", opened::FILE.as_bytes())?;
        Ok(())
    }

    fn copy_apart(&self) -> Result<Copied, IoFailure> {
        remove_tree(&self.root, APART.as_bytes()).doing("remove", APART.as_bytes())?;
        let make = |path: &str| {
            let path = if path.is_empty() { APART.to_owned() } else { format!("{APART}/{path}") };
            rustix::fs::mkdirat(self.root.fd(), &*path, Mode::from_raw_mode(0o700)).doing("make", path.as_bytes())
        };
        make("")?;
        make("upper")?;
        let has_index = open_index(&self.root)?.is_some();
        let mut tops: Vec<&[u8]> = vec![b"upper"];
        if has_index {
            make("work")?;
            make(INDEX)?;
            tops.push(INDEX.as_bytes());
        }
        let to = self.apart()?;
        let mut opened = Opened::of_layer(&self.root)?;
        let top = self.root.stat(b"upper").doing("look at", b"upper")?;
        let top = top.ok_or(rustix::io::Errno::NOENT).doing("find", b"upper")?;
        let mode = opened.mode(b"upper", &top).doing("note the mode of", b"upper")?;
        copy_trees(&self.root, &to, &tops, self.mode, &mut opened)?;
        let copy_of_top = || {
            let copy = to.dir(b"upper")?;
            crate::disk::top_directory::copy(self.mode, self.root.dir(b"upper")?.as_fd(), copy.as_fd(), mode)
        };
        copy_of_top().doing("set the attributes of", b"upper")?;
        sync_tree(&to, &self.faults)?;
        let id = |path: &str| id_of(&to, path);
        let copied = Copied { upper: id("upper")?, index: has_index.then(|| id(INDEX)).transpose()? };
        write(&self.root, COPIED, &copied, &self.faults)?;
        sync_directory(&self.root, &self.faults)?;
        Ok(copied)
    }

    fn apart(&self) -> Result<Workspace, IoFailure> {
        Ok(Workspace::from_fd(self.root.readable_dir(APART.as_bytes()).doing("open", APART.as_bytes())?))
    }

    /// Puts a copy in its place, unless it is there.
    fn exchange(&self, path: &str, copy: FileId) -> Result<(), IoFailure> {
        if id_of(&self.root, path)? == copy {
            return Ok(());
        }
        let apart = self.apart()?;
        if id_of(&apart, path)? != copy {
            return Err(std::io::Error::from(rustix::io::Errno::STALE)).doing("find the copy of", path.as_bytes());
        }
        self.faults.between_calls();
        rustix::fs::renameat_with(self.root.fd(), path, apart.fd(), path, RenameFlags::EXCHANGE)
            .doing("exchange", path.as_bytes())
    }
}

fn id_of(tree: &Workspace, path: &str) -> Result<FileId, IoFailure> {
    let found = tree.stat(path.as_bytes()).doing("look at", path.as_bytes())?;
    found.map(|meta| meta.id).ok_or(rustix::io::Errno::NOENT).doing("find", path.as_bytes())
}
