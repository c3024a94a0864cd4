//! Reads the links between the objects of a repository: those of the workspace, and those of a layer.

use super::delta;
use super::index_file::{IndexFile, OpenFiles};
use super::inflate::Source as _;
use super::known::{format_of, loose_name, open};
use super::lenders::lenders;
use super::object_id::{Format, Hasher, Kind};
use super::pack::{Header, MAX_OBJECT_HEADER};
use super::problem::{Bound, Budget, Problem};
use super::promisors::may_fetch_here;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit as inflate;
use nexus_beneath::{Doing as _, IoFailure, Workspace, is_no_way, join, names};
use std::fs::File;
use std::os::fd::AsFd as _;

/// Bytes of the largest commit, tag or tree, and of the largest delta, that is read: a tree of some 400,000 entries.
const MAX_OBJECT: usize = 16 << 20;
/// Bytes that a stream may be longer than its content.
const OF_STREAM: usize = 4 << 10;
/// Deltas of one object that are applied to each other; git makes chains of at most 4,095.
const MAX_DELTAS: usize = 4096;
/// Packs of one repository that are searched.
const MAX_PACKS: usize = 10_000;
/// The modes of a tree's entries for a tree, and for the commit of a submodule, which lies in another repository.
const TREE: &[u8] = b"40000";
const SUBMODULE: &[u8] = b"160000";

/// An object id.
pub type Id = Vec<u8>;

/// The objects that an object leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Links {
    /// The tree and the parents of a commit.
    Commit(Id, Vec<Id>),
    /// The object of a tag.
    Tag(Id),
    /// The entries of a tree. Empty where trees are not read.
    Tree(Entries),
    /// The content of a file, which names nothing.
    Blob,
}

/// The entries of a tree without those that are commits of submodules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The directories in it.
    pub trees: Vec<Id>,
    /// The files in it.
    pub files: Vec<Id>,
}

/// The place of an object: in a store, and there in a pack or as a file of its own.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In a pack.
    Packed {
        /// Number of the directory of objects.
        store: usize,
        /// Number of the pack in it.
        pack: usize,
        /// Number of the object in the index of the pack.
        at: u32,
    },
    /// In a file of its own.
    Loose {
        /// Number of the directory of objects.
        store: usize,
    },
}

/// The objects of a repository.
pub struct Reader<'a> {
    format: Format,
    stores: Vec<Store<'a>>,
    /// Trees are read, too.
    with_trees: bool,
    budget: Budget,
    /// The pack that was read last, by its store and its place there.
    last: Option<(usize, usize, File)>,
    is_whole: bool,
    /// The repository, or one that it borrows from, fetches objects when it needs them.
    is_partial: bool,
    /// Objects may lie in any repository of the workspace.
    is_unclear: bool,
}

/// A directory of objects.
struct Store<'a> {
    tree: &'a Workspace,
    /// The tree is not that of the workspace.
    is_of_layer: bool,
    objects: Vec<u8>,
    packs: Vec<IndexFile>,
}

impl<'a> Reader<'a> {
    /// Opens the objects of a repository and those that it borrows from others in the same trees: `trees` has the tree with its git
    /// directory, first that of the workspace. `None` where the configuration leaves the object format open.
    pub fn of(
        trees: &[(&'a Workspace, &[u8])],
        id_lengths: fn(&[u8]) -> Vec<usize>,
        with_trees: bool,
    ) -> Result<Option<Self>, IoFailure> {
        let Some((base, git_dir)) = trees.first() else { return Ok(None) };
        let Some(format) = format_of(base, git_dir, id_lengths)? else { return Ok(None) };
        let (stores, budget) = (Vec::new(), Budget::default());
        let (is_partial, is_unclear) = (false, false);
        let mut reader =
            Self { format, stores, with_trees, budget, last: None, is_whole: true, is_partial, is_unclear };
        let own: Vec<(&Workspace, Vec<u8>)> =
            trees.iter().map(|(tree, git_dir)| (*tree, join(git_dir, b"objects"))).collect();
        let lenders = lenders(&own);
        reader.is_whole = !lenders.has_others;
        reader.is_unclear = lenders.is_unclear;
        let files = OpenFiles::default();
        for (at, (tree, objects)) in own.into_iter().enumerate() {
            reader.add((tree, at > 0), objects, &files)?;
        }
        for lender in lenders.inside {
            for (at, (tree, _)) in trees.iter().enumerate() {
                reader.add((tree, at > 0), lender.clone(), &files)?;
            }
        }
        reader.is_unclear |= reader.is_partial && may_fetch_here(trees);
        reader.budget.begin();
        Ok(Some(reader))
    }

    /// Adds a directory of objects of the workspace, or of a layer.
    pub fn add(
        &mut self,
        (tree, is_of_layer): (&'a Workspace, bool),
        objects: Vec<u8>,
        files: &OpenFiles,
    ) -> Result<(), IoFailure> {
        let place = join(&objects, b"pack");
        let listed = match tree.readable_dir(&place) {
            Ok(dir) => names(dir.as_fd()).doing("list", &place)?,
            Err(error) if is_no_way(&error) => Vec::new(),
            Err(error) => return Err(error).doing("open", &place),
        };
        let mut packs = Vec::new();
        for name in listed {
            let is_partial = name.ends_with(b".promisor");
            self.is_partial |= is_partial;
            // Of a layer these files wait or are left out.
            self.is_whole &= is_of_layer || !is_partial;
            if !name.ends_with(b".idx") {
                continue;
            }
            let path = join(&place, &name);
            let file = open(tree, &path)?.filter(|_| packs.len() < MAX_PACKS);
            match file.map(|file| IndexFile::new(path, file, files)) {
                Some(Ok(index)) => packs.push(index),
                Some(Err(_)) | None => self.is_whole = false,
            }
        }
        self.stores.push(Store { tree, is_of_layer, objects, packs });
        Ok(())
    }

    /// Reports whether an object that is not found is missing: no index of a pack was passed over, and no object lies elsewhere.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Reports whether objects may lie in any repository of the workspace, since it is not clear where they lie.
    pub fn is_unclear(&self) -> bool {
        self.is_unclear
    }

    /// Returns the directories of objects that are searched, by their paths in the workspace or in the layer.
    pub fn directories(&self) -> impl Iterator<Item = &[u8]> {
        self.stores.iter().map(|store| &*store.objects)
    }

    /// Reports whether a place is not in the workspace.
    pub fn is_of_layer(&self, place: &Place) -> bool {
        let (Place::Packed { store, .. } | Place::Loose { store }) = place;
        self.stores[*store].is_of_layer
    }

    /// Returns the bytes of an object id.
    pub fn id_length(&self) -> usize {
        self.format.id_length()
    }

    /// Returns the id that hexadecimal digits say, if it has the length of this repository's.
    pub fn id(&self, text: &[u8]) -> Option<Id> {
        super::digits::bytes(text).filter(|id| id.len() == self.format.id_length())
    }

    /// Reports whether an id is that of the tree without entries, which git knows without an object.
    pub fn is_empty_tree(&self, id: &[u8]) -> bool {
        Hasher::new(self.format, Kind::Tree, 0).is(id)
    }

    /// Returns the places of an object, those in packs first.
    pub fn places(&self, id: &[u8]) -> Result<Vec<Place>, Problem> {
        let mut found = Vec::new();
        for (store, one) in self.stores.iter().enumerate() {
            for (pack, index) in one.packs.iter().enumerate() {
                found.extend(index.find(one.tree, id)?.map(|at| Place::Packed { store, pack, at }));
            }
        }
        for (store, one) in self.stores.iter().enumerate() {
            let path = join(&one.objects, &loose_name(id));
            match one.tree.stat(&path) {
                Ok(Some(meta)) if !meta.is_whiteout() => found.push(Place::Loose { store }),
                Ok(_) => {}
                Err(error) if is_no_way(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Returns the path of the object at a place, or of the index of its pack.
    pub fn path(&self, place: &Place, id: &[u8]) -> Vec<u8> {
        match place {
            Place::Packed { store, pack, .. } => self.stores[*store].packs[*pack].path().to_vec(),
            Place::Loose { store } => join(&self.stores[*store].objects, &loose_name(id)),
        }
    }

    /// Reads the links of an object.
    pub fn links(&mut self, place: Place, id: &[u8]) -> Result<Links, Problem> {
        match place {
            Place::Packed { store, pack, at } => self.packed((store, pack), at),
            Place::Loose { store } => {
                let file = self.loose_file(store, id)?;
                self.loose(&file)
            }
        }
    }

    /// Returns the content of a blob, if it has the hash that its id says.
    pub fn blob(&mut self, id: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
        let Some(place) = self.places(id)?.into_iter().next() else { return Ok(None) };
        let (kind, content) = match place {
            Place::Packed { store, pack, at } => self.object_of_pack((store, pack), at, true)?,
            Place::Loose { store } => {
                let (kind, content, _) = self.loose_object(&self.loose_file(store, id)?)?;
                (kind, Some(content))
            }
        };
        let Some(content) = content.filter(|_| kind == Kind::Blob) else { return Ok(None) };
        let mut hasher = Hasher::new(self.format, kind, content.len() as u64);
        hasher.update(&content);
        if hasher.is(id) { Ok(Some(content)) } else { Err(Problem::Differs) }
    }

    fn loose_file(&self, store: usize, id: &[u8]) -> Result<File, Problem> {
        let store = &self.stores[store];
        let file = open(store.tree, &join(&store.objects, &loose_name(id)));
        file.map_err(|error| Problem::Io(error.source))?.ok_or(Problem::Damaged)
    }

    fn loose(&self, file: &File) -> Result<Links, Problem> {
        let (kind, content, size) = self.loose_object(file)?;
        if self.is_read(kind) && size != content.len() as u64 {
            return Err(Problem::Exceeds(Bound::Memory));
        }
        self.parse(kind, &content)
    }

    /// Reads an object that is a file of its own: its kind, its content or the beginning of that, and the size of all of it.
    fn loose_object(&self, file: &File) -> Result<(Kind, Vec<u8>, u64), Problem> {
        let mut stream = vec![0; MAX_OBJECT.min(usize::try_from(file.metadata()?.len()).unwrap_or(MAX_OBJECT))];
        self.budget.take(stream.len() as u64)?;
        let read = file.read_at(&mut stream, 0)?;
        // Of a large object the beginning says the kind.
        let mut whole = match inflate(&stream[..read], MAX_OBJECT) {
            Ok(whole) => whole,
            Err(error) => error.output,
        };
        let end = whole.iter().position(|byte| *byte == 0).ok_or(Problem::Damaged)?;
        let (kind, size) = super::loose::parse(&whole[..end]).ok_or(Problem::Damaged)?;
        whole.drain(..=end);
        Ok((kind, whole, size))
    }

    /// Reports whether the content of an object of this kind is read.
    fn is_read(&self, kind: Kind) -> bool {
        match kind {
            Kind::Commit | Kind::Tag => true,
            Kind::Tree => self.with_trees,
            Kind::Blob => false,
        }
    }

    /// Reads the links of the object at a place of the index of a pack.
    fn packed(&mut self, pack: (usize, usize), at: u32) -> Result<Links, Problem> {
        match self.object_of_pack(pack, at, false)? {
            (kind, Some(content)) => self.parse(kind, &content),
            (Kind::Tree, None) => Ok(Links::Tree(Entries::default())),
            (_, None) => Ok(Links::Blob),
        }
    }

    /// Reads the object at a place of the index of a pack. Its content is `None` where it is not wanted.
    fn object_of_pack(
        &mut self,
        pack: (usize, usize),
        at: u32,
        with_blobs: bool,
    ) -> Result<(Kind, Option<Vec<u8>>), Problem> {
        self.use_pack(pack)?;
        let store = &self.stores[pack.0];
        let (index, length) = (&store.packs[pack.1], self.format.id_length());
        let Some((_, _, file)) = &self.last else { return Err(Problem::Damaged) };
        let mut offset = index.offset(store.tree, at, length)?;
        let mut deltas: Vec<(u64, u64)> = Vec::new();
        let (kind, begin, size) = loop {
            let mut buffer = [0; MAX_OBJECT_HEADER];
            self.budget.take(MAX_OBJECT_HEADER as u64)?;
            let read = file.read_at(&mut buffer, offset)?;
            let mut header = Header { bytes: &buffer[..read], used: 0 };
            let (kind, size) = header.kind_and_size().ok_or(Problem::Damaged)?;
            let base = match kind {
                6 => offset.checked_sub(header.distance().ok_or(Problem::Damaged)?).ok_or(Problem::Damaged)?,
                7 => {
                    let id = header.take(length).ok_or(Problem::Damaged)?;
                    let at = index.find(store.tree, id)?.ok_or(Problem::Damaged)?;
                    index.offset(store.tree, at, length)?
                }
                1 => break (Kind::Commit, offset + header.used as u64, size),
                2 if !self.with_trees => return Ok((Kind::Tree, None)),
                2 => break (Kind::Tree, offset + header.used as u64, size),
                3 if !with_blobs => return Ok((Kind::Blob, None)),
                3 => break (Kind::Blob, offset + header.used as u64, size),
                4 => break (Kind::Tag, offset + header.used as u64, size),
                _ => return Err(Problem::Damaged),
            };
            deltas.push((offset + header.used as u64, size));
            if deltas.len() > MAX_DELTAS {
                return Err(Problem::Damaged);
            }
            offset = base;
        };
        let mut content = self.stream(file, begin, size)?;
        for (begin, size) in deltas.into_iter().rev() {
            let delta = self.stream(file, begin, size)?;
            let mut commands = &delta[..];
            let (of_base, size) = delta::sizes(&mut commands).ok_or(Problem::Damaged)?;
            let size = usize::try_from(size).ok().filter(|size| *size <= MAX_OBJECT);
            let size = size.ok_or(Problem::Exceeds(Bound::Memory))?;
            self.budget.take(size as u64)?;
            if of_base != content.len() as u64 {
                return Err(Problem::Damaged);
            }
            content = delta::apply(&content, commands, size).ok_or(Problem::Damaged)?;
        }
        Ok((kind, Some(content)))
    }

    fn use_pack(&mut self, pack: (usize, usize)) -> Result<(), Problem> {
        if self.last.as_ref().is_some_and(|last| (last.0, last.1) == pack) {
            return Ok(());
        }
        let store = &self.stores[pack.0];
        let stem = store.packs[pack.1].path().strip_suffix(b".idx").unwrap_or_default();
        let path = [stem, b".pack"].concat();
        // A run that adds an index to a pack of the workspace has no such file.
        let tries = std::iter::once((store.tree, path.clone())).chain(self.stores.iter().map(|other| {
            let inside = path.strip_prefix(&*store.objects).and_then(|inside| inside.strip_prefix(b"/"));
            (other.tree, join(&other.objects, inside.unwrap_or_default()))
        }));
        for (tree, path) in tries {
            if let Some(file) = open(tree, &path).map_err(|error| Problem::Io(error.source))? {
                self.last = Some((pack.0, pack.1, file));
                return Ok(());
            }
        }
        Err(Problem::Damaged)
    }

    /// Inflates the stream of `size` bytes that begins at an offset.
    fn stream(&self, file: &File, begin: u64, size: u64) -> Result<Vec<u8>, Problem> {
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_OBJECT);
        let size = size.ok_or(Problem::Exceeds(Bound::Memory))?;
        let mut stream = vec![0; size + OF_STREAM];
        self.budget.take(size as u64 + stream.len() as u64)?;
        let read = file.read_at(&mut stream, begin)?;
        let whole = inflate(&stream[..read], size).map_err(|_| Problem::Damaged)?;
        if whole.len() == size { Ok(whole) } else { Err(Problem::Damaged) }
    }

    fn parse(&self, kind: Kind, content: &[u8]) -> Result<Links, Problem> {
        let head = || content.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
        let ids = |name: &[u8]| -> Vec<Id> { head().filter_map(|line| self.id(line.strip_prefix(name)?)).collect() };
        Ok(match kind {
            Kind::Commit => Links::Commit(ids(b"tree ").pop().ok_or(Problem::Damaged)?, ids(b"parent ")),
            Kind::Tag => Links::Tag(ids(b"object ").pop().ok_or(Problem::Damaged)?),
            Kind::Tree if self.with_trees => Links::Tree(entries(content, self.format).ok_or(Problem::Damaged)?),
            Kind::Tree => Links::Tree(Entries::default()),
            Kind::Blob => Links::Blob,
        })
    }
}

/// Reads the entries of a tree: a mode, a blank, a name, a zero byte, and the id.
fn entries(mut content: &[u8], format: Format) -> Option<Entries> {
    let mut found = Entries::default();
    while !content.is_empty() {
        let blank = content.iter().position(|byte| *byte == b' ')?;
        let zero = content.iter().position(|byte| *byte == 0)?;
        let (id, rest) = content[zero + 1..].split_at_checked(format.id_length())?;
        match &content[..blank] {
            SUBMODULE => {}
            TREE => found.trees.push(id.to_vec()),
            _ => found.files.push(id.to_vec()),
        }
        content = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_leads_to_its_files_and_not_to_commits_of_submodules() {
        let id = |byte: u8| vec![byte; 20];
        let entry = |text: &str, byte: u8| [text.as_bytes(), b"\0", &id(byte)[..]].concat();
        let whole = [entry("100644 a", 1), entry("40000 b c", 2), entry("160000 m", 3), entry("120000 l", 4)].concat();
        let wanted = Entries { trees: vec![id(2)], files: vec![id(1), id(4)] };
        assert_eq!(entries(&whole, Format::Sha1), Some(wanted));
        assert_eq!(entries(b"", Format::Sha1), Some(Entries::default()));
        for cut in [1, 8, 12, whole.len() - 1] {
            assert_eq!(entries(&whole[..cut], Format::Sha1), None, "{cut}");
        }
    }
}
