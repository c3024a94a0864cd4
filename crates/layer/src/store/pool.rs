//! A pool of layer directories: some are created before a run needs them, others belong to runs without changes and are removed later.
//!
//! ```text
//!  tidy: make ─▶ ready ──take (one rename)──▶ layers/RUN ──put (one rename)──▶ old-N ──▶ tidy: remove
//! ```
//! Most runs change nothing, and making and removing the seven directories of a layer is then the largest part of what
//! a layer costs: on ext4 about 0.1 ms for each. So that work is done by [`LayerPool::tidy`] while a later run waits for
//! its sandbox, and a run itself only renames.
//!
//! Only directories that no run has seen are taken: what a hostile run may have left on its upper directory
//! (attributes, flags, an access list) never reaches the next. Only layers without content are put: what a run wrote is
//! removed at once. The places are few and have fixed names, so that nothing piles up; where none is free, or a rename
//! is refused, the directories are made or removed as ever.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_empty, is_gone, join, names, unlink_if_there};
use crate::disk::remove::{readable_by_force, remove_tree};
use crate::disk::xattr;
use crate::entries::marks::LayerMode;
use rustix::fs::{FlockOperation, Mode, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// An attribute of our own on a root layer's directory. If it cannot be seen, overlay's `trusted.*` marks cannot
/// either, and every deletion would be read as nothing.
pub(crate) const PROBE: &[u8] = b"trusted.nexus.layer";

/// Places for layers that go away.
const OLD: [&str; 4] = ["old-0", "old-1", "old-2", "old-3"];

/// Directories in a layer that goes away, from the inside out.
const PIECES: [&[u8]; 6] =
    [b"work/work/incompat/volatile", b"work/work/incompat", b"work/work", b"work/index", b"work", b"upper"];

/// A layer's directories while they are being made.
const NEW: &str = "new";

/// The directory with the layer directories that were created ahead or wait for their removal.
#[derive(Debug)]
pub struct LayerPool {
    root: Workspace,
}

impl LayerPool {
    /// Opens the pool's directory. It is useful only on the file system of the layers, and no other user may write to
    /// it.
    pub fn open(path: &Path) -> Result<Self, IoFailure> {
        Ok(Self { root: Workspace::open(path)? })
    }

    /// Creates layer directories ahead and removes the ones that were returned, one by one until `stop` returns true:
    /// a file system may need milliseconds to free a directory. Does nothing while another process does the same.
    pub fn tidy(&self, mode: LayerMode, stop: &mut dyn FnMut() -> bool) -> Result<(), IoFailure> {
        self.alone(|| self.tidy_alone(mode, stop))
    }

    /// Removes everything in the pool, after a run that failed, perhaps because the disk was full.
    pub fn clear(&self) -> Result<(), IoFailure> {
        self.alone(|| {
            let again = self.root.readable_dir(b"").doing("open", b"")?;
            let found = names(again.as_fd()).doing("list", b"")?;
            found.iter().try_for_each(|name| remove_tree(&self.root, name).doing("remove", name))
        })
    }

    fn alone(&self, act: impl FnOnce() -> Result<(), IoFailure>) -> Result<(), IoFailure> {
        match rustix::fs::flock(self.root.fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(()),
            other => other.doing("lock", b"")?,
        }
        let done = act();
        // Explicitly, and not by closing: a process forked meanwhile would keep the lock.
        done.and(rustix::fs::flock(self.root.fd(), FlockOperation::Unlock).doing("unlock", b""))
    }

    fn tidy_alone(&self, mode: LayerMode, stop: &mut dyn FnMut() -> bool) -> Result<(), IoFailure> {
        let again = self.root.readable_dir(b"").doing("open", b"")?;
        let found = names(again.as_fd()).doing("list", b"")?;
        let ready = ready(mode);
        if !found.iter().any(|name| name == ready.as_bytes()) && !stop() {
            remove_tree(&self.root, NEW.as_bytes()).doing("remove", NEW.as_bytes())?;
            match make(&self.root, NEW, mode) {
                // Without room it is better not to have them.
                Err(error) if is_full(&error.source) => {
                    remove_tree(&self.root, NEW.as_bytes()).doing("remove", NEW.as_bytes())?;
                }
                made => {
                    made?;
                    rustix::fs::renameat(self.root.fd(), NEW, self.root.fd(), ready).doing("rename", NEW.as_bytes())?;
                }
            }
        }
        for old in found.iter().filter(|name| OLD.iter().any(|old| *name == old.as_bytes())) {
            for piece in PIECES {
                if stop() {
                    return Ok(());
                }
                let path = join(old, piece);
                remove_tree(&self.root, &path).doing("remove", &path)?;
            }
            remove_tree(&self.root, old).doing("remove", old)?;
        }
        Ok(())
    }

    /// Turns a layer's directories that were made ahead into those of `run`. Returns `false` when none can be used: the
    /// caller then makes them in their place, and that reports the obstacle.
    pub(crate) fn take(&self, layers: &Workspace, run: &str, mode: LayerMode) -> bool {
        let ready = ready(mode);
        rustix::fs::renameat_with(self.root.fd(), ready, layers.fd(), run, RenameFlags::NOREPLACE).is_ok()
    }

    /// Takes the directories of a layer away whose upper directory is empty. Returns `false` when they have to be
    /// removed where they are.
    pub(crate) fn put(&self, layers: &Workspace, layer: &Workspace, run: &str) -> io::Result<bool> {
        // Overlay's own directories may hold content, too: a file with several names that was copied and then deleted.
        if !is_bare(layer, b"work/index", &[])? || !is_bare(layer, b"work/work", &[b"incompat"])? {
            return Ok(false);
        }
        for old in OLD {
            match rustix::fs::renameat_with(layers.fd(), run, self.root.fd(), old, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    return match remove_files(layer) {
                        // Another process that tidies up has removed it with everything in it.
                        Err(error) if is_gone(&error) => Ok(true),
                        other => other.map(|()| true),
                    };
                }
                Err(Errno::EXIST) => {}
                // Another file system, or one that cannot do this.
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// Removes what lies beside `upper` and `work`: it tells of the run, which is over.
fn remove_files(layer: &Workspace) -> io::Result<()> {
    let again = layer.readable_dir(b"")?;
    let beside = |name: &Vec<u8>| name != b"upper" && name != b"work";
    names(again.as_fd())?.iter().filter(|name| beside(name)).try_for_each(|name| unlink_if_there(again.as_fd(), name))
}

/// Reports whether a directory has no entries but these, or is not there. Overlay makes its own with mode 000.
fn is_bare(layer: &Workspace, path: &[u8], but: &[&[u8]]) -> io::Result<bool> {
    match readable_by_force(layer, path) {
        Ok(dir) if but.is_empty() => is_empty(dir.as_fd()),
        Ok(dir) => Ok(names(dir.as_fd())?.iter().all(|name| but.contains(&name.as_slice()))),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the name of the directories made ahead. Root's carry a mark that an ordinary user's do not.
fn ready(mode: LayerMode) -> &'static str {
    match mode {
        LayerMode::Root => "ready-root",
        LayerMode::User => "ready-user",
    }
}

/// Makes the directory `name` of a layer, with an empty `upper` and `work` that still belong to this process's user.
pub(crate) fn make(parent: &Workspace, name: &str, mode: LayerMode) -> Result<(), IoFailure> {
    let closed = Mode::from_raw_mode(0o700);
    rustix::fs::mkdirat(parent.fd(), name, closed).doing("make", name.as_bytes())?;
    let root = Workspace::from_fd(parent.readable_dir(name.as_bytes()).doing("open", name.as_bytes())?);
    // The umask may have taken bits.
    chmod(root.fd(), 0o700).doing("set the mode of", name.as_bytes())?;
    if mode == LayerMode::Root {
        xattr::set(root.fd(), b"", PROBE, b"1").doing("mark", name.as_bytes())?;
    }
    for inner in ["upper", "work"] {
        rustix::fs::mkdirat(root.fd(), inner, closed).doing("make", inner.as_bytes())?;
    }
    Ok(())
}
