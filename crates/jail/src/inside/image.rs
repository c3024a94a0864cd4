//! The root of an image in place of the host's system: each of its entries is a read-only mount, or a link, in the private root.
//!
//! ```text
//!  image/usr ─ bind ─▶ /usr        image/bin -> usr/bin ─ the same link ─▶ /bin
//!  image/etc ─┬ passwd, hosts …    ▶ (the sandbox's own)
//!             └ every other entry ─ bind ─▶ /etc/…         likewise in every directory that holds a place of this sandbox
//! ```
//! Nothing is ever made in the image, and no link of it is followed: its directories are listed and opened below its mount.

use crate::inside::etc;
use crate::inside::places::{HOSTNAME, SCRATCH};
use crate::leave_out::{Wall, stands};
use crate::mount_targets::{below_root, open_source, show};
use crate::mounts::{self, Depth, NODEV, NOSUID, RDONLY};
use crate::request::{Request, targets};
use crate::steps::{AtStep, Step, StepError};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Places besides the scratch directories that the sandbox fills itself.
const OWN: &[&str] = &["dev", "proc", "sys", "var/run", "etc/mtab"];
/// Directories that the sandbox has whatever the image has there: the proof tries to write to `/usr`.
const DIRECTORIES: &[&str] = &["usr"];
/// Most entries that are mounted one by one; each is a mount of the kernel.
const MAX_ENTRIES: usize = 4096;
/// A place of the new root at which the image lies until something else covers it, as `rootfs` does with the private file system.
const PLACE: &str = "dev/pts";

/// An image, opened before the host's root is covered.
pub struct Image {
    mount: OwnedFd,
    own: PlacesOfSandbox,
}

/// Returns the attributes with which an image is mounted.
pub fn attributes() -> u64 {
    let read_only = if stands(Wall::ReadOnlySystem) { RDONLY } else { 0 };
    read_only | NOSUID | NODEV
}

/// Opens the image of a plan that has one, unless the launcher did.
pub fn open(request: &Request<'_>, ready: Option<OwnedFd>) -> Result<Option<Image>, StepError> {
    let Some(image) = &request.plan.image else { return Ok(None) };
    let mount = match ready {
        Some(mount) => mount,
        None => open_source(image.path.as_path(), attributes()).at(Step::OpenSystem, &show(image.path.as_path()))?,
    };
    Ok(Some(Image { mount, own: PlacesOfSandbox::of(&targets(request.plan)) }))
}

/// The places of a sandbox, relative to its root.
struct PlacesOfSandbox {
    /// Places that the sandbox fills itself.
    places: BTreeSet<PathBuf>,
    /// The directories above them.
    above: BTreeSet<PathBuf>,
}

impl PlacesOfSandbox {
    fn of(targets: &[&Path]) -> Self {
        let etc = etc::files(HOSTNAME).into_iter().map(|(name, _)| Path::new("etc").join(name));
        let scratch = SCRATCH.iter().map(|(name, _)| PathBuf::from(name));
        let targets = targets.iter().map(|target| below_root(target).to_owned());
        let places: BTreeSet<PathBuf> =
            OWN.iter().map(PathBuf::from).chain(etc).chain(scratch).chain(targets).collect();
        let above = places.iter().flat_map(|place| place.ancestors().skip(1)).map(Path::to_owned).collect();
        Self { places, above }
    }

    fn decide(&self, path: &Path, kind: FileType) -> Decision {
        if self.places.contains(path) {
            return Decision::LeaveOut;
        }
        let is_ours = self.above.contains(path);
        match kind {
            FileType::Directory if is_ours => Decision::Enter,
            FileType::Symlink if !is_ours && !DIRECTORIES.iter().any(|name| Path::new(name) == path) => Decision::Link,
            FileType::Directory | FileType::RegularFile if !is_ours => Decision::Mount,
            // A link or a file where the sandbox needs a directory; or what no image has.
            _ => Decision::LeaveOut,
        }
    }
}

/// Treatment of an entry of the image.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The sandbox has its own there, or the entry cannot be shown.
    LeaveOut,
    /// A directory of the sandbox, in which the entries of the image's are mounted one by one.
    Enter,
    /// A link with the same target.
    Link,
    /// A mount of it.
    Mount,
}

/// Fills the private root, which has the sandbox's own places, with the entries of the image.
pub fn fill(image: &Image, root: &OwnedFd) -> io::Result<()> {
    // Only what is mounted somewhere can be cloned in parts.
    mounts::attach_at(&image.mount, root, Path::new(PLACE))?;
    let mut left = MAX_ENTRIES;
    enter(image, root, Path::new(""), &mut left)?;
    DIRECTORIES.iter().try_for_each(|name| make_dir(root, Path::new(name)))
}

fn enter(image: &Image, root: &OwnedFd, dir: &Path, left: &mut usize) -> io::Result<()> {
    let opened = open_dir(&image.mount, dir)?;
    let names = match opened {
        Some(opened) => names(&opened)?,
        // The user of the sandbox could not look into it either.
        None => return Ok(()),
    };
    for name in names {
        *left = left.checked_sub(1).ok_or_else(|| {
            io::Error::other(format!("the image has more than {MAX_ENTRIES} entries beside the places of the sandbox"))
        })?;
        let path = dir.join(OsStr::from_bytes(&name));
        let place = mounts::place(&image.mount, &path)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        match image.own.decide(&path, kind) {
            Decision::LeaveOut => {}
            Decision::Enter => {
                make_dir(root, &path)?;
                enter(image, root, &path, left)?;
            }
            Decision::Link => {
                let target = rustix::fs::readlinkat(&place, c"", Vec::new())?;
                rustix::fs::symlinkat(&target, root, &path)?;
            }
            Decision::Mount => {
                let mount = mounts::open_tree_fd(&place, attributes(), Depth::One)?;
                if kind == FileType::Directory {
                    make_dir(root, &path)?;
                } else {
                    let mode = Mode::from_raw_mode(0o644);
                    rustix::fs::mknodat(root, &path, FileType::RegularFile, mode, 0)?;
                }
                mounts::attach_at(mount, root, &path)?;
            }
        }
    }
    Ok(())
}

fn make_dir(root: &OwnedFd, path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => {
            // In a tree that is ours alone; a link there would lead elsewhere.
            let stat = rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { Ok(()) } else { Err(Errno::EXIST.into()) }
        }
        other => Ok(other?),
    }
}

fn open_dir(mount: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let place = if path == Path::new("") { None } else { Some(mounts::place(mount, path)?) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(place.as_ref().unwrap_or(mount), c".", flags, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names(dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut buffer: Vec<u8> = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
        if names.len() > MAX_ENTRIES {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_the_sandbox_are_never_those_of_the_image() {
        let own = PlacesOfSandbox::of(&[Path::new("/srv/a/project"), Path::new("/opt/tool")]);
        let decide = |path: &str, kind| own.decide(Path::new(path), kind);
        for place in
            ["proc", "dev", "sys", "tmp", "run", "var/tmp", "var/run", "home/nexus", "etc/passwd", "etc/resolv.conf"]
        {
            for kind in [FileType::Directory, FileType::Symlink, FileType::RegularFile] {
                assert_eq!(decide(place, kind), Decision::LeaveOut, "{place}");
            }
        }
        for directory in ["etc", "var", "home", "srv", "srv/a", "opt"] {
            assert_eq!(decide(directory, FileType::Directory), Decision::Enter, "{directory}");
            // Through a link of the image the workspace would be mounted elsewhere.
            assert_eq!(decide(directory, FileType::Symlink), Decision::LeaveOut, "{directory}");
        }
        assert_eq!(decide("srv/a/project", FileType::Directory), Decision::LeaveOut);
        assert_eq!(decide("usr", FileType::Directory), Decision::Mount);
        assert_eq!(decide("usr", FileType::Symlink), Decision::LeaveOut);
        assert_eq!(decide("bin", FileType::Symlink), Decision::Link);
        assert_eq!(decide("etc/os-release", FileType::RegularFile), Decision::Mount);
        assert_eq!(decide("opt/other", FileType::Directory), Decision::Mount);
        for kind in [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket] {
            assert_eq!(decide("x", kind), Decision::LeaveOut);
        }
    }
}
