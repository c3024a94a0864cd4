//! The files of what is imported, by their names: a layout directory, or an archive whose entries are found once.

use crate::error::{At as _, ImageError, shown};
use crate::inflate::{self, Bounded};
use crate::layer::{Gate, allow_header};
use crate::limits::Limits;
use nexus_beneath::{open_dir, open_file, split};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;

/// Links of an archive that are followed one after the other.
const MAX_LINKS: usize = 8;
/// Names of which a root has at least one.
const OF_A_ROOT: &[&str] = &["bin", "usr", "sbin", "lib", "etc"];

/// The form of what is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An OCI layout, as a directory or an archive.
    Layout,
    /// An archive of `docker save`.
    Docker,
    /// An archive of a root.
    Root,
}

impl Kind {
    /// Returns its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layout => "oci-layout",
            Self::Docker => "docker-archive",
            Self::Root => "root-archive",
        }
    }
}

/// The directory or archive that is imported.
pub enum Archive {
    /// An OCI layout as a directory.
    Directory(OwnedFd),
    /// An archive, and the places of its files.
    File { file: Rc<File>, places: HashMap<Vec<u8>, Place> },
}

/// An entry of an archive.
pub enum Place {
    /// A regular file.
    File { offset: u64, bytes: u64 },
    /// A link to another entry.
    Link(Vec<u8>),
}

/// A part of a file.
struct Section {
    file: Rc<File>,
    offset: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..room], self.offset)?;
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Opens what is at a path, and tells what it is. A compressed archive is unpacked into `spool` first.
pub fn open(path: &Path, spool: &Path, limits: &Limits) -> Result<(Archive, Kind), ImageError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty()).at("open", path)?;
    let file = File::from(opened);
    let about = file.metadata().at("look at", path)?;
    if about.is_dir() {
        let archive = Archive::Directory(file.into());
        let there = archive.open("oci-layout").is_ok();
        return if there { Ok((archive, Kind::Layout)) } else { Err(not_an_image(path)) };
    }
    if !about.is_file() {
        return Err(not_an_image(path));
    }
    let file = Rc::new(plain(file, about.len(), path, spool, limits)?);
    let (places, is_root) = index(&file, path, limits)?;
    let archive = Archive::File { file, places };
    let kind = if archive.open("oci-layout").is_ok() && archive.open("index.json").is_ok() {
        Kind::Layout
    } else if archive.open("manifest.json").is_ok() {
        Kind::Docker
    } else if is_root {
        Kind::Root
    } else {
        return Err(not_an_image(path));
    };
    Ok((archive, kind))
}

impl Archive {
    /// Opens a file, and tells its size.
    pub fn open(&self, name: &str) -> Result<(Box<dyn Read>, u64), ImageError> {
        let missing = || ImageError::MissingFile { name: shown(name.as_bytes()) };
        match self {
            Self::Directory(root) => {
                let (dir, last) = split(name.as_bytes());
                let gone = |error: io::Error| match error.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => ImageError::Tree { doing: "open", path: shown(name.as_bytes()), source: error },
                };
                let dir = open_dir(root.as_fd(), dir, OFlags::PATH).map_err(gone)?;
                let file = File::from(open_file(dir.as_fd(), last, OFlags::RDONLY).map_err(gone)?);
                let bytes = file.metadata().on("look at", name.as_bytes())?.len();
                Ok((Box::new(file), bytes))
            }
            Self::File { file, places } => {
                let mut name = name.as_bytes();
                for _ in 0..MAX_LINKS {
                    match places.get(name) {
                        Some(Place::Link(target)) => name = target,
                        Some(Place::File { offset, bytes }) => {
                            let section = Section { file: Rc::clone(file), offset: *offset, left: *bytes };
                            return Ok((Box::new(section), *bytes));
                        }
                        None => break,
                    }
                }
                Err(missing())
            }
        }
    }

    /// Opens the archive itself, which is the layer of a root.
    pub fn whole(&self) -> Result<(Box<dyn Read>, u64), ImageError> {
        let Self::File { file, .. } = self else { return Err(ImageError::MissingFile { name: String::new() }) };
        let left = file.metadata().on("look at", b"")?.len();
        Ok((Box::new(Section { file: Rc::clone(file), offset: 0, left }), left))
    }
}

/// Returns the file, or an unpacked copy of one that is compressed as a whole.
fn plain(mut file: File, bytes: u64, path: &Path, spool: &Path, limits: &Limits) -> Result<File, ImageError> {
    let mut first = [0; 4];
    let read = file.read_at(&mut first, 0).at("read", path)?;
    if !matches!(&first[..read], [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(file);
    }
    let most = bytes.saturating_mul(limits.ratio).saturating_add(limits.free_bytes).min(limits.unpacked_bytes);
    let whole = file.try_clone().at("read", path)?;
    let unreadable = |source| ImageError::Layer { source };
    let mut stream = Bounded::new(inflate::open(whole).map_err(unreadable)?, most);
    let mut options = File::options();
    let mut copy = options.read(true).write(true).create_new(true).open(spool).at("make", spool)?;
    match io::copy(&mut stream, &mut copy) {
        Ok(_) => {}
        Err(_) if stream.is_over() => return Err(ImageError::Bomb { stored: bytes, unpacked: most }),
        Err(source) => return Err(unreadable(source)),
    }
    copy.rewind().at("read", spool)?;
    std::mem::swap(&mut file, &mut copy);
    Ok(file)
}

/// Finds the files of an archive; tells too if it looks like a root. An archive of an image has few files: behind so many, no
/// more is looked for.
fn index(file: &File, path: &Path, limits: &Limits) -> Result<(HashMap<Vec<u8>, Place>, bool), ImageError> {
    let unreadable = |source| ImageError::Layer { source };
    let mut copy = file.try_clone().at("read", path)?;
    copy.seek(SeekFrom::Start(0)).at("read", path)?;
    let (gate, knob) = Gate::new(BufReader::new(copy));
    let mut archive = tar::Archive::new(gate);
    let mut entries = archive.entries_with_seek().map_err(unreadable)?;
    let (mut places, mut is_root) = (HashMap::new(), false);
    for _ in 0..limits.archive_files {
        allow_header(&knob);
        let Some(entry) = entries.next() else { break };
        let entry = match entry {
            Ok(entry) => entry,
            // No archive at all, such as a program or a picture.
            Err(_) if places.is_empty() && !is_root => return Err(not_an_image(path)),
            Err(source) => return Err(unreadable(source)),
        };
        let Some(name) = normal(b"", &entry.path_bytes()) else { continue };
        let top = name.split(|byte| *byte == b'/').next().unwrap_or_default();
        is_root |= OF_A_ROOT.iter().any(|one| one.as_bytes() == top);
        let kind = entry.header().entry_type();
        let place = if kind.is_file() {
            Place::File { offset: entry.raw_file_position(), bytes: entry.size() }
        } else if kind.is_symlink() || kind.is_hard_link() {
            let above = if kind.is_symlink() { split(&name).0 } else { b"" };
            let target = entry.link_name_bytes().and_then(|target| normal(above, &target));
            let Some(target) = target else { continue };
            Place::Link(target)
        } else {
            continue;
        };
        places.insert(name, place);
    }
    Ok((places, is_root))
}

/// Returns the name of an entry, seen from a directory; `None` for one that leads out of the archive.
fn normal(above: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let parts = |path: &[u8]| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for part in parts(above).into_iter().chain(parts(name)) {
        match &part[..] {
            b"" | b"." => {}
            b".." => {
                all.pop()?;
            }
            _ => all.push(part),
        }
    }
    Some(all.join(&b'/')).filter(|name| !name.is_empty())
}

fn not_an_image(path: &Path) -> ImageError {
    ImageError::NotAnImage { path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_an_archive_stays_in_it() {
        assert_eq!(normal(b"a/b", b"../c/x").unwrap(), b"a/c/x");
        assert_eq!(normal(b"", b"./x//y").unwrap(), b"x/y");
        for (above, name) in [("", ".."), ("a", "../../x"), ("", "")] {
            assert_eq!(normal(above.as_bytes(), name.as_bytes()), None, "{name}");
        }
    }
}
