//! Opens names under a directory descriptor, without following a link.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2};
use std::fs::File;
use std::io::{self, Read, Write};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens a directory of `parent`.
pub fn directory(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(parent, name, flags, Mode::empty(), RESOLVE)?)
}

/// Opens or makes a regular file of `parent` for reading and writing. A FIFO or a device in its place is an error, without a wait.
pub fn file(parent: impl AsFd, name: &str, create: bool) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (flags, mode) = if create { (flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR) } else { (flags, Mode::empty()) };
    let file = File::from(openat2(parent, name, flags, mode, RESOLVE)?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a regular file")))
}

/// Reads a file of at most `max` bytes.
pub fn read(file: &File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Writes a file of `parent` under another name, brings it to the disk, and gives it its name: it is whole or not there.
pub fn write_whole(parent: impl AsFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let hidden = format!(".new-{name}");
    match rustix::fs::unlinkat(&parent, hidden.as_str(), AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let mut made = file(&parent, &hidden, true)?;
    made.write_all(bytes)?;
    made.sync_all()?;
    rustix::fs::renameat(&parent, hidden.as_str(), &parent, name)?;
    Ok(rustix::fs::fsync(parent)?)
}

/// Lists the names in a directory, without `.` and `..`. A name that is not UTF-8 is not one of ours.
pub fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
