//! Compares two indexes of git by what they say.
//!
//! `git status` writes the index again, with sizes, times and inodes of the files that it looked at, and with caches. An
//! editor runs it unasked. The index says the same as before, so that this is not a change from outside for a layer that
//! has an index of its own. What the index of the workspace said when the run began is noted when the layer is parked;
//! until then it is read from the old index itself ([`crate::index_at_start`]).

use super::format::{EXTENDED, HEADER, LENGTH, LONG, Reader, SHORT, inspect};
use super::stat_data::{AFTER_MODE, BEFORE_MODE};
use super::{Content, read};
use crate::beneath::{Doing as _, IoFailure, split};
use crate::index_at_start::PATH;
use crate::index_notes::IndexNote;
use crate::link_ends::is_no_way;
use crate::meta::Meta;
use crate::tree::Found;
use crate::walk::Walk;
use std::fmt::Write as _;
use std::os::fd::AsFd as _;

/// The comparison of an index of the layer with the one that it covers.
pub(super) struct Compared {
    /// Both say the same.
    pub(super) is_same: bool,
    /// The one of the workspace changed after the run began, and says the same as before.
    pub(super) is_refreshed: bool,
    /// Meaning of the index of the workspace when the run began.
    pub(super) note: Option<IndexNote>,
}

/// Compares the index `new` of the layer with `covered`, the one of the workspace.
pub(super) fn compare(walk: &Walk<'_>, covered: &Found, new: &[u8]) -> Result<Compared, IoFailure> {
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

fn is_fresh(walk: &Walk<'_>, covered: &Found, meta: &Meta) -> bool {
    crate::own::is_fresh(walk.started, walk.ours, &covered.at, meta)
}

/// Returns what the index said in whose place another one is now. `None` where it cannot be read as it was.
fn at_start(walk: &Walk<'_>, covered: &Found) -> Option<IndexNote> {
    let old =
        walk.index_at_start.filter(|old| *covered.at.0 == *PATH.as_bytes() && !is_fresh(walk, covered, &old.meta))?;
    let sum = meaning(&old.read(&walk.reads)?)?;
    Some(IndexNote { path: covered.at.text(), sum })
}

/// Returns a checksum of the names, object ids, modes and flags of an index, and of the extensions that are not caches.
/// `None` for an index that says a part of it in another file, or that makes no sense. Pure.
fn meaning(bytes: &[u8]) -> Option<String> {
    let makes_sense = |id: &usize| inspect(bytes, *id, &mut |_| {}) == Some(true);
    let lengths: Vec<usize> = [SHORT, LONG].into_iter().filter(makes_sense).collect();
    let [id] = lengths[..] else { return None };
    let (mut said, mut end) = (Vec::new(), HEADER);
    inspect(bytes, id, &mut |entry| {
        end = entry.end;
        let block = &bytes[entry.begin..entry.begin + AFTER_MODE.end + id];
        said.extend_from_slice(&block[BEFORE_MODE..AFTER_MODE.start]);
        said.extend_from_slice(&block[AFTER_MODE.end..]);
        said.extend((entry.flags & !(LENGTH | EXTENDED)).to_be_bytes());
        said.extend(entry.more.to_be_bytes());
        said.extend_from_slice(entry.name);
        said.push(0);
    })?;
    let mut rest = Reader { bytes: &bytes[..bytes.len().checked_sub(id)?], at: end };
    while rest.at < rest.bytes.len() {
        let (signature, size) = (rest.take(4)?, rest.number()?);
        let content = rest.take(size)?;
        match signature {
            b"TREE" | b"UNTR" | b"FSMN" | b"EOIE" | b"IEOT" => {}
            b"REUC" | b"sdir" => said.extend([signature, content].concat()),
            _ => return None,
        }
    }
    Some(super::sha1::sha1(&said).iter().fold(String::new(), |mut text, byte| {
        // A write to a text does not fail.
        write!(text, "{byte:02x}").ok();
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, extension, flagged, stamped};
    use super::*;

    #[test]
    fn an_index_says_the_same_with_other_data_of_files() {
        for id in [SHORT, LONG] {
            let said = |entries: &[(&str, u32, u8)], more: &[u8]| {
                meaning(&closed([&stamped(entries, id)[..], more].concat(), id))
            };
            let first = said(&[("a", 5, 1), ("b", 5, 1)], b"");
            assert!(first.is_some());
            assert_eq!(first, said(&[("a", 7, 1), ("b", 9, 1)], &extension(b"TREE", b"x")));
            for (entries, more) in [
                (&[("a", 5, 2), ("b", 5, 1)][..], vec![]),
                (&[("a", 5, 1)], vec![]),
                (&[("a", 5, 1), ("c", 5, 1)], vec![]),
                (&[("a", 5, 1), ("b", 5, 1)], extension(b"REUC", b"r")),
                (&[("a", 5, 1), ("b", 5, 1)], extension(b"link", &[1; 20])),
            ] {
                assert_ne!(first, said(entries, &more), "{entries:?} {more:?}");
            }
            let hidden = |bits| meaning(&closed(flagged(&[("a", bits, 0)], id), id));
            assert_ne!(hidden(0), hidden(0x8000));
            assert_ne!(hidden(0), hidden(0x1000), "another side of a merge");
        }
        assert_eq!(meaning(b"DIRC"), None);
    }
}
