//! Compares two indexes of git by what they say.
//!
//! `git status` writes the index again, with sizes, times and inodes of the files that it looked at, and with caches. An
//! editor runs it unasked. The index says the same as before, so that this is not a change from outside for a layer that
//! has an index of its own. What the index of the workspace said when the run began is noted when the layer is parked;
//! until then it is read from the old index itself ([`crate::read::index_at_start`]).

use crate::beneath::{Doing as _, IoFailure, is_no_way, split};
use crate::entries::index_notes::IndexNote;
use crate::entries::tree::Found;
use crate::read::index_at_start::PATH;
use crate::read::walk::Walk;
use nexus_git::index::file::{Content, read};
use nexus_git::index::meaning::meaning;
use std::os::fd::AsFd as _;

/// The comparison of an index of the layer with the one that it covers.
pub struct Compared {
    /// Both say the same.
    pub is_same: bool,
    /// The one of the workspace changed after the run began, and says the same as before.
    pub is_refreshed: bool,
    /// Meaning of the index of the workspace when the run began.
    pub note: Option<IndexNote>,
}

/// Compares the index `new` of the layer with `covered`, the one of the workspace.
pub fn compare(walk: &Walk<'_>, covered: &Found, new: &[u8]) -> Result<Compared, IoFailure> {
    let path = &covered.at.0;
    let (parent, name) = split(path);
    let content = walk.base.dir(parent).and_then(|dir| read(dir.as_fd(), name, &walk.reads));
    let now = match content {
        Ok(Content::Index(index)) => meaning(&index.bytes),
        Ok(Content::Other | Content::Closed | Content::TooLarge) => None,
        Err(error) if is_no_way(&error) => None,
        Err(error) => return Err(error).doing("read", path),
    };
    let Some(now) = now else { return Ok(Compared { is_same: false, is_refreshed: false, note: None }) };
    let is_same = meaning(new).as_ref() == Some(&now);
    if !is_fresh(walk, covered, &covered.meta) {
        let note = Some(IndexNote { path: covered.at.text(), sum: now });
        return Ok(Compared { is_same, is_refreshed: false, note });
    }
    let noted = walk.indexes.iter().find(|note| note.path.0 == **path).cloned();
    let note = noted.or_else(|| at_start(walk, covered));
    let is_refreshed = note.as_ref().is_some_and(|note| note.sum == now);
    Ok(Compared { is_same, is_refreshed, note })
}

fn is_fresh(walk: &Walk<'_>, covered: &Found, meta: &crate::meta::Meta) -> bool {
    crate::entries::committed_entry::is_fresh(walk.started, walk.ours, &covered.at, meta)
}

/// Returns what the index said in whose place another one is now. `None` where it cannot be read as it was.
fn at_start(walk: &Walk<'_>, covered: &Found) -> Option<IndexNote> {
    let old =
        walk.index_at_start.filter(|old| *covered.at.0 == *PATH.as_bytes() && !is_fresh(walk, covered, &old.meta))?;
    let sum = meaning(&old.read(&walk.reads)?)?;
    Some(IndexNote { path: covered.at.text(), sum })
}
