//! The objects that a repository of the workspace has, and its object format.

use super::object_id::Format;
use super::pack_index::PackIndex;
use super::problem::Bound;
use crate::small::read_small;
use nexus_beneath::{Doing as _, IoFailure, Workspace, is_no_way, join, names, open_file, split};
use rustix::fs::OFlags;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

/// Bytes of the indexes of packs that are in memory for one repository: of some five million objects.
const MAX_INDEXES: u64 = 160 << 20;
/// Bytes of the largest index of a new pack: of two million objects with long ids.
const MAX_INDEX: u64 = 96 << 20;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Opens a regular file; `None` where there is none that this user can read.
pub fn open(tree: &Workspace, path: &[u8]) -> Result<Option<File>, IoFailure> {
    let (parent, name) = split(path);
    match tree.dir(parent).and_then(|dir| open_file(dir.as_fd(), name, OFlags::RDONLY)) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) if is_no_way(&error) => Ok(None),
        // A mark of overlay in the place of a file that went.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(error) => Err(error).doing("open", path),
    }
}

/// Reads the index of a new pack; `None` for one that makes no sense.
pub fn index(file: File, format: Format, path: &[u8]) -> Result<Result<Option<PackIndex>, Bound>, IoFailure> {
    let size = file.metadata().doing("look at", path)?.len();
    if size > MAX_INDEX {
        return Ok(Err(Bound::Memory));
    }
    read(file, size, format, path).map(Ok)
}

fn read(file: File, size: u64, format: Format, path: &[u8]) -> Result<Option<PackIndex>, IoFailure> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes).doing("read", path)?;
    Ok(PackIndex::parse(bytes, format))
}

/// Returns the path of an object among those with files of their own.
pub fn loose_name(id: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> =
        id.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect();
    let (directory, name) = digits.split_at(digits.len().min(2));
    join(directory, name)
}

/// Returns the object format of a repository of the workspace; `None` where its configuration leaves it open.
pub fn format_of(
    base: &Workspace,
    git_dir: &[u8],
    id_lengths: fn(&[u8]) -> Vec<usize>,
) -> Result<Option<Format>, IoFailure> {
    let config = match base.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"config")) {
        Ok(text) => text,
        Err(error) if is_no_way(&error) => None,
        Err(error) => return Err(error).doing("read the configuration of", git_dir),
    };
    Ok(match id_lengths(config.as_deref().unwrap_or_default())[..] {
        [length] if length == Format::Sha1.id_length() => Some(Format::Sha1),
        [length] if length == Format::Sha256.id_length() => Some(Format::Sha256),
        _ => None,
    })
}

/// The objects of a repository of the workspace.
pub struct Known<'a> {
    base: &'a Workspace,
    /// The directory of its objects.
    objects: Vec<u8>,
    /// The object format; `None` where the configuration leaves it open.
    pub format: Option<Format>,
    packs: Option<Vec<PackIndex>>,
    left: Cell<u64>,
}

impl<'a> Known<'a> {
    /// Looks at the repository whose git directory is `git_dir`.
    pub fn of(base: &'a Workspace, git_dir: &[u8], id_lengths: fn(&[u8]) -> Vec<usize>) -> Result<Self, IoFailure> {
        let format = format_of(base, git_dir, id_lengths)?;
        Ok(Self { base, objects: join(git_dir, b"objects"), format, packs: None, left: Cell::new(MAX_INDEXES) })
    }

    /// Opens a directory of objects that repositories borrow from.
    pub fn of_store(base: &'a Workspace, objects: &[u8], format: Format) -> Self {
        Self { base, objects: objects.to_vec(), format: Some(format), packs: None, left: Cell::new(MAX_INDEXES) }
    }

    /// Reads an index of a pack that the repository has, up to what may be in memory of all of them.
    fn index(&self, file: File, format: Format, path: &[u8]) -> Result<Option<PackIndex>, IoFailure> {
        let size = file.metadata().doing("look at", path)?.len();
        let Some(left) = self.left.get().checked_sub(size) else { return Ok(None) };
        self.left.set(left);
        read(file, size, format, path)
    }

    /// Reports whether the workspace has an object in a pack.
    pub fn is_packed(&mut self, id: &[u8]) -> Result<bool, IoFailure> {
        if self.packs.is_none() {
            self.packs = Some(self.read_packs()?);
        }
        Ok(self.packs.iter().flatten().any(|pack| pack.find(id).is_some()))
    }

    /// Reports whether the workspace has an object as a file of its own.
    pub fn is_loose(&self, id: &[u8]) -> Result<bool, IoFailure> {
        self.has(&join(&self.objects, &loose_name(id)))
    }

    fn has(&self, path: &[u8]) -> Result<bool, IoFailure> {
        match self.base.stat(path) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if is_no_way(&error) => Ok(false),
            Err(error) => Err(error).doing("look at", path),
        }
    }

    /// Reads the indexes of the packs. What is not read only leads to more being verified.
    fn read_packs(&self) -> Result<Vec<PackIndex>, IoFailure> {
        let place = join(&self.objects, b"pack");
        let Some(format) = self.format else { return Ok(Vec::new()) };
        let listed = match self.base.readable_dir(&place) {
            Ok(dir) => names(dir.as_fd()).doing("list", &place)?,
            Err(error) if is_no_way(&error) => Vec::new(),
            Err(error) => return Err(error).doing("open", &place),
        };
        let mut found = Vec::new();
        for stem in listed.iter().filter_map(|name| name.strip_suffix(b".idx")) {
            let path = join(&place, &[stem, b".idx"].concat());
            // git uses no index without its pack.
            if self.has(&join(&place, &[stem, b".pack"].concat()))?
                && let Some(file) = open(self.base, &path)?
            {
                found.extend(self.index(file, format, &path)?);
            }
        }
        Ok(found)
    }
}
