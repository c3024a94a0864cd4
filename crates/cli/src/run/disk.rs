//! How much a layer holds: for `--disk` above what a layer in memory may be, and for a commit that has to copy.
//!
//! The command is at work in the layer while it is measured, and may want it to look small:
//!
//! * A folder swapped for a link leads nowhere: every folder is opened beneath a descriptor with openat2(2), without
//!   links and without leaving the file system.
//! * Any number of folders, at any depth, is seen: what waits is names, and few of them have a descriptor.
//! * A folder that its owner closed (`chmod 0`, or 0300 from the start) cannot be listed by an ordinary user. Opening it
//!   up would show the command modes that it never set, and honest commands close folders too. What is in it is bounded
//!   by the file system instead: more room lost since the start than the limit is over the limit.
//!
//! A deleted file that a process holds open is in no folder, and is not counted.

use nexus_model::units::format_size;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Longest path that is opened in one step. Deeper folders get a descriptor to start from: a command can build paths
/// that no single call takes, and looking each up from the top would cost the square of their depth.
const STEP: usize = 1024;

/// A folder that is measured while a command writes to it.
pub struct Measured {
    folder: PathBuf,
    /// Free bytes of its file system before the command started.
    free_before: rustix::io::Result<u64>,
}

impl Measured {
    /// Notes how much room there is now.
    pub fn new(folder: PathBuf) -> Self {
        let free_before = free(&folder);
        Self { folder, free_before }
    }
}

/// Bytes that the folder's files use on disk; stops counting above `enough`. Where some of them cannot be seen and the
/// file system lost more than `enough` meanwhile, it is that loss.
pub fn usage(measured: &Measured, enough: u64) -> io::Result<u64> {
    let found = count(&measured.folder, enough)?;
    let lost = measured.free_before?.saturating_sub(free(&measured.folder)?);
    Ok(judge(&found, lost, enough))
}

/// What was counted, and what the file system lost since the start, as the number of bytes to go by.
fn judge(found: &Found, lost: u64, enough: u64) -> u64 {
    // Everybody who shares the disk takes from its room, so that alone it says nothing.
    if found.closed && lost > enough { found.bytes.max(lost) } else { found.bytes }
}

fn free(folder: &Path) -> rustix::io::Result<u64> {
    let there = rustix::fs::statvfs(folder)?;
    Ok(there.f_bfree.saturating_mul(there.f_frsize))
}

/// Why a commit that has to copy cannot succeed, if it cannot: the layer needs more than the workspace's disk has. A
/// commit that runs out of room after it was decided leaves a mix until there is room, so that this is asked before.
/// An answer that cannot be had is no reason: then the commit itself finds out.
pub fn no_room(upper: &Path, in_memory: Option<&OwnedFd>, workspace: &Path) -> Option<String> {
    let (from, to) = (std::fs::metadata(upper).ok()?, std::fs::metadata(workspace).ok()?);
    if from.dev() == to.dev() {
        // Renamed, which needs no room.
        return None;
    }
    let there = rustix::fs::statvfs(workspace).ok()?;
    let (bytes, entries) = match in_memory {
        // What is in a folder that was closed is missing here.
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

/// What a look saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    bytes: u64,
    entries: u64,
    /// Some folder could not be looked into.
    closed: bool,
}

/// A folder that is still to be looked into.
struct Waiting {
    from: Rc<OwnedFd>,
    /// Relative to `from`.
    path: Vec<u8>,
}

fn count(folder: &Path, enough: u64) -> io::Result<Found> {
    let top = Rc::new(rustix::fs::openat(CWD, folder, DIRECTORY, Mode::empty())?);
    let mut waiting = vec![Waiting { from: top, path: b".".to_vec() }];
    let mut found = Found::default();
    while let Some(next) = waiting.pop() {
        match look(&next, &mut found, &mut waiting, enough) {
            Err(Errno::ACCESS) => found.closed = true,
            // Seen, or gone meanwhile, or something else has its name now.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
        if found.bytes > enough {
            break;
        }
    }
    Ok(found)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Counts the entries of one folder and adds its folders to those that wait.
fn look(at: &Waiting, found: &mut Found, waiting: &mut Vec<Waiting>, enough: u64) -> rustix::io::Result<()> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let folder = Rc::new(rustix::fs::openat2(&*at.from, &at.path, DIRECTORY, Mode::empty(), resolve)?);
    for entry in Dir::read_from(&*folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        found.entries += 1;
        found.bytes = found.bytes.saturating_add((stat.st_blocks as u64).saturating_mul(512));
        if found.bytes > enough {
            return Ok(());
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let name = name.to_bytes();
            waiting.push(if at.path.len() + 1 + name.len() > STEP {
                Waiting { from: Rc::clone(&folder), path: name.to_vec() }
            } else {
                Waiting { from: Rc::clone(&at.from), path: [&at.path, &b"/"[..], name].concat() }
            });
        }
    }
    Ok(())
}

/// Whether a layer in memory has no room left.
pub fn is_full(upper: &OwnedFd, limit: u64) -> bool {
    let almost_nothing = (limit / 64).clamp(4096, 1 << 20);
    rustix::fs::fstatvfs(upper.as_fd())
        .is_ok_and(|stat| stat.f_bavail * stat.f_bsize < almost_nothing || stat.f_favail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(folder: &Path) -> Found {
        count(folder, u64::MAX).unwrap()
    }

    #[test]
    fn files_below_folders_count_and_links_do_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), vec![1u8; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let found = counted(dir.path());
        assert!((1 << 20..2 << 20).contains(&found.bytes) && found.entries == 3 && !found.closed, "{found:?}");
        assert!(count(dir.path(), 1000).unwrap().bytes > 1000);
        let measured = Measured::new(dir.path().to_owned());
        assert_eq!(usage(&measured, u64::MAX).unwrap(), found.bytes);
    }

    #[test]
    fn thousands_of_folders_beside_each_other_all_count() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            let folder = dir.path().join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("file"), vec![1u8; 4096]).unwrap();
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
    fn a_closed_folder_is_no_error_and_is_told() {
        if rustix::process::geteuid().is_root() {
            // Root sees into everything.
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("none", 0o000), ("unreadable", 0o300), ("not-entered", 0o600)] {
            let folder = dir.path().join(name);
            std::fs::create_dir_all(folder.join("inner")).unwrap();
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(counted(dir.path()).closed, "{name}");
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
            assert!(!counted(dir.path()).closed, "{name}");
        }
    }

    #[test]
    fn only_what_cannot_be_seen_is_judged_by_the_room_that_was_lost() {
        let judged = |bytes, closed, lost| judge(&Found { bytes, closed, entries: 1 }, lost, 100) > 100;
        assert!(!judged(100, false, 0) && judged(101, false, 0));
        assert!(!judged(10, false, 500), "others use the disk too");
        assert!(!judged(10, true, 100), "a closed folder alone is no breach");
        assert!(judged(10, true, 101));
    }

    #[test]
    fn a_folder_that_cannot_be_measured_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let measured = Measured::new(dir.path().join("missing"));
        assert!(usage(&measured, 1).is_err());
    }
}
