//! Measures a layer: for a disk limit above what a layer in memory may be, and for a commit that has to copy.
//!
//! The command is at work in the layer while it is measured, and may want it to look small:
//!
//! * A directory swapped for a link leads nowhere: every directory is opened below a descriptor with openat2(2), without
//!   links and without leaving the file system.
//! * Any number of directories, at any depth, is seen: what waits is names, and few of them have a descriptor.
//! * A directory that its owner closed (`chmod 0`, or 0300 from the start) cannot be listed by an ordinary user. Opening it
//!   up would show the command modes that it never set, and honest commands close directories too. What is in it is bounded
//!   by the file system instead: more room lost since the start than the limit is over the limit.
//!
//! A deleted file that a process holds open is in no directory, and is not counted.

use nexus_model::units::format_size;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Longest path that is opened in one step. Deeper directories get a descriptor to start from: a command can build paths
/// that no single call takes, and looking each up from the top would cost the square of their depth.
const STEP: usize = 1024;

/// Entries that are looked at in one turn: some milliseconds, in which output, signals and the time limit wait.
const MAX_ENTRIES_PER_TURN: usize = 4000;
/// The smallest charge of an entry, as in a layer in memory: the inodes of a file system can be used up with empty files.
const MIN_CHARGE: u64 = 4096;

/// A directory that is measured while a command writes to it.
pub struct Measured {
    directory: PathBuf,
    /// Free bytes of its file system before the command started.
    free_before: rustix::io::Result<u64>,
    /// A look that is not finished.
    walk: Option<Walk>,
}

impl Measured {
    /// Records the free space of the file system at this moment.
    pub fn new(directory: PathBuf) -> Self {
        let free_before = free(&directory);
        Self { directory, free_before, walk: None }
    }

    /// Measures some thousand further entries, and reports whether the directory is known to hold more than `limit`.
    pub fn measure_some(&mut self, limit: u64) -> io::Result<bool> {
        Ok(self.turn(limit, MAX_ENTRIES_PER_TURN)?.is_some_and(|used| used > limit))
    }

    /// Looks at all entries, and reports whether they are more than `limit`.
    pub fn look_at_all(&mut self, limit: u64) -> io::Result<bool> {
        self.walk = None;
        Ok(self.turn(limit, usize::MAX)?.is_some_and(|used| used > limit))
    }

    /// The bytes that its files use on disk, when a look is finished; stops counting above `enough`. Where some of them cannot
    /// be seen and the file system lost more than `enough` meanwhile, it is that loss.
    fn turn(&mut self, enough: u64, entries: usize) -> io::Result<Option<u64>> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::new(&self.directory)?,
        };
        if !walk.on(entries, enough)? {
            self.walk = Some(walk);
            return Ok(None);
        }
        let lost = self.free_before?.saturating_sub(free(&self.directory)?);
        Ok(Some(decide(&walk.found, lost, enough)))
    }
}

/// Decides about the number of bytes, by what was counted and what the file system lost since the start.
fn decide(found: &Found, lost: u64, enough: u64) -> u64 {
    // Other users of the disk also take space, so the loss counts only where a directory was closed.
    if found.closed && lost > enough { found.charged.max(lost) } else { found.charged }
}

fn free(directory: &Path) -> rustix::io::Result<u64> {
    let there = rustix::fs::statvfs(directory)?;
    Ok(there.f_bfree.saturating_mul(there.f_frsize))
}

/// Says why a commit that has to copy cannot succeed, if it cannot: the layer needs more than the workspace's disk has. A
/// commit that runs out of room after it was decided stops half-way until there is space, so the space is checked first.
/// An answer that cannot be had does not count: then the commit itself finds out.
pub fn no_room(upper: &Path, in_memory: Option<&OwnedFd>, workspace: &Path) -> Option<String> {
    let (from, to) = (std::fs::metadata(upper).ok()?, std::fs::metadata(workspace).ok()?);
    if from.dev() == to.dev() {
        // Renamed, which needs no room.
        return None;
    }
    let there = rustix::fs::statvfs(workspace).ok()?;
    let (bytes, entries) = match in_memory {
        // What is in a directory that was closed is missing here.
        None => count(upper, u64::MAX).map(|found| (found.bytes, found.entries)).ok()?,
        Some(upper) => {
            let used = rustix::fs::fstatvfs(upper).ok()?;
            (used.f_blocks.saturating_sub(used.f_bfree) * used.f_frsize, used.f_files.saturating_sub(used.f_ffree))
        }
    };
    let free = there.f_bavail * there.f_frsize;
    if bytes > free {
        let (needed, free) = (format_size(bytes), format_size(free));
        return Some(format!("the disk of the workspace has {free} left and the changes need {needed}"));
    }
    // A file system without a fixed number of inodes says 0 of 0.
    if there.f_files > 0 && entries > there.f_favail {
        return Some(format!(
            "the disk of the workspace takes {} more files and the changes have {entries}",
            there.f_favail
        ));
    }
    None
}

/// Holds what a look saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    bytes: u64,
    /// The bytes that count for a limit: each entry at least [`MIN_CHARGE`].
    charged: u64,
    entries: u64,
    /// Some directory could not be looked into.
    closed: bool,
}

/// Names a directory that is still to be looked into.
struct Waiting {
    from: Rc<OwnedFd>,
    /// The path below `from`.
    path: Vec<u8>,
}

fn count(directory: &Path, enough: u64) -> io::Result<Found> {
    let mut walk = Walk::new(directory)?;
    walk.on(usize::MAX, enough)?;
    Ok(walk.found)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A look at a tree, which may go on later.
struct Walk {
    waiting: Vec<Waiting>,
    current: Option<Current>,
    found: Found,
}

/// A directory in which a look stands.
struct Current {
    entries: Dir,
    directory: Rc<OwnedFd>,
    at: Waiting,
}

impl Walk {
    fn new(directory: &Path) -> io::Result<Self> {
        let top = Rc::new(rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty())?);
        let waiting = vec![Waiting { from: top, path: b".".to_vec() }];
        Ok(Self { waiting, current: None, found: Found::default() })
    }

    /// Looks at so many entries more. `true` when all was seen, or more than `enough`.
    fn on(&mut self, mut entries: usize, enough: u64) -> io::Result<bool> {
        while self.found.charged <= enough {
            if self.current.is_none() {
                let Some(next) = self.waiting.pop() else { return Ok(true) };
                match open(next) {
                    Ok(current) => self.current = Some(current),
                    Err(Errno::ACCESS) => self.found.closed = true,
                    // Gone meanwhile, or something else has its name now.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            let Some(left) = entries.checked_sub(1) else { return Ok(false) };
            entries = left;
            self.one()?;
        }
        Ok(true)
    }

    /// Counts the next entry of the directory in which it stands, or leaves that.
    fn one(&mut self) -> io::Result<()> {
        let Some(Current { entries, directory, at }) = &mut self.current else { return Ok(()) };
        let entry = match entries.next() {
            Some(Ok(entry)) => entry,
            None | Some(Err(Errno::NOENT)) => {
                self.current = None;
                return Ok(());
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            return Ok(());
        }
        let stat = match rustix::fs::statat(&**directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ACCESS) => {
                self.found.closed = true;
                self.current = None;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = (stat.st_blocks as u64).saturating_mul(512);
        self.found.entries += 1;
        self.found.bytes = self.found.bytes.saturating_add(bytes);
        self.found.charged = self.found.charged.saturating_add(bytes.max(MIN_CHARGE));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let name = name.to_bytes();
            self.waiting.push(if at.path.len() + 1 + name.len() > STEP {
                Waiting { from: Rc::clone(directory), path: name.to_vec() }
            } else {
                Waiting { from: Rc::clone(&at.from), path: [&at.path, &b"/"[..], name].concat() }
            });
        }
        Ok(())
    }
}

fn open(at: Waiting) -> rustix::io::Result<Current> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let directory = Rc::new(rustix::fs::openat2(&*at.from, &at.path, DIRECTORY, Mode::empty(), resolve)?);
    Ok(Current { entries: Dir::read_from(&*directory)?, directory, at })
}

/// Reports whether a layer in memory has no room left.
pub fn is_full(upper: &OwnedFd, limit: u64) -> bool {
    let almost_nothing = (limit / 64).clamp(4096, 1 << 20);
    rustix::fs::fstatvfs(upper.as_fd())
        .is_ok_and(|stat| stat.f_bavail * stat.f_bsize < almost_nothing || stat.f_favail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(directory: &Path) -> Found {
        count(directory, u64::MAX).unwrap()
    }

    #[test]
    fn files_below_directories_count_and_links_do_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), vec![1u8; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let found = counted(dir.path());
        assert!((1 << 20..2 << 20).contains(&found.bytes) && found.entries == 3 && !found.closed, "{found:?}");
        assert!(count(dir.path(), 1000).unwrap().charged > 1000);
        let mut measured = Measured::new(dir.path().to_owned());
        assert!(!measured.look_at_all(found.charged).unwrap() && measured.look_at_all(found.charged - 1).unwrap());
    }

    #[test]
    fn thousands_of_directories_beside_each_other_all_count() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            let directory = dir.path().join(number.to_string());
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("file"), vec![1u8; 4096]).unwrap();
        }
        let found = counted(dir.path());
        assert!(found.entries == 4000 && found.bytes >= 2000 * 4096 && !found.closed, "{found:?}");
    }

    #[test]
    fn a_file_deeper_than_any_path_can_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut at = rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..50 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, DIRECTORY, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        io::Write::write_all(&mut std::fs::File::from(file), &vec![1u8; 1 << 20]).unwrap();
        let found = counted(dir.path());
        assert!(found.entries == 51 && found.bytes >= 1 << 20, "{found:?}");
    }

    #[test]
    fn a_closed_directory_is_not_an_error_and_is_noted() {
        if rustix::process::geteuid().is_root() {
            // Root sees into everything.
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("none", 0o000), ("unreadable", 0o300), ("not-entered", 0o600)] {
            let directory = dir.path().join(name);
            std::fs::create_dir_all(directory.join("inner")).unwrap();
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(counted(dir.path()).closed, "{name}");
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
            assert!(!counted(dir.path()).closed, "{name}");
        }
    }

    #[test]
    fn only_what_cannot_be_seen_counts_by_the_room_that_was_lost() {
        let is_over =
            |bytes, closed, lost| decide(&Found { bytes, charged: bytes, closed, entries: 1 }, lost, 100) > 100;
        assert!(!is_over(100, false, 0) && is_over(101, false, 0));
        assert!(!is_over(10, false, 500), "others use the disk too");
        assert!(!is_over(10, true, 100), "a closed directory alone is no breach");
        assert!(is_over(10, true, 101));
    }

    #[test]
    fn a_directory_that_cannot_be_measured_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut measured = Measured::new(dir.path().join("missing"));
        assert!(measured.measure_some(1).is_err());
    }

    #[test]
    fn an_empty_file_counts_as_a_block() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let found = counted(dir.path());
        assert_eq!((found.entries, found.charged), (100, 100 * 4096));
        assert!(Measured::new(dir.path().to_owned()).measure_some(99 * 4096).unwrap());
    }

    #[test]
    fn a_look_goes_on_in_turns_also_within_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for number in 0..2 * MAX_ENTRIES_PER_TURN {
            std::fs::write(inner.join(number.to_string()), "").unwrap();
        }
        let total = (2 * MAX_ENTRIES_PER_TURN as u64 + 1) * MIN_CHARGE;
        let mut walk = Walk::new(dir.path()).unwrap();
        let mut turns = 0;
        while !walk.on(1000, u64::MAX).unwrap() {
            turns += 1;
            assert!(walk.found.entries <= turns * 1000, "{turns}: {}", walk.found.entries);
        }
        assert!(turns >= 8 && walk.found.charged >= total, "{turns}: {:?}", walk.found);
        let mut measured = Measured::new(dir.path().to_owned());
        let over: Vec<bool> = (0..4).map(|_| measured.measure_some(total - 1).unwrap()).collect();
        assert!(!over[0] && over.contains(&true), "{over:?}");
    }
}
