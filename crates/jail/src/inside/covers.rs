//! Covers what the command must not reach in what is shown to it.

use crate::inside::answers::{is_denied, is_endpoint, is_gone, moved};
use crate::inside::birth::{First, Identity, id};
use crate::inside::closed::{self, ClosedError};
use crate::inside::mounted::{self, LookedAt};
use crate::inside::rootfs::Root;
use crate::leave_out::{Wall, stands};
use crate::mount_table;
use crate::mount_targets::{self, below_root, show};
use crate::mounts::{self, NODEV, NOSUID, RDONLY};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use nexus_model::mount_table::Mount;
use nexus_model::plan::{Access, Bind, Cover};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Covers paths of the workspace with an empty file or directory that no process inside may open. The cover is
/// read-only, so that its owner, who is the user inside, cannot give himself the right.
pub(super) fn hide_paths(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    for own in hidden(request) {
        // Another directory is bound over the one that has it. A bind that shows what is hidden is refused.
        if request.plan.binds.iter().any(|bind| own.starts_with(bind.target.as_path())) {
            continue;
        }
        let target = below_root(&own);
        open(root, target).and_then(|place| cover(root, &place)).at(Step::HidePaths, &show(target))?;
    }
    Ok(())
}

/// Covers sockets in binds in the same way: a mount that cannot be written does not keep anybody from connecting. Another file than
/// the one that was found is refused: a run beside this one may have exchanged the two, and what was found is at another name.
/// Nor is what is covered renamed inside, and the directories above it are pinned where the command may write: what lies in a
/// directory that is not one of `held` was exchanged between the pins and the covers, and is refused.
pub(super) fn cover_sockets(
    request: &Request<'_>,
    root: &Root,
    held: &BTreeSet<Identity>,
    looked_at: &mut LookedAt,
) -> Result<(), StepError> {
    let found = request.plan.covered.iter().map(|covered| covered.id).collect();
    let first = request.plan.second_search.as_ref().map(|search| First { since: search.since, found: &found });
    if request.plan.covered.is_empty() {
        return Ok(());
    }
    let table = mount_table::read(root.tree()).at(Step::HidePaths, "/proc/self/mountinfo")?;
    for Cover { path, id: wanted } in &request.plan.covered {
        // What is hidden is covered anyway.
        if hidden(request).any(|hidden| path.as_path().starts_with(hidden)) {
            continue;
        }
        let at = |error: io::Error| StepError::os(Step::HidePaths, error, show(path.as_path()));
        let (place, is_held) = match open_held(request, root, path.as_path(), held) {
            Ok(found) => found,
            // Gone since the launcher looked. The second search finds it where it is at another name.
            Err(error) if is_gone(&error) => continue,
            Err(error) if is_denied(&error) => return Err(closed_to_the_sandbox(error, path.as_path())),
            Err(error) => return Err(at(error)),
        };
        let stat = rustix::fs::fstat(&place).map_err(|error| at(error.into()))?;
        // A service that was restarted has made another one.
        let is_made_since = first.as_ref().is_some_and(|first| first.is_before(&place, &stat));
        let is_found = id(&stat) == *wanted || (is_made_since && is_endpoint(&stat));
        if !is_found || !is_held {
            return Err(moved(path.as_path()));
        }
        if mount_targets::is_dir(&place).map_err(at)? {
            let bind = innermost(request, path.as_path());
            let is_read_only = bind.is_some_and(|bind| bind.access == Access::ReadOnly);
            let cover_one = |inner: &OwnedFd| cover(root, inner);
            // First the mounts: no path leads to one below a directory of another user once that has its cover.
            let below = mounted::Below { table: &table, directory: path.as_path(), with_pipes: is_read_only };
            mounted::cover_below(root.tree(), &below, looked_at, &cover_one).map_err(at)?;
            let within = closed::each_within(&place, is_read_only, &cover_one);
            within.map_err(|error| about_closed(error, path.as_path()))?;
        }
        cover(root, &place).map_err(at)?;
    }
    Ok(())
}

/// Opens a path that is to be covered, and reports whether each directory above it in a writable bind is one of `held`. The way
/// down goes from one open directory to the next, so what is reported is about the directories that the file was found in.
fn open_held(
    request: &Request<'_>,
    root: &Root,
    path: &Path,
    held: &BTreeSet<Identity>,
) -> io::Result<(OwnedFd, bool)> {
    let bind = innermost(request, path).filter(|bind| bind.access == Access::ReadWrite);
    let below = bind.and_then(|bind| Some((bind.target.as_path(), path.strip_prefix(bind.target.as_path()).ok()?)));
    let Some((bind, below)) = below else { return Ok((mounts::place(root.tree(), below_root(path))?, true)) };
    let mut place = mounts::place(root.tree(), below_root(bind))?;
    let mut is_held = true;
    let mut names = below.iter().peekable();
    while let Some(name) = names.next() {
        place = mounts::place(&place, Path::new(name))?;
        is_held &= names.peek().is_none() || held.contains(&Identity::of(&place)?);
    }
    Ok((place, is_held))
}

/// The error about a closed directory, with the word that tells it from one that moves.
fn about_closed(error: ClosedError, path: &Path) -> StepError {
    let (errno, why) = match error {
        ClosedError::Io(error) => return StepError::os(Step::HidePaths, error, show(path)),
        ClosedError::TooMuch => {
            (Errno::FBIG, "holds too much to be searched while it is closed: open it (chmod u+rwx)")
        }
        ClosedError::CallersOwn => {
            (Errno::ACCESS, "is closed, yours, and of another group than yours: open it (chmod u+rwx)")
        }
    };
    StepError::os(Step::HidePaths, errno, format!("{} {why}", show(path)))
}

/// The error about what root found in a directory of another user, which its sandbox, whose user is a third one, may not enter.
fn closed_to_the_sandbox(error: io::Error, path: &Path) -> StepError {
    let why = "cannot be covered, because a directory above it is closed to the sandbox: show the directories beside that one";
    StepError::os(Step::HidePaths, error, format!("{} {why}", show(path)))
}

/// Returns the innermost bind over a path.
pub(super) fn innermost<'a>(request: &'a Request<'_>, path: &Path) -> Option<&'a Bind> {
    let over = request.plan.binds.iter().filter(|bind| path.starts_with(bind.target.as_path()));
    over.max_by_key(|bind| bind.target.as_path().components().count())
}

fn hidden<'a>(request: &'a Request<'_>) -> impl Iterator<Item = PathBuf> + 'a {
    request.plan.hidden.iter().map(|path| request.plan.workspace.target.as_path().join(path.as_path()))
}

pub(super) fn make(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    request.setup.faults.check(Step::HidePaths)?;
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let name = Path::new(name);
        mount_targets::ensure_place(root.own(), name, is_dir).map_err(|error| at(error, name))?;
        rustix::fs::chmodat(root.own(), name, Mode::empty(), AtFlags::empty())
            .map_err(|error| at(error.into(), name))?;
    }
    Ok(())
}

/// The covers stay where they are attached; their names would only raise questions.
pub(super) fn remove(root: &Root) -> Result<(), StepError> {
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(root.own(), name, flags).map_err(|error| at(error.into(), Path::new(name)))?;
    }
    Ok(())
}

/// An empty file and an empty directory, with the names that they have while they are attached.
const COVERS: [(&str, bool); 2] = [("hidden-file", false), ("hidden-folder", true)];

/// Returns what tells covers from the other mounts of a table.
pub(super) fn recognized(root: &Root) -> io::Result<impl Fn(&Mount) -> bool> {
    let own = rustix::fs::fstat(root.own())?.st_dev;
    let own = format!("{}:{}", rustix::fs::major(own), rustix::fs::minor(own));
    // The names end with the kernel's mark once they are removed.
    let is_name = |root: &Path| COVERS.iter().any(|(name, _)| root.starts_with(Path::new("/").join(name)));
    Ok(move |mount: &Mount| mount.device == own && is_name(&mount.root))
}

fn open(root: &Root, target: &Path) -> io::Result<OwnedFd> {
    mounts::place(root.tree(), target)
}

/// Covers an open file or directory.
pub(super) fn cover(root: &Root, place: &OwnedFd) -> io::Result<()> {
    let (name, _) = COVERS[usize::from(mount_targets::is_dir(place)?)];
    let read_only = if stands(Wall::HiddenCovers) { RDONLY } else { 0 };
    let copy = mounts::open_tree_at(root.own(), Path::new(name), read_only | NOSUID | NODEV)?;
    mounts::attach(copy, place)
}
