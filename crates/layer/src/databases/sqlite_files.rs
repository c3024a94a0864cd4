//! Tells a database of SQLite from files that have such names only (`notes` and `notes-journal`), by the first bytes of each version.
//!
//! | the first bytes | |
//! |---|---|
//! | of a version of `NAME` | `SQLite format 3`, or zeros, which stand for content that lies elsewhere (a file of overlay without data) |
//! | of a version of `NAME-wal` or `NAME-journal` | the number that SQLite begins such a file with, also that of an encrypted database |
//!
//! One of them makes it a database, and so does a file that cannot be read (<https://www.sqlite.org/fileformat.html>, 1.3, 3 and 4.1).

use crate::beneath::{Workspace, is_gone, open_file, split};
use crate::databases::companions::{LOGS, databases_of, is_log};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::AsFd as _;

/// The first bytes of a database.
const DATABASE: &[u8; 16] = b"SQLite format 3\0";
/// The first bytes of `NAME-journal`, and those of `NAME-wal` for the two orders of bytes in its checksums.
const OF_LOGS: [&[u8]; 3] =
    [&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7], &[0x37, 0x7f, 6, 0x82], &[0x37, 0x7f, 6, 0x83]];

/// Reports whether a version of a file, or of a log beside it, in one of these trees is one of SQLite.
pub(crate) fn is_database(trees: &[&Workspace], database: &[u8]) -> bool {
    let any = |path: &[u8], is_one: &dyn Fn(&[u8]) -> bool| {
        trees.iter().any(|tree| match first_bytes(tree, path) {
            Ok(Some(bytes)) => is_one(&bytes),
            Ok(None) => false,
            Err(_) => true,
        })
    };
    let is_log = |bytes: &[u8]| OF_LOGS.iter().any(|magic| bytes.starts_with(magic));
    any(database, &|bytes| bytes == DATABASE || (bytes.len() == DATABASE.len() && bytes.iter().all(|byte| *byte == 0)))
        || LOGS.iter().any(|end| any(&[database, end].concat(), &is_log))
}

/// Reports whether a file may be of a database of SQLite, by its name and that of the others.
pub(crate) fn is_of_database(trees: &[&Workspace], path: &[u8]) -> bool {
    let is_one = |path: &[u8]| is_database(trees, path);
    if is_log(path) { databases_of(path).any(is_one) || is_one(path) } else { is_one(path) }
}

/// Returns the first bytes of a file; `None` where there is no file.
fn first_bytes(tree: &Workspace, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
    const NONE: [rustix::io::Errno; 3] =
        [rustix::io::Errno::NAMETOOLONG, rustix::io::Errno::NXIO, rustix::io::Errno::LOOP];
    let (parent, name) = split(path);
    let file = match tree.dir(parent).and_then(|dir| open_file(dir.as_fd(), name, OFlags::RDONLY)) {
        Ok(file) => file,
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) if NONE.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error())) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; DATABASE.len()];
    let count = rustix::io::pread(&file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_first_bytes_or_those_of_its_log() {
        let wal: &[u8] = &[0x37, 0x7f, 6, 0x83, 0];
        let journal: &[u8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0];
        for (files, wanted) in [
            (&[("x", &b"SQLite format 3\0..."[..])][..], true),
            (&[("x", &[0; 100])], true),
            (&[("x-wal", wal)], true),
            (&[("x", b"encrypted"), ("x-wal", wal)], true),
            (&[("x", b""), ("x-journal", journal)], true),
            (&[("x", b"text"), ("x-journal", b"text")], false),
            (&[("x", b"SQLite format 3, a text"), ("x-wal", b"log")], false),
            (&[("x-journal", b"text")], false),
            (&[("x", b"")], false),
            (&[], false),
        ] {
            for has_two in [false, true] {
                let tops = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
                for (name, bytes) in files {
                    std::fs::write(tops[usize::from(has_two)].path().join(name), bytes).unwrap();
                }
                let trees = tops.each_ref().map(|top| Workspace::open(top.path()).unwrap());
                let trees: Vec<&Workspace> = trees.iter().collect();
                assert_eq!(is_database(&trees, b"x"), wanted, "{files:?}");
                for path in [&b"x"[..], b"x-wal", b"x-journal"] {
                    assert_eq!(is_of_database(&trees, path), wanted, "{files:?} {path:?}");
                }
            }
        }
    }
}
