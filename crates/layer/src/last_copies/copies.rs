//! Compares contents to find entries that stay in a layer and may be the last copy of data that a commit removes.
//!
//! Overlay's attributes cannot identify such copies: in an ordinary user's layer they name no file, an edit changes the mtime by
//! which a renamed file is recognized, and a file that a program copied before it removed the original is simply new. Every
//! remaining file with content therefore counts as a copy of removed data, unless a comparison finds nothing in common:
//!
//! ```text
//!  goes     old version − what the new one at its place has   (an append takes nothing away)
//!  stays    what the run put in − what the old version at its place has
//!  a copy   both have a piece in common; or the pieces say nothing, and enough was put in; or what stays is compressed
//! ```
//!
//! If each piece of a part that changed is elsewhere in the new version, the pieces say nothing of what went: their
//! order.
//!
//! A content of at most 32 bytes may be a part of any other one, so that it has changed unless each of its lines is
//! still a line, and a short line arrives only as a whole line: `KEY=1` is not in a file with `KEY=10`.
//!
//! Only a commit of a part of a layer reads anything. What cannot be read, or is beyond the bounds, counts as a copy.

mod encoded;
mod gone;
mod lines;
mod pieces;
mod reading;

use self::encoded::{SAMPLE, is_encoded};
use self::gone::Gone;
use self::pieces::{Finder, Piece, Pieces, Taker};
use self::reading::{Content, Reading, common};
use crate::beneath::Workspace;
use crate::decide::orphans::note;
use crate::decide::plan::{CommitPlan, State};
use crate::entries::tree::{LayerTree, Node, Role, Verdict};
use crate::journal::step::Step;
use crate::meta::EntryType;
use nexus_git::objects as git_objects;
use std::collections::HashSet;
use std::io;

/// Of content that its pieces do not tell from other content, a part of this size may be a copy of the whole.
const PART: u64 = 8;

/// The bytes of a file that stays and is looked for as a whole, and of all of them together.
const SMALL: u64 = 1 << 16;
const SMALL_TOGETHER: u64 = 1 << 18;

/// Adds a note of each entry that may be a copy to the steps of a plan.
pub(crate) fn note_copies(tree: &LayerTree, plan: &mut CommitPlan, upper: &Workspace, base: &Workspace) {
    let Some(states) = &plan.states else { return };
    let noted: HashSet<&[u8]> = plan.tail.iter().filter_map(noted).collect();
    let waiting: Vec<usize> = (1..tree.nodes.len())
        .filter(|at| waits(&tree.nodes[*at], states[*at]) && !noted.contains(&*tree.nodes[*at].path.0))
        .collect();
    if waiting.is_empty() {
        return;
    }
    let mut reading = Reading::new(tree, upper, base);
    let wanted = pieces_of_small(&mut reading, &waiting);
    // What goes and cannot be read may be anything.
    let gone = Gone::read(states, &mut reading, &wanted).ok();
    let is_copy = |at: &usize| gone.as_ref().is_none_or(|gone| may_be_copy(&mut reading, gone, *at).unwrap_or(true));
    let copies: Vec<usize> = waiting.into_iter().filter(is_copy).collect();
    plan.tail.extend(copies.into_iter().map(|at| note(&tree.nodes[at])));
}

/// Returns the pieces of the small files among entries: they are looked for in all of a large file that goes. What
/// cannot be read has none, and is found out later.
fn pieces_of_small(reading: &mut Reading<'_>, waiting: &[usize]) -> Pieces {
    let (mut pieces, mut left) = (Vec::new(), SMALL_TOGETHER);
    for at in waiting {
        let meta = &reading.tree.nodes[*at].meta;
        if meta.kind != EntryType::File || meta.size > SMALL.min(left) {
            continue;
        }
        left -= meta.size;
        pieces.extend(pieces_of(reading, *at).unwrap_or_default());
    }
    Pieces::new(&pieces)
}

fn pieces_of(reading: &mut Reading<'_>, at: usize) -> io::Result<Vec<Piece>> {
    let (content, none) = (reading.new_version(at)?, Pieces::new(&[]));
    // It may have grown since.
    let part = 0..content.all().end.min(SMALL);
    let mut taker = Taker::new(&part, content.all().end, SMALL, &none);
    reading.each(&content, part, |block| taker.add(block))?;
    Ok(taker.end().pieces)
}

/// Returns the path that a step notes.
fn noted(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Strip { path, is_edit: false, .. } => Some(&path.0),
        _ => None,
    }
}

/// Reports whether an entry stays in the layer with bytes that the workspace does not have at its place.
fn waits(node: &Node, state: State) -> bool {
    let stays = state == State::Park || matches!(node.rare.verdict, Some(Verdict::Strip(_)));
    let has_bytes = match node.meta.kind {
        EntryType::File => node.meta.size > 0,
        EntryType::Symlink => true,
        EntryType::Directory | EntryType::Fifo | EntryType::Device | EntryType::Socket => false,
    };
    stays && has_bytes && node.role == Role::Entry && !node.same_content
}

/// Reports whether an entry that stays may hold bytes of what goes.
fn may_be_copy(reading: &mut Reading<'_>, gone: &Gone, at: usize) -> io::Result<bool> {
    if gone.is_nothing() {
        return Ok(false);
    }
    let node = &reading.tree.nodes[at];
    if node.meta.kind == EntryType::Symlink {
        return Ok(gone.has_link(&reading.link_of_layer(at)?));
    }
    let new = reading.new_version(at)?;
    let old = reading.after(at)?;
    let changed = match &old {
        Some(old) if new.is_tiny() => {
            if reading.has_lines(old, &new)? {
                0..0
            } else {
                new.all()
            }
        }
        Some(old) => reading.changed(&new, old)?,
        None => new.all(),
    };
    if changed.is_empty() {
        return Ok(false);
    }
    let mut beginning = Vec::new();
    reading.each(&new, 0..SAMPLE.min(new.all().end), |block| beginning.extend_from_slice(block))?;
    // An object has its content compressed, however little that is.
    if is_encoded(&beginning) || git_objects::stays(&reading.tree.nodes[at].path.0) {
        return Ok(true);
    }
    if gone.least_vague.is_some_and(|least| (changed.end - changed.start).saturating_mul(PART) >= least) {
        return Ok(true);
    }
    let mut found = Finder::anywhere(&gone.pieces);
    reading.each(&new, new.around(&changed), |block| found.add(block))?;
    let found = found.end();
    let Some(old) = old.filter(|_| !found.is_empty() && !new.is_tiny()) else { return Ok(!found.is_empty()) };
    Ok(missing(reading, &found, &old)? > 0)
}

/// Counts the pieces that a content does not have.
fn missing(reading: &mut Reading<'_>, pieces: &[Piece], content: &Content) -> io::Result<usize> {
    Ok(pieces.len() - common(reading, pieces, content)?.len())
}
