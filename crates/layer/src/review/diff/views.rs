//! Lists the files that the layer touches: as they are in the workspace (old) and as the run left them (new).
//!
//! Only what differs is listed, so the cost grows with the layer and with the directories that go away or move as a
//! whole; those have to be listed, because git knows files only.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, names, split};
use crate::entries::protected::Rules;
use crate::entries::tree::{Found, LayerTree, Lower, Node, Role, Source};
use crate::entries::verdict::{change, is_nothing};
use crate::meta::{EntryType, Meta, stat_if_there};
use nexus_model::ByteText;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Place of the content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the workspace, at this path.
    Base(ByteText),
    /// In the upper directory, at this path.
    Upper(ByteText),
    /// In overlay's index, under this name.
    Index(ByteText),
}

/// A file of the workspace, or of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) meta: Meta,
    /// For a new one: the old one that it may be a version of.
    pub(crate) was: Option<Vec<u8>>,
    /// For a new one: it equals the old one at the same place.
    pub(crate) same: bool,
    pub(crate) protected: Option<String>,
    pub(crate) other_names: u32,
}

/// Files by path, before and after.
#[derive(Debug, Default)]
pub(crate) struct Views {
    pub(crate) old: BTreeMap<Vec<u8>, Entry>,
    pub(crate) new: BTreeMap<Vec<u8>, Entry>,
    /// New versions of files whose listed name is gone, while names that we do not know are not.
    pub(crate) elsewhere: Vec<(Vec<u8>, Entry, Entry)>,
    /// The limit was reached.
    pub(crate) incomplete: bool,
}

pub(crate) fn entry(place: Place, meta: Meta) -> Entry {
    Entry { place, meta, was: None, same: false, protected: None, other_names: 0 }
}

struct Gather<'a> {
    tree: &'a LayerTree,
    base: &'a Workspace,
    limit: usize,
    views: Views,
}

/// Lists the files.
pub(crate) fn gather(tree: &LayerTree, base: &Workspace, rules: &Rules, limit: usize) -> Result<Views, IoFailure> {
    let mut gather = Gather { tree, base, limit, views: Views::default() };
    let mut children: HashMap<usize, HashSet<&[u8]>> = HashMap::new();
    for node in tree.nodes.iter().skip(1) {
        children.entry(node.parent).or_default().insert(split(&node.path.0).1);
    }
    let no_children = HashSet::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        if let Some(found) = &node.covers {
            gather.cover(found)?;
        }
        if node.role != Role::Entry {
            continue;
        }
        let report = || change(tree, node, rules);
        if node.meta.kind != EntryType::Directory {
            let protected = if is_nothing(tree, node) { None } else { report().protected };
            gather.file(node, protected);
            continue;
        }
        match &node.rare.lower {
            Lower::Moved(found) | Lower::Merged(found) if found.at != node.path => {
                gather.carry(found, &node.path.0, children.get(&at).unwrap_or(&no_children))?;
            }
            Lower::Merged(found) if !is_nothing(tree, node) => {
                let place = Place::Upper(node.path.text());
                gather.add_old(found.at.0.to_vec(), found.meta.clone());
                let one = Entry { protected: report().protected, ..entry(place, node.meta.clone()) };
                gather.add_new(node.path.0.to_vec(), one);
            }
            _ => {}
        }
    }
    gather.empty_dirs(rules);
    gather.shared();
    Ok(gather.views)
}

impl Gather<'_> {
    fn has_room(&mut self) -> bool {
        let room = self.views.old.len() + self.views.new.len() < self.limit;
        self.views.incomplete |= !room;
        room
    }

    fn add_old(&mut self, path: Vec<u8>, meta: Meta) {
        if self.has_room() {
            let place = Place::Base(ByteText(path.clone()));
            self.views.old.insert(path, entry(place, meta));
        }
    }

    fn add_new(&mut self, path: Vec<u8>, one: Entry) {
        if self.has_room() {
            self.views.new.insert(path, one);
        }
    }

    /// Adds an entry of the layer that is not a directory.
    fn file(&mut self, node: &Node, protected: Option<String>) {
        let origin = self.tree.origin_of(node);
        let was = origin.or(node.covers.as_deref()).filter(|found| found.meta.kind == node.meta.kind);
        let group = node.group().map(|number| &self.tree.groups[number]);
        let other_names = group.filter(|group| !group.same).and_then(|group| group.anchor.as_ref().zip(Some(group)));
        let other_names = other_names.map_or(0, |(anchor, group)| {
            let own = group.members.iter().filter(|at| self.tree.covered_id(**at) == Some(anchor.meta.id)).count();
            anchor.meta.links.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX))
        });
        let one = Entry {
            was: was.map(|found| found.at.0.to_vec()),
            same: is_nothing(self.tree, node),
            protected,
            other_names,
            ..entry(Place::Upper(node.path.text()), node.meta.clone())
        };
        self.add_new(node.path.0.to_vec(), one);
    }

    /// Adds to the old files what an entry of the layer hides: it goes away, unless something else says otherwise.
    fn cover(&mut self, found: &Found) -> Result<(), IoFailure> {
        if found.meta.kind != EntryType::Directory {
            self.add_old(found.at.0.to_vec(), found.meta.clone());
            return Ok(());
        }
        self.walk(&found.at.0, &found.meta, Self::add_old)
    }

    /// Adds to the new files what lies in a renamed directory and is not in the layer itself.
    fn carry(&mut self, found: &Found, to: &[u8], children: &HashSet<&[u8]>) -> Result<(), IoFailure> {
        for (name, meta) in self.list(&found.at.0)? {
            if children.contains(name.as_slice()) {
                continue;
            }
            let (from, to) = (join(&found.at.0, &name), join(to, &name));
            self.walk(&from, &meta, |gather, path, meta| {
                let target = [&to, &path[from.len()..]].concat();
                let place = Place::Base(ByteText(path.clone()));
                let carried = Entry { was: Some(path.clone()), ..entry(place, meta.clone()) };
                gather.add_old(path, meta);
                gather.add_new(target, carried);
            })?;
        }
        Ok(())
    }

    fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>, IoFailure> {
        let dir = match self.base.readable_dir(path) {
            Ok(dir) => dir,
            // It went away since the layer was read: a conflict, which the commit reports.
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error).doing("open", path),
        };
        let mut found = Vec::new();
        for name in names(dir.as_fd()).doing("list", path)? {
            if let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", path)? {
                found.push((name, meta));
            }
        }
        Ok(found)
    }

    /// Names every file and every empty directory of the workspace at and below `path`.
    fn walk(
        &mut self,
        path: &[u8],
        meta: &Meta,
        mut visit: impl FnMut(&mut Self, Vec<u8>, Meta),
    ) -> Result<(), IoFailure> {
        let mut stack = vec![(path.to_vec(), meta.clone())];
        while let Some((path, meta)) = stack.pop() {
            if self.views.incomplete {
                return Ok(());
            }
            if meta.kind != EntryType::Directory {
                visit(self, path, meta);
                continue;
            }
            let inside = self.list(&path)?;
            if inside.is_empty() {
                visit(self, path, meta);
                continue;
            }
            stack.extend(inside.into_iter().map(|(name, meta)| (join(&path, &name), meta)));
        }
        Ok(())
    }

    /// Adds new directories that no file makes visible.
    fn empty_dirs(&mut self, rules: &Rules) {
        for node in self.tree.nodes.iter().skip(1) {
            let is_new = node.role == Role::Entry
                && node.meta.kind == EntryType::Directory
                && matches!(node.rare.lower, Lower::None | Lower::Missing);
            let beneath = [&node.path.0[..], b"/"].concat();
            let has_files =
                self.views.new.range(beneath.clone()..).next().is_some_and(|(path, _)| path.starts_with(&beneath));
            if is_new && !has_files {
                let protected = change(self.tree, node, rules).protected;
                let one = Entry { protected, ..entry(Place::Upper(node.path.text()), node.meta.clone()) };
                self.add_new(node.path.0.to_vec(), one);
            }
        }
    }

    /// Shows a file with several names that was written through one of them as changed under all listed names.
    fn shared(&mut self) {
        for group in self.tree.groups.iter().filter(|group| !group.same) {
            let Some(anchor) = &group.anchor else { continue };
            let place = match &group.source {
                Source::Upper(path) => Place::Upper(path.clone()),
                Source::Index(name) => Place::Index(name.clone()),
            };
            let mut listed = false;
            for one in self.views.new.values_mut() {
                if matches!(one.place, Place::Base(_)) && one.meta.id == anchor.meta.id {
                    (one.place, one.meta, one.same) = (place.clone(), group.meta.clone(), false);
                    listed = true;
                }
            }
            if listed || !group.members.is_empty() {
                continue;
            }
            let other_names = anchor.meta.links.saturating_sub(1);
            let new = Entry { other_names, ..entry(place, group.meta.clone()) };
            if self.views.old.contains_key(&*anchor.at.0) {
                let old = entry(Place::Base(anchor.at.text()), anchor.meta.clone());
                self.views.elsewhere.push((anchor.at.0.to_vec(), old, new));
            } else {
                self.add_old(anchor.at.0.to_vec(), anchor.meta.clone());
                self.add_new(anchor.at.0.to_vec(), new);
            }
        }
    }
}
