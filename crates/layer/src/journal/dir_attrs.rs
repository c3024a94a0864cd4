//! Compares the attributes of a directory with what a step means to change, and sets them.

use crate::beneath::chmod;
use crate::disk::copy::times;
use crate::disk::xattr;
use crate::journal::step::{AttrList, SetDir};
use crate::meta::{FsTime, Meta};
use crate::read::compare::attrs_of;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use std::io;
use std::os::fd::BorrowedFd;

/// The attribute that has a POSIX access list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// The state of a directory before its attributes are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttrState {
    /// As the plan saw it, as the step leaves it, or in between.
    Known,
    /// A directory whose attributes stay; the commit opened it up for its owner.
    Opened,
    /// Another process changed it, or there is nothing to set.
    Foreign,
}

/// Compares an open directory with what a step means to change. `again`: an interrupted pass may have changed it.
pub(crate) fn found(dir: BorrowedFd<'_>, set: &SetDir, now: &Meta, again: bool) -> io::Result<AttrState> {
    let owner = (now.uid, now.gid);
    let (wanted, opened) = ((set.uid, set.gid), |mode: u32| now.mode == mode | 0o700);
    if set.was.is_none() && set.slot.is_none() {
        let is_opened = opened(set.mode) && now.mode != set.mode && owner == wanted;
        return Ok(if is_opened && !rustix::process::geteuid().is_root() {
            AttrState::Opened
        } else {
            AttrState::Foreign
        });
    }
    let (mode, before, attrs) = match &set.was {
        Some(was) => (was.mode, (was.uid, was.gid), was.attrs.as_slice()),
        None if !again => return Ok(AttrState::Known),
        // It was made for the commit.
        None => (0o700, (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()), [].as_slice()),
    };
    let is_mode = [mode, set.mode].iter().any(|mode| now.mode == *mode || opened(*mode));
    if !is_mode || ![before, wanted].contains(&owner) {
        return Ok(AttrState::Foreign);
    }
    // An access list has the owner's bits in it.
    let was_opened = ![mode, set.mode].contains(&now.mode);
    let is_known = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let of = |list: &AttrList| list.iter().any(|one| one.0.0 == *name && one.1.0 == *value);
        (was_opened && name == ACCESS_LIST)
            || attrs.iter().any(|one| one.0.0 == *name && one.1.0 == *value)
            || set.attrs.as_ref().is_some_and(of)
    };
    let now_attrs = attrs_of(dir)?;
    // Another process removed an attribute that the directory had before and is to keep.
    let is_missing = |(name, _): &(ByteText, ByteText)| {
        let of = |list: &AttrList| list.iter().any(|one| one.0 == *name);
        set.attrs.as_ref().is_some_and(of) && !now_attrs.iter().any(|one| one.0 == name.0)
    };
    let is_same = now_attrs.iter().all(is_known) && !attrs.iter().any(is_missing);
    Ok(if is_same { AttrState::Known } else { AttrState::Foreign })
}

/// Sets the attributes of an open directory.
pub(crate) fn apply_dir_state(dir: BorrowedFd<'_>, set: &SetDir, now: &Meta) -> io::Result<()> {
    if let Some(attrs) = &set.attrs {
        for old in xattr::list(dir, b"")? {
            let content = matches!(
                crate::entries::marks::attr(crate::entries::marks::LayerMode::Root, &old),
                crate::entries::marks::Attr::Copy(_)
            );
            if content && !attrs.iter().any(|(name, _)| name.0 == old) {
                xattr::remove(dir, b"", &old)?;
            }
        }
        for (name, value) in attrs {
            xattr::set(dir, b"", &name.0, &value.0)?;
        }
    }
    if (now.uid, now.gid) != (set.uid, set.gid) {
        let (uid, gid) = (Uid::from_raw(set.uid), Gid::from_raw(set.gid));
        rustix::fs::chownat(dir, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    chmod(dir, set.mode)?;
    set.mtime.map_or(Ok(()), |mtime| set_mtime(dir, mtime, now))
}

/// Sets the time of the last change of an open directory.
pub(crate) fn set_mtime(dir: BorrowedFd<'_>, mtime: FsTime, now: &Meta) -> io::Result<()> {
    let stamps = times(&Meta { mtime, ..now.clone() });
    Ok(rustix::fs::utimensat(rustix::fs::CWD, crate::beneath::proc_path(dir), &stamps, AtFlags::empty())?)
}
