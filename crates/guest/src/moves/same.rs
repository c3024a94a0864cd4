//! Compares two entries of one name, for a move whose helper was killed: nothing is known then of when each was written.

use super::entries::is_directory;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Reports whether the entries of a name in two directories are the same in content, owner and mode, so that either may go. What
/// cannot be read is not the same.
pub(super) fn is_same((from, one): (&OwnedFd, &Statx), (to, other): (&OwnedFd, &Statx), name: &[u8]) -> bool {
    let all = |found: &Statx| (found.stx_mode, found.stx_uid, found.stx_gid, found.stx_size);
    if all(one) != all(other) || is_directory(one) {
        return false;
    }
    let name = OsStr::from_bytes(name);
    match FileType::from_raw_mode(one.stx_mode.into()) {
        FileType::RegularFile => has_same_bytes(from, to, name).unwrap_or(false),
        FileType::Symlink => {
            let read = |at: &OwnedFd| rustix::fs::readlinkat(at, name, Vec::new());
            matches!((read(from), read(to)), (Ok(one), Ok(other)) if one == other)
        }
        _ => false,
    }
}

fn has_same_bytes(from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |at: &OwnedFd| rustix::fs::openat(at, name, flags, Mode::empty());
    let (one, other) = (open(from)?, open(to)?);
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let (read, same) = (fill(&one, &mut left)?, fill(&other, &mut right)?);
        if left[..read] != right[..same] {
            return Ok(false);
        }
        if read < CHUNK {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::retry_on_intr(|| rustix::io::read(file, &mut buffer[filled..]))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::entries::entry;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn only_entries_that_agree_in_all_that_they_hold_are_the_same() {
        let base = std::env::temp_dir().join(format!("nexus-same-{}", std::process::id()));
        let [from, to] = ["from", "to"].map(|name| base.join(name));
        for at in [&from, &to] {
            fs::create_dir_all(at).unwrap();
            for (name, content) in [("same", 'x'), ("byte", 'x'), ("mode", 'x'), ("longer", 'x')] {
                fs::write(at.join(name), String::from(content).repeat(CHUNK + 1)).unwrap();
            }
            symlink("there", at.join("link")).unwrap();
        }
        fs::write(to.join("byte"), "x".repeat(CHUNK) + "y").unwrap();
        fs::write(to.join("longer"), "x".repeat(CHUNK + 2)).unwrap();
        fs::set_permissions(to.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("there", from.join("other")).unwrap();
        symlink("where", to.join("other")).unwrap();
        let [one, two] = [&from, &to].map(|at| OwnedFd::from(fs::File::open(at).unwrap()));
        for (name, expected) in
            [("same", true), ("byte", false), ("mode", false), ("longer", false), ("link", true), ("other", false)]
        {
            let name = name.as_bytes();
            let (left, right) = (entry(&one, name).unwrap(), entry(&two, name).unwrap());
            assert_eq!(is_same((&one, &left), (&two, &right), name), expected, "{name:?}");
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
