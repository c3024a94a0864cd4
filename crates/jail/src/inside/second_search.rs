//! Searches binds again when they are covered. Another run that may write to the same directory can move a socket between the
//! first search and the covers: to a part that the search had read already, or to another name than the one that is covered. So that
//! this search does not miss it in the same way, directories that changed while it went on are listed again:
//!
//! ```text
//!  pass 1  every directory is listed     ─┐ new or changed ones
//!  pass 2  each is looked at again   ◀┘ are listed ─▶ … until none has changed, or PASSES
//! ```

use crate::inside::answers::{is_denied, is_gone, moved, refused};
use crate::inside::birth::{First, id};
use crate::inside::closed::is_callers_own;
use crate::inside::covers::{self, innermost};
use crate::inside::mounted::{self, LookedAt};
use crate::inside::rootfs::Root;
use crate::mount_targets::{below_root, is_dir, show};
use crate::mounts;
use crate::request::Request;
use crate::steps::{Step, StepError};
use nexus_model::plan::{Access, EnteredOnly, FileId, SecondSearch};
use nexus_model::stamp::{Stamp, is_recent};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Entries that are read, twice as many as the first search reads: another run may make more meanwhile.
const MAX_ENTRIES: usize = 8_000_000;

/// Passes over a bind in which directories change, the time between two, and the time after which no further one begins.
const PASSES: u32 = 24;
const BETWEEN: Duration = Duration::from_millis(2);
const MAX_TIME: Duration = Duration::from_secs(1);
/// Refuses a sandbox in which a socket or named pipe of the host is neither covered nor allowed.
///
/// `lists` are directories that this process may not list, open for a list.
pub(super) fn inspect(
    request: &Request<'_>,
    root: &Root,
    lists: Vec<OwnedFd>,
    looked_at: LookedAt,
) -> Result<(), StepError> {
    let Some(search) = &request.plan.second_search else { return Ok(()) };
    let is_cover = covers::recognized(root).map_err(|error| at(error, Path::new("/")))?;
    let root = root.tree();
    let lists = lists.into_iter().filter_map(|list| Some((id(&rustix::fs::fstat(&list).ok()?), list))).collect();
    let mut left = MAX_ENTRIES;
    let covered = request.plan.covered.iter().map(|covered| covered.id);
    let found = covered.chain(search.vanished.iter().copied()).collect();
    let entered = entered(search);
    let searched = request.plan.binds.iter().filter(|bind| search.binds.contains(&bind.target));
    let trees: Vec<(&Path, Tree<'_>)> = searched
        .map(|bind| {
            let target = bind.target.as_path();
            let others = request.plan.binds.iter().map(|other| other.target.as_path());
            let tree = Tree {
                root,
                search,
                found: &found,
                read_only: bind.access == Access::ReadOnly,
                entered: &entered,
                lists: &lists,
                others: others.filter(|other| *other != target).collect(),
            };
            (target, tree)
        })
        .collect();
    for (target, tree) in &trees {
        tree.inspect(target, &mut left)?;
    }
    let tree_of = |path: &Path| {
        let bind = innermost(request, path)?.target.as_path();
        trees.iter().find(|(target, _)| *target == bind && bind != path).map(|(_, tree)| tree)
    };
    mounted::check_each(root, &is_cover, looked_at, &|path| tree_of(path).is_some(), &|place, path| {
        tree_of(path).map_or(Ok(()), |tree| tree.check(place, path))
    })
}

fn entered(search: &SecondSearch) -> BTreeMap<&Path, &EnteredOnly> {
    search.entered.iter().map(|directory| (directory.path.as_path(), directory)).collect()
}

/// The directories that were listed, and how each was found.
type Seen = HashMap<PathBuf, State>;

/// Tells whether a directory is the one that was listed, and has the entries that it had then.
#[derive(PartialEq)]
struct State {
    id: FileId,
    changed: Stamp,
    is_settled: bool,
}

impl State {
    fn of(stat: &Stat) -> Self {
        // A part of a second that is none counts as one of a moment ago.
        let changed = (stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or_default());
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let now = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or_default());
        Self { id: id(stat), changed, is_settled: !is_recent(changed, now) }
    }
}

/// A directory that can be listed.
struct Listable {
    /// The directory in the sandbox, where a covered name leads to its cover.
    place: OwnedFd,
    /// The descriptor that it is listed by, where `place` gives no right to.
    list: Option<OwnedFd>,
}

impl Listable {
    fn entries(&self) -> Result<Dir, Errno> {
        let Some(list) = &self.list else { return Dir::read_from(&self.place) };
        // To open it again would take the right again.
        let mut entries = Dir::new(rustix::io::dup(list)?)?;
        entries.rewind();
        Ok(entries)
    }
}

/// The answer to the opening of a directory.
enum Opened {
    Directory(Listable),
    /// The command reaches nothing in it either.
    Closed,
    /// The command may enter it, and no name in it has changed since the first search listed it.
    AsListed(Stat),
    Gone,
}

/// One bind where it is mounted.
struct Tree<'a> {
    root: &'a OwnedFd,
    search: &'a SecondSearch,
    /// Files that the first search found, which are to be covered.
    found: &'a BTreeSet<FileId>,
    read_only: bool,
    /// Directories that the first search listed, and this process may not list.
    entered: &'a BTreeMap<&'a Path, &'a EnteredOnly>,
    /// Those of them that root opened for a list.
    lists: &'a BTreeMap<FileId, OwnedFd>,
    /// Targets of the other binds.
    others: Vec<&'a Path>,
}

impl Tree<'_> {
    fn inspect(&self, top: &Path, left: &mut usize) -> Result<(), StepError> {
        let place = mounts::place(self.root, below_root(top)).map_err(|error| at(error, top))?;
        if !is_dir(&place).map_err(|error| at(error, top))? {
            return self.check(&place, top);
        }
        let (mut seen, started) = (Seen::new(), Instant::now());
        for pass in 0..PASSES {
            let waiting = if pass == 0 { self.first_places(top) } else { seen.keys().cloned().collect() };
            if !self.pass(waiting, &mut seen, left)? || (pass > 2 && started.elapsed() > MAX_TIME) {
                break;
            }
            std::thread::sleep(BETWEEN);
        }
        Ok(())
    }

    /// Returns the top of the bind and the directories in it that no list of this search has.
    fn first_places(&self, top: &Path) -> Vec<PathBuf> {
        let below = self.search.below_entered.iter().map(nexus_model::ByteText::as_path);
        // Another bind may lie around this one as well as in it.
        let is_of_other = |path: &Path| self.others.iter().any(|at| at.starts_with(top) && path.starts_with(at));
        let below = below.filter(|path| path.starts_with(top) && !is_of_other(path));
        std::iter::once(top).chain(below).map(Path::to_owned).collect()
    }

    /// Lists the directories that are new or changed. Reports whether there was one, or whether one went away.
    fn pass(&self, mut waiting: Vec<PathBuf>, seen: &mut Seen, left: &mut usize) -> Result<bool, StepError> {
        let mut has_changed = false;
        while let Some(path) = waiting.pop() {
            let directory = match self.open(&path)? {
                Opened::Directory(directory) => directory,
                Opened::Closed => continue,
                // A later pass looks at it again.
                Opened::AsListed(stat) => {
                    let state = State::of(&stat);
                    if seen.get(&path) != Some(&state) {
                        has_changed = true;
                        seen.insert(path, state);
                    }
                    continue;
                }
                Opened::Gone => {
                    seen.remove(&path);
                    has_changed = true;
                    continue;
                }
            };
            let state = State::of(&rustix::fs::fstat(&directory.place).map_err(|error| at(error, &path))?);
            if state.is_settled && seen.get(&path) == Some(&state) {
                continue;
            }
            has_changed = true;
            self.list(&directory, &path, left, &mut |inner| {
                if !seen.contains_key(&inner) {
                    waiting.push(inner);
                }
            })?;
            seen.insert(path, state);
        }
        Ok(has_changed)
    }

    /// Checks what a directory holds, and hands the directories in it on.
    fn list(
        &self,
        directory: &Listable,
        path: &Path,
        left: &mut usize,
        descend: &mut dyn FnMut(PathBuf),
    ) -> Result<(), StepError> {
        // What another bind shows is looked at with that bind, if it was searched at all.
        let mut descend = |inner: PathBuf| {
            if !self.others.contains(&inner.as_path()) {
                descend(inner);
            }
        };
        let entries = match directory.entries() {
            // It may be listed and not entered: the command uses no name in it either.
            Err(Errno::ACCESS) => return refuse_own(&directory.place, path),
            entries => entries.map_err(|error| at(error, path))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| at(error, path))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            *left = left.checked_sub(1).ok_or_else(|| refused(path, "holds too much to be searched again"))?;
            let inner = path.join(name);
            // The kind is that of the file below a cover.
            match entry.file_type() {
                FileType::Directory => descend(inner),
                FileType::Socket | FileType::Fifo | FileType::Unknown => {
                    match mounts::place(&directory.place, Path::new(name)) {
                        Ok(place) if is_dir(&place).map_err(|error| at(error, &inner))? => descend(inner),
                        Ok(place) => self.check(&place, &inner)?,
                        // The command has no more rights than this process.
                        Err(error) if is_gone(&error) || is_denied(&error) => {}
                        Err(error) => return Err(at(error, &inner)),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens a directory for listing.
    fn open(&self, path: &Path) -> Result<Opened, StepError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let error = match rustix::fs::openat2(self.root, below_root(path), flags, Mode::empty(), resolve) {
            Ok(place) => return Ok(Opened::Directory(Listable { place, list: None })),
            Err(error) => error,
        };
        if is_gone(&error.into()) {
            return Ok(Opened::Gone);
        }
        if error != Errno::ACCESS {
            return Err(at(error, path));
        }
        let place = match mounts::place(self.root, below_root(path)) {
            Ok(place) => place,
            // A directory above it was closed since it was listed, and is inspected on its own in the next pass.
            Err(error) if is_gone(&error) || is_denied(&error) => return Ok(Opened::Gone),
            Err(error) => return Err(at(error, path)),
        };
        // What was closed at the first search is covered, and a cover can be listed.
        refuse_own(&place, path)?;
        if !can_be_entered(&place) {
            return Ok(Opened::Closed);
        }
        // The command uses names in it. One that the first search could not list either is covered. One that it listed, with the
        // rights of root, has its covers in it, if no name in it has changed since. Otherwise it is listed again.
        let stat = rustix::fs::fstat(&place).map_err(|error| at(error, path))?;
        let is_as_listed = self.entered.get(path).is_some_and(|listed| {
            listed.id == id(&stat) && listed.changed == Some((stat.st_ctime, stat.st_ctime_nsec as u32))
        });
        if is_as_listed {
            return Ok(Opened::AsListed(stat));
        }
        let list = self.lists.get(&id(&stat)).ok_or_else(|| moved(path))?;
        let list = list.try_clone().map_err(|error| at(error, path))?;
        Ok(Opened::Directory(Listable { place, list: Some(list) }))
    }

    fn first(&self) -> First<'_> {
        First { since: self.search.since, found: self.found }
    }

    /// Refuses a socket, or a named pipe of a read-only bind, that was there at the first search.
    fn check(&self, place: impl AsFd, path: &Path) -> Result<(), StepError> {
        let stat = rustix::fs::fstat(&place).map_err(|error| at(error, path))?;
        let is_reached = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => true,
            FileType::Fifo => self.read_only,
            _ => false,
        };
        let is_known = self.search.allowed.contains(&id(&stat)) || self.first().is_before(&place, &stat);
        if is_reached && !is_known { Err(moved(path)) } else { Ok(()) }
    }
}

/// Refuses a directory of the caller's own that was closed meanwhile: another run of theirs may open it again, with a socket in it
/// that it moved there. Time stamps tell nothing of that, because to close it changes them.
fn refuse_own(directory: &OwnedFd, path: &Path) -> Result<(), StepError> {
    if is_callers_own(directory).map_err(|error| at(error, path))? { Err(moved(path)) } else { Ok(()) }
}

fn can_be_entered(directory: &OwnedFd) -> bool {
    rustix::fs::accessat(directory, c".", rustix::fs::Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn at(error: impl Into<io::Error>, path: &Path) -> StepError {
    StepError::os(Step::HidePaths, error, show(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::stamp::GRAIN;
    use std::os::unix::net::UnixListener;

    struct Scene {
        top: tempfile::TempDir,
        listeners: Vec<UnixListener>,
    }

    impl Scene {
        fn new(sockets: &[&str]) -> Self {
            let top = tempfile::tempdir().unwrap();
            let listeners = sockets.iter().map(|name| {
                let path = top.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                UnixListener::bind(path).unwrap()
            });
            let listeners = listeners.collect();
            Self { top, listeners }
        }

        fn inspect(
            &self,
            search: &SecondSearch,
            read_only: bool,
            others: &[&str],
            entries: usize,
        ) -> Result<(), StepError> {
            assert!(!self.listeners.is_empty());
            let root = mounts::open_path(self.top.path()).unwrap();
            let others = others.iter().map(Path::new).collect();
            let found = BTreeSet::new();
            let lists = BTreeMap::new();
            let entered = entered(search);
            let tree = Tree { root: &root, search, found: &found, read_only, entered: &entered, lists: &lists, others };
            let mut left = entries;
            tree.inspect(Path::new("/bound"), &mut left)
        }
    }

    fn search(since: (i64, u32), allowed: &[FileId]) -> SecondSearch {
        SecondSearch {
            binds: Vec::new(),
            allowed: allowed.to_vec(),
            entered: Vec::new(),
            below_entered: Vec::new(),
            vanished: Vec::new(),
            since,
        }
    }

    const LATER: (i64, u32) = (i64::MAX, 0);

    #[test]
    fn a_socket_that_is_neither_covered_nor_allowed_is_refused() {
        let scene = Scene::new(&["bound/a/b/s"]);
        let refused = scene.inspect(&search(LATER, &[]), false, &[], 100).unwrap_err();
        assert!(refused.detail.starts_with("/bound/a/b/s was moved"), "{refused}");
        let stat = rustix::fs::stat(scene.top.path().join("bound/a/b/s")).unwrap();
        scene.inspect(&search(LATER, &[id(&stat)]), false, &[], 100).unwrap();
        let other = FileId { inode: stat.st_ino + 1, ..id(&stat) };
        assert!(scene.inspect(&search(LATER, &[other]), false, &[], 100).is_err());
        let other = FileId { device: stat.st_dev + 1, ..id(&stat) };
        assert!(scene.inspect(&search(LATER, &[other]), false, &[], 100).is_err());
        // Made after the first search.
        let changed = (stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap());
        scene.inspect(&search(changed, &[]), false, &[], 100).unwrap();
        let later = (changed.0, changed.1 + 1);
        assert!(scene.inspect(&search(later, &[]), false, &[], 100).is_err());
        // A rename, a further name and another mode change the ctime, and make nothing new.
        std::thread::sleep(2 * GRAIN);
        let path = |name: &str| scene.top.path().join("bound/a").join(name);
        std::fs::rename(path("b/s"), path("t")).unwrap();
        let refused = scene.inspect(&search(later, &[]), false, &[], 100).unwrap_err();
        assert!(refused.detail.starts_with("/bound/a/t was moved"), "{refused}");
        std::fs::hard_link(path("t"), path("b/u")).unwrap();
        std::fs::remove_file(path("t")).unwrap();
        let refused = scene.inspect(&search(later, &[]), false, &[], 100).unwrap_err();
        assert!(refused.detail.starts_with("/bound/a/b/u was moved"), "{refused}");
        // Another bind lies over it.
        scene.inspect(&search(LATER, &[]), false, &["/bound/a"], 100).unwrap();
        assert!(scene.inspect(&search(LATER, &[]), false, &["/bound/b"], 100).is_err());
    }

    #[test]
    fn a_bind_that_became_a_socket_is_refused() {
        let scene = Scene::new(&["bound"]);
        assert!(scene.inspect(&search(LATER, &[]), true, &[], 100).is_err());
    }

    #[test]
    fn named_pipes_count_where_a_bind_is_read_only() {
        let scene = Scene::new(&["elsewhere"]);
        std::fs::create_dir(scene.top.path().join("bound")).unwrap();
        let pipe = scene.top.path().join("bound/p");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(scene.inspect(&search(LATER, &[]), true, &[], 100).is_err());
        scene.inspect(&search(LATER, &[]), false, &[], 100).unwrap();
    }

    #[test]
    fn a_directory_that_changed_since_it_was_listed_is_listed_again() {
        let scene = Scene::new(&["elsewhere/x/s"]);
        let bound = scene.top.path().join("bound");
        std::fs::create_dir_all(bound.join("a/b")).unwrap();
        std::thread::sleep(2 * GRAIN);
        let root = mounts::open_path(scene.top.path()).unwrap();
        let search = search(LATER, &[]);
        let found = BTreeSet::new();
        let entered = entered(&search);
        let others = Vec::new();
        let lists = BTreeMap::new();
        let tree = Tree {
            root: &root,
            search: &search,
            found: &found,
            read_only: false,
            entered: &entered,
            lists: &lists,
            others,
        };
        let (mut seen, mut left) = (Seen::new(), 100);
        assert!(tree.pass(vec!["/bound".into()], &mut seen, &mut left).unwrap());
        let pass = |seen: &mut Seen, left: &mut usize| tree.pass(seen.keys().cloned().collect(), seen, left);
        assert!(!pass(&mut seen, &mut left).unwrap(), "nothing has changed");
        assert_eq!((seen.len(), left), (3, 98));
        std::fs::remove_dir(bound.join("a/b")).unwrap();
        assert!(pass(&mut seen, &mut left).unwrap());
        assert_eq!(seen.len(), 2);
        // A directory with a socket comes to a part that was read.
        std::fs::rename(scene.top.path().join("elsewhere/x"), bound.join("a/y")).unwrap();
        let refused = pass(&mut seen, &mut left).unwrap_err();
        assert!(refused.detail.starts_with("/bound/a/y/s was moved"), "{refused}");
        // So does one that is exchanged for another of its name.
        let decoy = scene.top.path().join("decoy");
        std::fs::create_dir(&decoy).unwrap();
        std::fs::rename(bound.join("a/y"), scene.top.path().join("elsewhere/x")).unwrap();
        std::fs::create_dir(bound.join("a/y")).unwrap();
        std::thread::sleep(2 * GRAIN);
        let mut seen = Seen::new();
        assert!(tree.pass(vec!["/bound".into()], &mut seen, &mut left).unwrap());
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, bound.join("a/y"), cwd, scene.top.path().join("elsewhere/x"), exchange).unwrap();
        assert!(pass(&mut seen, &mut left).is_err());
    }

    #[test]
    fn a_bind_that_is_not_searched_to_its_end_is_refused() {
        let scene = Scene::new(&["elsewhere"]);
        std::fs::create_dir_all(scene.top.path().join("bound/a/b")).unwrap();
        std::thread::sleep(2 * GRAIN);
        scene.inspect(&search(LATER, &[]), true, &[], 2).unwrap();
        let refused = scene.inspect(&search(LATER, &[]), true, &[], 1).unwrap_err();
        assert!(refused.detail.contains("holds too much"), "{refused}");
    }
}
