//! Notices when a process of the host takes the cover of a path away.
//!
//! A cover is a mount on a name of the host's file system: a protected or hidden path of a direct run, or a bind inside of
//! another one. When a process of the host renames a file over that name, or removes it, the kernel takes the mount away in
//! every mount namespace, and no process inside or outside can put it back. So the run is ended.
//!
//! ```text
//!  watch parents (inotify) ─▶ read identities ─▶ start ─▶ event with a covered name, or an identity that differs ─▶ end
//!        └─ no instance or watch to be had: identities are compared every LOOK_EVERY
//! ```

use nexus_model::Plan;
use nexus_model::plan::Writes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two comparisons where the kernel does not report changes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Events that are read at one time, so that a busy directory does not hold the run up.
const MAX_EVENTS: usize = 4096;

/// The type bits of a regular file.
const REGULAR: u16 = 0o10_0000;
const TYPE_BITS: u16 = 0o17_0000;

/// Identifies what is at a path. The kernel reuses inode numbers, so the time of birth counts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    born: (i64, u32),
    kind: u16,
}

/// One covered path, or a directory above one.
struct Place {
    path: PathBuf,
    /// The entry at the path; `None` if the path was free. The launch cannot cover a free path, unless an entry appears there meanwhile.
    identity: Option<Identity>,
    /// Time of the last change of a protected file.
    changed: Option<(i64, u32)>,
}

/// The covered paths of one run.
pub struct Covers {
    instance: Option<OwnedFd>,
    /// The place of each name of a watched directory.
    names: HashMap<(i32, OsString), usize>,
    places: Vec<Place>,
    look_at: Instant,
}

/// A covered path that cannot be looked at before the start.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be looked at", path.display())]
pub struct Unseen {
    path: PathBuf,
    source: io::Error,
}

impl Covers {
    /// Watches the covers that the plan puts on names of the host's file system; `None` if it has none there.
    pub fn watch(plan: &Plan) -> Result<Option<Self>, Unseen> {
        Self::watch_with(plan, || inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok())
    }

    fn watch_with(plan: &Plan, instance: impl FnOnce() -> Option<OwnedFd>) -> Result<Option<Self>, Unseen> {
        let (paths, files) = covered(plan);
        if paths.is_empty() {
            return Ok(None);
        }
        let mut covers =
            Self { instance: instance(), names: HashMap::new(), places: Vec::new(), look_at: Instant::now() };
        // First the watches: the kernel reports what happens between them and the first look.
        for (at, path) in paths.iter().enumerate() {
            covers.watch_name(path, at);
        }
        for path in paths {
            let found = match identify(&path) {
                Ok(found) => Some(found),
                Err(error) if is_missing(&error) => None,
                Err(source) => return Err(Unseen { path, source }),
            };
            let identity = found.map(|(identity, _)| identity);
            let is_file = identity.is_some_and(|identity| identity.kind == REGULAR) && files.contains(&path);
            let changed = found.filter(|_| is_file).map(|(_, changed)| changed);
            covers.places.push(Place { path, identity, changed });
        }
        covers.look_at = Instant::now() + LOOK_EVERY;
        Ok(Some(covers))
    }

    fn watch_name(&mut self, path: &Path, place: usize) {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let (Some(instance), Some(parent), Some(name)) = (&self.instance, path.parent(), path.file_name()) else {
            return;
        };
        match inotify::add_watch(instance, parent, flags) {
            Ok(watch) => {
                self.names.insert((watch, name.to_owned()), place);
            }
            // The limit of watches: the places are compared from time to time.
            Err(_) => self.instance = None,
        }
    }

    /// Becomes readable when something happened beside a covered path.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.instance.as_ref().map(AsFd::as_fd)
    }

    /// Returns the time of the next comparison, where the kernel reports no change.
    pub fn next_look(&self) -> Option<Instant> {
        self.instance.is_none().then_some(self.look_at)
    }

    /// Returns a covered path that was replaced or removed.
    pub fn lost(&mut self) -> Option<PathBuf> {
        if let Ok(found) = self.reported() {
            return found;
        }
        // An instance that cannot be read reports nothing: from now on the places are compared.
        self.instance = None;
        self.replaced()
    }

    fn reported(&mut self) -> io::Result<Option<PathBuf>> {
        let Some(instance) = &self.instance else {
            self.look_at = Instant::now() + LOOK_EVERY;
            return Ok(self.replaced());
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(instance, &mut buffer);
        let replaces = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let mut compare = false;
        for _ in 0..MAX_EVENTS {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            let name = event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned());
            match name.and_then(|name| self.names.get(&(event.wd(), name))) {
                Some(place) if flags.intersects(replaces) => return Ok(Some(self.places[*place].path.clone())),
                Some(_) => compare = true,
                // Events were lost, or a directory is gone.
                None => {
                    compare |= flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED | ReadFlags::UNMOUNT);
                }
            }
        }
        Ok(if compare { self.replaced() } else { None })
    }

    /// Compares what is at the places now.
    fn replaced(&self) -> Option<PathBuf> {
        let is_same = |place: &&Place| match identify(&place.path) {
            Ok((identity, _)) => Some(identity) == place.identity,
            Err(error) => place.identity.is_none() && is_missing(&error),
        };
        self.places.iter().find(|place| !is_same(place)).map(|place| place.path.clone())
    }

    /// Compares all places again; for the end of a run.
    pub fn lost_at_the_end(&mut self) -> Option<PathBuf> {
        self.lost().or_else(|| self.replaced())
    }

    /// Returns the protected files that changed since the beginning.
    pub fn altered(&self) -> Vec<PathBuf> {
        let is_altered = |place: &&Place| {
            place.changed.is_some_and(|changed| identify(&place.path).map_or(true, |(_, now)| now != changed))
        };
        self.places.iter().filter(is_altered).map(|place| place.path.clone()).collect()
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn identify(path: &Path) -> io::Result<(Identity, (i64, u32))> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let identity = Identity {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
        kind: found.stx_mode & TYPE_BITS,
    };
    Ok((identity, (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec)))
}

/// Returns the paths on the host that carry covers with the directories above them, and which of them are protected. Pure.
fn covered(plan: &Plan) -> (Vec<PathBuf>, BTreeSet<PathBuf>) {
    let mut all = BTreeSet::new();
    let mut protected = BTreeSet::new();
    let mut add = |top: &Path, inside: &Path| {
        let names = inside.ancestors().filter(|name| *name != Path::new(""));
        all.extend(names.map(|name| top.join(name)));
    };
    let workspace = &plan.workspace;
    let direct = match &workspace.writes {
        Writes::Direct { protected: names } => {
            let source = workspace.source.as_path();
            for name in names.iter().chain(&plan.hidden) {
                add(source, name.as_path());
            }
            protected.extend(names.iter().map(|name| source.join(name.as_path())));
            Some((workspace.target.as_path(), source))
        }
        // The names under these covers are the overlay's own.
        Writes::Layer { .. } | Writes::MemoryLayer { .. } => None,
    };
    for bind in &plan.binds {
        let target = bind.target.as_path();
        let others = plan.binds.iter().map(|one| (one.target.as_path(), one.source.as_path()));
        let all_around = others.chain(direct).chain([(workspace.target.as_path(), Path::new(""))]);
        let around = all_around.filter(|(around, _)| *around != target && target.starts_with(around));
        // The innermost one has the name.
        if let Some((around, source)) =
            around.max_by_key(|(around, source)| (around.components().count(), source.is_absolute()))
            && source.is_absolute()
            && let Ok(inside) = target.strip_prefix(around)
        {
            add(source, inside);
        }
    }
    (all.into_iter().collect(), protected)
}

#[cfg(test)]
#[path = "covers_tests.rs"]
mod tests;
