//! The sandbox's root, seen by the child.
//!
//! ```text
//!  fresh:        a tmpfs with the system in it; places and private directories are made in it too
//!  on template:  / is the launcher's template (read-only here); a tmpfs of this sandbox holds private directories and places
//!  both ─▶ own /dev/pts, own /proc, private directories ─▶ workspace, binds ─▶ read-only ─▶ (fresh) pivot, drop the host
//! ```
//! One tmpfs serves for all private directories (`/tmp`, HOME, …): they are mounts of its subdirectories, so that one
//! size limit bounds them together.

use crate::inside::places::SCRATCH;
use crate::inside::system::{self, System};
use crate::leave_out::{Wall, stands};
use crate::mount_targets::{self, below_root, show, top};
use crate::mounts::{self, Depth, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::ByteText;
use nexus_model::plan::HOME;
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of pseudo-terminals. All instances of devpts share one pool of the kernel (`kernel.pty.max`, 4096 by
/// default), so without a bound one sandbox leaves none to the host: no user could log in any more.
const TERMINALS: &str = "64";
/// Files in `/proc` that tell of the kernel or of others, or act on the machine (vector B08). `kmsg` is not among them:
/// the kernel refuses it, and an empty file in its place would look like an allowed one.
const MASKED: &[&str] = &[
    "kcore",
    "keys",
    "key-users",
    "timer_list",
    "sysrq-trigger",
    "kallsyms",
    "cmdline",
    "config.gz",
    "interrupts",
    "latency_stats",
    "sched_debug",
    "softirqs",
];
/// Directories in `/proc` that tell of the hardware and of who uses it.
const MASKED_DIRECTORIES: &[&str] = &["acpi", "asound", "scsi"];
/// The empty directory of a private file system; it covers directories of /proc.
const EMPTY: &str = "empty";

/// The root while it is being made.
pub struct Root {
    /// Mount that becomes `/`.
    tree: OwnedFd,
    /// The file system of this sandbox alone, when `/` is a template.
    own: Option<OwnedFd>,
}

impl Root {
    /// A private tmpfs that covers the host's root, with the system in it; nothing of the host can be reached by name
    /// afterwards but through what was opened before.
    pub fn fresh(faults: Faults, system: &System, scratch_bytes: u64) -> Result<Self, StepError> {
        let tree = tmpfs(faults, scratch_bytes)?;
        let host_root = mounts::open_path(Path::new("/")).at(Step::MountRoot, "/")?;
        mounts::attach(&tree, &host_root).at(Step::MountRoot, "/")?;
        system::build(faults, system, &tree)?;
        Ok(Self { tree, own: None })
    }

    /// On the template that this process was cloned into.
    pub fn on_template(faults: Faults, scratch_bytes: u64) -> Result<Self, StepError> {
        let own = tmpfs(faults, scratch_bytes)?;
        let tree = mounts::open_path(Path::new("/")).at(Step::MountRoot, "/")?;
        faults.check(Step::Skeleton)?;
        for name in ["var", "home", "dev"] {
            rustix::fs::mkdirat(&own, name, Mode::from_raw_mode(0o755)).at(Step::Skeleton, name)?;
        }
        for (name, mode) in SCRATCH {
            rustix::fs::mkdirat(&own, *name, Mode::from_raw_mode(*mode)).at(Step::Skeleton, name)?;
        }
        rustix::fs::mkdirat(&own, EMPTY, Mode::from_raw_mode(0o555)).at(Step::Skeleton, EMPTY)?;
        rustix::fs::symlinkat("/run", &own, "var/run").at(Step::Skeleton, "var/run")?;
        Ok(Self { tree, own: Some(own) })
    }

    /// Returns the mount that becomes `/`.
    pub fn tree(&self) -> &OwnedFd {
        &self.tree
    }

    /// Returns the file system of this sandbox, in which directories may be made.
    pub fn own(&self) -> &OwnedFd {
        self.own.as_ref().unwrap_or(&self.tree)
    }

    /// Attaches what every sandbox has for itself, whatever its plan.
    pub fn mount_own(&self, faults: Faults) -> Result<(), StepError> {
        faults.check(Step::MountPts)?;
        let pts = [("ptmxmode", "0666"), ("mode", "0620"), ("max", TERMINALS)];
        let pts = if stands(Wall::TerminalLimit) { &pts[..] } else { &pts[..2] };
        let pts = mounts::new_filesystem("devpts", pts, (NOSUID | NOEXEC) as u32).at(Step::MountPts, "devpts")?;
        mounts::attach_at(pts, &self.tree, Path::new("dev/pts")).at(Step::MountPts, "dev/pts")?;
        faults.check(Step::MountScratch)?;
        if let Some(own) = &self.own {
            // Attached where its own directory covers it: a mount that is attached nowhere would be dissolved when it is
            // closed, and the kernel waits for all processors then.
            mounts::attach_at(own, &self.tree, Path::new("dev/shm"))
                .at(Step::MountScratch, "the private file system")?;
        }
        self.mount_proc(faults)
    }

    /// Attaches the private directories: those of every sandbox, and `more`. `targets` are all places that will be asked for.
    pub fn mount_private(&self, faults: Faults, targets: &[&Path], more: &[ByteText]) -> Result<(), StepError> {
        faults.check(Step::MountScratch)?;
        self.cover_tops(targets).at(Step::MountScratch, "directories above the workspace and the binds")?;
        for (name, _) in SCRATCH {
            self.mount_scratch(Path::new(name)).at(Step::MountScratch, name)?;
        }
        for path in more.iter().map(ByteText::as_path) {
            self.mount_more(below_root(path)).at(Step::MountScratch, &show(path))?;
        }
        Ok(())
    }

    /// A fresh `/proc`, read-only as a whole, so that nothing below `/proc/sys` and no trigger can be written, whatever
    /// its owner. A host that masks its own `/proc` (a container) makes the kernel refuse this mount; there is no way
    /// on.
    fn mount_proc(&self, faults: Faults) -> Result<(), StepError> {
        faults.check(Step::MountProc)?;
        let proc =
            new_proc().at(Step::MountProc, "a fresh /proc: inside a container the outer /proc must not be masked")?;
        let below = mounts::place(&self.tree, Path::new("proc")).at(Step::MountProc, "/proc")?;
        mounts::attach(&proc, &below).at(Step::MountProc, "/proc")?;
        // Without a template that is an empty directory. The template has a /proc of its own there, which covers nothing.
        let empty = match &self.own {
            Some(own) => mounts::place(own, Path::new(EMPTY)).at(Step::MaskProc, EMPTY)?,
            None => below,
        };
        faults.check(Step::MaskProc)?;
        let null = mounts::place(&self.tree, Path::new("dev/null")).at(Step::MaskProc, "dev/null")?;
        let files = MASKED.iter().map(|name| (name, false));
        let all = files.chain(MASKED_DIRECTORIES.iter().map(|name| (name, true)));
        for (name, is_dir) in all.filter(|_| stands(Wall::MaskedProc)) {
            let place = match mounts::place(&proc, Path::new(name)) {
                // What this kernel does not have needs no cover. (A cover that is made and not used would be dissolved,
                // and the kernel waits for all processors then.)
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
                found => found.at(Step::MaskProc, name)?,
            };
            let with = if is_dir { &empty } else { &null };
            let attributes = if is_dir { RDONLY | NOSUID | NODEV | NOEXEC } else { 0 };
            let cover = mounts::open_tree_fd(with, attributes, Depth::One).at(Step::MaskProc, name)?;
            mounts::attach(cover, place).at(Step::MaskProc, name)?;
        }
        Ok(())
    }

    /// In a template no directory can be made for one sandbox alone: the others would see its name. So the top
    /// directory of such a place is covered with one of this sandbox, in which the rest of the path is made.
    fn cover_tops(&self, targets: &[&Path]) -> io::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let mut tops = BTreeSet::new();
        for target in targets {
            let path = below_root(target);
            if is_system(path) || top(path) == path || SCRATCH.iter().any(|(name, _)| path.starts_with(name)) {
                continue;
            }
            tops.insert(top(path));
        }
        for top in tops {
            mount_targets::ensure_place(own, top, true)?;
            let cover = mounts::open_tree_at(own, top, RDONLY)?;
            mounts::attach_at(cover, &self.tree, top)?;
        }
        Ok(())
    }

    fn mount_scratch(&self, name: &Path) -> io::Result<()> {
        mounts::attach_at(mounts::open_tree_at(self.own(), name, 0)?, &self.tree, name)
    }

    /// Makes a private directory at a place of the plan. In one of every sandbox it is written already.
    fn mount_more(&self, path: &Path) -> io::Result<()> {
        mount_targets::ensure_place(self.own(), path, true)?;
        if SCRATCH.iter().any(|(name, _)| path.starts_with(name)) { Ok(()) } else { self.mount_scratch(path) }
    }

    /// Opens the target of a mount, and makes it where the directory is this sandbox's.
    pub fn place_for(&self, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
        let Some(own) = &self.own else { return mount_targets::ensure_place(&self.tree, path, is_dir) };
        match mounts::place(&self.tree, path) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                mount_targets::ensure_place(own, path, is_dir)?;
                mounts::place(&self.tree, path)
            }
            found => found,
        }
    }

    /// Leaves the host's root for good. A template has left it already.
    pub fn enter(self, faults: Faults) -> Result<(), StepError> {
        faults.check(Step::ReadOnlyRoot)?;
        if stands(Wall::ReadOnlyRoot) {
            mounts::set_attributes(&self.tree, RDONLY, Depth::One).at(Step::ReadOnlyRoot, "/")?;
        }
        if self.own.is_some() {
            return rustix::process::chdir(c"/").at(Step::ReadOnlyRoot, "/");
        }
        leave_host(faults, &self.tree)
    }
}

fn tmpfs(faults: Faults, bytes: u64) -> Result<OwnedFd, StepError> {
    faults.check(Step::MountRoot)?;
    let (size, inodes) = (bytes.to_string(), (bytes / 8192).clamp(4096, 1 << 20).to_string());
    let options = [("size", size.as_str()), ("nr_inodes", inodes.as_str()), ("mode", "0755")];
    let options = if stands(Wall::ScratchSize) { &options[..] } else { &options[2..] };
    mounts::new_filesystem("tmpfs", options, (NOSUID | NODEV) as u32).at(Step::MountRoot, "tmpfs")
}

/// `/proc` of this process's pid namespace.
pub fn new_proc() -> io::Result<OwnedFd> {
    let read_only = if stands(Wall::ReadOnlyProc) { RDONLY } else { 0 };
    mounts::new_filesystem("proc", &[], (NOSUID | NODEV | NOEXEC | read_only) as u32)
}

/// Makes `tree`, which is attached over it, the root in place of the host's, and drops the host's.
pub fn leave_host(faults: Faults, tree: &OwnedFd) -> Result<(), StepError> {
    faults.check(Step::PivotRoot)?;
    rustix::process::fchdir(tree).at(Step::PivotRoot, "/")?;
    // Both names are the new root: the old one ends up mounted over it and is dropped next (pivot_root(2), NOTES).
    rustix::process::pivot_root(c".", c".").at(Step::PivotRoot, "/")?;
    faults.check(Step::DetachHost)?;
    if stands(Wall::DetachHost) {
        rustix::mount::unmount(c".", rustix::mount::UnmountFlags::DETACH).at(Step::DetachHost, "the host's root")?;
    }
    rustix::process::chdir(c"/").at(Step::DetachHost, "/")
}

/// Returns whether a path lies in a directory that is the same for all sandboxes.
pub fn is_system(path: &Path) -> bool {
    ["usr", "etc", "dev", "proc"].iter().any(|name| path.starts_with(name))
}

/// Returns the directories that the sandbox may write, for Landlock. A rule holds for all that lies below.
pub fn scratch_places() -> impl Iterator<Item = PathBuf> {
    let own = SCRATCH.iter().map(|(name, _)| Path::new("/").join(name));
    own.filter(|place| !place.starts_with("/dev")).chain([PathBuf::from("/dev")])
}

const _: () = assert!(HOME.len() == "/home/nexus".len(), "HOME is one of the scratch directories");
