//! Bounded reading of what lies on the host: no file and no directory that an earlier run left holds a run up.

use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum size of a file that is read.
const MAX_BYTES: u64 = 256 << 10;
/// Maximum number of names that are read of a directory.
const MAX_NAMES: usize = 4096;

/// Reads a plain file of at most 256 KiB. The path has its links resolved. A device or named pipe is not opened: an open
/// alone can wait or act.
pub(crate) fn small(path: &Path) -> Option<Vec<u8>> {
    bounded(path, MAX_BYTES)
}

/// Reads a plain file of at most this many bytes, in the same way.
pub(crate) fn bounded(path: &Path, most: u64) -> Option<Vec<u8>> {
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most {
        return None;
    }
    // With room for all of it, so that it is read in one call and not in small pieces.
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    // A text that is cut off would say less than its author meant.
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// Reports whether a directory has the mark of a virtual environment of Python.
pub(super) fn is_virtual(directory: &Path) -> bool {
    directory.join("pyvenv.cfg").symlink_metadata().is_ok()
}

/// Reads the names in a directory; an error with more than 4096 of them.
pub(crate) fn names(path: &Path) -> std::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        if names.len() == MAX_NAMES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        names.push(entry?.file_name());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};

    #[test]
    fn only_a_small_plain_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("plain"), "text").unwrap();
        assert_eq!(small(&at("plain")).unwrap(), b"text");
        std::fs::File::create(at("sparse")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for name in ["sparse", "zero", "fifo", "missing", "."] {
            assert_eq!(small(&at(name)), None, "{name}");
        }
        for device in ["/dev/ptmx", "/dev/zero"] {
            assert_eq!(small(Path::new(device)), None, "{device}");
        }
    }

    #[test]
    fn a_directory_with_very_many_names_is_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_NAMES {
            std::fs::hard_link(first(dir.path()), dir.path().join(number.to_string())).unwrap();
        }
        assert!(names(dir.path()).is_err());
        std::fs::remove_file(dir.path().join("7")).unwrap();
        assert_eq!(names(dir.path()).unwrap().len(), MAX_NAMES);
    }

    fn first(directory: &Path) -> std::path::PathBuf {
        let path = directory.join("first");
        if !path.exists() {
            std::fs::write(&path, "").unwrap();
        }
        path
    }
}
