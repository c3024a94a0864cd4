//! Reads a layer and the places of the workspace that it covers.
//!
//! The cost grows with the layer, not with the workspace: only directories that vanish or move as a whole are looked
//! through (`scan`). The steps, each over all entries with a directory before what is in it:
//!
//! 1. `collect`: the upper directory with overlay's marks.
//! 2. `continue_lower`: which directory of the workspace each directory continues, as overlay itself decides it. Then
//!    a new directory in place of an old one (opaque) is turned into the old one with the missing names gone, so that
//!    the report and the protection rules see single entries.
//! 3. `cover`: what each entry hides; content is compared where size and time are equal.
//! 4. `hardlink_groups`: names that share a file. `scan`: whole directories. Then each rule about content in turn, in the order of
//!    `read_with`: git's files first (`git_rules`), then what depends on several entries.

use crate::beneath::{
    Doing as _, IoFailure, Workspace, check_depth, check_named, is_gone, is_other_mount, join, names, split,
};
use crate::disk::opened::Notes;
use crate::disk::top_directory::{Top, TopAttrs};
use crate::disk::xattr::{self, Attrs};
use crate::entries::index_notes::IndexNote;
use crate::entries::marks::{Attr, LayerMode, LowerFs, MarkError, Marks, Redirect, attr, read};
use crate::entries::protected::Rules;
use crate::entries::tree::{CommittedEntry, Found, Lower, Node, Rare, Role, SharedPath};
pub(crate) use crate::entries::tree::{lower_path, origin_inode};
use crate::meta::{EntryType, FsTime, Meta, stat, stat_if_there};
use crate::read::access::is_shut;
use crate::read::compare::{base_attrs, compare};
use crate::read::index_at_start::IndexAtStart;
use nexus_git::reads::Reads;
use nexus_model::ByteText;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The error for which a layer cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    #[error(transparent)]
    Io(#[from] IoFailure),
    #[error("{path:?} carries a mark that cannot be interpreted")]
    Mark { path: ByteText, source: MarkError },
    #[error("two directories of the layer both continue {at:?}")]
    Twice { at: ByteText },
    #[error("{path:?} was renamed from a place that does not exist in the layer")]
    Redirect { path: ByteText },
}

/// The directories to read and the rules for reading them.
pub(crate) struct Walk<'a> {
    pub(crate) upper: &'a Workspace,
    /// The layer's directory, for notes of what is opened up. `None` for a layer in memory.
    pub(crate) root: Option<&'a Workspace>,
    /// Overlay's index directory, if it has one.
    pub(crate) index: Option<Workspace>,
    pub(crate) base: &'a Workspace,
    pub(crate) mode: LayerMode,
    pub(crate) lower: LowerFs,
    pub(crate) started: FsTime,
    /// The attributes of the workspace's own directory at the start and those of the upper directory now, if the run
    /// changed them.
    pub(crate) top: Option<(&'a Top, TopAttrs)>,
    pub(crate) ours: &'a [CommittedEntry],
    pub(crate) rules: &'a Rules,
    /// Meanings of the indexes of the workspace when the run began, as far as it was noted.
    pub(crate) indexes: &'a [IndexNote],
    /// The index of the workspace when the run began, while it has not been noted.
    pub(crate) index_at_start: Option<&'a IndexAtStart>,
    /// The bytes of git's files that may still be read.
    pub(crate) reads: Reads,
    /// The upper directory holds a part of a layer that was in memory.
    pub(crate) is_part: bool,
}

/// The directory used last; entries of one directory come in a row.
pub(crate) struct LastDir<'a> {
    tree: &'a Workspace,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> LastDir<'a> {
    pub(crate) fn new(tree: &'a Workspace) -> Self {
        Self { tree, last: None }
    }

    pub(crate) fn get(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            self.last = Some((path.to_vec(), self.tree.dir(path)?));
        }
        match &self.last {
            Some((_, dir)) => Ok(dir.as_fd()),
            None => Err(io::Error::other("no directory")),
        }
    }
}

pub(crate) fn node(parent: usize, path: SharedPath, meta: Meta, marks: Marks, role: Role) -> Node {
    Node {
        parent,
        path,
        meta,
        marks,
        role,
        covers: None,
        pinned: false,
        claimed: false,
        same_content: false,
        same_attrs: false,
        rare: Rare::default(),
    }
}

impl Walk<'_> {
    /// Makes the root say what becomes of the workspace's own directory. Returns whether its attributes changed
    /// outside, too.
    pub(crate) fn own_attrs(&self, root: &mut Node) -> Result<bool, WalkError> {
        let now = TopAttrs::read(self.mode, self.base.fd()).doing("look at", b"")?;
        let change = self.top.as_ref().and_then(|(start, upper)| start.change(self.mode, upper, &now));
        let is_conflict = change.as_ref().is_some_and(|change| change.is_conflict);
        let plain =
            |attrs: Vec<(ByteText, ByteText)>| attrs.into_iter().map(|(name, value)| (name.0, value.0)).collect();
        let wanted = change.map_or_else(|| now.clone(), |change| change.wanted);
        (root.meta.mode, root.meta.uid, root.meta.gid) = (wanted.mode, wanted.owner.0, wanted.owner.1);
        root.same_attrs = wanted.attrs == now.attrs;
        (root.rare.attrs, root.rare.base_attrs) = (plain(wanted.attrs), plain(now.attrs));
        if let Lower::Merged(found) = &root.rare.lower {
            root.pinned = found.meta.pinned;
        }
        Ok(is_conflict)
    }

    pub(crate) fn collect(
        &self,
        opened: &mut Vec<(Vec<u8>, u32)>,
        notes: &mut Notes<'_>,
    ) -> Result<Vec<Node>, WalkError> {
        let root = stat(self.upper.fd(), b"").doing("look at", b"")?;
        let mut nodes = vec![node(0, SharedPath::from(Vec::new()), root, Marks::default(), Role::Entry)];
        let mut stack = vec![0];
        let is_root = rustix::process::geteuid().is_root();
        while let Some(at) = stack.pop() {
            let (path, mode) = (nodes[at].path.clone(), nodes[at].meta.mode);
            check_depth(&path.0).doing("read", b"upper")?;
            if mode & 0o700 != 0o700 && !is_root {
                notes.add(&path.0, mode).doing("note the mode of", &path.0)?;
                opened.push((path.0.to_vec(), mode));
                self.upper.dir_by_force(&path.0).doing("open", &path.0)?;
            }
            let dir = self.upper.readable_dir(&path.0).doing("open", &path.0)?;
            let names = names(dir.as_fd()).doing("list", &path.0)?;
            for (entry, name) in SharedPath::of_entries(&path.0, &names).into_iter().zip(names) {
                if nexus_model::moving::is_unfinished(&name)
                    && self.is_left_out(&nodes, at, &entry.0).doing("look at", &entry.0)?
                {
                    continue;
                }
                check_named(self.base.path(), &entry.0).doing("read", b"upper")?;
                let meta = stat(dir.as_fd(), &name).doing("look at", &entry.0)?;
                let (marks, attrs) = self.marks(dir.as_fd(), &name, &entry.0, meta.kind == EntryType::Directory)?;
                let role = if meta.is_whiteout() { Role::Whiteout } else { Role::Entry };
                if meta.kind == EntryType::Directory {
                    stack.push(nodes.len());
                }
                let mut found = node(at, entry, meta, marks, role);
                if !attrs.is_empty() {
                    found.rare.attrs = attrs;
                }
                nodes.push(found);
            }
        }
        Ok(nodes)
    }

    fn marks(&self, dir: BorrowedFd<'_>, name: &[u8], path: &[u8], values: bool) -> Result<(Marks, Attrs), WalkError> {
        let mut marks = Marks::default();
        let mut attrs = Attrs::new();
        for one in xattr::list(dir, name).doing("list the attributes of", path)? {
            match attr(self.mode, &one) {
                Attr::Mark => {
                    let value = xattr::get(dir, name, &one).doing("read an attribute of", path)?;
                    read(self.mode, self.lower, &one, &value, &mut marks)
                        .map_err(|source| WalkError::Mark { path: ByteText(path.to_vec()), source })?;
                }
                Attr::Copy(target) | Attr::Forged(target) => {
                    marks.forged |= target.starts_with(b"user.overlay.");
                    if values {
                        attrs.push((target, xattr::get(dir, name, &one).doing("read an attribute of", path)?));
                    }
                }
                Attr::Capability => marks.capability = true,
                Attr::Leave => {}
            }
        }
        attrs.sort();
        if self.is_part {
            // The rest of the rename, or of what came in the place of a directory, may be missing.
            (marks.opaque, marks.redirect) = (false, None);
        }
        Ok((marks, attrs))
    }

    /// Sets [`Node::lower`] as overlay does. Returns the directories that were renamed.
    pub(crate) fn continue_lower(&self, nodes: &mut [Node]) -> Result<HashSet<Vec<u8>>, WalkError> {
        let mut claimed = HashSet::new();
        let mut used = HashSet::new();
        nodes[0].rare.lower = self.lower_dir(b"")?.map_or(Lower::Missing, |found| Lower::Merged(Box::new(found)));
        let mut last = None;
        for at in 1..nodes.len() {
            // Entries of one directory come in a row.
            let parent = nodes[at].parent;
            let is_unseen = match last.filter(|(last, _)| *last == parent) {
                Some((_, is_unseen)) => is_unseen,
                None => self.is_unseen(&nodes[parent])?,
            };
            last = Some((parent, is_unseen));
            if is_unseen {
                nodes[at].rare.unseen = true;
                continue;
            }
            if nodes[at].meta.kind != EntryType::Directory {
                continue;
            }
            let parent = lower_path(&nodes[nodes[at].parent]).map(<[u8]>::to_vec);
            let place = parent.as_ref().map(|parent| join(parent, split(&nodes[at].path.0).1));
            let marks = &nodes[at].marks;
            let lower = match (marks.redirect.as_deref(), place) {
                (Some(Redirect(redirect)), place) => {
                    let from = match (redirect.strip_prefix(b"/"), &parent) {
                        (Some(absolute), _) => absolute.to_vec(),
                        (None, Some(parent)) => join(parent, redirect),
                        (None, None) => return Err(WalkError::Redirect { path: nodes[at].path.text() }),
                    };
                    if !used.insert(from.clone()) {
                        return Err(WalkError::Twice { at: ByteText(from) });
                    }
                    let found = self.lower_dir(&from)?;
                    if place.as_ref() == Some(&from) {
                        found.map_or(Lower::None, |found| Lower::Merged(Box::new(found)))
                    } else {
                        claimed.insert(from);
                        found.map_or(Lower::Missing, |found| Lower::Moved(Box::new(found)))
                    }
                }
                (None, Some(place)) if !marks.opaque => {
                    let found = self.lower_dir(&place)?;
                    if found.is_some() && !used.insert(place.clone()) {
                        return Err(WalkError::Twice { at: ByteText(place) });
                    }
                    found.map_or(Lower::None, |found| Lower::Merged(Box::new(found)))
                }
                (None, _) => Lower::None,
            };
            if lower != Lower::None {
                nodes[at].rare.lower = lower;
            }
        }
        Ok(claimed)
    }

    /// Reports whether what the entries of a directory cover cannot be inspected.
    fn is_unseen(&self, directory: &Node) -> Result<bool, WalkError> {
        if directory.rare.unseen {
            return Ok(true);
        }
        match &directory.rare.lower {
            Lower::Merged(found) | Lower::Moved(found) => Ok(is_shut(self.base, found)?),
            Lower::None | Lower::Missing => Ok(false),
        }
    }

    pub(crate) fn lower_dir(&self, path: &[u8]) -> Result<Option<Found>, WalkError> {
        let dir = match self.base.dir(path) {
            Ok(dir) => dir,
            // ELOOP: a link is not a directory that could be continued.
            Err(error) if is_gone(&error) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Ok(None);
            }
            // Another process mounted something there: the plan recognises the mount by its attributes.
            Err(error) if is_other_mount(&error) => {
                let meta =
                    self.base.stat(path).or_else(|error| if is_other_mount(&error) { Ok(None) } else { Err(error) });
                return Ok(meta.doing("look at", path)?.map(|meta| Found { at: path.into(), meta }));
            }
            Err(error) => return Err(WalkError::Io(fail("open", path, error))),
        };
        let meta = stat(dir.as_fd(), b"").doing("look at", path)?;
        Ok(Some(Found { at: path.into(), meta }))
    }

    pub(crate) fn cover(&self, nodes: &mut [Node], claimed: &HashSet<Vec<u8>>) -> Result<(), WalkError> {
        let mut base_dirs = LastDir::new(self.base);
        let mut upper_dirs = LastDir::new(self.upper);
        let mut budget = crate::read::compare::BUDGET;
        for at in (1..nodes.len()).filter(|at| !nodes[*at].rare.unseen).collect::<Vec<_>>() {
            if let Lower::Merged(found) | Lower::Moved(found) = &nodes[nodes[at].parent].rare.lower {
                nodes[at].pinned = found.meta.pinned;
            }
            if let Lower::Merged(found) = nodes[at].rare.lower.clone() {
                nodes[at].pinned |= found.meta.pinned;
                let attrs = match base_attrs(self.base, &found.at.0) {
                    Err(failure) if is_other_mount(&failure.source) => Vec::new(),
                    other => other?,
                };
                nodes[at].same_attrs = attrs == nodes[at].rare.attrs;
                if !nodes[at].same_attrs || meta_differs(&nodes[at].meta, &found.meta) {
                    nodes[at].rare.base_attrs = attrs;
                }
                continue;
            }
            if let Lower::Moved(found) = &nodes[at].rare.lower
                && let Ok(attrs) = base_attrs(self.base, &found.at.0)
            {
                nodes[at].rare.base_attrs = attrs;
            }
            let Some(parent) = lower_path(&nodes[nodes[at].parent]).map(<[u8]>::to_vec) else { continue };
            let name = split(&nodes[at].path.0).1.to_vec();
            let place = join(&parent, &name);
            let dir = match base_dirs.get(&parent) {
                Ok(dir) => dir,
                Err(error) if is_gone(&error) || is_other_mount(&error) => continue,
                Err(error) => return Err(WalkError::Io(fail("open", &parent, error))),
            };
            let Some(meta) = stat_if_there(dir, &name).doing("look at", &place)? else { continue };
            nodes[at].pinned |= meta.pinned;
            nodes[at].claimed = meta.kind == EntryType::Directory && claimed.contains(&place);
            if nodes[at].role == Role::Entry && meta.kind == nodes[at].meta.kind {
                let upper = upper_dirs.get(&nodes[nodes[at].parent].path.0).doing("open", &nodes[at].path.0)?;
                let (content, attrs) = compare(self.mode, upper, dir, &name, (&nodes[at].meta, &meta), &mut budget)
                    .doing("compare", &place)?;
                nodes[at].same_content = content;
                nodes[at].same_attrs = attrs;
            }
            // Nearly always the same path.
            let at_same = *place == *nodes[at].path.0;
            let place = if at_same { nodes[at].path.clone() } else { SharedPath::from(place) };
            nodes[at].covers = Some(Box::new(Found { at: place, meta }));
        }
        Ok(())
    }

    /// Reports whether to leave out the target of an unfinished move: a directory that was being moved when the run was killed. Its
    /// content is still at the old place. This holds only where every directory above is merged with the workspace; in a directory that
    /// comes as a whole the entry is kept, and parked by its name.
    fn is_left_out(&self, nodes: &[Node], parent: usize, path: &[u8]) -> io::Result<bool> {
        let mut at = parent;
        while at != 0 {
            let node = &nodes[at];
            if node.marks.opaque || node.marks.redirect.is_some() {
                return Ok(false);
            }
            at = node.parent;
        }
        let is_merged = match self.base.stat(&nodes[parent].path.0) {
            // One that was made since has come with an earlier commit of this layer.
            Ok(found) => found.is_some_and(|meta| {
                meta.kind == EntryType::Directory && meta.id.born.is_none_or(|born| born <= self.started)
            }),
            Err(error) if is_gone(&error) || is_other_mount(&error) => false,
            Err(error) => return Err(error),
        };
        Ok(is_merged && self.base.stat(path)?.is_none())
    }
}

pub(crate) fn meta_differs(new: &Meta, old: &Meta) -> bool {
    (new.mode, new.uid, new.gid) != (old.mode, old.uid, old.gid)
}

fn fail(doing: &'static str, path: &[u8], source: io::Error) -> IoFailure {
    IoFailure { doing, path: ByteText(path.to_vec()), source }
}
