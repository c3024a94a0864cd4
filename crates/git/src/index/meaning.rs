//! Reads what an index of git says, apart from what git saw of files. Pure.

use super::format::{EXTENDED, HEADER, LENGTH, LONG, Reader, SHORT, inspect};
use super::stat_data::{AFTER_MODE, BEFORE_MODE};
use std::fmt::Write as _;

/// Returns a checksum of the names, object ids, modes and flags of an index, and of the extensions that are not caches.
/// `None` for an index that says a part of it in another file, or that makes no sense. Pure.
pub fn meaning(bytes: &[u8]) -> Option<String> {
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
