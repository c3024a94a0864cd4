//! How much a layer on disk holds, for `--disk` above what a layer in memory may be.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use std::io;
use std::path::Path;

/// Bytes that the folder's files use on disk; stops counting above `enough`. Never follows a link, and forgives
/// what disappears or is closed to us meanwhile: the command is still working there.
pub fn usage(folder: &Path, enough: u64) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut waiting: Vec<OwnedFd> = vec![rustix::fs::openat(CWD, folder, flags, Mode::empty())?];
    let mut total = 0;
    while let Some(folder) = waiting.pop() {
        for entry in Dir::read_from(&folder)? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            total += stat.st_blocks as u64 * 512;
            if total > enough {
                return Ok(total);
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && waiting.len() < 512
                && let Ok(inner) = rustix::fs::openat(&folder, name, flags, Mode::empty())
            {
                waiting.push(inner);
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_folders_count_and_links_do_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), vec![1u8; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let used = usage(dir.path(), u64::MAX).unwrap();
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        assert!(usage(dir.path(), 1000).unwrap() > 1000);
    }
}
