//! A layer in memory: an upper directory that only a descriptor leads to, and overlay's index beside it.
//!
//! ```text
//!  memory ──copy──▶ upper ──sync──▶ memory.whole ──sync──▶ parked or committed
//! ```
//! A copy without the file `memory.whole` is a part: nothing has to be written on the way to an error, and a copy that is
//! killed needs no last word. A part has whole files only, no deletion, no opaque or renamed directory, and says nothing about
//! the workspace's own directory.

use crate::beneath::{Doing as _, IoFailure, Workspace, unlink_if_there};
use crate::disk::copy::CopyStage;
use crate::disk::copy_trees::rescue_trees;
use crate::disk::upper::{open_index, open_upper, reopen_upper};
use crate::entries::marks::LayerMode;
use crate::faults::Phase;
use crate::journal::file::sync_directory;
use crate::meta::stat;
use crate::store::layer::Layer;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Marks a layer whose copy from memory is whole and on the disk.
const WHOLE: &str = "memory.whole";

/// Opens the directory that holds `upper` and `work` of a layer of root. `None` where there is no index: in a layer of an
/// ordinary user, or when the upper directory was given alone.
fn holder(mode: LayerMode, upper: &OwnedFd) -> Result<Option<Workspace>, IoFailure> {
    if mode == LayerMode::User {
        return Ok(None);
    }
    let parent = rustix::fs::openat(upper, "..", DIRECTORY | OFlags::PATH, Mode::empty()).doing("open", b"..")?;
    let parent = Workspace::from_fd(parent);
    let named = parent.stat(b"upper").doing("look at", b"upper")?;
    let is_it = named.map(|meta| meta.id) == Some(stat(upper.as_fd(), b"").doing("look at", b"upper")?.id);
    Ok(is_it.then_some(parent))
}

/// Reports whether all of a layer that was in memory has been copied to its directory, `layer`. The answer means nothing for
/// a layer that was never in memory.
pub fn is_whole_copy(layer: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(layer.join(WHOLE)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Layer {
    /// Opens overlay's index of a layer in memory.
    pub(crate) fn memory_index(&self, upper: &OwnedFd) -> Result<Option<Workspace>, IoFailure> {
        holder(self.mode, upper)?.map_or(Ok(None), |holder| open_index(&holder))
    }

    /// Treats the layer as a partial copy of a layer in memory: the attributes of its upper directory say nothing
    /// about the run, and the origin of a file that overlay copied from another path was not removed.
    pub fn set_partial(&mut self) {
        self.is_part = true;
        self.top = None;
    }

    /// Copies a layer in memory to the layer's own directory. Names that share a file there share one here, also those in
    /// the index. An error names the first entry that cannot be copied; all others are copied, because memory is the only
    /// place where they are.
    pub(crate) fn copy_from_memory(&self, upper: &OwnedFd) -> Result<(), IoFailure> {
        self.faults.check(Phase::Materialise).doing("copy", b"upper")?;
        self.copied.store(false, Ordering::Relaxed);
        if self.root.stat(WHOLE.as_bytes()).doing("look at", WHOLE.as_bytes())?.is_some() {
            unlink_if_there(self.root.fd(), WHOLE.as_bytes()).doing("remove", WHOLE.as_bytes())?;
            sync_directory(&self.root, &self.faults)?;
        }
        // A first try may have been interrupted by an error.
        for path in [&b"upper"[..], b"work/index"] {
            crate::disk::remove::remove_tree(&self.root, path).doing("remove", path)?;
        }
        let make = |path: &str| {
            rustix::fs::mkdirat(self.root.fd(), path, Mode::from_raw_mode(0o700)).doing("make", path.as_bytes())
        };
        make("upper")?;
        let rescue = |from: &Workspace, to: &Workspace, tops: &[&[u8]]| {
            let stage = CopyStage { dir: self.root.fd(), faults: &self.faults };
            let copied = rescue_trees(from, to, tops, self.mode, stage);
            // Also what was saved of a layer has its attributes.
            let top = self.copy_top(upper);
            copied.and(top)
        };
        if let Some(holder) = holder(self.mode, upper)?
            && open_index(&holder)?.is_some()
        {
            make("work/index")?;
            rescue(&holder, &self.root, &[b"upper", b"work/index"])?;
        } else {
            let reopened = reopen_upper(upper).doing("open", b"upper")?;
            let to = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
            rescue(&Workspace::from_fd(reopened), &to, &[b""])?;
        }
        self.copied.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Marks a copy from memory as whole, after its bytes have reached the disk. The caller syncs the layer's directory.
    pub(crate) fn mark_whole(&self) -> Result<(), IoFailure> {
        if !self.copied.load(Ordering::Relaxed) {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(self.root.fd(), WHOLE, flags, Mode::from_raw_mode(0o600));
        made.map(drop).doing("make", WHOLE.as_bytes())
    }

    /// The upper directory's own attributes, which a tree is copied without.
    fn copy_top(&self, upper: &OwnedFd) -> Result<(), IoFailure> {
        let to = self.root.dir(b"upper").doing("open", b"upper")?;
        let mode = stat(upper.as_fd(), b"").doing("look at", b"upper")?.mode;
        crate::disk::top_directory::copy(self.mode, upper.as_fd(), to.as_fd(), mode)
            .doing("set the attributes of", b"upper")
    }
}
