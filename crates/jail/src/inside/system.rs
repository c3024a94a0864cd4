//! The part of a root that all sandboxes of a launcher share: a read-only view of the host's system, a synthesised
//! `/etc` and a few devices. Either the child of a launch builds it, or a launcher builds it once as a template.

use crate::inside::etc;
use crate::inside::image::{self, Image};
use crate::inside::places::{HOSTNAME, SCRATCH};
use crate::leave_out::{Wall, stands};
use crate::mount_targets::{ensure_place, show};
use crate::mounts::{self, Depth, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::steps::{AtStep, Faults, Step, StepError};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
const SYSTEM: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"];

/// A piece of the host, opened before the host's root is covered, and where it goes.
struct Piece {
    mount: OwnedFd,
    place: PathBuf,
    is_dir: bool,
}

impl Piece {
    /// Attaches the mount, and makes its target and the directories above it.
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

/// Layout of the host's own system directories.
pub struct System {
    pieces: Vec<Piece>,
    links: Vec<(PathBuf, PathBuf)>,
    devices: Vec<Piece>,
    image: Option<Image>,
}

/// Opens the system view, of the host or of an image, and the devices.
pub fn open(faults: Faults, image: Option<Image>) -> Result<System, StepError> {
    faults.check(Step::OpenSystem)?;
    let mut system = System { pieces: Vec::with_capacity(16), links: Vec::new(), devices: Vec::new(), image };
    if system.image.is_none() {
        open_host(&mut system)?;
    }
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        let mount = mounts::open_tree(&device, NOSUID | NOEXEC, Depth::Recursive).at(Step::OpenSystem, name)?;
        system.devices.push(Piece { mount, place: Path::new("dev").join(name), is_dir: false });
    }
    Ok(system)
}

fn open_host(system: &mut System) -> Result<(), StepError> {
    for name in SYSTEM {
        add(system, &Path::new("/").join(name), PathBuf::from(name)).at(Step::OpenSystem, name)?;
    }
    for name in etc::FROM_HOST {
        let place = Path::new("etc").join(name);
        add(system, &Path::new("/").join(&place), place).at(Step::OpenSystem, name)?;
    }
    let zone = PathBuf::from("etc/localtime");
    match std::fs::read_link("/etc/localtime") {
        Ok(link) if link.starts_with("/usr") => system.links.push((link, zone)),
        _ => add(system, Path::new("/etc/localtime"), zone).at(Step::OpenSystem, "localtime")?,
    }
    Ok(())
}

/// A link into `/usr` stays a link; a directory or file is shown read-only; what the host lacks the sandbox lacks too.
fn add(system: &mut System, source: &Path, place: PathBuf) -> io::Result<()> {
    let kind = match rustix::fs::lstat(source) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if kind == FileType::Symlink && place.parent() == Some(Path::new("")) {
        system.links.push((std::fs::read_link(source)?, place));
        return Ok(());
    }
    let read_only = if stands(Wall::ReadOnlySystem) { RDONLY } else { 0 };
    let mount = mounts::open_tree(source, read_only | NOSUID | NODEV, Depth::Recursive)?;
    let is_dir = match kind {
        // The mount is of what the link leads to.
        FileType::Symlink => FileType::from_raw_mode(rustix::fs::fstat(&mount)?.st_mode) == FileType::Directory,
        kind => kind == FileType::Directory,
    };
    system.pieces.push(Piece { mount, place, is_dir });
    Ok(())
}

/// Fills a root with it.
pub fn build(faults: Faults, system: &System, root: &OwnedFd) -> Result<(), StepError> {
    faults.check(Step::Skeleton)?;
    skeleton(root, system).at(Step::Skeleton, "directories of the root")?;
    faults.check(Step::EtcFiles)?;
    for (name, text) in etc::files(HOSTNAME) {
        write_file(root, &Path::new("etc").join(name), text.as_bytes()).at(Step::EtcFiles, name)?;
    }
    faults.check(Step::MountSystem)?;
    for piece in &system.pieces {
        piece.attach(root).at(Step::MountSystem, &show(&piece.place))?;
    }
    if let Some(image) = &system.image {
        image::fill(image, root).at(Step::MountSystem, "the root of the image")?;
    }
    faults.check(Step::MountDevices)?;
    for piece in &system.devices {
        piece.attach(root).at(Step::MountDevices, &show(&piece.place))?;
    }
    Ok(())
}

fn skeleton(root: &OwnedFd, system: &System) -> io::Result<()> {
    for name in ["etc", "proc", "dev", "dev/pts", "var", "home"] {
        rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755))?;
    }
    for (name, mode) in SCRATCH {
        rustix::fs::mkdirat(root, *name, Mode::from_raw_mode(*mode))?;
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
