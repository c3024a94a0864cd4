//! Pins the directories above what is covered in a writable bind. A cover belongs to one mount: where a second bind shows the same
//! tree at another place, here or in another sandbox, a rename would take what is covered to where no cover is. A directory on
//! which anything is mounted, in any mount of the sandbox, is neither renamed nor removed there (`EBUSY`). So the bind is mounted
//! twice, and the pins are in the one below, where no lookup by a path comes across them:
//!
//! ```text
//!  /rw      the bind, as it is seen      /a/b/s   the cover
//!    └─ below it, the same once more     /a, /a/b  an empty directory on each
//! ```

use crate::inside::answers::is_gone;
use crate::inside::birth::Identity;
use crate::inside::covers::{cover, innermost};
use crate::inside::rootfs::Root;
use crate::mount_targets::{below_root, is_dir};
use crate::mounts::{self, Depth, NODEV, NOSUID};
use crate::request::Request;
use nexus_model::plan::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Directories to pin, relative to their bind, by the place of the bind.
pub(super) type Pins<'a> = BTreeMap<&'a Path, BTreeSet<PathBuf>>;

/// Finds the directories above what is covered in writable binds.
pub(super) fn find<'a>(request: &'a Request<'_>) -> Pins<'a> {
    let mut found = Pins::new();
    for covered in &request.plan.covered {
        let path = covered.path.as_path();
        let Some(bind) = innermost(request, path).filter(|bind| bind.access == Access::ReadWrite) else { continue };
        let Ok(below) = path.strip_prefix(bind.target.as_path()) else { continue };
        let above = below.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty());
        let pins = found.entry(bind.target.as_path()).or_default();
        for directory in above {
            if !pins.insert(directory.to_owned()) {
                // Those above it are here too.
                break;
            }
        }
    }
    found
}

/// Pins directories of a bind that is in its place, and adds their identities to `held`: another process may exchange one
/// meanwhile, so that the pin is on a directory that has only its name.
pub(super) fn hold(
    root: &Root,
    bind: &Path,
    directories: &BTreeSet<PathBuf>,
    held: &mut BTreeSet<Identity>,
) -> io::Result<()> {
    if directories.is_empty() {
        return Ok(());
    }
    let below = mounts::place(root.tree(), below_root(bind))?;
    let seen = mounts::open_tree_fd(&below, NOSUID | NODEV, Depth::Recursive)?;
    // Those further down first: nothing is mounted on the way to them then.
    for directory in directories.iter().rev() {
        match mounts::place(&below, directory) {
            Ok(place) if is_dir(&place)? => {
                cover(root, &place)?;
                held.insert(Identity::of(&place)?);
            }
            Ok(_) => {}
            // The second search finds what was in it.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    mounts::attach(seen, below)
}
