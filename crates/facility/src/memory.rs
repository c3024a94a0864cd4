//! A layer in memory: an upper directory that only a descriptor leads to, and overlay's index beside it.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::recover::open_index;
use crate::copy::{Attrs, copy_trees};
use crate::faults::Step;
use crate::layer::Layer;
use crate::marks::LayerMode;
use crate::meta::stat;
use crate::opened::Opened;
use crate::upper::{open_upper, reopen_upper};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd as _, OwnedFd};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

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

/// Copies what can be copied. Returns the first failure.
fn copy_all(from: &Workspace, to: &Workspace, tops: &[&[u8]], attrs: Attrs) -> Result<(), IoFailure> {
    let mut first = None;
    let mut go_on = |failure| {
        first.get_or_insert(failure);
        Ok(())
    };
    copy_trees(from, to, tops, attrs, &mut Opened::forgotten(), &mut go_on)?;
    first.map_or(Ok(()), Err)
}

impl Layer {
    /// Opens overlay's index of a layer in memory.
    pub(crate) fn memory_index(&self, upper: &OwnedFd) -> Result<Option<Workspace>, IoFailure> {
        holder(self.mode, upper)?.map_or(Ok(None), |holder| open_index(&holder))
    }

    /// Copies a layer in memory to the layer's own directory. Names that share a file there share one here, also those in
    /// the index. An error names the first entry that cannot be copied; all others are copied, because memory is the only
    /// place where they are.
    pub(crate) fn copy_from_memory(&self, upper: &OwnedFd) -> Result<(), IoFailure> {
        self.faults.check(Step::Materialise).doing("copy", b"upper")?;
        // A first try may have been interrupted by an error.
        for path in [&b"upper"[..], b"work/index"] {
            crate::remove::remove_tree(&self.root, path).doing("remove", path)?;
        }
        let make = |path: &str| {
            rustix::fs::mkdirat(self.root.fd(), path, Mode::from_raw_mode(0o700)).doing("make", path.as_bytes())
        };
        make("upper")?;
        let attrs = Attrs::Layer(self.mode);
        if let Some(holder) = holder(self.mode, upper)?
            && open_index(&holder)?.is_some()
        {
            make("work/index")?;
            copy_all(&holder, &self.root, &[b"upper", b"work/index"], attrs)?;
            return self.copy_top(upper);
        }
        let reopened = reopen_upper(upper).doing("open", b"upper")?;
        let to = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        copy_all(&Workspace::from_fd(reopened), &to, &[b""], attrs)?;
        self.copy_top(upper)
    }

    /// The upper directory's own attributes, which a tree is copied without.
    fn copy_top(&self, upper: &OwnedFd) -> Result<(), IoFailure> {
        let to = self.root.dir(b"upper").doing("open", b"upper")?;
        let mode = stat(upper.as_fd(), b"").doing("look at", b"upper")?.mode;
        crate::top::copy(self.mode, upper.as_fd(), to.as_fd(), mode).doing("set the attributes of", b"upper")
    }
}
