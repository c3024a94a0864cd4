//! Reads where mounts lie below the root of a sandbox.

use crate::mounts;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The mounts that this process sees, by their number: where each lies.
#[derive(Debug)]
pub struct MountTable {
    /// The mount that becomes the root.
    top: u64,
    all: Vec<Mount>,
}

/// The first fields of a line of proc_pid_mountinfo(5).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    parent: u64,
    at: PathBuf,
}

impl MountTable {
    /// Reads the table from the `/proc` of the root.
    pub fn read(root: &OwnedFd) -> io::Result<Self> {
        let proc = mounts::place(root, Path::new("proc"))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&proc, c"self/mountinfo", flags, Mode::empty())?;
        let mut text = Vec::new();
        std::fs::File::from(file).read_to_end(&mut text)?;
        Ok(Self::parse(mount_id(root)?, &text))
    }

    fn parse(top: u64, text: &[u8]) -> Self {
        Self { top, all: text.split(|byte| *byte == b'\n').filter_map(read_line).collect() }
    }

    /// Lists the mounts below a directory that a path leads to, each with its number. A mount that another one hides is not among
    /// them, nor is one of the host that the root lies over.
    pub fn below(&self, directory: &Path) -> Vec<(&Path, u64)> {
        let places: HashMap<(u64, &Path), u64> = self
            .all
            .iter()
            .filter(|mount| mount.parent != mount.id && mount.id != self.top)
            .map(|mount| ((mount.parent, mount.at.as_path()), mount.id))
            .collect();
        let below = self.all.iter().filter(|mount| mount.at != directory && mount.at.starts_with(directory));
        let reached = below.filter(|mount| self.resolve(&places, &mount.at) == mount.id);
        reached.map(|mount| (mount.at.as_path(), mount.id)).collect()
    }

    /// Returns the mount that a path leads to.
    fn resolve(&self, places: &HashMap<(u64, &Path), u64>, path: &Path) -> u64 {
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        let mut mount = self.top;
        for ancestor in ancestors {
            // Mounts may lie on top of each other at one place. The count bounds a table that is not a tree.
            for _ in 0..places.len() {
                let Some(next) = places.get(&(mount, ancestor)) else { break };
                mount = *next;
            }
        }
        mount
    }
}

/// Returns the number of the mount through which a file was opened.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    Ok(about(file)?.stx_mnt_id)
}

/// Returns the kind of a file, as far as it can be found out at once.
pub fn kind(file: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(about(file)?.stx_mode.into()))
}

/// Looks at a file without a question to its file system: a server of FUSE or NFS may never answer it.
fn about(file: impl AsFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(file, c"", flags, StatxFlags::MNT_ID | StatxFlags::TYPE)?)
}

fn read_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
    let (id, parent) = (number(fields.next())?, number(fields.next())?);
    let at = PathBuf::from(OsString::from_vec(unescape(fields.nth(2)?)));
    // The file below it is gone, so that no path leads to it.
    (!at.as_os_str().as_bytes().ends_with(b"//deleted")).then_some(Mount { id, parent, at })
}

/// Undoes the kernel's `\ooo` for blanks and backslashes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value = octal.map(|digits| digits.iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0')));
        if let Some(byte) = value.and_then(|value| u8::try_from(value).ok()) {
            text.push(byte);
            rest = &after[3..];
        } else {
            text.push(*first);
            rest = after;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's root is mount 1, and that of the sandbox, 20, lies over it.
    const TABLE: &str = "\
1 0 254:0 / / rw - ext4 x rw
2 1 0:5 / /d/of-the-host rw - proc proc rw
20 1 0:30 / / rw - tmpfs none rw
21 20 254:0 /data /d rw master:3 - ext4 x rw
22 21 254:0 /h /d/a\\040b rw - ext4 x rw
23 21 0:32 / /d/x rw - tmpfs none rw
24 23 0:33 / /d/x rw - tmpfs none rw
25 23 0:34 / /d/x/hidden rw - tmpfs none rw
26 21 254:0 /g /d/gone//deleted rw - ext4 x rw
27 20 0:36 / /dd rw - tmpfs none rw
";

    #[test]
    fn what_is_mounted_below_a_directory_is_found_with_its_number() {
        let table = MountTable::parse(20, TABLE.as_bytes());
        assert_eq!(table.below(Path::new("/d")), [(Path::new("/d/a b"), 22), (Path::new("/d/x"), 24)]);
        assert_eq!(table.below(Path::new("/d/x")), []);
        for line in ["", "1", "1 2 3", "x 2 0:1 / /d/m rw"] {
            assert_eq!(read_line(line.as_bytes()), None, "{line}");
        }
    }
}
