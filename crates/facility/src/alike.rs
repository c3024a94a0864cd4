//! Tells by their contents which entries that stay in a layer may be copies of a file that a commit replaces.
//!
//! Overlay's mark does not name the file in an ordinary user's layer, and an edit takes the time by which the file was known.
//! Files that a run renamed over one another and then wrote to look like so many edits. Where such a change is accepted and
//! another one stays, the contents are compared: what looks more like its own file, or like another one that stays, is no
//! copy. Where nothing can be told, it counts as one. Only a commit of a part of a layer reads anything.

use crate::beneath::{Workspace, open_file, split};
use crate::orphans::{Doubt, doubt, note};
use crate::plan::CommitPlan;
use crate::sketch::{Sampling, Sketch};
use crate::tree::LayerTree;
use crate::walk::LastDir;
use rustix::fs::OFlags;
use std::io::{self, Read as _};

/// The bytes that one commit reads. Of files after that, nothing is known.
const MAX_READ: u64 = 64 << 20;

/// The steps of all comparisons of one commit.
const MAX_STEPS: u64 = 1 << 28;

/// Adds a note of each entry that may be a copy to the steps of a plan.
pub(crate) fn note_copies(tree: &LayerTree, plan: &mut CommitPlan, upper: &Workspace, base: &Workspace) {
    let Some(states) = &plan.states else { return };
    let doubt = doubt(tree, states);
    if doubt.copies.is_empty() {
        return;
    }
    let found = Reading::new(tree, &doubt, upper, base).copies(&doubt);
    plan.tail.extend(found.into_iter().map(|at| note(&tree.nodes[at])));
}

/// Reads contents up to a bound.
struct Reading<'a> {
    tree: &'a LayerTree,
    upper: LastDir<'a>,
    base: LastDir<'a>,
    sampling: Sampling,
    bytes: u64,
    steps: u64,
}

/// A file of the workspace that stays, or that goes; `None`: nothing is known of its content.
type Known = Vec<Option<Sketch>>;

impl<'a> Reading<'a> {
    fn new(tree: &'a LayerTree, doubt: &Doubt, upper: &'a Workspace, base: &'a Workspace) -> Self {
        let of_layer = doubt.copies.iter().map(|at| tree.nodes[*at].meta.size);
        let covered = |at: &usize| tree.nodes[*at].covers.as_ref().map_or(0, |found| found.meta.size);
        let of_base = doubt.edits.iter().chain(&doubt.staying).map(covered);
        let bytes = of_layer.chain(of_base).fold(0, u64::saturating_add).min(MAX_READ);
        let sampling = Sampling::new(bytes);
        let (upper, base) = (LastDir::new(upper), LastDir::new(base));
        Self { tree, upper, base, sampling, bytes: MAX_READ, steps: MAX_STEPS }
    }

    /// The entries that may be copies. Those that are edits of the file at their own place need no other file that stays.
    fn copies(mut self, doubt: &Doubt) -> Vec<usize> {
        let gone: Known = doubt.edits.iter().map(|at| self.covered(*at)).collect();
        let (mut open, mut staying) = (Vec::new(), Known::new());
        for at in &doubt.copies {
            let new = self.new_version(*at);
            let own = self.covered(*at);
            if !self.is_no_copy(new.as_ref(), &gone, std::slice::from_ref(&own)) {
                open.push((*at, new));
            }
            staying.push(own);
        }
        if open.iter().any(|(_, new)| new.is_some()) {
            let others = doubt.staying.iter().filter(|at| doubt.copies.binary_search(at).is_err());
            staying.extend(others.map(|at| self.covered(*at)));
            open.retain(|(_, new)| !self.is_no_copy(new.as_ref(), &gone, &staying));
        }
        open.into_iter().map(|(at, _)| at).collect()
    }

    /// Whether an entry is certainly no copy of any file that goes, in view of some that stay.
    fn is_no_copy(&mut self, new: Option<&Sketch>, gone: &[Option<Sketch>], staying: &[Option<Sketch>]) -> bool {
        let Some(new) = new else { return false };
        let staying = || staying.iter().flatten();
        // What stays in the workspace has these bytes.
        if staying().any(|stays| stays.is_same(new)) {
            return true;
        }
        gone.iter().all(|gone| {
            let Some(gone) = gone else { return false };
            staying().any(|stays| stays.is_same(gone) || self.can_tell(new, stays, gone) && new.is_rather(stays, gone))
        })
    }

    fn can_tell(&mut self, new: &Sketch, stays: &Sketch, gone: &Sketch) -> bool {
        let left = self.steps.checked_sub(new.steps(stays, gone));
        self.steps = left.unwrap_or(0);
        left.is_some()
    }

    fn new_version(&mut self, at: usize) -> Option<Sketch> {
        let node = &self.tree.nodes[at];
        read(&mut self.upper, &node.path.0, node.meta.size, &self.sampling, &mut self.bytes)
    }

    fn covered(&mut self, at: usize) -> Option<Sketch> {
        let found = self.tree.nodes[at].covers.as_ref()?;
        read(&mut self.base, &found.at.0, found.meta.size, &self.sampling, &mut self.bytes)
    }
}

/// Reads a file of this size. `None`: it is too large, or cannot be read as it was.
fn read(dirs: &mut LastDir<'_>, path: &[u8], size: u64, sampling: &Sampling, bytes: &mut u64) -> Option<Sketch> {
    *bytes = bytes.checked_sub(size)?;
    let mut content = || {
        let (parent, name) = split(path);
        let file = open_file(dirs.get(parent)?, name, OFlags::RDONLY)?;
        let (mut file, mut block) = (std::fs::File::from(file).take(size + 1), vec![0; 64 * 1024]);
        let (mut sampler, mut length) = (sampling.begin(), 0);
        loop {
            match file.read(&mut block)? {
                0 => return Ok::<_, io::Error>((length == size).then(|| sampler.end())),
                count => {
                    sampler.add(&block[..count]);
                    length += count as u64;
                }
            }
        }
    };
    // What cannot be read counts as a copy.
    content().ok().flatten()
}
