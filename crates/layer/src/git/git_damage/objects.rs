//! Tells whether a repository of the workspace has an object, or gets it with a layer.

use crate::beneath::{Workspace, join, names, open_file, split};
use crate::meta::EntryType;
use crate::read::git_dirs::has;
use nexus_git::packs::index_file::{IndexFile, OpenFiles};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;

/// Objects of one repository that are looked for. All others count as there.
const MAX_LOOKED: usize = 20_000;
/// Packs of one repository whose indexes are read. With more of them, all objects count as there.
const MAX_PACKS: usize = 10_000;

/// Place of the workspace among the trees.
const WORKSPACE: usize = 1;

/// The objects of one repository.
pub(super) struct Objects {
    known: HashMap<Vec<u8>, bool>,
    /// The place of its tree among the trees, and the index of each pack.
    packs: Vec<(usize, IndexFile)>,
    /// Its objects may lie elsewhere: each counts as there.
    is_open: bool,
}

/// The trees with the objects, and the git directory in each: the layer's and the workspace's.
pub(super) type Trees<'a> = [(&'a Workspace, &'a [u8]); 2];

impl Objects {
    /// Opens the indexes of the packs. Objects may lie elsewhere where something cannot be read, where the repository
    /// borrows objects, and where it fetches objects when it needs them.
    pub(super) fn of(trees: Trees<'_>, files: &OpenFiles) -> Self {
        let mut found = Self { known: HashMap::new(), packs: Vec::new(), is_open: false };
        for at in 0..trees.len() {
            if found.add(trees, at, files).is_err() {
                found.is_open = true;
            }
        }
        found
    }

    fn add(&mut self, trees: Trees<'_>, at: usize, files: &OpenFiles) -> io::Result<()> {
        let (tree, git_dir) = trees[at];
        let objects = &join(git_dir, b"objects");
        match tree.stat(objects)?.map(|meta| meta.kind) {
            None => return Ok(()),
            Some(EntryType::Directory) => {}
            Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let place = join(objects, b"pack");
        // In a layer these files are parked or left out.
        let is_of_workspace = at == WORKSPACE;
        self.is_open |= is_of_workspace && tree.stat(&join(objects, b"info/alternates"))?.is_some();
        match tree.stat(&place)?.map(|meta| meta.kind) {
            None => return Ok(()),
            Some(EntryType::Directory) => {}
            Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let dir = tree.readable_dir(&place)?;
        for name in names(dir.as_fd())? {
            self.is_open |= is_of_workspace && name.ends_with(b".promisor");
            let is_file = || tree.stat(&join(&place, &name)).map(|meta| meta.map(|meta| meta.kind));
            if name.ends_with(b".idx") && is_file()? == Some(EntryType::File) {
                if self.packs.len() == MAX_PACKS {
                    self.is_open = true;
                    return Ok(());
                }
                let file = open_file(dir.as_fd(), &name, OFlags::RDONLY)?.into();
                self.packs.push((at, IndexFile::new(join(&place, &name), file, files)?));
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
        // An unreadable index counts as having the object.
        let is_there = is_loose(trees, id) || self.is_packed(trees, id).unwrap_or(true);
        self.known.insert(id.to_vec(), is_there);
        is_there
    }

    fn is_packed(&self, trees: Trees<'_>, id: &[u8]) -> io::Result<bool> {
        let text = str::from_utf8(id).map_err(io::Error::other)?;
        let bytes = (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16));
        let id: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(io::Error::other)?;
        for (tree, index) in &self.packs {
            if index.find(trees[*tree].0, &id)?.is_some() {
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
        // A whiteout does not count: it says that the run removed the object.
        has(tree, parent, name).unwrap_or(true) && !matches!(tree.stat(&path), Ok(Some(meta)) if meta.is_whiteout())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_git::packs::index_file::{MAGIC, MAX_OPEN};
    use std::fs;
    use std::path::Path;

    /// Writes the index of a pack with one object, without the rest that is not read here.
    fn write_index(packs: &Path, number: u8) {
        let mut bytes = MAGIC.to_vec();
        for first in 0..=u8::MAX {
            bytes.extend(u32::from(first >= number).to_be_bytes());
        }
        bytes.extend([number; 20]);
        fs::write(packs.join(format!("pack-{number}.idx")), bytes).unwrap();
    }

    #[test]
    fn only_some_of_many_packs_stay_open() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().canonicalize().unwrap();
        let packs = here.join("objects/pack");
        fs::create_dir_all(&packs).unwrap();
        fs::create_dir(here.join("layer")).unwrap();
        (0..200).for_each(|number| write_index(&packs, number));
        let (tree, layer) = (Workspace::open(&here).unwrap(), Workspace::open(&here.join("layer")).unwrap());
        let trees: Trees<'_> = [(&layer, b""), (&tree, b"")];
        let files = OpenFiles::default();
        let mut all: Vec<Objects> = (0..3).map(|_| Objects::of(trees, &files)).collect();
        let is_of_packs = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|path| path.starts_with(&packs));
        let open = fs::read_dir("/proc/self/fd").unwrap().filter(|fd| is_of_packs(fd.as_ref().unwrap())).count();
        assert_eq!(open, MAX_OPEN);
        for objects in &mut all {
            for number in 0..=u8::MAX {
                let id = format!("{number:02x}").repeat(20);
                assert_eq!(objects.has(trees, id.as_bytes()), number < 200, "{number}");
            }
        }
    }
}
