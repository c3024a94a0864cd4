//! Tells whether a repository of the workspace has an object, or gets it with a layer.

use crate::beneath::{Workspace, join, names, open_file, split};
use crate::meta::EntryType;
use crate::nested::has;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// Objects of one repository that are looked for. All others count as there.
const MAX_LOOKED: usize = 20_000;
/// The beginning of the index of a pack, version 2 (gitformat-pack(5)).
const MAGIC: &[u8; 8] = b"\xfftOc\0\0\0\x02";
const FANOUT: usize = 256 * 4;

/// The objects of one repository.
pub(super) struct Objects {
    known: HashMap<Vec<u8>, bool>,
    packs: Vec<Pack>,
    /// Its objects may lie elsewhere: each counts as there.
    is_open: bool,
}

/// The index of a pack.
struct Pack {
    file: File,
    /// Number of objects up to each first byte of an id.
    fanout: Vec<u32>,
}

/// The trees with the objects, and the git directory in each.
pub(super) type Trees<'a> = [(&'a Workspace, &'a [u8]); 2];

impl Objects {
    /// Opens the indexes of the packs. Objects may lie elsewhere where something cannot be read, where the repository
    /// borrows objects, and where it fetches objects when it needs them.
    pub(super) fn of(trees: Trees<'_>) -> Self {
        let mut found = Self { known: HashMap::new(), packs: Vec::new(), is_open: false };
        for (tree, git_dir) in trees {
            if found.add(tree, &join(git_dir, b"objects")).is_err() {
                found.is_open = true;
            }
        }
        found
    }

    fn add(&mut self, tree: &Workspace, objects: &[u8]) -> io::Result<()> {
        match tree.stat(objects)?.map(|meta| meta.kind) {
            None => return Ok(()),
            Some(EntryType::Directory) => {}
            Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let place = join(objects, b"pack");
        self.is_open |= tree.stat(&join(objects, b"info/alternates"))?.is_some();
        match tree.stat(&place)?.map(|meta| meta.kind) {
            None => return Ok(()),
            Some(EntryType::Directory) => {}
            Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let dir = tree.readable_dir(&place)?;
        for name in names(dir.as_fd())? {
            self.is_open |= name.ends_with(b".promisor");
            let is_file = || tree.stat(&join(&place, &name)).map(|meta| meta.map(|meta| meta.kind));
            if name.ends_with(b".idx") && is_file()? == Some(EntryType::File) {
                self.packs.push(Pack::open(open_file(dir.as_fd(), &name, OFlags::RDONLY)?.into())?);
            }
        }
        Ok(())
    }

    /// Reports whether an object is there. `id` is its text.
    pub(super) fn has(&mut self, trees: Trees<'_>, id: &[u8]) -> bool {
        if self.is_open || (self.known.len() >= MAX_LOOKED && !self.known.contains_key(id)) {
            return true;
        }
        if let Some(is_there) = self.known.get(id) {
            return *is_there;
        }
        // What cannot be read says nothing.
        let is_there = is_loose(trees, id) || self.is_packed(id).unwrap_or(true);
        self.known.insert(id.to_vec(), is_there);
        is_there
    }

    fn is_packed(&self, id: &[u8]) -> io::Result<bool> {
        let text = str::from_utf8(id).map_err(io::Error::other)?;
        let bytes = (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16));
        let id: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(io::Error::other)?;
        for pack in &self.packs {
            if pack.has(&id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_loose(trees: Trees<'_>, id: &[u8]) -> bool {
    let id = id.to_ascii_lowercase();
    let Some((first, rest)) = id.split_at_checked(2) else { return false };
    trees.iter().any(|(tree, git_dir)| {
        let path = join(&join(&join(git_dir, b"objects"), first), rest);
        let (parent, name) = split(&path);
        // A mark of overlay says that an object went, and it stays.
        has(tree, parent, name).unwrap_or(true) && !matches!(tree.stat(&path), Ok(Some(meta)) if meta.is_whiteout())
    })
}

impl Pack {
    fn open(file: File) -> io::Result<Self> {
        let mut bytes = [0; MAGIC.len() + FANOUT];
        file.read_exact_at(&mut bytes, 0)?;
        let (magic, fanout) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let fanout = fanout.as_chunks::<4>().0.iter().map(|number| u32::from_be_bytes(*number)).collect();
        Ok(Self { file, fanout })
    }

    fn has(&self, id: &[u8]) -> io::Result<bool> {
        let Some(first) = id.first().map(|byte| usize::from(*byte)) else { return Ok(false) };
        let mut low = first.checked_sub(1).map_or(0, |before| self.fanout[before]);
        let mut high = self.fanout[first];
        let begin = (MAGIC.len() + FANOUT) as u64;
        let mut found = vec![0; id.len()];
        while low < high {
            let middle = low.midpoint(high);
            self.file.read_exact_at(&mut found, begin + u64::from(middle) * id.len() as u64)?;
            match found.as_slice().cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(true),
            }
        }
        Ok(false)
    }
}
