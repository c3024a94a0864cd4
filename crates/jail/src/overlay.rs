//! The workspace as an overlay: the directory below, one run's layer above.
//!
//! Two modes, because the kernel has two (seen by experiment, see docs/decisions):
//! * **User**: mounted inside the sandbox's user namespace with `userxattr`. Renaming a directory that existed before the
//!   run gives EXDEV, so that the guest has it moved; hard links break when one name is written.
//! * **Root**: mounted by the launcher in its own user namespace with `redirect_dir=on,index=on`, over idmapped
//!   layers; both work. The mounter's fsuid must be in the id map while it mounts, or the overlay silently comes up
//!   read-only; that is why the result is checked.
//!
//! `volatile` keeps the end of a run from syncing the whole file system of the workspace. A layer need not survive a
//! power cut: what is committed is synced by the commit.

use crate::identity::Identity;
use crate::mounts::{self, NODEV, NOSUID};
use nexus_model::moving::Numbers;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::StatVfsMountFlags;
use rustix::thread::CapabilitiesSecureBits;
use std::io;

/// Directories of an overlay.
pub struct Parts<'a> {
    /// Lower directory, the workspace.
    pub lower: &'a OwnedFd,
    /// Upper directory, the layer.
    pub upper: &'a OwnedFd,
    /// The kernel's own, beside `upper` on the same mount.
    pub work: &'a OwnedFd,
}

/// Returns what tells the files of a lower directory apart.
pub fn numbers(lower: &OwnedFd) -> Numbers {
    // What cannot be found out is not known.
    rustix::fs::fstatfs(lower).map_or(Numbers::Unknown, |found| Numbers::of(found.f_type as u64))
}

/// An overlay of a user's sandbox; runs inside its user namespace.
pub fn in_user_namespace(parts: &Parts<'_>) -> io::Result<OwnedFd> {
    mount(parts, &[("userxattr", ""), ("volatile", "")])
}

/// An overlay of a sandbox that root starts; runs outside, before the clone.
pub fn as_root(parts: &Parts<'_>, identity: &Identity) -> io::Result<OwnedFd> {
    let before = rustix::thread::capabilities_secure_bits()?;
    // Without this the kernel would drop the file capabilities together with fsuid 0.
    rustix::thread::set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_fs_ids(identity.outer_uid, identity.outer_gid)?;
    let mounted = mount(parts, &[("redirect_dir", "on"), ("index", "on"), ("metacopy", "off"), ("volatile", "")]);
    set_fs_ids(0, 0)?;
    rustix::thread::set_capabilities_secure_bits(before)?;
    mounted
}

fn mount(parts: &Parts<'_>, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let (lower, upper, work) =
        (mounts::fd_path(parts.lower), mounts::fd_path(parts.upper), mounts::fd_path(parts.work));
    let mut all = vec![("lowerdir", lower.as_str()), ("upperdir", upper.as_str()), ("workdir", work.as_str())];
    all.extend_from_slice(options);
    let mount = mounts::new_filesystem("overlay", &all, (NOSUID | NODEV) as u32)?;
    writable(mount)
}

/// Refuses an overlay that the kernel made read-only: it does where it cannot use the layer.
fn writable(mount: OwnedFd) -> io::Result<OwnedFd> {
    if is_read_only(&mount)? { Err(io::Error::other("the overlay came up read-only")) } else { Ok(mount) }
}

fn is_read_only(mount: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatvfs(mount)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Sets the ids that file operations of this thread use, and looks whether it worked: setfsuid(2) reports nothing.
fn set_fs_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: these calls take plain numbers and change only this thread's ids; -1 changes nothing and is how the
    // present value is read.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX) as u32, libc::setfsgid(u32::MAX) as u32)
    };
    if now == (uid, gid) { Ok(()) } else { Err(io::Error::other("setfsuid did not take effect")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_that_came_up_read_only_is_refused() {
        // Another file system stands for it: only root can make one here.
        let open = |flags: u64| mounts::new_filesystem("tmpfs", &[], flags as u32);
        match open(NOSUID) {
            Ok(mount) => {
                assert!(writable(mount).is_ok());
                assert!(writable(open(NOSUID | mounts::RDONLY).unwrap()).is_err());
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                crate::skip::skipped("only root can make a file system");
            }
        }
    }
}
