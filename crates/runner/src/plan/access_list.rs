//! Reads what the access list of a directory lets users do in it (acl(5)), where the bits of its mode do not say it.

use rustix::io::Errno;
use std::path::Path;

const ACCESS_LIST: &str = "system.posix_acl_access";
/// Bytes that are read: some 500 entries. ext4 has no room for more.
const MAX_BYTES: usize = 4 << 10;

/// The form of the list (linux/posix_acl_xattr.h): a version of four bytes, then tag, bits and id of each entry in little endian.
const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

const READ_AND_ENTER: u16 = 0b101;
const ENTER: u16 = 0b001;

/// Reports whether a directory has an access list by which some user may use names in it and not list them. One that cannot be read
/// counts as such a list.
pub(super) fn lets_some_only_enter(directory: &Path) -> bool {
    let mut list = [0; MAX_BYTES];
    match rustix::fs::lgetxattr(directory, ACCESS_LIST, &mut list) {
        Ok(length) => some_only_enter(&list[..length]),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Err(_) => true,
    }
}

/// Each user has the bits of one entry, or of several of groups together: a user who may only enter is in one that says so.
fn some_only_enter(list: &[u8]) -> bool {
    let Some((version, entries)) = list.split_first_chunk::<HEADER>() else { return true };
    let entries = entries.chunks(ENTRY).map(|entry| match *entry {
        [tag, tag_high, bits, bits_high, ..] if entry.len() == ENTRY => {
            Some((u16::from_le_bytes([tag, tag_high]), u16::from_le_bytes([bits, bits_high])))
        }
        _ => None,
    });
    let Some(entries) = entries.collect::<Option<Vec<_>>>() else { return true };
    let mask = entries.iter().find(|(tag, _)| *tag == MASK).map_or(u16::MAX, |(_, bits)| *bits);
    let is_only_entered = |(tag, bits): &(u16, u16)| match *tag {
        USER_OBJ | OTHER => bits & READ_AND_ENTER == ENTER,
        USER | GROUP_OBJ | GROUP => bits & mask & READ_AND_ENTER == ENTER,
        MASK => false,
        _ => true,
    };
    u32::from_le_bytes(*version) != VERSION || entries.iter().any(is_only_entered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|(tag, bits)| [tag.to_le_bytes(), bits.to_le_bytes(), [0; 2], [0; 2]]);
        VERSION.to_le_bytes().into_iter().chain(entries.flatten()).collect()
    }

    #[test]
    fn an_entry_that_lets_enter_and_not_list_is_found() {
        let with = |more: &[(u16, u16)]| {
            let plain = [(USER_OBJ, 0o7), (GROUP_OBJ, 0o5), (OTHER, 0o0)];
            some_only_enter(&list(&[&plain[..], more].concat()))
        };
        assert!(!with(&[]));
        for tag in [USER, GROUP] {
            assert!(with(&[(tag, 0o1), (MASK, 0o5)]) && with(&[(tag, 0o3), (MASK, 0o7)]));
            assert!(!with(&[(tag, 0o5), (MASK, 0o5)]) && !with(&[(tag, 0o4), (MASK, 0o5)]));
            assert!(with(&[(tag, 0o5), (MASK, 0o1)]), "the mask takes the right to list");
            assert!(!with(&[(tag, 0o1), (MASK, 0o4)]), "the mask takes the right to enter");
        }
        assert!(some_only_enter(&list(&[(USER_OBJ, 0o1)])) && some_only_enter(&list(&[(OTHER, 0o1)])));
    }

    #[test]
    fn a_list_of_another_form_counts_as_one_that_lets_enter() {
        let whole = list(&[(USER_OBJ, 0o7), (GROUP_OBJ, 0o5), (OTHER, 0o5)]);
        assert!(!some_only_enter(&whole));
        assert!(some_only_enter(&whole[..whole.len() - 1]) && some_only_enter(&[]) && some_only_enter(&[2, 0]));
        assert!(some_only_enter(&[&3u32.to_le_bytes(), &whole[HEADER..]].concat()));
        assert!(some_only_enter(&list(&[(0x40, 0o7)])));
    }
}
