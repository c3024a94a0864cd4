//! Finds the contents that a commit takes away: deleted files and links, those in deleted directories, and old
//! versions.

use super::pieces::{Piece, Pieces, Taker};
use super::reading::{Content, Reading, common};
use crate::beneath::{join, names};
use crate::decide::plan::{State, writes_shared};
use crate::decide::sources::goes;
use crate::entries::tree::{Found, LayerTree, Node, Role, Source, Verdict};
use crate::meta::{EntryType, Meta, stat_if_there};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;

/// The pieces of all contents together, about.
const MAX_PIECES: u64 = 1 << 20;

/// The pieces that are kept of one content.
const OF_ONE: u64 = 1 << 16;

/// With fewer pieces of a content than this a part of it would not be found.
const FEWEST: u64 = 64;

/// Contents that go and are nowhere else.
pub(super) struct Gone {
    /// Pieces of contents that do not arrive at the same place.
    pub(super) pieces: Pieces,
    /// The fewest bytes of a content that its pieces do not tell from others.
    pub(super) least_vague: Option<u64>,
    links: HashSet<Vec<u8>>,
}

/// Paths of the workspace.
#[derive(Default)]
struct Going {
    /// Files with bytes, and the entry of the layer that comes in the place of each.
    files: HashMap<Vec<u8>, Option<usize>>,
    links: Vec<Vec<u8>>,
    directories: Vec<Vec<u8>>,
}

impl Gone {
    /// Reads what goes. Of a large content the wanted pieces are kept, and some of the others.
    pub(super) fn read(states: &[State], reading: &mut Reading<'_>, wanted: &Pieces) -> io::Result<Self> {
        let mut going = Going::new(reading.tree, states);
        while let Some(directory) = going.directories.pop() {
            going.add_inside(reading, &directory)?;
        }
        let links = going.links.iter().map(|path| reading.link(path)).collect::<io::Result<_>>()?;
        let limit = (MAX_PIECES / (going.files.len() as u64).max(1)).min(OF_ONE);
        if limit < FEWEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (mut pieces, mut least_vague) = (Vec::new(), None::<u64>);
        for (path, new) in &going.files {
            let old = reading.file(path)?;
            let new = new.map(|at| version_that_comes(reading, at)).transpose()?;
            let (taken, vague) = lost(reading, &old, new.as_ref(), (limit, wanted))?;
            pieces.extend(taken);
            least_vague = least_vague.into_iter().chain(vague).min();
        }
        Ok(Self { pieces: Pieces::new(&pieces), least_vague, links })
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.pieces.is_empty() && self.least_vague.is_none() && self.links.is_empty()
    }

    pub(super) fn has_link(&self, text: &[u8]) -> bool {
        self.links.contains(text)
    }
}

impl Going {
    fn new(tree: &LayerTree, states: &[State]) -> Self {
        let mut found = Self::default();
        for (at, node) in tree.nodes.iter().enumerate().skip(1) {
            if states[at] == State::Commit && goes(node) && !node.same_content {
                found.extend_with(tree, at, node);
            }
        }
        // Names that the layer does not contain get the new version as well.
        for group in tree.groups.iter().filter(|group| !group.same && writes_shared(tree, states, group)) {
            if let Some(anchor) = &group.anchor {
                let new = match group.source {
                    Source::Upper(_) => group.members.first().copied(),
                    Source::Index(_) => None,
                };
                found.files.insert(anchor.at.0.to_vec(), new);
            }
        }
        found
    }

    fn extend_with(&mut self, tree: &LayerTree, at: usize, node: &Node) {
        let Some(Found { at: place, meta }) = node.covers.as_deref() else { return };
        let comes = (node.role == Role::Entry && node.meta.kind == EntryType::File).then_some(at);
        self.add(tree, place.0.to_vec(), meta, comes);
    }

    fn add(&mut self, tree: &LayerTree, path: Vec<u8>, meta: &Meta, comes: Option<usize>) {
        match meta.kind {
            EntryType::Directory => self.directories.push(path),
            EntryType::Symlink => self.links.push(path),
            // Its other names stay.
            EntryType::File if meta.size == 0 || (meta.links > 1 && !tree.takes_last_name) => {}
            EntryType::File => {
                self.files.entry(path).or_insert(comes);
            }
            EntryType::Fifo | EntryType::Device | EntryType::Socket => {}
        }
    }

    fn add_inside(&mut self, reading: &Reading<'_>, directory: &[u8]) -> io::Result<()> {
        let dir = reading.base.readable_dir(directory)?;
        for name in names(dir.as_fd())? {
            if self.files.len() as u64 > MAX_PIECES / FEWEST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if let Some(meta) = stat_if_there(dir.as_fd(), &name)? {
                self.add(reading.tree, join(directory, &name), &meta, None);
            }
        }
        Ok(())
    }
}

/// Returns the content that an entry of the layer brings to its place.
fn version_that_comes(reading: &mut Reading<'_>, at: usize) -> io::Result<Content> {
    match &reading.tree.nodes[at].rare.verdict {
        Some(Verdict::Strip(content)) => Ok(Content::Bytes(content.clone())),
        _ => match &reading.tree.nodes[at].rare.instead {
            Some(content) => Ok(Content::Bytes(content.clone())),
            None => reading.new_version(at),
        },
    }
}

/// Returns the pieces of an old version that the new one at its place does not have, and its bytes where the pieces say
/// little.
fn lost(
    reading: &mut Reading<'_>,
    old: &Content,
    new: Option<&Content>,
    (limit, wanted): (u64, &Pieces),
) -> io::Result<(Vec<Piece>, Option<u64>)> {
    let part = match new {
        Some(new) if old.is_tiny() => {
            if reading.has_lines(new, old)? {
                0..0
            } else {
                old.all()
            }
        }
        Some(new) => reading.changed(old, new)?,
        None => old.all(),
    };
    if part.is_empty() {
        return Ok((Vec::new(), None));
    }
    let around = old.around(&part);
    let mut taker = Taker::new(&around, old.all().end, limit, wanted);
    reading.each(old, around, |block| taker.add(block))?;
    let taken = taker.end();
    let vague = taken.is_vague.then_some(part.end - part.start);
    let Some(new) = new.filter(|_| !old.is_tiny()) else { return Ok((taken.pieces, vague)) };
    let arrives = common(reading, &taken.pieces, new)?;
    let is_lost = |piece: &Piece| arrives.binary_search(piece).is_err();
    let pieces: Vec<Piece> = taken.pieces.into_iter().filter(is_lost).collect();
    // Where every piece of a part that changed is elsewhere, the order of the pieces is gone, or how often each was
    // there.
    let is_order = pieces.is_empty();
    Ok((pieces, vague.or(is_order.then_some(part.end - part.start))))
}
