//! Finds the changes of a layer that remove an entry of which an entry without an origin attribute may be a copy. Pure.
//!
//! Overlay sets no origin attribute on a copy of a file with several names if it has no index, and none that an ordinary user may
//! not set: on a symbolic link, a FIFO or a device.

use crate::decide::state::{State, goes};
use crate::entries::marks::Origin;
use crate::entries::tree::{LayerTree, Node, Role, Thing};
use crate::meta::EntryType;
use std::collections::HashMap;

/// The committed entries that take something away, by its kind.
#[derive(Default)]
pub(crate) struct Unmarked {
    files: Vec<usize>,
    special: Vec<usize>,
    /// Symbolic links by the length of their target.
    links: HashMap<u64, Vec<usize>>,
    /// Symbolic links whose length is unknown.
    other_links: Vec<usize>,
    is_each_copy_marked: bool,
}

impl Unmarked {
    pub(crate) fn new(tree: &LayerTree, states: &[State]) -> Self {
        let mut found = Self { is_each_copy_marked: tree.is_each_copy_marked, ..Self::default() };
        for (at, node) in tree.nodes.iter().enumerate().filter(|(at, node)| states[*at] == State::Commit && goes(node))
        {
            let Some(old) = &node.covers else { continue };
            for thing in Thing::of(&old.meta).iter().chain(node.rare.scan.iter().flat_map(|scan| &scan.holds)) {
                found.of_thing(*thing, old.meta.size, old.meta.kind).push(at);
            }
        }
        if !tree.takes_last_name {
            found.files = Vec::new();
        }
        found
    }

    fn of_thing(&mut self, thing: Thing, size: u64, kind: EntryType) -> &mut Vec<usize> {
        match thing {
            Thing::SharedFile => &mut self.files,
            Thing::Special => &mut self.special,
            // Some file systems say nothing of the length.
            Thing::Symlink if kind == EntryType::Symlink && size > 0 => self.links.entry(size).or_default(),
            Thing::Symlink => &mut self.other_links,
        }
    }

    /// The entries that take away what an entry may be a copy of.
    pub(crate) fn of(&self, node: &Node) -> impl Iterator<Item = usize> + use<'_> {
        let none: &[usize] = &[];
        let is_unmarked = node.role == Role::Entry
            && match node.marks.origin {
                None => !self.is_each_copy_marked,
                // Size and time tell more of a file.
                Some(Origin::Unknown) => node.meta.kind != EntryType::File,
                Some(Origin::Inode(_)) => false,
            };
        let lists = match node.meta.kind {
            EntryType::File if is_unmarked => [self.files.as_slice(), none],
            EntryType::Symlink if is_unmarked => {
                [self.links.get(&node.meta.size).map_or(none, Vec::as_slice), &self.other_links]
            }
            EntryType::Fifo | EntryType::Device | EntryType::Socket if is_unmarked => [self.special.as_slice(), none],
            _ => [none, none],
        };
        lists.into_iter().flatten().copied()
    }

    /// Reports whether anything goes of which an entry may be a copy.
    pub(crate) fn may_have(&self, node: &Node) -> bool {
        self.of(node).next().is_some()
    }
}
