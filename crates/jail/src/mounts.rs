//! Small wrappers around the mount calls, all on descriptors, so that no path is looked up twice.

use crate::leave_out::{Wall, stands};
use nexus_model::plan::Access;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};
use std::io;
use std::path::Path;

/// Mount attributes, as in mount_setattr(2).
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Ignores setuid bits on the mount.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Refuses to open device nodes.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Refuses to execute files of the mount.
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Selects the mounts under a directory that come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The one mount.
    One,
    /// All mounts below too.
    Recursive,
}

/// Clones the mount of what is at `path`, not attached anywhere, without propagation and with these attributes.
pub fn open_tree(path: &Path, set: u64, depth: Depth) -> io::Result<OwnedFd> {
    clone_tree(CWD, path, OpenTreeFlags::empty(), depth, attributes_alone(set))
}

/// Clones the mount of an open file or directory in the same way.
pub fn open_tree_fd(fd: impl AsFd, set: u64, depth: Depth) -> io::Result<OwnedFd> {
    clone_tree(fd, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH, depth, attributes_alone(set))
}

/// Clones it, and shows file owners through the map of a user namespace.
pub fn open_tree_mapped(fd: impl AsFd, userns: impl AsFd, set: u64, depth: Depth) -> io::Result<OwnedFd> {
    let userns_fd = userns.as_fd().as_raw_fd() as u64;
    let attr = libc::mount_attr { userns_fd, ..attributes_alone(set | libc::MOUNT_ATTR_IDMAP) };
    clone_tree(fd, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH, depth, attr)
}

/// Clones the mount of one directory of a tree that is ours.
pub fn open_tree_at(root: impl AsFd, path: &Path, set: u64) -> io::Result<OwnedFd> {
    clone_tree(root, path, OpenTreeFlags::empty(), Depth::One, attributes_alone(set))
}

/// A clone of a shared mount (with systemd, every mount of the host) is a peer of the original (mount_namespaces(7)): what
/// is mounted on it inside, such as the cover of a hidden file, would be mounted on the host too, and what the host mounts
/// later would come inside with the attributes of the host. The clone leaves the group and gets its attributes in one call,
/// during which the kernel propagates no mount, so that these hold for all that has come until then.
fn clone_tree(
    from: impl AsFd,
    path: &Path,
    flags: OpenTreeFlags,
    depth: Depth,
    attr: libc::mount_attr,
) -> io::Result<OwnedFd> {
    let mut flags = flags | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if depth == Depth::Recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = rustix::mount::open_tree(from, path, flags)?;
    setattr(&tree, libc::mount_attr { propagation: libc::MS_PRIVATE, ..attr }, depth)?;
    Ok(tree)
}

fn attributes_alone(set: u64) -> libc::mount_attr {
    libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 }
}

/// Sets attributes of a mount, and of those below it.
pub fn set_attributes(mount: impl AsFd, set: u64, depth: Depth) -> io::Result<()> {
    setattr(mount, attributes_alone(set), depth)
}

fn setattr(mount: impl AsFd, attr: libc::mount_attr, depth: Depth) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: without_left_out(attr.attr_set), ..attr };
    let mut flags = libc::AT_EMPTY_PATH;
    if depth == Depth::Recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is an empty C string, `attr` lives during the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes out the attributes that a test leaves out.
fn without_left_out(attributes: u64) -> u64 {
    let left_out = [(Wall::NoSuid, NOSUID), (Wall::NoDev, NODEV)];
    left_out.iter().filter(|(wall, _)| !stands(*wall)).fold(attributes, |kept, (_, flag)| kept & !flag)
}

/// Attaches a detached mount onto an open place.
pub fn attach(mount: impl AsFd, place: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", place, c"", flags)?)
}

/// Attaches a detached mount onto a path of a tree that is wholly ours; nothing hostile is mounted there yet.
pub fn attach_at(mount: impl AsFd, root: impl AsFd, path: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, c"", root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Makes a file system and a detached mount of it.
pub fn new_filesystem(kind: &str, options: &[(&str, &str)], attributes: u32) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(&context, *key)?;
        } else {
            rustix::mount::fsconfig_set_string(&context, *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::from_bits_retain(without_left_out(attributes.into()) as u32);
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Opens a place below `root` without following any symbolic link: parts of the tree are hostile.
pub fn place(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Opens a host path for looking only.
pub fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The path by which the kernel reaches an open descriptor; has none of the characters that mount options escape.
pub fn fd_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Opens a host path that is already canonical. A symbolic link anywhere in it means that another process changed the
/// path after it was checked, and is refused.
pub fn open_canonical(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Returns the mount attributes of a bind. Parent and child both use it, so neither can forget one.
pub fn attributes(access: Access) -> u64 {
    match access {
        Access::ReadOnly if !stands(Wall::ReadOnlyBinds) => NOSUID | NODEV,
        Access::ReadOnly => RDONLY | NOSUID | NODEV,
        Access::ReadWrite => NOSUID | NODEV,
        // Read-only holds the mode and the owner of the file: reads, writes and controls of a device go on.
        Access::Device { .. } => RDONLY | NOSUID | NOEXEC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_reached_through_no_link() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("real/inner")).unwrap();
        symlink("real", base.path().join("link")).unwrap();
        symlink("inner", base.path().join("real/last")).unwrap();
        let root = open_path(base.path()).unwrap();
        assert!(place(&root, Path::new("real/inner")).is_ok());
        let error = place(&root, Path::new("link/inner")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        // The last name may be a link: it is the place then, and where it leads is not.
        let last = rustix::fs::fstat(place(&root, Path::new("real/last")).unwrap()).unwrap();
        assert_eq!(rustix::fs::FileType::from_raw_mode(last.st_mode), rustix::fs::FileType::Symlink);
        assert!(place(&root, Path::new("../x")).is_err());
    }

    #[test]
    fn a_path_with_a_link_in_it_is_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let real = base.path().canonicalize().unwrap().join("real");
        std::fs::create_dir_all(real.join("inner")).unwrap();
        assert!(open_canonical(&real.join("inner")).is_ok());
        // As if another process had exchanged the directory for a link after it was checked.
        let link = real.with_file_name("link");
        symlink(&real, &link).unwrap();
        for path in [link.join("inner"), link] {
            let error = open_canonical(&path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{}", path.display());
        }
    }
}
