//! How much a layer holds: for `--disk` above what a layer in memory may be, and for a commit that has to copy.

use nexus_model::units::format_size;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that the folder's files use on disk; stops counting above `enough`. Never follows a link, and forgives
/// what disappears or is closed to us meanwhile: the command is still working there.
pub fn usage(folder: &Path, enough: u64) -> io::Result<u64> {
    Ok(count(folder, enough)?.0)
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
        None => count(upper, u64::MAX).ok()?,
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

/// Bytes and entries.
fn count(folder: &Path, enough: u64) -> io::Result<(u64, u64)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut waiting: Vec<OwnedFd> = vec![rustix::fs::openat(CWD, folder, flags, Mode::empty())?];
    let (mut total, mut entries) = (0, 0);
    while let Some(folder) = waiting.pop() {
        for entry in Dir::read_from(&folder)? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            entries += 1;
            total += stat.st_blocks as u64 * 512;
            if total > enough {
                return Ok((total, entries));
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && waiting.len() < 512
                && let Ok(inner) = rustix::fs::openat(&folder, name, flags, Mode::empty())
            {
                waiting.push(inner);
            }
        }
    }
    Ok((total, entries))
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
