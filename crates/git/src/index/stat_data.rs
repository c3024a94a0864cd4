//! Takes out of an index of a run what git would believe without looking at the files.
//!
//! git does not read a file whose size, times and inode are those in its entry, and takes the object id of the entry
//! for what the file holds. A run chooses both, and knows what it cannot set: a commit gives its files the time at
//! which it ends. An entry that was forged so hides a changed file from `git status`, from `git diff` and from `git
//! commit -a`; one of a file of the user's, which the run did not touch, hides the user's own edit, and the next `git
//! checkout` writes over it. So the committed index has no data of a file but those that a git of the host has written:
//!
//! ```text
//!  entry        kept if an index of the workspace has the same (name, data, mode, id), and the data are older than
//!               that index; otherwise its data are zero, as git leaves them where it has not looked at the file
//!               yet
//!  TREE         left out: the ids of whole directories, which git compares in place of the entries
//!  FSMN         left out: entries that no monitor reported as changed
//!  UNTR         emptied: what is in directories that did not change
//!  EOIE, IEOT   left out: places in the file
//! ```
//!
//! git makes each of these again. It reads the files with zero data once, at the next `git status`. That costs little:
//! the commit changes times of the files that it brings, so that git has to read them anyway, and all other entries are
//! as they were. To compare the content with the id instead would need the filters of git (`autocrlf`, LFS), and to
//! wait for a later second than the one in the entry would help only where git looks at that time (`core.trustCTime`).
//! No path is looked up in the working tree: which one belongs to an index, its configuration decides.
//!
//! A shared index keeps its checksum, by which the index names it. It is wrong then, and an index that needs such a file comes
//! with all of its entries ([`super::split`]).

use super::damage::has_checksum;
use super::file::Index;
use super::format::{HEADER, LONG, Reader, SHORT, inspect};
use super::sha1::sha1;
use std::collections::HashSet;
use std::ops::Range;

/// Data of a file, mode and more data in an entry; its object id follows.
pub const BEFORE_MODE: usize = 24;
/// Bytes of an entry behind its mode with more data of a file.
pub const AFTER_MODE: Range<usize> = 28..40;
const MODIFIED: Range<usize> = 8..12;
/// Extensions with nothing that git believes about files.
const PLAIN: &[&[u8]] = &[b"REUC", b"link", b"sdir"];
const UNTRACKED: &[u8] = b"UNTR";

/// An index in the form in which it comes to the workspace.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// The form that it has, or none.
    AsItIs,
    /// The form that it gets.
    Instead(Vec<u8>),
    /// It makes sense with ids of either length.
    Ambiguous,
}

/// Takes out of a new index what no index of the workspace says. Pure.
pub fn settled(new: &[u8], before: &[Index], is_shared: bool) -> Settled {
    let makes_sense = |id: &usize| inspect(new, *id, &mut |_| {}) == Some(true);
    let lengths: Vec<usize> = [SHORT, LONG].into_iter().filter(makes_sense).collect();
    match lengths[..] {
        [id] => {
            let instead = rewritten(new, id, &believed(before, id), is_shared);
            instead.filter(|instead| instead != new).map_or(Settled::AsItIs, Settled::Instead)
        }
        [] => Settled::AsItIs,
        _ => Settled::Ambiguous,
    }
}

/// An entry up to the end of its object id, with its name.
type Known<'a> = HashSet<(Vec<u8>, &'a [u8])>;

/// The entries that a git of the host wrote, and of which git needs no other look. The data of a file that changed in
/// the second in which the index was written, or later, say nothing (`racy-git` in git's documentation).
fn believed(before: &[Index], id: usize) -> Known<'_> {
    let mut all = Known::new();
    for index in before {
        let mut found = Known::new();
        let is_whole = inspect(&index.bytes, id, &mut |entry| {
            let block = index.bytes.get(entry.begin..entry.begin + AFTER_MODE.end + id);
            if let Some(block) = block.filter(|block| is_older(block, index.written)) {
                found.insert((entry.name.to_vec(), block));
            }
        });
        if is_whole == Some(true) {
            all.extend(found);
        }
    }
    all
}

fn is_older(block: &[u8], written: i64) -> bool {
    let seconds = block.get(MODIFIED).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    seconds.is_some_and(|seconds| i64::from(seconds) < written)
}

fn rewritten(new: &[u8], id: usize, believed: &Known<'_>, is_shared: bool) -> Option<Vec<u8>> {
    let (entries, trailer) = new.split_at_checked(new.len().checked_sub(id)?)?;
    let (mut forgotten, mut end) = (Vec::new(), HEADER);
    inspect(new, id, &mut |entry| {
        end = entry.end;
        let block = &new[entry.begin..entry.begin + AFTER_MODE.end + id];
        // The name of an entry without one is in a shared index.
        if entry.name.is_empty() || !believed.contains(&(entry.name.to_vec(), block)) {
            forgotten.push(entry.begin);
        }
    })?;
    let mut out = entries.get(..end)?.to_vec();
    for begin in forgotten {
        out[begin..begin + BEFORE_MODE].fill(0);
        out[begin + AFTER_MODE.start..begin + AFTER_MODE.end].fill(0);
    }
    let mut rest = Reader { bytes: entries, at: end };
    while rest.at < entries.len() {
        let (signature, size) = (rest.take(4)?, rest.number()?);
        let content = rest.take(size)?;
        if PLAIN.contains(&signature) {
            add(&mut out, signature, content)?;
        } else if signature == UNTRACKED
            && let Some(empty) = without_directories(content, id)
        {
            add(&mut out, signature, &empty)?;
        }
    }
    // Zeros say that there is no checksum (`index.skipHash`). A wrong one says that something is damaged, and goes on to.
    if is_shared || trailer.iter().all(|byte| *byte == 0) || !has_checksum(new, id) {
        out.extend(trailer);
    } else if id == SHORT {
        out.extend(sha1(&out));
    } else {
        out.extend([0; LONG]);
    }
    Some(out)
}

fn add(out: &mut Vec<u8>, signature: &[u8], content: &[u8]) -> Option<()> {
    out.extend(signature);
    out.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
    out.extend(content);
    Some(())
}

/// The beginning of an untracked cache, which says what it is for, with no directory.
fn without_directories(content: &[u8], id: usize) -> Option<Vec<u8>> {
    // Data and ids of two files with patterns, and flags.
    const OF_FILES: usize = 2 * 36 + 4;
    let mut reader = Reader { bytes: content, at: 0 };
    let place = reader.varint()?;
    reader.take(place)?;
    reader.take(OF_FILES + 2 * id)?;
    reader.text()?;
    let mut empty = content.get(..reader.at)?.to_vec();
    empty.push(0);
    Some(empty)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, extension, stamped};
    use super::*;

    fn index(entries: &[(&str, u32, u8)], id: usize) -> Vec<u8> {
        closed(stamped(entries, id), id)
    }

    fn at(bytes: &[u8], written: i64) -> Index {
        Index { bytes: bytes.to_vec(), written }
    }

    #[test]
    fn entries_keep_the_data_that_the_workspace_has() {
        for id in [SHORT, LONG] {
            let old = index(&[("a", 5, 1), ("b", 5, 1), ("c", 9, 1)], id);
            let new = index(&[("a", 5, 1), ("b", 5, 2), ("c", 9, 1), ("d", 5, 1)], id);
            for (before, kept) in
                [(vec![at(&old, 9)], vec!["a"]), (vec![at(&old, 10)], vec!["a", "c"]), (vec![], vec![])]
            {
                let Settled::Instead(instead) = settled(&new, &before, false) else { panic!() };
                let mut data = Vec::new();
                inspect(&instead, id, &mut |entry| {
                    let block = &instead[entry.begin..entry.begin + AFTER_MODE.end];
                    assert_eq!(block[BEFORE_MODE..AFTER_MODE.start], 0o10_0644_u32.to_be_bytes());
                    let is_zero = block[..BEFORE_MODE].iter().chain(&block[AFTER_MODE]).all(|byte| *byte == 0);
                    data.extend((!is_zero).then(|| String::from_utf8(entry.name.to_vec()).unwrap()));
                });
                assert_eq!(data, kept, "{id}");
            }
            assert_eq!(settled(&old, &[at(&old, 10)], false), Settled::AsItIs);
        }
    }

    #[test]
    fn a_settled_index_has_its_checksum_and_a_shared_one_its_name() {
        let content = stamped(&[("a", 5, 1)], SHORT);
        let sum = sha1(&content);
        for (is_shared, sum, is_kept) in [(false, sum, false), (true, sum, true), (false, [7; SHORT], true)] {
            let new = [&content[..], &sum].concat();
            let Settled::Instead(instead) = settled(&new, &[], is_shared) else { panic!() };
            let (content, trailer) = instead.split_at(instead.len() - SHORT);
            assert_eq!(trailer, if is_kept { sum } else { sha1(content) });
        }
        let none = index(&[("a", 5, 1)], SHORT);
        let Settled::Instead(instead) = settled(&none, &[], false) else { panic!() };
        assert!(instead.ends_with(&[0; SHORT]));
    }

    #[test]
    fn caches_of_an_index_do_not_come() {
        let base = stamped(&[("a", 5, 1)], SHORT);
        let untracked = [&b"\x02me"[..], &[9; 76 + 40], b".gitignore\0", &[3; 50]].concat();
        let start = u32::try_from(base.len()).unwrap().to_be_bytes();
        let caches = [
            extension(b"TREE", b"x"),
            extension(b"REUC", b"r"),
            extension(b"FSMN", b"f"),
            extension(b"UNTR", &untracked),
            extension(b"EOIE", &[&start[..], &[0; 20]].concat()),
        ];
        let new = closed([base.clone(), caches.concat()].concat(), SHORT);
        let old = at(&closed(base.clone(), SHORT), 10);
        let Settled::Instead(instead) = settled(&new, &[old], false) else { panic!() };
        let empty = [&b"\x02me"[..], &[9; 76 + 40], b".gitignore\0\0"].concat();
        let wanted = [base, extension(b"REUC", b"r"), extension(b"UNTR", &empty)].concat();
        assert_eq!(instead, closed(wanted, SHORT));
        assert_eq!(without_directories(&untracked[..60], SHORT), None);
    }
}
