//! Opens and reads the files of the state directory, which may be damaged or replaced: by a directory, a link, a FIFO without a
//! writer, or a sparse file of terabytes.
//!
//! Each of these is a typed error. The functions never wait, and never read more than Nexus itself would have written.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

/// Longest note about a run, in bytes: `execve(2)` takes 6 MiB of arguments at most, and JSON may need six bytes for
/// one.
pub const MAX_NOTE: u64 = 64 << 20;

/// Longest file of a layer in bytes: some 200 for each changed path.
pub(crate) const MAX_LAYER_FILE: u64 = 2 << 30;

/// The defect of a file of the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateFileError {
    /// A link could lead to any file of the machine.
    #[error("it is a symbolic link")]
    Link,
    /// A directory, FIFO, socket or device.
    #[error("it is not a regular file")]
    NotRegular,
    /// More than Nexus would have written.
    #[error("it is larger than {max} bytes")]
    TooLarge {
        /// The bound in bytes.
        max: u64,
    },
    /// A hole of a sparse file, or a block that a power cut left empty.
    #[error("it holds NUL bytes, which Nexus never writes there")]
    Nul,
}

impl From<StateFileError> for io::Error {
    fn from(error: StateFileError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl StateFileError {
    /// Finds the reason in an error of this module.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }
}

/// Opens a regular file for reading. Follows no link and waits for no process.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY)
}

/// Opens a regular file for reading and writing, as the holder of a lock does, and makes it if `create` is set.
pub fn open_writable(path: &Path, create: bool) -> io::Result<File> {
    open_with(path, if create { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDWR })
}

fn open_with(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(StateFileError::Link.into()),
        // A socket, or a directory that is to be written.
        Err(Errno::NXIO | Errno::ISDIR) => return Err(StateFileError::NotRegular.into()),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(StateFileError::NotRegular.into()) }
}

/// Reads a whole file of at most `max` bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Bounded::new(open(path)?, max).read_to_end(&mut text)?;
    Ok(text)
}

/// Replaces the file at `path` atomically: after a crash of this process it is the old or the new one. `durable`
/// syncs the new content to disk first.
pub fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create_new(&new)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    std::fs::rename(&new, path)
}

/// Makes a file that must not be there yet.
pub fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?.into())
}

/// A reader that fails after more bytes than Nexus could have written to the file, and at a NUL byte.
pub struct Bounded<R> {
    inner: R,
    left: u64,
    max: u64,
}

impl<R: Read> Bounded<R> {
    /// Bounds a reader to `max` bytes.
    pub fn new(inner: R, max: u64) -> Self {
        Self { inner, left: max, max }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        if buffer[..length].contains(&0) {
            return Err(StateFileError::Nul.into());
        }
        self.left = self.left.checked_sub(length as u64).ok_or(StateFileError::TooLarge { max: self.max })?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StateFileError::{Link, NotRegular, Nul, TooLarge};
    use rustix::fs::CWD;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_not_a_file_is_named_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::fs::File::create(at("sparse")).unwrap().set_len(1 << 42).unwrap();
        for (name, wanted) in [
            ("directory", NotRegular),
            ("link", Link),
            ("dangling", Link),
            ("fifo", NotRegular),
            ("socket", NotRegular),
            ("sparse", Nul),
        ] {
            assert_eq!(StateFileError::of(&read(&at(name), 100).unwrap_err()), Some(wanted), "{name}");
            if name != "sparse" {
                assert_eq!(StateFileError::of(&open_writable(&at(name), true).unwrap_err()), Some(wanted), "{name}");
            }
        }
        assert_eq!(
            read(Path::new("/dev/zero"), 100).map_err(|error| StateFileError::of(&error)),
            Err(Some(NotRegular))
        );
        assert_eq!(read(&at("missing"), 100).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(StateFileError::of(&read(&at("file"), 3).unwrap_err()), Some(TooLarge { max: 3 }));
        assert_eq!(read(&at("file"), 4).unwrap(), b"text");
        assert!(!at("nowhere").exists(), "a link was followed");
    }

    #[test]
    fn a_file_is_replaced_without_writing_through_what_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("precious"), "precious").unwrap();
        for what in ["link", "fifo", "name"] {
            match what {
                "link" => symlink("precious", at("note.new")).unwrap(),
                "fifo" => rustix::fs::mkfifoat(CWD, at("note.new"), Mode::from_raw_mode(0o600)).unwrap(),
                _ => std::fs::hard_link(at("precious"), at("note.new")).unwrap(),
            }
            replace(&at("note"), what.as_bytes(), true).unwrap();
            assert_eq!(std::fs::read_to_string(at("note")).unwrap(), what);
            assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "precious");
            assert!(!at("note.new").exists());
        }
    }
}
