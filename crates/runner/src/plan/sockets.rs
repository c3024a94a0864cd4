//! Finds what binds show and a read-only mount does not hold: Unix sockets, which a command connects to, and named pipes, which
//! it reads from and writes to. They are covered, but for the sockets that the caller allows.
//!
//! ```text
//!  any bind         a socket                            covered unless the caller allows it
//!  read-only bind   a named pipe                        covered
//!  any bind         a directory that the caller may     covered: a socket in it is reached by a name that is known
//!                   enter and not list (mode 0711)
//!  writable bind    a directory that is closed to the   covered: the command may open it, and an earlier run may have
//!                   caller in any way                   closed it
//! ```
//! A socket or pipe may be mounted over a file, as a container engine does with its own. The directory lists the file, so the table of
//! mounts is looked at beside the directories.
//!
//! In a writable bind the sandbox keeps the directories above them in their place too (`nexus_jail`), so that no command moves a
//! socket to where another bind, of this run or of another one, shows it without a cover. Another program may move them while
//! this run starts. So each has its identity with it, and the binds are searched again when they are covered.

use crate::plan::closed;
use crate::plan::guarded::Guarded;
use crate::plan::mounts::{self, MountError};
use crate::plan::pins::{MAX_PINS, Pins};
use crate::plan::shown::Shown;
use nexus_model::ByteText;
use nexus_model::mount_table::MountTable;
use nexus_model::plan::{Access, Cover, EnteredOnly, FileId, SecondSearch};
use nexus_model::stamp::Stamp;
use nexus_policy::profile::{Origin, Sourced};
use rustix::fs::{AtFlags, StatxFlags};
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::FileType;
use std::os::unix::fs::{DirEntryExt as _, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The cost of searching all binds of a run may be this: an entry costs one. A bind that is not searched to its end is refused, because an
/// earlier run may have filled it so that a socket was not found.
const MAX_COST: usize = 4_000_000;
/// The cost of a directory beside its entries, with one for each so many bytes of its path.
const PER_DIRECTORY: usize = 16;

/// The sockets of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Sockets, named pipes and directories that the sandbox covers.
    pub covered: Vec<Cover>,
    /// The search that is repeated when it is covered.
    pub second_search: Option<SecondSearch>,
    /// Paths on the host that the caller allowed.
    pub allowed: Vec<ByteText>,
}

/// Sockets of the host cannot be kept from the command, or cannot be allowed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path itself is a socket that is not allowed.
    #[error("{from} {} is a socket: a command could act outside of the sandbox through it", path.display())]
    Socket {
        /// The flag or file that shows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
    },
    /// The path itself is a named pipe.
    #[error("{from} {} is a named pipe: a command could write to the program that reads from it", path.display())]
    Pipe {
        /// The flag or file that shows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
    },
    /// The search costs too much.
    #[error("{from} {} holds too much to be searched for sockets, which a command could connect to", path.display())]
    TooMuch {
        /// The flag or file that shows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
    },
    /// Sockets lie in too many directories.
    #[error(
        "{from} {} has sockets or closed directories below more than {MAX_PINS} directories, counted with those above them and at \
         each place that shows them: too many to keep in place",
        path.display()
    )]
    TooSpread {
        /// The flag or file that shows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
    },
    /// The directory cannot be listed, or was closed while it was searched.
    #[error("{from} {} cannot be listed, so that sockets in it cannot be covered", path.display())]
    Closed {
        /// The flag or file that shows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
    },
    /// The path lies in a directory that is covered as a whole.
    #[error(
        "{from} {} cannot be used: {} cannot be listed, and is covered as a whole for the sockets that it may hold",
        path.display(), directory.display()
    )]
    InClosed {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
        /// The directory that cannot be listed.
        directory: PathBuf,
    },
    /// The mounts in a bind are not known.
    #[error(transparent)]
    Mounts(#[from] MountError),
    /// A socket cannot be allowed.
    #[error("{from} {} cannot be used: {why}", path.display())]
    NotAllowed {
        /// The flag or file that allows it.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
        /// The reason for it.
        why: SocketRefusal,
    },
}

impl SocketError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "socket"
    }
}

/// The reason why a socket cannot be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketRefusal {
    /// The path leads nowhere.
    #[error("it is not there")]
    Missing,
    /// The path leads to something else.
    #[error("it is not a socket")]
    NotSocket,
    /// Through this one the command would act as the caller.
    #[error("it belongs to an engine, an agent or a bus")]
    Known,
    /// The sandbox would not have it.
    #[error("no bind shows it")]
    NotShown,
}

/// Looks for sockets in binds that flags and profiles asked for; those of toolchains hold programs.
pub fn find(binds: &[Shown], allow: &[Sourced<PathBuf>], guarded: &Guarded) -> Result<Sockets, SocketError> {
    let mut allowed: Vec<(PathBuf, &Origin)> = Vec::new();
    for asked in allow {
        let refused = |why| SocketError::NotAllowed { from: asked.from.clone(), path: asked.value.clone(), why };
        allowed.push((allowed_socket(&asked.value, binds, guarded).map_err(refused)?, &asked.from));
    }
    let is_allowed = |path: &Path| allowed.iter().any(|(socket, _)| socket == path);
    let mut found = Sockets::default();
    let mut second = SecondSearch {
        binds: Vec::new(),
        allowed: Vec::new(),
        entered: Vec::new(),
        below_entered: Vec::new(),
        vanished: Vec::new(),
        since: closed::now(),
    };
    second.allowed.extend(allowed.iter().filter_map(|(path, _)| identify(path, |kind| kind.is_socket())));
    let (mut budget, mut pins) = (MAX_COST, Pins::with_limit(MAX_PINS));
    let table = if binds.iter().any(is_searched) { mounts::read()? } else { MountTable::default() };
    for shown in binds.iter().filter(|shown| is_searched(shown)) {
        let (source, target) = (shown.bind.source.as_path(), shown.bind.target.as_path());
        let (from, path) = (|| shown.from.clone(), || source.to_owned());
        second.binds.push(shown.bind.target.clone());
        if shown.by_operator {
            second.allowed.extend(identify(source, is_endpoint));
        }
        if is_socket(source) {
            if !shown.by_operator && !is_allowed(source) {
                return Err(SocketError::Socket { from: from(), path: path() });
            }
            continue;
        }
        if is_pipe(source) && shown.bind.access == Access::ReadOnly && !shown.by_operator {
            return Err(SocketError::Pipe { from: from(), path: path() });
        }
        let Some(mut within) = below(source, shown.bind.access, &mut budget) else {
            return Err(SocketError::TooMuch { from: from(), path: path() });
        };
        within.add_mounted(source, shown.bind.access, table.below(source).into_iter().map(|mount| mount.at.as_path()));
        let entered = within.entered.iter();
        second.entered.extend(entered.map(|(relative, id, changed)| EnteredOnly {
            path: target.join(relative).into(),
            id: *id,
            changed: *changed,
        }));
        second.below_entered.extend(within.below_entered.iter().map(|relative| target.join(relative).into()));
        if let Some(closed) = within.closed.iter().find(|closed| closed.as_os_str().is_empty()) {
            return Err(SocketError::Closed { from: from(), path: source.join(closed) });
        }
        for closed in &within.closed {
            let directory = source.join(closed);
            let in_closed = |from: &Origin, path: &Path| SocketError::InClosed {
                from: from.clone(),
                path: path.to_owned(),
                directory: directory.clone(),
            };
            if let Some((socket, from)) = allowed.iter().find(|(path, _)| path.starts_with(&directory)) {
                return Err(in_closed(from, socket));
            }
            let inside = target.join(closed);
            if let Some(inner) = binds.iter().find(|other| other.bind.target.as_path().starts_with(&inside)) {
                return Err(in_closed(&inner.from, inner.bind.source.as_path()));
            }
        }
        let sockets = within.sockets.iter().filter(|relative| !is_allowed(&source.join(relative)));
        let endpoints = sockets.chain(&within.pipes).map(|relative| (relative, is_endpoint as fn(FileType) -> bool));
        let covered =
            endpoints.chain(within.closed.iter().map(|relative| (relative, (|kind: FileType| kind.is_dir()) as _)));
        for (relative, is_kind) in covered {
            let path = target.join(relative);
            if !is_seen(binds, shown, relative, &path) {
                continue;
            }
            // What is not there any more is looked for by the second search.
            let Some(id) = identify(&source.join(relative), is_kind) else {
                let directory = relative.parent().unwrap_or(Path::new(""));
                if !within.not_entered.contains(directory) && is_denied(&source.join(relative)) {
                    // Its directory was closed since it was listed.
                    return Err(SocketError::Closed { from: from(), path: source.join(directory) });
                }
                second.vanished.extend(within.listed(source, relative));
                continue;
            };
            if shown.bind.access == Access::ReadWrite && pins.add(target, &path).is_err() {
                return Err(SocketError::TooSpread { from: from(), path: source.to_owned() });
            }
            found.covered.push(Cover { path: path.into(), id });
        }
    }
    found.second_search = (!second.binds.is_empty()).then_some(second);
    found.allowed = allowed.into_iter().map(|(path, _)| ByteText::from(path)).collect();
    Ok(found)
}

fn is_searched(shown: &Shown) -> bool {
    shown.made.is_none() && shown.why.is_none() && !shown.bind.access.is_device()
}

/// Reports whether a path of a bind is seen inside: another bind that lies over it shows something else there.
fn is_seen(binds: &[Shown], shown: &Shown, relative: &Path, path: &Path) -> bool {
    let around = binds.iter().filter(|other| path.starts_with(other.bind.target.as_path()));
    let Some(inner) = around.max_by_key(|other| other.bind.target.as_path().components().count()) else { return true };
    if inner.bind.target == shown.bind.target {
        return true;
    }
    // A bind that is searched has its own cover for it.
    let below = path.strip_prefix(inner.bind.target.as_path()).unwrap_or(Path::new(""));
    let is_same = inner.bind.source.as_path().join(below) == shown.bind.source.as_path().join(relative);
    is_same && !is_searched(inner)
}

/// Returns the identity of what is at a path, if it is of this kind.
fn identify(path: &Path, is_kind: fn(FileType) -> bool) -> Option<FileId> {
    let found = std::fs::symlink_metadata(path).ok()?;
    is_kind(found.file_type()).then(|| FileId { device: found.dev(), inode: found.ino() })
}

fn is_denied(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

fn is_endpoint(kind: FileType) -> bool {
    kind.is_socket() || kind.is_fifo()
}

/// Checks that the caller may allow this one, and that a bind shows it.
fn allowed_socket(path: &Path, binds: &[Shown], guarded: &Guarded) -> Result<PathBuf, SocketRefusal> {
    let real = std::fs::canonicalize(path).map_err(|_| SocketRefusal::Missing)?;
    if !is_socket(&real) {
        return Err(SocketRefusal::NotSocket);
    }
    if guarded.is_known_socket(&real) {
        return Err(SocketRefusal::Known);
    }
    if !binds.iter().any(|shown| real.starts_with(shown.bind.source.as_path())) {
        return Err(SocketRefusal::NotShown);
    }
    Ok(real)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

fn is_pipe(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

/// Paths relative to a bind's source.
#[derive(Debug, Default, PartialEq, Eq)]
struct Within {
    sockets: Vec<PathBuf>,
    pipes: Vec<PathBuf>,
    /// Directories in which names can be used and not found out.
    closed: Vec<PathBuf>,
    /// Directories that were listed and in which some user may only use names, as they were before.
    entered: Vec<(PathBuf, FileId, Option<Stamp>)>,
    /// Directories that lie directly in directories in which some user may only use names.
    below_entered: Vec<PathBuf>,
    /// Directories with sockets or pipes that could be listed and not entered: the command uses no name in them.
    not_entered: HashSet<PathBuf>,
    /// Inodes of the sockets and pipes, as their directories list them.
    inodes: HashMap<PathBuf, u64>,
}

impl Within {
    /// Returns the identity of an endpoint as it was listed.
    fn listed(&self, top: &Path, relative: &Path) -> Option<FileId> {
        let directory = std::fs::symlink_metadata(top.join(relative).parent()?).ok()?;
        self.inodes.get(relative).map(|inode| FileId { device: directory.dev(), inode: *inode })
    }

    /// Adds what is mounted over files at these places.
    fn add_mounted<'a>(&mut self, top: &Path, access: Access, places: impl Iterator<Item = &'a Path>) {
        let mut places = places.peekable();
        if places.peek().is_none() {
            return;
        }
        let closed: HashSet<PathBuf> = self.closed.iter().cloned().collect();
        let known: HashSet<PathBuf> = self.sockets.iter().chain(&self.pipes).cloned().collect();
        for place in places {
            let Ok(relative) = place.strip_prefix(top) else { continue };
            // A cover on a directory lies over all that is in it.
            if known.contains(relative) || relative.ancestors().any(|above| closed.contains(above)) {
                continue;
            }
            match kind_at_once(place) {
                Some(rustix::fs::FileType::Socket) => self.sockets.push(relative.to_owned()),
                Some(rustix::fs::FileType::Fifo) if access == Access::ReadOnly => self.pipes.push(relative.to_owned()),
                _ => {}
            }
        }
    }
}

/// Returns the kind of what is mounted at a place, without a question to its file system: a server of FUSE or NFS may never answer it.
fn kind_at_once(place: &Path) -> Option<rustix::fs::FileType> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(rustix::fs::CWD, place, flags, StatxFlags::TYPE).ok()?;
    Some(rustix::fs::FileType::from_raw_mode(found.stx_mode.into()))
}

/// Looks through a directory. In a read-only bind one that can be neither listed nor entered holds nothing that the command
/// could reach. `None`: the budget was not enough.
fn below(top: &Path, access: Access, budget: &mut usize) -> Option<Within> {
    let mut found = Within::default();
    let mut waiting = VecDeque::from([PathBuf::new()]);
    let is_written = access != Access::ReadOnly;
    let mut has_waited = false;
    // The command of an ordinary user has the rights of this search.
    let is_root = rustix::process::geteuid().is_root();
    while let Some(directory) = waiting.pop_front() {
        let path = top.join(&directory);
        // By the command through a writable bind, or by another run of the caller.
        let can_be_opened = is_written || closed::is_own(&path);
        let entered = if is_root { closed::entered_only(&path, &mut has_waited) } else { None };
        let entries = match std::fs::read_dir(&path) {
            Ok(_) if can_be_opened && !closed::is_open(&path) => {
                found.closed.push(directory);
                continue;
            }
            Ok(entries) => entries,
            Err(error) => {
                if closed::hides_names(&path, &error, can_be_opened) {
                    found.closed.push(directory);
                }
                continue;
            }
        };
        let is_entered_only = entered.is_some();
        found.entered.extend(entered.map(|(id, changed)| (directory.clone(), id, changed)));
        let before = (found.sockets.len(), found.pipes.len(), waiting.len());
        let can_be_entered = LazyCell::new(|| closed::is_open(&path));
        for entry in entries {
            *budget = budget.checked_sub(1)?;
            let Ok(entry) = entry else {
                // What comes after it in the directory is unknown.
                found.closed.push(directory.clone());
                break;
            };
            if !in_reach(top, &directory.join(entry.file_name())) {
                // An earlier run may have made it. A path of this length cannot be covered, so that its directory is.
                found.sockets.truncate(before.0);
                found.pipes.truncate(before.1);
                waiting.truncate(before.2);
                found.closed.push(directory.clone());
                break;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => {
                    if !*can_be_entered {
                        found.not_entered.insert(directory.clone());
                    }
                    found.inodes.insert(directory.join(entry.file_name()), entry.ino());
                    found.sockets.push(directory.join(entry.file_name()));
                }
                // A writable bind is for writing to what is in it.
                Ok(kind) if kind.is_fifo() && access == Access::ReadOnly => {
                    if !*can_be_entered {
                        found.not_entered.insert(directory.clone());
                    }
                    found.inodes.insert(directory.join(entry.file_name()), entry.ino());
                    found.pipes.push(directory.join(entry.file_name()));
                }
                Ok(kind) if kind.is_dir() => {
                    let path = directory.join(entry.file_name());
                    *budget = budget.checked_sub(PER_DIRECTORY + path.as_os_str().len() / PER_DIRECTORY)?;
                    if is_entered_only {
                        found.below_entered.push(path.clone());
                    }
                    waiting.push_back(path);
                }
                // Gone meanwhile, or something that no process connects to.
                Ok(_) | Err(_) => {}
            }
        }
    }
    Some(found)
}

/// Bytes of a path that the launcher can still cover, below the root that it makes.
const MAX_PATH: usize = 3 << 10;

fn in_reach(top: &Path, below: &Path) -> bool {
    top.as_os_str().len() + 1 + below.as_os_str().len() <= MAX_PATH
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::plan::Bind;
    use std::os::unix::net::UnixListener;

    fn shown(source: &Path, target: &str, why: Option<&'static str>) -> Shown {
        let bind = Bind { source: source.into(), target: Path::new(target).into(), access: Access::ReadWrite };
        Shown { bind, made: None, why, from: Origin::Flag("--rw".to_owned()), by_operator: false }
    }

    #[test]
    fn a_cover_has_the_identity_of_what_was_found() {
        let top = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(top.path()).unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        let _listeners = [UnixListener::bind(top.join("a/s")).unwrap(), UnixListener::bind(top.join("a/b/t")).unwrap()];
        let paths = |binds: &[Shown]| {
            let found = find(binds, &[], &Guarded::default()).unwrap();
            let mut paths: Vec<_> =
                found.covered.iter().map(|cover| cover.path.as_path().display().to_string()).collect();
            paths.sort();
            paths
        };
        let found = find(&[shown(&top, "/x", None)], &[], &Guarded::default()).unwrap();
        for Cover { path, id } in &found.covered {
            let meta = std::fs::symlink_metadata(top.join(path.as_path().strip_prefix("/x").unwrap())).unwrap();
            assert_eq!((id.device, id.inode), (meta.dev(), meta.ino()));
        }
        let second = found.second_search.unwrap();
        assert_eq!((second.binds, second.allowed), (vec![Path::new("/x").into()], Vec::new()));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!((now.as_secs() as i64 - second.since.0).abs() < 60, "{:?}", second.since);
        // Another bind over the directory: that bind has its own covers, or shows nothing of this one.
        assert_eq!(paths(&[shown(&top, "/x", None)]), ["/x/a/b/t", "/x/a/s"]);
        let b = top.join("a/b");
        assert_eq!(paths(&[shown(&top, "/x", None), shown(&b, "/x/a/b", None)]), ["/x/a/b/t", "/x/a/s"]);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(paths(&[shown(&top, "/x", None), shown(other.path(), "/x/a/b", None)]), ["/x/a/s"]);
        assert_eq!(paths(&[shown(&top, "/x", None), shown(other.path(), "/x/a/b", Some("a tool"))]), ["/x/a/s"]);
        assert_eq!(paths(&[shown(&top, "/x", None), shown(&b, "/x/a/b", Some("a tool"))]), ["/x/a/b/t", "/x/a/s"]);
        // Tools are not searched.
        let tool = find(&[shown(&top, "/x", Some("a tool"))], &[], &Guarded::default()).unwrap();
        assert_eq!(tool, Sockets::default());
    }

    #[test]
    fn an_allowed_socket_is_known_to_the_second_search() {
        let top = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(top.path()).unwrap();
        let _listeners = [UnixListener::bind(top.join("s")).unwrap(), UnixListener::bind(top.join("t")).unwrap()];
        let allow = [Sourced { value: top.join("s"), from: Origin::Flag("--allow-socket".to_owned()) }];
        let found = find(&[shown(&top, "/x", None)], &allow, &Guarded::default()).unwrap();
        let meta = std::fs::symlink_metadata(top.join("s")).unwrap();
        let id = FileId { device: meta.dev(), inode: meta.ino() };
        assert_eq!(found.second_search.unwrap().allowed, [id]);
        assert_eq!(found.covered.len(), 1);
        assert_eq!(identify(&top, is_endpoint), None);
        assert_eq!(identify(&top.join("gone"), is_endpoint), None);
    }

    #[test]
    fn sockets_are_found_at_any_depth_and_never_through_links() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
        std::fs::write(top.path().join("file"), "").unwrap();
        let _listeners =
            [UnixListener::bind(top.path().join("s")).unwrap(), UnixListener::bind(top.path().join("a/b/t")).unwrap()];
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let mut budget = 100;
            let found = below(top.path(), access, &mut budget).unwrap();
            let sockets = vec![PathBuf::from("s"), "a/b/t".into()];
            for socket in &sockets {
                let listed = found.listed(top.path(), socket);
                assert_eq!(listed, identify(&top.path().join(socket), is_endpoint), "as it is listed and looked at");
            }
            let inodes = found.inodes.clone();
            assert_eq!(found, Within { sockets, inodes, ..Within::default() });
            assert_eq!(budget, 100 - 6 - 2 * PER_DIRECTORY);
        }
    }

    #[test]
    fn named_pipes_count_where_a_bind_is_read_only() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("a")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, top.path().join("a/p"), kind, mode, 0).unwrap();
        let pipes = |access| below(top.path(), access, &mut 100).unwrap().pipes;
        assert_eq!(pipes(Access::ReadOnly), [PathBuf::from("a/p")]);
        assert_eq!(pipes(Access::ReadWrite), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_mounted_over_a_file_is_found_once() {
        let top = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(top.path().join("s")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, top.path().join("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::write(top.path().join("file"), "").unwrap();
        let places: Vec<_> = ["s", "p", "file", "gone"].iter().map(|name| top.path().join(name)).collect();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            // As if directories had listed nothing but files.
            let mut found = Within::default();
            for _ in 0..2 {
                found.add_mounted(top.path(), access, places.iter().map(PathBuf::as_path));
            }
            let pipes = if access == Access::ReadOnly { vec![PathBuf::from("p")] } else { Vec::new() };
            assert_eq!(found, Within { sockets: vec!["s".into()], pipes, ..Within::default() });
            let mut found = Within { closed: vec![PathBuf::new()], ..Within::default() };
            found.add_mounted(top.path(), access, places.iter().map(PathBuf::as_path));
            assert_eq!(found.sockets, Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn a_file_that_is_bound_by_itself_hides_nothing() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(below(&file, Access::ReadOnly, &mut 100), Some(Within::default()));
    }

    #[test]
    fn what_lies_too_deep_is_covered_with_its_directory() {
        let top = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::open(top.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let name = "d".repeat(240);
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        }
        let found = below(top.path(), Access::ReadWrite, &mut 10_000).unwrap();
        let [closed] = &found.closed[..] else { panic!("{:?}", found.closed.len()) };
        let length = top.path().join(closed).as_os_str().len();
        assert!((MAX_PATH - 300..=MAX_PATH).contains(&length), "{length}");
        assert!(found.sockets.is_empty());
        // Removed by descriptors: no path reaches the end.
        assert!(std::process::Command::new("rm").arg("-rf").arg(top.path()).status().unwrap().success());
    }

    #[test]
    fn a_bind_that_is_not_searched_to_its_end_is_refused() {
        let top = tempfile::tempdir().unwrap();
        for number in 0..20 {
            std::fs::write(top.path().join(number.to_string()), "").unwrap();
        }
        std::fs::create_dir(top.path().join("x")).unwrap();
        let _listener = UnixListener::bind(top.path().join("x/s")).unwrap();
        let sockets = |mut budget| below(top.path(), Access::ReadWrite, &mut budget).map(|found| found.sockets);
        let whole = 20 + 1 + PER_DIRECTORY + 1;
        assert_eq!(sockets(whole), Some(vec![PathBuf::from("x/s")]));
        assert_eq!(sockets(whole - 1), None);
        assert_eq!(sockets(0), None);
    }
}
