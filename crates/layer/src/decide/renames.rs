//! Maps paths of workspace entries to their paths after the renames and removals of a commit. Pure.

use crate::beneath::{is_beneath, join};
use crate::entries::tree::{LayerTree, Lower};
use crate::meta::EntryType;

/// The places of entries of the workspace after the renames and removals of a commit.
pub(crate) struct Moves<'a> {
    /// Directories that are renamed, with their new places, and those that go.
    moves: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Moves<'a> {
    /// `comes` tells which nodes the commit brings.
    pub(crate) fn of(tree: &'a LayerTree, comes: impl Fn(usize) -> bool) -> Self {
        let mut moves = Vec::new();
        for (_, node) in tree.nodes.iter().enumerate().skip(1).filter(|(at, _)| comes(*at)) {
            if let Lower::Moved(found) = &node.rare.lower {
                moves.push((&*found.at.0, Some(&*node.path.0)));
            }
            // A renamed directory may take the place of another one, which goes.
            let gone = node.covers.as_ref().filter(|found| !node.claimed && found.meta.kind == EntryType::Directory);
            let gone = gone.filter(|_| !matches!(node.rare.lower, Lower::Merged(_)));
            moves.extend(gone.map(|found| (&*found.at.0, None)));
        }
        Self { moves }
    }

    /// Returns the place of an entry; `None` when it is gone with a directory.
    pub(crate) fn after(&self, at: &[u8]) -> Option<Vec<u8>> {
        let around = self.moves.iter().filter(|(from, _)| is_beneath(at, from));
        match around.max_by_key(|(from, _)| from.len()) {
            None => Some(at.to_vec()),
            Some((_, None)) => None,
            Some((from, Some(to))) => Some(join(to, at.get(from.len() + 1..).unwrap_or_default())),
        }
    }
}
