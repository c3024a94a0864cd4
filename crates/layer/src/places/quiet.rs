//! Finds out whether an entry that a commit moves out of the workspace changed, or is open for writing in another process.

use crate::beneath::{LeaseCall, Workspace, chmod, join, names};
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::places::writers::{Writers, writers};
use nexus_model::ByteText;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Answer whether a displaced entry may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// The entry is unchanged, and no process has it open for writing.
    Yes,
    /// The entry changed.
    No,
    /// A process has a file of it open for writing.
    Written,
    /// The entry does not exist any more.
    Gone,
}

/// The result of [`inspect`].
pub(crate) enum Look {
    /// The attributes, and the lease by which no process changes a file after they were read.
    At(Meta, Option<Writers>),
    /// A process has the file open for writing.
    Written,
    /// The name has no entry (any more), or another one than a moment before.
    Gone,
}

/// Reads the attributes of an entry. Those of a file are read after the lease, so that none of its writes is missed.
/// `between` runs before the lease.
pub(crate) fn inspect(
    leases: Option<LeaseCall>,
    dir: BorrowedFd<'_>,
    name: &[u8],
    between: &dyn Fn(),
) -> io::Result<Look> {
    let Some(first) = stat_if_there(dir, name)? else { return Ok(Look::Gone) };
    between();
    if first.kind != EntryType::File {
        return Ok(Look::At(first, None));
    }
    let lease = writers(leases, dir, name)?;
    match &lease {
        Writers::Some => Ok(Look::Written),
        Writers::Unknown => Ok(stat_if_there(dir, name)?.map_or(Look::Gone, |meta| Look::At(meta, None))),
        Writers::None(held) => {
            let meta = held.meta()?;
            Ok(if meta.id == first.id { Look::At(meta, Some(lease)) } else { Look::Gone })
        }
    }
}

/// Looks through a displaced directory for an entry that `changed` names, by its directory, its name and its attributes, or that a process
/// writes to. `opens` gets the directories that are
/// opened up for it, which changes their ctime.
pub(crate) fn quiet_inside(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    changed: &dyn Fn(&Meta, &[u8], &Meta) -> bool,
    opens: &dyn Fn(&Meta),
) -> io::Result<Quiet> {
    Ok(first_unquiet(tree, top, leases, changed, opens)?.map_or(Quiet::Yes, |(quiet, _)| quiet))
}

/// Returns the first entry of a tree that another process uses: a file that is open for writing, as far as the leases of the tree tell, or
/// an entry that went while it was looked at.
pub fn first_in_use(tree: &Workspace) -> io::Result<Option<ByteText>> {
    Ok(first_unquiet(tree, b"", tree.leases(), &|_, _, _| false, &|_| ())?.map(|(_, path)| ByteText(path)))
}

/// Returns the first entry that may not be removed, with the reason and its path.
fn first_unquiet(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    changed: &dyn Fn(&Meta, &[u8], &Meta) -> bool,
    opens: &dyn Fn(&Meta),
) -> io::Result<Option<(Quiet, Vec<u8>)>> {
    let mut opened: Vec<(Vec<u8>, u32)> = Vec::new();
    let mut opens = |path: &[u8], meta: &Meta| {
        opens(meta);
        opened.push((path.to_vec(), meta.mode));
    };
    let result = inspect_all(tree, top, leases, changed, &mut opens);
    for (path, mode) in opened.iter().rev() {
        let dir = tree.dir(path)?;
        chmod(dir.as_fd(), *mode)?;
    }
    result
}

fn inspect_all(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    changed: &dyn Fn(&Meta, &[u8], &Meta) -> bool,
    opens: &mut dyn FnMut(&[u8], &Meta),
) -> io::Result<Option<(Quiet, Vec<u8>)>> {
    let mut stack = vec![top.to_vec()];
    while let Some(path) = stack.pop() {
        let dir = match tree.readable_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if let Some(meta) = tree.stat(&path)? {
                    opens(&path, &meta);
                }
                tree.dir_by_force(&path)?;
                tree.readable_dir(&path)?
            }
            // A mount point: nothing below it may be removed.
            Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => {
                return Ok(Some((Quiet::No, path)));
            }
            other => other?,
        };
        let own = stat(dir.as_fd(), b"")?;
        for name in names(dir.as_fd())? {
            let (meta, lease) = match inspect(leases, dir.as_fd(), &name, &|| ())? {
                Look::At(meta, lease) => (meta, lease),
                Look::Written => return Ok(Some((Quiet::Written, join(&path, &name)))),
                Look::Gone => return Ok(Some((Quiet::No, join(&path, &name)))),
            };
            // A mount, also one of a single file, is of another process.
            if meta.mount != own.mount || changed(&own, &name, &meta) {
                return Ok(Some((Quiet::No, join(&path, &name))));
            }
            drop(lease);
            if meta.kind == EntryType::Directory {
                stack.push(join(&path, &name));
            }
        }
    }
    Ok(None)
}
