//! Follows the history of commits through the objects of a repository, those of the workspace and those of a layer.

use super::delta;
use super::inflate::Source as _;
use super::known::{format_of, index, loose_name, open};
use super::object_id::{Format, Kind};
use super::pack::{Header, MAX_OBJECT_HEADER};
use super::pack_index::PackIndex;
use super::problem::{Bound, Budget, Problem};
use crate::beneath::{Doing as _, IoFailure, Workspace, is_no_way, join, names};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit as inflate;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd as _;

/// Bytes of the largest commit or tag, and of the largest delta, that is read.
const MAX_OBJECT: usize = 1 << 20;
/// Bytes that a stream may be longer than its content.
const OF_STREAM: usize = 4 << 10;
/// Deltas of one object that are applied to each other; git makes chains of at most 4,095.
const MAX_DELTAS: usize = 4096;
/// Commits that are looked at.
const MAX_COMMITS: usize = 1 << 20;
/// Bytes of the indexes of packs in memory.
const MAX_INDEXES: usize = 256 << 20;

/// The end of a history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each commit has its parents, up to those without any.
    Whole,
    /// An object is missing.
    Broken,
    /// The objects cannot be read, or are too many.
    Unknown,
}

/// The objects of a repository that commits are read from.
pub(crate) struct History<'a> {
    format: Format,
    stores: Vec<Store<'a>>,
    budget: Budget,
    /// The pack that was read last, by its store and its place there.
    last: Option<(usize, usize, File)>,
}

/// A directory of objects.
struct Store<'a> {
    tree: &'a Workspace,
    objects: Vec<u8>,
    packs: Vec<(PackIndex, Vec<u8>)>,
}

/// An object as far as a history needs it.
enum Object {
    /// A commit or a tag, with the objects that it follows.
    Leads(Vec<Vec<u8>>),
    /// A tree or a blob.
    Other,
}

impl<'a> History<'a> {
    /// Opens the objects of a repository of the workspace and what a layer adds. `git_dirs` are its git directories in the
    /// workspace and in the layer. `None` where its object format is unknown.
    pub(crate) fn of(
        trees: [(&'a Workspace, &[u8]); 2],
        id_lengths: fn(&[u8]) -> Vec<usize>,
    ) -> Result<Option<Self>, IoFailure> {
        let Some(format) = format_of(trees[0].0, trees[0].1, id_lengths)? else { return Ok(None) };
        let mut stores = Vec::new();
        let mut left = MAX_INDEXES;
        for (tree, git_dir) in trees {
            let objects = join(git_dir, b"objects");
            let packs = packs(tree, &join(&objects, b"pack"), format, &mut left)?;
            stores.push(Store { tree, objects, packs });
        }
        Ok(Some(Self { format, stores, budget: Budget::default(), last: None }))
    }

    /// Follows the history of objects, whose ids are hexadecimal, up to those in `ends`, whose parents do not count. An
    /// object that is not there counts only as a parent.
    pub(crate) fn reach(&mut self, starts: &[&[u8]], ends: &HashSet<&[u8]>) -> Reach {
        match self.follow(starts, ends) {
            Ok(true) => Reach::Whole,
            Ok(false) => Reach::Broken,
            Err(_) => Reach::Unknown,
        }
    }

    fn follow(&mut self, starts: &[&[u8]], ends: &HashSet<&[u8]>) -> Result<bool, Problem> {
        let ids = |texts: &mut dyn Iterator<Item = &&[u8]>| -> Vec<Vec<u8>> {
            let all = texts.filter_map(|text| super::bytes(text));
            all.filter(|id| id.len() == self.format.id_length()).collect()
        };
        let mut left = ids(&mut starts.iter());
        let ends: HashSet<Vec<u8>> = ids(&mut ends.iter()).into_iter().collect();
        let first: HashSet<Vec<u8>> = left.iter().cloned().collect();
        let mut seen = first.clone();
        self.budget.begin();
        while let Some(id) = left.pop() {
            if ends.contains(&id) {
                continue;
            }
            match self.object(&id)? {
                Some(Object::Leads(further)) => {
                    left.extend(further.into_iter().filter(|id| seen.insert(id.clone())));
                }
                Some(Object::Other) => {}
                None if first.contains(&id) => {}
                None => return Ok(false),
            }
            if seen.len() > MAX_COMMITS {
                return Err(Problem::Exceeds(Bound::Objects));
            }
        }
        Ok(true)
    }

    fn object(&mut self, id: &[u8]) -> Result<Option<Object>, Problem> {
        for store in 0..self.stores.len() {
            for pack in 0..self.stores[store].packs.len() {
                if let Some(at) = self.stores[store].packs[pack].0.find(id) {
                    return self.packed((store, pack), at).map(Some);
                }
            }
        }
        for store in &self.stores {
            let path = join(&store.objects, &loose_name(id));
            if let Some(file) = open(store.tree, &path).map_err(|error| Problem::Io(error.source))? {
                return self.loose(&file).map(Some);
            }
        }
        Ok(None)
    }

    fn loose(&self, file: &File) -> Result<Object, Problem> {
        let mut stream = vec![0; MAX_OBJECT.min(usize::try_from(file.metadata()?.len()).unwrap_or(MAX_OBJECT))];
        self.budget.take(stream.len() as u64)?;
        let read = file.read_at(&mut stream, 0)?;
        // Of a large object the beginning says the kind.
        let whole = match inflate(&stream[..read], MAX_OBJECT) {
            Ok(whole) => whole,
            Err(error) => error.output,
        };
        let end = whole.iter().position(|byte| *byte == 0).ok_or(Problem::Damaged)?;
        let (header, content) = (&whole[..end], &whole[end + 1..]);
        let (kind, size) = super::loose::parse(header).ok_or(Problem::Damaged)?;
        match kind {
            Kind::Commit | Kind::Tag if size != content.len() as u64 => Err(Problem::Exceeds(Bound::Memory)),
            kind => Ok(Object::read(kind, content)),
        }
    }

    /// Reads the object at a place of the index of a pack.
    fn packed(&mut self, pack: (usize, usize), at: usize) -> Result<Object, Problem> {
        self.use_pack(pack)?;
        let (index, _) = &self.stores[pack.0].packs[pack.1];
        let Some((_, _, file)) = &self.last else { return Err(Problem::Damaged) };
        let mut offset = index.offset(at).ok_or(Problem::Damaged)?;
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
                    let id = header.take(self.format.id_length()).ok_or(Problem::Damaged)?;
                    index.find(id).and_then(|at| index.offset(at)).ok_or(Problem::Damaged)?
                }
                1 => break (Kind::Commit, offset + header.used as u64, size),
                4 => break (Kind::Tag, offset + header.used as u64, size),
                2 | 3 => return Ok(Object::Other),
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
        Ok(Object::read(kind, &content))
    }

    fn use_pack(&mut self, pack: (usize, usize)) -> Result<(), Problem> {
        if self.last.as_ref().is_some_and(|last| (last.0, last.1) == pack) {
            return Ok(());
        }
        let store = &self.stores[pack.0];
        let path = &store.packs[pack.1].1;
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
}

impl Object {
    fn read(kind: Kind, content: &[u8]) -> Self {
        let name: &[u8] = match kind {
            Kind::Commit => b"parent ",
            Kind::Tag => b"object ",
            Kind::Tree | Kind::Blob => return Self::Other,
        };
        let head = content.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
        Self::Leads(head.filter_map(|line| super::bytes(line.strip_prefix(name)?)).collect())
    }
}

/// Reads the indexes of the packs in a directory. What is not read counts as missing.
fn packs(
    tree: &Workspace,
    place: &[u8],
    format: Format,
    left: &mut usize,
) -> Result<Vec<(PackIndex, Vec<u8>)>, IoFailure> {
    let listed = match tree.readable_dir(place) {
        Ok(dir) => names(dir.as_fd()).doing("list", place)?,
        Err(error) if is_no_way(&error) => Vec::new(),
        Err(error) => return Err(error).doing("open", place),
    };
    let mut found = Vec::new();
    for stem in listed.iter().filter_map(|name| name.strip_suffix(b".idx")) {
        let path = join(place, &[stem, b".idx"].concat());
        let Some(file) = open(tree, &path)? else { continue };
        if let Ok(Some(index)) = index(file, format, &path)?
            && let Some(rest) = left.checked_sub(index.size())
        {
            *left = rest;
            found.push((index, join(place, &[stem, b".pack"].concat())));
        }
    }
    Ok(found)
}
