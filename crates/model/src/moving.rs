//! Directories that a sandbox is moving: the name of one that is not whole yet.
//!
//! In a layer of an ordinary user a directory moves by its content, into a new directory with such a name, which is then
//! renamed. One that is still there at the end of a run was being made when the run was killed. It is not a change.

use serde::{Deserialize, Serialize};

/// The numbers that distinguish the files of a workspace in its overlay, which shows one device for a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Numbers {
    /// The inode number.
    OfFileSystem,
    /// The inode number and the subvolume: each subvolume counts its own, and a snapshot has the numbers of its original.
    OfSubvolume,
    /// The kind of the file system is not known: it is one of a program, of a server, or another overlay.
    #[default]
    Unknown,
}

impl Numbers {
    /// Tells it by `f_type` of statfs(2).
    #[must_use]
    pub fn of(f_type: u64) -> Self {
        match f_type {
            // ext2 to ext4, XFS, tmpfs, F2FS.
            0xef53 | 0x5846_5342 | 0x0102_1994 | 0xf2f5_2010 => Self::OfFileSystem,
            // Btrfs, bcachefs.
            0x9123_683e | 0xca45_1a4e => Self::OfSubvolume,
            _ => Self::Unknown,
        }
    }
}

const PREFIX: &[u8] = b".nexus-moving-";

/// Returns the name for a move with this number.
#[must_use]
pub fn name(number: u64) -> Vec<u8> {
    [PREFIX, format!("{number:016x}").as_bytes()].concat()
}

/// Returns whether a directory of this name is one that was being made.
#[must_use]
pub fn is_unfinished(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|number| number.len() == 16 && number.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_files_apart_is_known_of_few_file_systems() {
        assert_eq!(Numbers::of(0xef53), Numbers::OfFileSystem);
        assert_eq!(Numbers::of(0x9123_683e), Numbers::OfSubvolume);
        // FUSE, NFS, an overlay.
        for other in [0x6573_5546, 0x6969, 0x794c_7630] {
            assert_eq!(Numbers::of(other), Numbers::Unknown);
        }
    }

    #[test]
    fn only_the_names_that_are_given_are_known() {
        for number in [0, 7, u64::MAX] {
            assert!(is_unfinished(&name(number)));
        }
        for other in [
            "",
            ".nexus-moving-",
            ".nexus-moving-00000000000000g0",
            "x.nexus-moving-0000000000000000",
            ".nexus-moving-000",
        ] {
            assert!(!is_unfinished(other.as_bytes()), "{other}");
        }
    }
}
