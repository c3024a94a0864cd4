//! Names beside a path for a version that cannot stay in its place: nothing is thrown away and nothing overwritten.

use crate::beneath::{Workspace, join, split};
use crate::commit::calls::{Moved, Spot, move_to_free};
use crate::faults::Faults;
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

/// Longest name of a directory entry on Linux.
const NAME_MAX: usize = 255;

/// How many names are tried before giving up.
const TRIES: usize = 99;

/// The name of a version of `name` that the commit of `run` kept. Pure.
fn name_for(name: &[u8], run: &str, attempt: usize) -> Vec<u8> {
    let start = run.len().saturating_sub(8);
    let mut suffix = format!(".nexus-conflict-{}", &run[start..]);
    if attempt > 1 {
        suffix = format!("{suffix}-{attempt}");
    }
    let stem = &name[..cut(name, NAME_MAX - suffix.len())];
    [stem, suffix.as_bytes()].concat()
}

/// The length to which a name is cut, so that no character in UTF-8 is cut in two. Pure.
fn cut(name: &[u8], max: usize) -> usize {
    if name.len() <= max {
        return name.len();
    }
    // A character begins at most three bytes before the cut; any other byte is not UTF-8 and may stand alone.
    let begins = |at: &usize| name[*at] & 0xc0 != 0x80;
    (max.saturating_sub(3)..=max).rev().find(begins).unwrap_or(max)
}

/// Moves the entry at `from` to a free name beside `path`, or to the top of the workspace when the directory of `path` is
/// not to be entered any more. Returns the new path.
pub(crate) fn put_beside(
    from: Spot<'_>,
    base: &Workspace,
    path: &[u8],
    run: &str,
    faults: &Faults,
) -> io::Result<ByteText> {
    let (parent, name) = split(path);
    let mut last = io::Error::other("no name is free");
    for parent in [parent, b""] {
        let Ok(dir) = base.dir_by_force(parent) else { continue };
        for attempt in 1..=TRIES {
            let free = name_for(name, run, attempt);
            match move_to_free(from, Spot { dir: dir.as_fd(), name: &free }, faults) {
                Ok(Moved::Yes) => return Ok(ByteText(join(parent, &free))),
                Ok(Moved::Occupied) => {}
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
    }
    Err(last)
}

/// A version that an interrupted commit of the same run put beside `path`.
pub(crate) fn found_beside(base: &Workspace, path: &[u8], run: &str) -> io::Result<Option<ByteText>> {
    let (parent, name) = split(path);
    for parent in [parent, b""] {
        let at = join(parent, &name_for(name, run, 1));
        if base.stat(&at)?.is_some() {
            return Ok(Some(ByteText(at)));
        }
        if parent.is_empty() {
            break;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_a_long_name_still_fits() {
        let long = [b'x'; 255];
        let name = name_for(&long, "0199d3c1-aaaa-bbbb-cccc-0123456789ab", 12);
        assert_eq!(name.len(), 255);
        assert!(name.ends_with(b".nexus-conflict-456789ab-12"));
        assert_eq!(name_for(b"notes.md", "run", 1), b"notes.md.nexus-conflict-run");
    }

    #[test]
    fn a_long_name_is_never_cut_inside_a_character() {
        for letter in ["x", "ä", "€", "😀"] {
            for shift in 0..5 {
                let long = "y".repeat(shift) + &letter.repeat((255 - shift) / letter.len());
                for attempt in [1, 2, 12] {
                    let name = String::from_utf8(name_for(long.as_bytes(), "0199d3c1-aaaa", attempt)).unwrap();
                    assert!(name.len() <= 255 && name.len() > 255 - 4, "{name}");
                    let stem = name.split(".nexus-conflict").next().unwrap();
                    assert!(long.starts_with(stem));
                }
            }
        }
        // Bytes that are no UTF-8 at all are cut where the room ends.
        assert_eq!(name_for(&[0xbf; 255], "run", 1).len(), 255);
    }
}
