//! What an index says of a directory of its working tree.

use super::{Content, Entry, LONG, SHORT, flags, look, read};
use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, names};
use crate::link_ends::is_no_way;
use crate::reads::Reads;
use std::os::fd::AsFd as _;

/// Tells whether the index in a git directory, if it has one, surely names nothing at, above and below a directory.
pub(crate) fn leaves_free(
    tree: &Workspace,
    git_dir: &[u8],
    directory: &[u8],
    reads: &Reads,
) -> Result<bool, IoFailure> {
    is_such(tree, git_dir, reads, |bytes| names_none(bytes, directory))
}

/// Tells whether the index in a git directory, if it has one, has only names that a tree can have, and hides nothing.
pub(crate) fn is_plain(tree: &Workspace, git_dir: &[u8], reads: &Reads) -> Result<bool, IoFailure> {
    is_such(tree, git_dir, reads, |bytes| {
        let lengths = [SHORT, LONG].map(|length| look(bytes, length, &mut |_| {}));
        lengths.contains(&Some(true)) && !lengths.contains(&Some(false)) && !flags::hide_more(bytes, &[])
    })
}

fn is_such(tree: &Workspace, git_dir: &[u8], reads: &Reads, judge: impl Fn(&[u8]) -> bool) -> Result<bool, IoFailure> {
    let dir = match tree.readable_dir(git_dir) {
        Ok(dir) => dir,
        Err(error) if is_no_way(&error) => return Ok(false),
        Err(error) => return Err(error).doing("open", git_dir),
    };
    let all = names(dir.as_fd()).doing("list", git_dir)?;
    // It has the names that a split index leaves out.
    if all.iter().any(|name| name.starts_with(b"sharedindex.")) {
        return Ok(false);
    }
    if !all.iter().any(|name| name == b"index") {
        return Ok(true);
    }
    match read(dir.as_fd(), b"index", reads) {
        Ok(Content::Index(index)) => Ok(judge(&index.bytes)),
        Ok(Content::Other | Content::Closed | Content::TooLarge) => Ok(false),
        Err(error) if is_no_way(&error) => Ok(false),
        Err(error) => Err(error).doing("read the index of", git_dir),
    }
}

fn names_none(bytes: &[u8], directory: &[u8]) -> bool {
    let mut is_understood = false;
    for length in [SHORT, LONG] {
        let mut is_free = true;
        let mut add = |entry: &Entry<'_>| {
            // A sparse index has directories.
            let name = entry.name.strip_suffix(b"/").unwrap_or(entry.name);
            is_free &= !is_beneath(name, directory) && !is_beneath(directory, name);
        };
        if look(bytes, length, &mut add).is_some() {
            is_understood = true;
            if !is_free {
                return false;
            }
        }
    }
    is_understood
}

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, flagged};
    use super::*;

    #[test]
    fn a_directory_is_free_when_no_name_is_there() {
        for id in [SHORT, LONG] {
            let index = |name: &str| closed(flagged(&[(name, 0, 0)], id), id);
            for (name, wanted) in
                [("a", true), ("src/f", true), ("wtx", true), ("wt/f", false), ("wt", false), ("t/wt", true)]
            {
                assert_eq!(names_none(&index(name), b"wt"), wanted, "{name}");
            }
            assert!(!names_none(&index("t"), b"t/wt"), "a submodule above");
        }
        assert!(!names_none(b"DIRC", b"wt"), "it cannot be understood");
    }
}
