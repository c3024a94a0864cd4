//! The rename of a directory that the overlay does not rename.
//!
//! ```text
//!  old/ ──links, directories anew──▶ .nexus-moving-N/ ──rename──▶ new/      then old/ is emptied and removed
//!        fails? what was made is removed, old/ is as it was          └─ from here on new/ is whole
//! ```
//! Links cost no second copy of the bytes beside the one that the overlay makes anyway, and a file that a process has open
//! stays the same file. Other processes see the new name with all that is in it or not at all; between the rename and the end they
//! see what is left of the old one too. A process that is killed in between loses nothing: before the rename `old` is whole, and what was
//! made is left out of the changes by its name; after it `new` is whole, and another helper empties `old`.

use super::entries::names;
use super::filter;
use super::listener::Answer;
use super::place::Place;
use super::tree::{self, Carried};
use nexus_model::moving::{self, Numbers};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The way in which a directory is to move.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// Those of renameat2(2).
    pub(super) flags: u32,
    /// The number of the call.
    pub(super) id: u64,
    /// The numbers by which the files in it are distinct.
    pub(super) numbers: Numbers,
}

/// Passes over the old directory while other processes write to it.
const PASSES: usize = 3;

/// Renames a directory, by its content where need be. Everything else is left to the kernel. `note` is called right before the
/// directory that was made comes to its name.
pub(super) fn rename(old: &Place, new: &Place, how: How, note: &dyn Fn(u64) -> Result<(), Errno>) -> Answer {
    match statx(&old.directory, old.name(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(found) if FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory => {}
        Ok(_) | Err(_) => return Answer::GoOn,
    }
    let done = match filter::rename(old, new, how.flags) {
        // Two directories that change places are left as they are: nothing uses it.
        Err(Errno::XDEV) if how.flags & !libc::RENAME_NOREPLACE == 0 => carry(old, new, how, note),
        other => other,
    };
    done.map_or_else(|errno| Answer::Failed(errno.raw_os_error()), |()| Answer::Done)
}

fn carry(old: &Place, new: &Place, how: How, note: &dyn Fn(u64) -> Result<(), Errno>) -> Result<(), Errno> {
    let mount = |directory: &OwnedFd, name: &OsStr| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        statx(directory, name, flags, StatxFlags::MNT_ID).map(|found| found.stx_mnt_id)
    };
    let own = mount(&old.directory, old.name())?;
    if own != mount(&old.directory, OsStr::new(""))? || own != mount(&new.directory, OsStr::new(""))? {
        return Err(Errno::XDEV);
    }
    match open(new) {
        Ok(target) if !names(&target)?.is_empty() => return Err(Errno::NOTEMPTY),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let from = open(old).map_err(|_| Errno::XDEV)?;
    let unfinished =
        Place { directory: new.directory.try_clone().map_err(|_| Errno::MFILE)?, name: moving::name(how.id) };
    rustix::fs::mkdirat(&unfinished.directory, unfinished.name(), Mode::RWXU)?;
    let made = open(&unfinished).and_then(|to| {
        let carried = Carried::make(&from, &to, own, how.numbers)?;
        note(rustix::fs::fstat(&to)?.st_ino)?;
        filter::rename(&unfinished, new, how.flags)?;
        Ok((carried, to))
    });
    match made {
        Ok((carried, to)) => {
            take_away(old, &from, &to, &carried);
            Ok(())
        }
        Err(errno) => {
            tree::remove(&unfinished.directory, OsStr::from_bytes(&unfinished.name));
            Err(meant(errno))
        }
    }
}

/// Finishes the move of a helper that was killed, whose directory has the inode `made`.
pub(super) fn finish(old: &Place, new: &Place, made: u64) -> Answer {
    let has_come = |to: &OwnedFd| rustix::fs::fstat(to).is_ok_and(|found| found.st_ino == made);
    // If it has not come to its name, the move counts as not started.
    let Some(to) = open(new).ok().filter(has_come) else { return Answer::GoOn };
    match open(old) {
        Ok(from) => take_away(old, &from, &to, &Carried::unknown()),
        // The helper was killed between its last step and its answer.
        Err(Errno::NOENT) => return Answer::Done,
        Err(errno) => return Answer::Failed(errno.raw_os_error()),
    }
    match open(old) {
        Err(Errno::NOENT) => Answer::Done,
        // What is at both places with different content stays there, and a program that got a success would not look.
        Ok(_) | Err(_) => Answer::Failed(Errno::IO.raw_os_error()),
    }
}

/// Empties the old directory and removes it.
fn take_away(old: &Place, from: &OwnedFd, to: &OwnedFd, carried: &Carried) {
    for _ in 0..PASSES {
        carried.empty(from, to);
        match rustix::fs::unlinkat(&old.directory, old.name(), AtFlags::REMOVEDIR) {
            // Others write to it without a pause. All that was there when the call came is at its new place.
            Err(Errno::NOTEMPTY) => {}
            Ok(()) | Err(_) => break,
        }
    }
}

fn open(place: &Place) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&place.directory, place.name(), flags, Mode::empty())
}

/// The errno for a move that did not come about: what rename(2) may say about room and the target, else what the kernel said.
fn meant(errno: Errno) -> Errno {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::BUSY => errno,
        _ => Errno::XDEV,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_move_whose_old_directory_is_gone_is_done() {
        let base = std::env::temp_dir().join(format!("nexus-finish-{}", std::process::id()));
        let place = |name: &str| Place { directory: fs::File::open(&base).unwrap().into(), name: name.into() };
        fs::create_dir_all(base.join("new")).unwrap();
        let made = fs::metadata(base.join("new")).unwrap().ino();
        assert_eq!(finish(&place("old"), &place("new"), made), Answer::Done);
        assert_eq!(finish(&place("old"), &place("new"), made + 1), Answer::GoOn, "another directory");
        fs::create_dir(base.join("old")).unwrap();
        assert_eq!(finish(&place("old"), &place("new"), made), Answer::Done);
        assert!(!base.join("old").exists());
        for (at, content) in [("old", "one"), ("new", "other")] {
            fs::create_dir_all(base.join(at)).unwrap();
            fs::write(base.join(at).join("f"), content).unwrap();
        }
        let still = Answer::Failed(Errno::IO.raw_os_error());
        assert_eq!(
            finish(&place("old"), &place("new"), made),
            still,
            "two contents, and none is known to be the newer one"
        );
        fs::write(base.join("old/f"), "other").unwrap();
        assert_eq!(finish(&place("old"), &place("new"), made), Answer::Done);
        assert_eq!(fs::read(base.join("new/f")).unwrap(), b"other");
        fs::remove_dir_all(&base).unwrap();
    }
}
