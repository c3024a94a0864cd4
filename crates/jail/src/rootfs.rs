//! The sandbox's root: a private tmpfs with a read-only view of the host's system.
//!
//! One tmpfs serves twice: its own mount is the root and becomes read-only, and private folders (`/tmp`, HOME, …) are
//! second mounts of its subfolders that stay writable. So one size limit bounds them all together, and one file
//! system is made instead of six.

use crate::etc;
use crate::mounts::{self, Depth, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::plan::HOME;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Host name inside.
pub const HOSTNAME: &str = "nexus";
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Most pseudo-terminals. All instances of devpts share one pool of the kernel (`kernel.pty.max`, 4096 by default), so
/// without a bound one sandbox leaves none to the host: nobody could log in any more.
const TERMINALS: &str = "64";
const SYSTEM: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"];
/// Files in `/proc` that tell of the kernel or of others, or act on the machine (vector B08). `kmsg` is not among them:
/// the kernel refuses it, and an empty file in its place would look like an allowed one.
const MASKED: &[&str] = &["kcore", "keys", "key-users", "timer_list", "sysrq-trigger", "kallsyms"];
/// Folders that stay writable, with their modes.
const SCRATCH: &[(&str, u32)] =
    &[("tmp", 0o1777), ("var/tmp", 0o1777), ("home/nexus", 0o700), ("run", 0o755), ("dev/shm", 0o1777)];

/// A piece of the host, opened before the host's root is covered, and where it goes.
pub struct Piece {
    mount: OwnedFd,
    place: PathBuf,
    is_dir: bool,
}

impl Piece {
    /// Attaches it, making its place and the folders above.
    fn attach(&self, root: &OwnedFd) -> io::Result<()> {
        match self.make_place(root) {
            Err(Errno::NOENT) => {
                let parent = self.place.parent().unwrap_or(Path::new(""));
                ensure_place(root, parent, true)?;
                self.make_place(root)?;
            }
            other => other?,
        }
        mounts::attach_at(&self.mount, root, &self.place)
    }

    fn make_place(&self, root: &OwnedFd) -> Result<(), Errno> {
        if self.is_dir {
            rustix::fs::mkdirat(root, &self.place, Mode::from_raw_mode(0o755))
        } else {
            let mode = Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(root, &self.place, FileType::RegularFile, mode, 0)
        }
    }
}

/// What the host's own system folders are like.
pub struct System {
    pieces: Vec<Piece>,
    links: Vec<(PathBuf, PathBuf)>,
    devices: Vec<Piece>,
}

/// Opens the system view and the devices.
pub fn open_system(faults: Faults) -> Result<System, StepError> {
    faults.check(Step::OpenSystem)?;
    let mut system = System { pieces: Vec::with_capacity(16), links: Vec::new(), devices: Vec::new() };
    for name in SYSTEM {
        add_system(&mut system, &Path::new("/").join(name), PathBuf::from(name)).at(Step::OpenSystem, name)?;
    }
    for name in etc::FROM_HOST {
        let place = Path::new("etc").join(name);
        add_system(&mut system, &Path::new("/").join(&place), place).at(Step::OpenSystem, name)?;
    }
    if let Ok(zone) = std::fs::read_link("/etc/localtime")
        && zone.starts_with("/usr")
    {
        system.links.push((zone, PathBuf::from("etc/localtime")));
    }
    for name in DEVICES {
        let mount = mounts::open_tree(&Path::new("/dev").join(name), Depth::Recursive).at(Step::OpenSystem, name)?;
        mounts::set_attributes(&mount, NOSUID | NOEXEC, Depth::Recursive).at(Step::OpenSystem, name)?;
        system.devices.push(Piece { mount, place: Path::new("dev").join(name), is_dir: false });
    }
    Ok(system)
}

/// A link into `/usr` stays a link; a folder or file is shown read-only; what the host lacks the sandbox lacks too.
fn add_system(system: &mut System, source: &Path, place: PathBuf) -> io::Result<()> {
    let kind = match rustix::fs::lstat(source) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if kind == FileType::Symlink && place.parent() == Some(Path::new("")) {
        system.links.push((std::fs::read_link(source)?, place));
        return Ok(());
    }
    let mount = mounts::open_tree(source, Depth::Recursive)?;
    mounts::set_attributes(&mount, RDONLY | NOSUID | NODEV, Depth::Recursive)?;
    let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&mount)?.st_mode) == FileType::Directory;
    system.pieces.push(Piece { mount, place, is_dir });
    Ok(())
}

/// Makes the private root and covers the host's with it; nothing of the host can be reached by name afterwards but
/// through what was opened before. Returns the root.
pub fn build(faults: Faults, system: &System, scratch_bytes: u64, proc_mount: bool) -> Result<OwnedFd, StepError> {
    faults.check(Step::MountRoot)?;
    let size = scratch_bytes.to_string();
    let inodes = (scratch_bytes / 8192).clamp(4096, 1 << 20).to_string();
    let options = [("size", size.as_str()), ("nr_inodes", inodes.as_str()), ("mode", "0755")];
    let root = mounts::new_filesystem("tmpfs", &options, (NOSUID | NODEV) as u32).at(Step::MountRoot, "tmpfs")?;
    let host_root = mounts::open_path(Path::new("/")).at(Step::MountRoot, "/")?;
    mounts::attach(&root, &host_root).at(Step::MountRoot, "/")?;

    faults.check(Step::Skeleton)?;
    skeleton(&root, system).at(Step::Skeleton, "folders of the root")?;
    faults.check(Step::EtcFiles)?;
    for (name, text) in etc::files(HOSTNAME) {
        write_file(&root, &Path::new("etc").join(name), text.as_bytes()).at(Step::EtcFiles, name)?;
    }
    faults.check(Step::MountSystem)?;
    for piece in &system.pieces {
        piece.attach(&root).at(Step::MountSystem, &show(&piece.place))?;
    }
    faults.check(Step::MountDevices)?;
    for piece in &system.devices {
        piece.attach(&root).at(Step::MountDevices, &show(&piece.place))?;
    }
    faults.check(Step::MountPts)?;
    let pts = [("ptmxmode", "0666"), ("mode", "0620"), ("max", TERMINALS)];
    let pts = mounts::new_filesystem("devpts", &pts, (NOSUID | NOEXEC) as u32).at(Step::MountPts, "devpts")?;
    mounts::attach_at(pts, &root, Path::new("dev/pts")).at(Step::MountPts, "dev/pts")?;
    if proc_mount {
        mount_proc(faults, &root)?;
    }
    faults.check(Step::MountScratch)?;
    for (name, _) in SCRATCH {
        mount_scratch(&root, Path::new(name)).at(Step::MountScratch, name)?;
    }
    Ok(root)
}

fn skeleton(root: &OwnedFd, system: &System) -> io::Result<()> {
    for name in ["etc", "proc", "dev", "dev/pts", "var", "home"] {
        rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755))?;
    }
    for (name, mode) in SCRATCH {
        rustix::fs::mkdirat(root, *name, Mode::from_raw_mode(0o755))?;
        // mkdir obeys the umask; the sticky bit and the rest are set for sure here.
        rustix::fs::chmodat(root, *name, Mode::from_raw_mode(*mode), rustix::fs::AtFlags::empty())?;
    }
    for (target, place) in &system.links {
        rustix::fs::symlinkat(target, root, place)?;
    }
    for (target, place) in [
        ("/proc/self/fd", "dev/fd"),
        ("/proc/self/fd/0", "dev/stdin"),
        ("/proc/self/fd/1", "dev/stdout"),
        ("/proc/self/fd/2", "dev/stderr"),
        ("pts/ptmx", "dev/ptmx"),
        ("/run", "var/run"),
        ("/proc/self/mounts", "etc/mtab"),
    ] {
        rustix::fs::symlinkat(target, root, place)?;
    }
    Ok(())
}

/// A fresh `/proc`, read-only as a whole, so that nothing below `/proc/sys` and no trigger can be written whoever
/// owns it. A host that masks its own `/proc` (a container) makes the kernel refuse this mount; there is no way on.
fn mount_proc(faults: Faults, root: &OwnedFd) -> Result<(), StepError> {
    faults.check(Step::MountProc)?;
    let flags = (NOSUID | NODEV | NOEXEC | RDONLY) as u32;
    let proc = mounts::new_filesystem("proc", &[], flags)
        .at(Step::MountProc, "a fresh /proc: inside a container the outer /proc must not be masked")?;
    mounts::attach_at(&proc, root, Path::new("proc")).at(Step::MountProc, "/proc")?;
    faults.check(Step::MaskProc)?;
    let null = mounts::place(root, Path::new("dev/null")).at(Step::MaskProc, "dev/null")?;
    for name in MASKED {
        let cover = mounts::open_tree_fd(&null, Depth::One).at(Step::MaskProc, "dev/null")?;
        match mounts::attach_at(cover, &proc, Path::new(name)) {
            // What this kernel does not have needs no cover.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            other => other.at(Step::MaskProc, name)?,
        }
    }
    Ok(())
}

fn mount_scratch(root: &OwnedFd, name: &Path) -> io::Result<()> {
    mounts::attach_at(mounts::open_tree_at(root, name)?, root, name)
}

/// Opens the place for a mount, making folders (or the file) on the way where the root is ours.
pub fn ensure_place(root: &OwnedFd, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    match mounts::place(root, path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        found => return found,
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        ensure_place(root, parent, true)?;
    }
    let (parent, name) = split(root, path)?;
    if is_dir {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    }
    mounts::place(root, path)
}

fn split<'p>(root: &OwnedFd, path: &'p Path) -> io::Result<(OwnedFd, &'p [u8])> {
    let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?.as_bytes();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => mounts::place(root, parent)?,
        _ => root.try_clone()?,
    };
    Ok((parent, name))
}

fn write_file(root: &OwnedFd, path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, path, flags, Mode::from_raw_mode(0o644))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Leaves the host's root for good.
pub fn enter(faults: Faults, root: &OwnedFd) -> Result<(), StepError> {
    faults.check(Step::ReadOnlyRoot)?;
    mounts::set_attributes(root, RDONLY, Depth::One).at(Step::ReadOnlyRoot, "/")?;
    faults.check(Step::PivotRoot)?;
    rustix::process::fchdir(root).at(Step::PivotRoot, "/")?;
    // Both names are the new root: the old one ends up mounted over it and is dropped next (pivot_root(2), NOTES).
    rustix::process::pivot_root(c".", c".").at(Step::PivotRoot, "/")?;
    faults.check(Step::DetachHost)?;
    rustix::mount::unmount(c".", rustix::mount::UnmountFlags::DETACH).at(Step::DetachHost, "the host's root")?;
    rustix::process::chdir(c"/").at(Step::DetachHost, "/")
}

/// Folders that the sandbox may write, for Landlock.
pub fn scratch_places() -> impl Iterator<Item = PathBuf> {
    SCRATCH.iter().map(|(name, _)| Path::new("/").join(name)).chain([PathBuf::from("/dev")])
}

/// A path for messages.
pub fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Whether a descriptor is a folder.
pub fn is_dir(fd: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Directory)
}

/// Opens a host folder or file as a detached mount.
pub fn open_source(path: &Path, attributes: u64) -> io::Result<OwnedFd> {
    let mount = mounts::open_tree_fd(mounts::open_canonical(path)?, Depth::Recursive)?;
    mounts::set_attributes(&mount, attributes, Depth::Recursive)?;
    Ok(mount)
}

const _: () = assert!(HOME.len() == "/home/nexus".len(), "HOME is one of the scratch folders");
