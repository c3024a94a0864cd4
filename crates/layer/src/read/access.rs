//! Finds the directories of a workspace that this user may not read or search.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, is_other_mount};
use crate::entries::tree::Found;
use crate::meta::stat_if_there;
use std::io;
use std::os::fd::AsFd as _;

/// Reports whether a directory or file is closed to this user.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Reports whether this user may not enter a directory of the workspace, so that nothing in it can be looked at.
pub(crate) fn is_shut(base: &Workspace, found: &Found) -> Result<bool, IoFailure> {
    const BY_OWNER: u32 = 0o100;
    let user = rustix::process::geteuid();
    if user.is_root() || (found.meta.uid == user.as_raw() && found.meta.mode & BY_OWNER != 0) {
        return Ok(false);
    }
    let dir = match base.dir(&found.at.0) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) || is_other_mount(&error) => return Ok(false),
        Err(error) => return Err(error).doing("open", &found.at.0),
    };
    match stat_if_there(dir.as_fd(), b".") {
        Err(error) if is_closed(&error) => Ok(true),
        Err(error) => Err(error).doing("look at", &found.at.0),
        Ok(_) => Ok(false),
    }
}
