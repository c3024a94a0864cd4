//! What was read from a layer and from the places of the workspace that it covers. Plain data; `plan` decides on it.
//!
//! A layer may have hundreds of thousands of entries, so that an entry is small: what only few have lies behind a pointer,
//! and a path is in memory once.

use crate::hardlinks::Tie;
use crate::marks::{LayerMode, Marks};
use crate::meta::{EntryType, FileId, FsTime, Meta};
use crate::walk::origin_inode;
use nexus_model::ByteText;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A path that several entries may share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedPath(pub Piece);

/// A piece of a text that many paths have together, so that each takes no more memory than its own bytes.
#[derive(Clone)]
pub struct Piece {
    text: Arc<Vec<u8>>,
    from: u32,
    length: u32,
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let (from, length) = (self.from as usize, self.length as usize);
        self.text.get(from..from + length).unwrap_or_default()
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Piece {}

impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Piece {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Piece {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// The longest text that paths share.
const LONGEST: usize = 1 << 20;

impl SharedPath {
    /// The paths of the entries of a directory, which share their text.
    pub(crate) fn of_entries(directory: &[u8], names: &[Vec<u8>]) -> Vec<Self> {
        let mut all = Vec::with_capacity(names.len());
        let mut rest = names;
        while !rest.is_empty() {
            let mut text = Vec::new();
            let mut ends = Vec::new();
            for name in rest {
                if !directory.is_empty() {
                    text.extend_from_slice(directory);
                    text.push(b'/');
                }
                text.extend_from_slice(name);
                ends.push(text.len());
                if text.len() > LONGEST {
                    break;
                }
            }
            rest = &rest[ends.len()..];
            text.shrink_to_fit();
            let text = Arc::new(text);
            let mut from = 0;
            for end in ends {
                all.push(Self(Piece { text: Arc::clone(&text), from: from as u32, length: (end - from) as u32 }));
                from = end;
            }
        }
        all
    }

    /// A copy of its bytes.
    #[must_use]
    pub fn text(&self) -> ByteText {
        ByteText(self.0.to_vec())
    }
}

impl fmt::Debug for SharedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

impl From<Vec<u8>> for SharedPath {
    fn from(path: Vec<u8>) -> Self {
        let length = path.len() as u32;
        Self(Piece { text: Arc::new(path), from: 0, length })
    }
}

impl From<&[u8]> for SharedPath {
    fn from(path: &[u8]) -> Self {
        path.to_vec().into()
    }
}

impl PartialEq<ByteText> for SharedPath {
    fn eq(&self, other: &ByteText) -> bool {
        *self.0 == *other.0
    }
}

/// An entry of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the workspace as it is now.
    pub at: SharedPath,
    /// Its attributes.
    pub meta: Meta,
}

/// The directory of the workspace that a directory of the layer continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lower {
    /// None: the directory is new, or the entry is no directory.
    #[default]
    None,
    /// The one at the same place.
    Merged(Box<Found>),
    /// One that was renamed to this place.
    Moved(Box<Found>),
    /// One that was renamed to this place and is no longer where it was.
    Missing,
}

/// What stands at a path of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A file, directory, link …
    Entry,
    /// Overlay's mark that the name is gone.
    Whiteout,
    /// The name is gone because its directory was replaced by a new one; there is no mark in the layer.
    Implied,
}

/// What the content of a file in a git directory means for the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Harmless.
    Commit,
    /// Harmless in this form, which is committed while the original stays parked.
    Strip(Vec<u8>),
    /// Needs an explicit accept, and why.
    Park(String),
}

/// What lies in a directory of the workspace that goes away or moves as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Paths that changed since the layer was made (the first few).
    pub changed: Vec<ByteText>,
    /// Places that another process mounted something over.
    pub blocked: Vec<ByteText>,
    /// The first protected entry and why it is protected.
    pub protected: Option<(ByteText, String)>,
}

/// One entry of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The index of its directory.
    pub parent: usize,
    /// Where it is in the layer and will be in the workspace.
    pub path: SharedPath,
    /// Its attributes; those of what is gone for [`Role::Implied`].
    pub meta: Meta,
    /// Overlay's attributes.
    pub marks: Marks,
    /// What it stands for.
    pub role: Role,
    /// The entry of the workspace that it hides or replaces.
    pub covers: Option<Box<Found>>,
    /// The place of the entry in the workspace is append-only or immutable, or in a directory that is.
    pub pinned: bool,
    /// What it covers was renamed to another place of the layer.
    pub claimed: bool,
    /// Same content (or link target) as what it covers.
    pub same_content: bool,
    /// Same attributes as what it covers or continues.
    pub same_attrs: bool,
    /// What only few entries have.
    pub rare: Rare,
}

impl Node {
    /// Whether it is a new version of the very file that it covers, which has no other name.
    pub(crate) fn is_own_version(&self) -> bool {
        let covered = self.covers.as_ref().filter(|found| found.meta.links == 1);
        covered.is_some_and(|found| origin_inode(self) == Some(found.meta.id.ino))
    }

    /// Its group of names, as an index of [`LayerTree::groups`].
    #[must_use]
    pub fn group(&self) -> Option<usize> {
        self.rare.group
    }
}

/// The details that only few entries have; the empty ones take no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rare(Option<Box<Details>>);

/// See [`Rare`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The directory it continues.
    pub lower: Lower,
    /// The group of names that share one file, in [`LayerTree::groups`].
    pub group: Option<usize>,
    /// Attributes to set, for a directory.
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes of the directory that it continues, where they differ from `attrs`.
    pub base_attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a file of git's.
    pub verdict: Option<Verdict>,
    /// For a whole directory that goes away or moves.
    pub scan: Option<Scan>,
}

impl Deref for Rare {
    type Target = Details;
    fn deref(&self) -> &Details {
        const NONE: &Details = &Details {
            lower: Lower::None,
            group: None,
            attrs: Vec::new(),
            base_attrs: Vec::new(),
            verdict: None,
            scan: None,
        };
        self.0.as_deref().unwrap_or(NONE)
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut Details {
        self.0.get_or_insert_default()
    }
}

/// Where the bytes of a shared file are.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In the upper directory, at this path.
    Upper(ByteText),
    /// In overlay's index, under this name: all names in the layer are gone, names in the workspace are not.
    Index(ByteText),
}

/// Several names of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The names in the layer.
    pub members: Vec<usize>,
    /// The file of the workspace that it is a new version of and that has several names there.
    pub anchor: Option<Found>,
    /// Names of that file in the workspace which the layer does not contain.
    pub others: Vec<Found>,
    /// The new version.
    pub source: Source,
    /// Its attributes.
    pub meta: Meta,
    /// The new version equals the one in the workspace. Always so for a symbolic link, which cannot be written.
    pub same: bool,
    /// Whether the names may stay one file.
    pub tie: Tie,
}

/// An entry of the workspace as an earlier commit of the same layer left it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "OwnForms")]
pub struct Own {
    /// Where.
    pub path: ByteText,
    /// Its ctime after the commit's last call on it.
    pub ctime: FsTime,
    /// Which entry; unknown in notes of version 1.
    pub id: Option<FileId>,
    /// Its size, except for a directory.
    pub size: Option<u64>,
    /// The last change of its content, except for a directory; missing in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FsTime>,
}

/// The two forms in which a parked layer may carry an [`Own`].
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OwnForms {
    First(ByteText, FsTime),
    Second { path: ByteText, ctime: FsTime, id: Option<FileId>, size: Option<u64>, mtime: Option<FsTime> },
}

impl From<OwnForms> for Own {
    fn from(form: OwnForms) -> Self {
        match form {
            OwnForms::First(path, ctime) => Self { path, ctime, id: None, size: None, mtime: None },
            OwnForms::Second { path, ctime, id, size, mtime } => Self { path, ctime, id, size, mtime },
        }
    }
}

impl Own {
    /// Describes an entry as it is now.
    pub(crate) fn new(path: &ByteText, now: &Meta) -> Self {
        let of_file = now.kind != EntryType::Directory;
        let (size, mtime) = (of_file.then_some(now.size), of_file.then_some(now.mtime));
        Self { path: path.clone(), ctime: now.ctime, id: Some(now.id), size, mtime }
    }

    /// Sorts them by path; of several for one path the last counts.
    pub(crate) fn sorted(mut all: Vec<Self>) -> Vec<Self> {
        // The sort is stable: of several for one path, the later ones come later.
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all.dedup_by(|later, kept| {
            let is_one_path = later.path == kept.path;
            if is_one_path {
                std::mem::swap(later, kept);
            }
            is_one_path
        });
        all
    }

    /// Whether an entry is as one of these, which are sorted by path, says.
    fn is_one(sorted: &[Self], at: &SharedPath, meta: &Meta) -> bool {
        let found = sorted.binary_search_by(|own| own.path.0.as_slice().cmp(&at.0));
        found.is_ok_and(|index| sorted[index].is(meta))
    }

    fn is(&self, meta: &Meta) -> bool {
        meta.ctime == self.ctime
            // Where a clock has whole seconds, an edit may have the ctime of the commit's own call.
            && self.mtime.is_none_or(|mtime| mtime == meta.mtime)
            && self.id.is_none_or(|id| id == meta.id)
            && self.size.is_none_or(|size| size == meta.size)
    }
}

/// Files of the workspace by their inodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inodes {
    places: HashMap<u64, Place>,
    scanned: Vec<Found>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// What this node covers.
    Covered(u32),
    /// Found in a directory that goes away or moves.
    Scanned(u32),
}

impl Inodes {
    /// Names the file that a node covers.
    pub(crate) fn cover(&mut self, ino: u64, node: usize) {
        if let Ok(node) = u32::try_from(node) {
            self.places.insert(ino, Place::Covered(node));
        }
    }

    /// Adds a file that was found in a scan, if its inode is not known yet.
    pub(crate) fn scanned(&mut self, found: Found) {
        let Ok(next) = u32::try_from(self.scanned.len()) else { return };
        if let Entry::Vacant(place) = self.places.entry(found.meta.id.ino) {
            place.insert(Place::Scanned(next));
            self.scanned.push(found);
        }
    }

    /// Whether an inode is one of them.
    #[must_use]
    pub fn has(&self, ino: u64) -> bool {
        self.places.contains_key(&ino)
    }
}

/// A layer and what it covers. `nodes[0]` is the root; a directory comes before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerTree {
    /// All entries.
    pub nodes: Vec<Node>,
    /// The run and somebody else changed the attributes of the workspace's own directory.
    pub top_conflict: bool,
    /// Names that belong together.
    pub groups: Vec<Group>,
    /// By node: the lock file by which a git of the host holds the entry's place.
    pub locks: HashMap<usize, ByteText>,
    /// Files of the workspace by inode, as far as the layer has them under another name too.
    pub inodes: Inodes,
    /// When the layer was made.
    pub started: FsTime,
    /// Entries that an earlier commit of this layer wrote itself, sorted by path: not a conflict.
    pub ours: Vec<Own>,
    /// Layer and workspace are on one mount, so that a rename can move entries.
    pub same_mount: bool,
    /// Who mounted it.
    pub mode: LayerMode,
    /// The workspace's mount: an entry on another one cannot be moved.
    pub mount: Option<u32>,
}

impl LayerTree {
    /// Whether an entry of the workspace changed after the layer was made. By ctime, which no process can set.
    #[must_use]
    pub fn is_fresh(&self, found: &Found) -> bool {
        is_fresh(self.started, &self.ours, &found.at, &found.meta)
    }

    /// Whether an entry is as an earlier commit of this layer left it.
    #[must_use]
    pub fn is_own(&self, at: &SharedPath, meta: &Meta) -> bool {
        Own::is_one(&self.ours, at, meta)
    }

    /// The file of the workspace with this inode, as far as the layer touches it.
    #[must_use]
    pub fn by_inode(&self, ino: u64) -> Option<&Found> {
        let at = |index: u32| usize::try_from(index).ok();
        match self.inodes.places.get(&ino)? {
            Place::Covered(node) => self.nodes.get(at(*node)?)?.covers.as_deref(),
            Place::Scanned(index) => self.inodes.scanned.get(at(*index)?),
        }
    }

    /// The file of the workspace that a node was copied from, as far as the layer touches it.
    #[must_use]
    pub fn origin_of<'a>(&'a self, node: &'a Node) -> Option<&'a Found> {
        if node.is_own_version() { node.covers.as_deref() } else { self.by_inode(origin_inode(node)?) }
    }

    /// The identity of what a node covers.
    #[must_use]
    pub fn covered_id(&self, node: usize) -> Option<FileId> {
        self.nodes[node].covers.as_ref().map(|found| found.meta.id)
    }
}

/// See [`LayerTree::is_fresh`].
pub(crate) fn is_fresh(started: FsTime, ours: &[Own], at: &SharedPath, meta: &Meta) -> bool {
    meta.ctime > started && !Own::is_one(ours, at, meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> (SharedPath, Meta) {
        let time = FsTime { sec: 5, nsec: 0 };
        let id = FileId { ino: 7, born: Some(time) };
        let meta = Meta {
            kind: EntryType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: FsTime { sec: 2, nsec: 0 },
            ctime: time,
            links: 1,
            id,
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        };
        (path.as_bytes().into(), meta)
    }

    #[test]
    fn an_edit_in_the_second_of_the_commit_is_not_ours() {
        let (at, meta) = file("f");
        let ours = vec![Own::new(&at.text(), &meta)];
        let started = FsTime { sec: 4, nsec: 0 };
        assert!(!is_fresh(started, &ours, &at, &meta));
        // The clock has whole seconds, and the size is the same.
        assert!(is_fresh(started, &ours, &at, &Meta { mtime: meta.ctime, ..meta.clone() }));
        let older = vec![Own { mtime: None, ..ours[0].clone() }];
        assert!(!is_fresh(started, &older, &at, &meta), "a note of an older version");
    }

    #[test]
    fn the_last_note_about_a_path_counts() {
        let noted = |path: &str, sec| {
            let (at, meta) = file(path);
            Own::new(&at.text(), &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta })
        };
        let ours = Own::sorted(vec![noted("z", 6), noted("a", 6), noted("z", 9), noted("a", 8)]);
        for (path, sec) in [("a", 8), ("z", 9)] {
            let (at, meta) = file(path);
            assert!(Own::is_one(&ours, &at, &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta.clone() }));
            assert!(!Own::is_one(&ours, &at, &Meta { ctime: FsTime { sec: 6, nsec: 0 }, ..meta }));
        }
    }
}
