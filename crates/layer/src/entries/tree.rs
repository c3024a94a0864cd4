//! The data read from a layer and from the places of the workspace that it covers. Plain data; `plan` decides on it.
//!
//! A layer may have hundreds of thousands of entries, so that an entry is small: what only few have lies behind a
//! pointer, and a path is in memory once.

use crate::entries::arrival::Arrival;
pub use crate::entries::committed_entry::CommittedEntry;
pub(crate) use crate::entries::committed_entry::is_fresh;
use crate::entries::index_notes::IndexNote;
use crate::entries::marks::{LayerMode, Marks, Origin};
pub use crate::entries::shared_path::SharedPath;
use crate::entries::tie::Tie;
use crate::meta::{EntryType, FileId, FsTime, Meta};
use nexus_model::ByteText;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut};

/// An entry of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the workspace as it is now.
    pub at: SharedPath,
    /// The attributes of the entry.
    pub meta: Meta,
}

/// The directory of the workspace that a directory of the layer continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lower {
    /// None: the directory is new, or the entry is not a directory.
    #[default]
    None,
    /// The one at the same place.
    Merged(Box<Found>),
    /// One that was renamed to this place.
    Moved(Box<Found>),
    /// One that was renamed to this place and is no longer where it was.
    Missing,
}

/// The role of a path in the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A file, directory, link …
    Entry,
    /// Overlay's mark that the name is gone.
    Whiteout,
    /// The name is gone because its directory was replaced by a new one; there is no mark in the layer.
    Implied,
}

/// The decision that the content of a file in a git directory leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Harmless: it is committed.
    Commit,
    /// Harmless in this form, which is committed while the original stays parked.
    Strip(Vec<u8>),
    /// Needs an explicit accept, and why.
    Park(String),
    /// A cache that its program makes again. The workspace keeps what it has at the place, and nothing is reported.
    LeaveOut,
}

/// The result of scanning a workspace directory that a layer deletes or moves as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Paths that changed since the layer was made (the first few).
    pub changed: Vec<ByteText>,
    /// Places that another process mounted something over.
    pub blocked: Vec<ByteText>,
    /// The first protected entry and why it is protected.
    pub protected: Option<(ByteText, String)>,
    /// Kinds of entries that overlay may copy without a mark.
    pub holds: Vec<Thing>,
    /// Files with several names that did not change (the first few thousand).
    pub shared: Vec<ByteText>,
}

/// A kind of workspace entry of which overlay may leave a copy without an origin attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// A file with several names, or of a file system that does not count them.
    SharedFile,
    /// A symbolic link.
    Symlink,
    /// A FIFO, a device or a socket.
    Special,
}

impl Thing {
    /// The kind of an entry; `None` for one whose copy always has a mark, and for a directory.
    #[must_use]
    pub fn of(meta: &Meta) -> Option<Self> {
        match meta.kind {
            EntryType::File => (meta.links != 1).then_some(Self::SharedFile),
            EntryType::Symlink => Some(Self::Symlink),
            EntryType::Fifo | EntryType::Device | EntryType::Socket => Some(Self::Special),
            EntryType::Directory => None,
        }
    }
}

/// One entry of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The index of its directory.
    pub parent: usize,
    /// Its path in the layer, which it will have in the workspace too.
    pub path: SharedPath,
    /// Its attributes; those of what is gone for [`Role::Implied`].
    pub meta: Meta,
    /// The marks of overlay on it.
    pub marks: Marks,
    /// The role of its path.
    pub role: Role,
    /// The entry of the workspace that it hides or replaces.
    pub covers: Option<Box<Found>>,
    /// The place of the entry in the workspace is append-only or immutable, or in a directory that is.
    pub pinned: bool,
    /// The entry that it covers was renamed to another place of the layer.
    pub claimed: bool,
    /// Same content (or link target) as what it covers.
    pub same_content: bool,
    /// Same attributes as what it covers or continues.
    pub same_attrs: bool,
    /// Details that only few entries have.
    pub rare: Rare,
}

impl Node {
    /// Reports whether it is a new version of the very file that it covers, which has no other name.
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

/// The inode of the file that an entry was copied up from.
pub(crate) fn origin_inode(node: &Node) -> Option<u64> {
    match node.marks.origin {
        Some(Origin::Inode(ino)) if node.role == Role::Entry && node.meta.kind != EntryType::Directory => Some(ino),
        _ => None,
    }
}

/// The directory of the workspace whose entries a directory's entries stand for.
pub(crate) fn lower_path(node: &Node) -> Option<&[u8]> {
    match &node.rare.lower {
        Lower::Merged(found) | Lower::Moved(found) => Some(&found.at.0),
        Lower::None | Lower::Missing => None,
    }
}

/// Details that only few entries have. An entry without any takes no memory for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rare(Option<Box<Details>>);

/// The details behind the pointer of [`Rare`].
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
    /// The content that comes to the workspace in the place of the layer's. Nothing of the layer's waits.
    pub instead: Option<Vec<u8>>,
    /// For a whole directory that goes away or moves.
    pub scan: Option<Scan>,
    /// It lies in a directory of the workspace that this user cannot enter: what it covers is not known.
    pub unseen: bool,
    /// A new directory in the place of an old one, which it continues without the names that are gone.
    pub replaced: bool,
    /// The time at which the directory of the workspace that it continues came there.
    pub(crate) arrival: Arrival,
    /// An index of git with the entries of the one that it covers.
    pub same_entries: bool,
    /// It covers an index of git that changed outside and says the same as before.
    pub refreshed: bool,
    /// It waits together with other entries, and no accept brings it without them.
    pub in_unit: bool,
    /// The reason why no accept may bring the entry, in a layer that is a part of what the run wrote.
    pub never: Option<&'static str>,
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
            instead: None,
            scan: None,
            unseen: false,
            replaced: false,
            arrival: Arrival::Before,
            same_entries: false,
            refreshed: false,
            in_unit: false,
            never: None,
        };
        self.0.as_deref().unwrap_or(NONE)
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut Details {
        self.0.get_or_insert_default()
    }
}

/// The place of the bytes of a shared file.
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
    /// The attributes of the new version.
    pub meta: Meta,
    /// The new version equals the one in the workspace. Always so for a symbolic link, which cannot be written.
    pub same: bool,
    /// The decision whether the names may stay one file.
    pub tie: Tie,
    /// The layer has no name of it any more, and the user did not choose it: overlay's index keeps it.
    pub waits: bool,
}

/// Files of the workspace by their inodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inodes {
    places: HashMap<u64, Place>,
    scanned: Vec<Found>,
    /// By inode of a file with several names: how many of them the layer takes or moves, and how many there are.
    names: HashMap<u64, (u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The file that this node covers.
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

    /// Counts a name that the layer takes or moves, if its file has several.
    pub(crate) fn name(&mut self, meta: &Meta) {
        if Thing::of(meta) == Some(Thing::SharedFile) {
            self.names.entry(meta.id.ino).or_insert((0, meta.links)).0 += 1;
        }
    }

    /// Reports whether the layer takes or moves all names of a file with several ones, and forgets the names.
    pub(crate) fn takes_last_name(&mut self) -> bool {
        std::mem::take(&mut self.names).values().any(|(found, links)| found >= links)
    }

    /// Reports whether an inode is among them.
    #[must_use]
    pub fn has(&self, ino: u64) -> bool {
        self.places.contains_key(&ino)
    }
}

/// A layer and what it covers. `nodes[0]` is the root; a directory comes before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerTree {
    /// All entries of the layer.
    pub nodes: Vec<Node>,
    /// The run and another process changed the attributes of the workspace's own directory.
    pub top_conflict: bool,
    /// Names that belong together.
    pub groups: Vec<Group>,
    /// By node: the file by which another process holds the entry's place: a lock of git, or the log of a database.
    pub locks: HashMap<usize, ByteText>,
    /// Files of the workspace by inode, as far as the layer has them under another name too.
    pub inodes: Inodes,
    /// Meanings of the indexes that the layer replaces when the run began, as far as it is known.
    pub indexes: Vec<IndexNote>,
    /// When the layer was made.
    pub started: FsTime,
    /// No other layer that may be of this workspace is older, as far as a commit asked for it.
    pub first_other: FsTime,
    /// Entries that an earlier commit of this layer wrote itself, sorted by path: not a conflict.
    pub ours: Vec<CommittedEntry>,
    /// Layer and workspace are on one mount, so that a rename can move entries.
    pub same_mount: bool,
    /// The user who mounted the layer.
    pub mode: LayerMode,
    /// The workspace's mount: an entry on another one cannot be moved.
    pub mount: Option<u32>,
    /// Overlay marked every copy: it had an index, which needs file handles.
    pub is_each_copy_marked: bool,
    /// The layer takes or moves all names of a file that has several.
    pub takes_last_name: bool,
}

impl LayerTree {
    /// Reports whether an entry of the workspace changed after the layer was made. By ctime, which no process can set.
    #[must_use]
    pub fn is_fresh(&self, found: &Found) -> bool {
        is_fresh(self.started, &self.ours, &found.at, &found.meta)
    }

    /// Reports whether what a node covers came to its place after the layer was made, alone or with a directory.
    #[must_use]
    pub(crate) fn is_new_outside(&self, node: &Node, covered: &Found) -> bool {
        let came = self.nodes[node.parent].rare.arrival.is_possible();
        self.is_fresh(covered) || (came && !self.is_own(&covered.at, &covered.meta))
    }

    /// Reports whether a node continues a directory of the workspace that was there when the run began, and that only
    /// this layer changed since.
    #[must_use]
    pub(crate) fn is_unchanged_directory(&self, node: &Node) -> bool {
        matches!(&node.rare.lower, Lower::Merged(found) if !self.is_fresh(found)) && !node.rare.arrival.is_possible()
    }

    /// Reports whether an entry is as an earlier commit of this layer left it.
    #[must_use]
    pub fn is_own(&self, at: &SharedPath, meta: &Meta) -> bool {
        CommittedEntry::is_one(&self.ours, at, meta)
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

    /// Reports whether a file of the workspace was found in a directory that goes away or moves, and no node covers it.
    #[must_use]
    pub(crate) fn is_scanned(&self, found: &Found) -> bool {
        matches!(self.inodes.places.get(&found.meta.id.ino), Some(Place::Scanned(_)))
    }

    /// The file of the workspace that a node was copied from, as far as the layer touches it.
    #[must_use]
    pub fn origin_of<'a>(&'a self, node: &'a Node) -> Option<&'a Found> {
        if node.is_own_version() { node.covers.as_deref() } else { self.by_inode(origin_inode(node)?) }
    }

    /// Returns the identity of the workspace entry that a node covers.
    #[must_use]
    pub fn covered_id(&self, node: usize) -> Option<FileId> {
        self.nodes[node].covers.as_ref().map(|found| found.meta.id)
    }
}
