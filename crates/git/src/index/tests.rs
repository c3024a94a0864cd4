use super::file::{NAMES, UNKNOWN, problem};
use super::format::{EXTENDED, HEADER, MAGIC};

fn entry(name: &[u8], begin: usize, id: usize) -> Vec<u8> {
    let mut one = vec![0; 24];
    one.extend(0o10_0644_u32.to_be_bytes());
    one.extend(vec![0; 12 + id]);
    one.extend(u16::try_from(name.len().min(0xfff)).unwrap().to_be_bytes());
    one.extend(name);
    let padded = (one.len() + 8) & !7;
    one.resize(padded, 0);
    assert_eq!((begin + one.len()) % 4, 0);
    one
}

pub fn index(names: &[&[u8]], id: usize) -> Vec<u8> {
    let count = u32::try_from(names.len()).unwrap();
    let mut bytes = [MAGIC, &2_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for name in names {
        bytes.extend(entry(name, bytes.len(), id));
    }
    bytes
}

/// Builds an index of names with the second of change and the object id of each.
pub fn stamped(entries: &[(&str, u32, u8)], id: usize) -> Vec<u8> {
    let names: Vec<&[u8]> = entries.iter().map(|(name, ..)| name.as_bytes()).collect();
    let mut bytes = index(&names, id);
    let mut begin = HEADER;
    for (name, second, object) in entries {
        bytes[begin..begin + 24].fill(1);
        bytes[begin + 8..begin + 12].copy_from_slice(&second.to_be_bytes());
        bytes[begin + 28..begin + 40].fill(1);
        bytes[begin + 40..begin + 40 + id].fill(*object);
        begin += (42 + id + name.len() + 8) & !7;
    }
    bytes
}

/// Builds an index of version 3, of names with the flags of each.
pub fn flagged(entries: &[(&str, u16, u16)], id: usize) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap();
    let mut bytes = [MAGIC, &3_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for (name, flags, more) in entries {
        let begin = bytes.len();
        bytes.resize(begin + 40 + id, 0);
        let extended = if *more == 0 { 0 } else { EXTENDED };
        bytes.extend((u16::try_from(name.len()).unwrap() | flags | extended).to_be_bytes());
        if *more != 0 {
            bytes.extend(more.to_be_bytes());
        }
        bytes.extend(name.as_bytes());
        bytes.resize(begin + ((bytes.len() - begin + 8) & !7), 0);
    }
    bytes
}

pub fn extension(name: &[u8], content: &[u8]) -> Vec<u8> {
    [name, &u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

/// With the checksum at its end.
pub fn closed(mut bytes: Vec<u8>, id: usize) -> Vec<u8> {
    bytes.extend(vec![0; id]);
    bytes
}

/// Version 4: what stays of the name before, and what comes to it.
fn compressed(names: &[(u8, &[u8])], lengths: &[u16]) -> Vec<u8> {
    let count = u32::try_from(names.len()).unwrap();
    let mut bytes = [MAGIC, &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for ((stripped, text), length) in names.iter().zip(lengths) {
        bytes.extend(vec![0; 60]);
        bytes.extend(length.to_be_bytes());
        bytes.push(*stripped);
        bytes.extend(*text);
        bytes.push(0);
    }
    closed(bytes, 20)
}

#[test]
fn names_of_an_index_are_those_of_a_tree_or_it_waits() {
    for id in [20, 32] {
        for name in
            ["f", "a/b", ".gitignore", "a/.github/x", "...", "a/..b", "x/".repeat(2047).as_str().trim_end_matches('/')]
        {
            assert_eq!(problem(&closed(index(&[b"a", name.as_bytes()], id), id), id), None, "{name}");
        }
        for name in [
            ".git/hooks/post-checkout",
            "a/.git/config",
            ".GIT/config",
            "git~1/config",
            ".g\u{200c}it/config",
            "../out",
            "a/../../out",
            "/etc/x",
            "a//b",
            "./a",
            "a/",
            "",
            &"x/".repeat(2049)[..4097],
            &"x".repeat(256),
        ] {
            assert_eq!(problem(&closed(index(&[b"a", name.as_bytes()], id), id), id), Some(NAMES), "{name}");
        }
    }
    assert_eq!(problem(&closed(index(&[], 20), 20), 20), None);
}

#[test]
fn names_of_a_compressed_index_are_put_together() {
    assert_eq!(problem(&compressed(&[(0, b"dir/a"), (1, b"b"), (5, b"x")], &[5, 5, 1]), 20), None);
    let split = compressed(&[(0, b"dir/.g"), (0, b"it/config")], &[6, 15]);
    assert_eq!(problem(&split, 20), Some(NAMES));
    let split = compressed(&[(0, b"..x"), (1, b"/out")], &[3, 6]);
    assert_eq!(problem(&split, 20), Some(NAMES));
    assert_eq!(problem(&compressed(&[(0, b"a"), (2, b"b")], &[1, 1]), 20), Some(UNKNOWN), "more than there is");
}

#[test]
fn an_index_that_hides_its_names_waits() {
    let base = || index(&[b"a", b"b"], 20);
    let start = u32::try_from(base().len()).unwrap().to_be_bytes();
    let with = |more: &[u8]| closed([base(), more.to_vec()].concat(), 20);
    let first = 12_u32.to_be_bytes();
    let (one, two) = (1_u32.to_be_bytes(), 2_u32.to_be_bytes());
    let end = |offset: [u8; 4]| extension(b"EOIE", &[&offset[..], &[0; 20]].concat());
    for good in [
        extension(b"TREE", b"x"),
        extension(b"sdir", b""),
        extension(b"UNTR", &[b"EOIE".as_slice(), &[0; 29]].concat()),
        end(start),
        extension(b"IEOT", &[one, first, two].concat()),
    ] {
        assert_eq!(problem(&with(&good), 20), None, "{good:?}");
    }
    for bad in [
        extension(b"abcd", b""),
        extension(b"TREE", b"x")[..8].to_vec(),
        end(first),
        extension(b"ZZZZ", b"x"),
        extension(b"ZZZZ", &end(first)),
        extension(b"TREE", &end(first)),
        extension(b"TREE", &end(start)),
        extension(b"IEOT", &[one, start, two].concat()),
        extension(b"IEOT", &[one, first, one].concat()),
        b"x".to_vec(),
    ] {
        assert_eq!(problem(&with(&bad), 20), Some(UNKNOWN), "{bad:?}");
    }
    // Rules of another file about its names are checked there.
    let split = closed([index(&[b""], 20), extension(b"link", &[0; 20])].concat(), 20);
    assert_eq!(problem(&split, 20), None);
    for (at, byte) in [(7, 5), (11, 3), (73, 9)] {
        let mut bytes = with(b"");
        bytes[at] = byte;
        assert_eq!(problem(&bytes, 20), Some(UNKNOWN), "byte {at}");
    }
}

#[test]
fn no_bytes_make_the_reader_of_an_index_panic() {
    let whole = closed([index(&[b"a", b".git/b"], 20), extension(b"IEOT", &[0; 20])].concat(), 20);
    for end in 0..whole.len() {
        problem(&whole[..end], 20);
        let mut bytes = whole.clone();
        bytes[end] = 0xff;
        assert!(problem(&bytes, 20).is_some(), "{end}");
    }
    for bytes in [vec![0xff; 100], compressed(&[(0x80, b"\xff")], &[0xffff])] {
        problem(&bytes, 20);
    }
}

#[test]
fn the_end_of_entries_is_looked_for_where_git_does() {
    // git takes it from the 32 bytes before the trailer with ids of each length, and does not verify the trailer.
    for id in [20, 32] {
        let base = index(&[b"a", b"b"], id);
        let start = u32::try_from(base.len()).unwrap().to_be_bytes();
        let end = |offset: [u8; 4]| extension(b"EOIE", &[&offset[..], &[0; 20]].concat());
        let with = |more: &[u8]| closed([base.clone(), more.to_vec()].concat(), id);
        assert_eq!(problem(&with(&end(start)), id), None);
        // What git writes with long ids, and does not find itself.
        assert_eq!(problem(&with(&extension(b"EOIE", &[&start[..], &[0; 32]].concat())), id), None);
        for known in [b"TREE", b"REUC", b"UNTR", b"FSMN", b"link", b"sdir"] {
            assert_eq!(problem(&with(&extension(known, &end(12_u32.to_be_bytes()))), id), Some(UNKNOWN), "{known:?}");
        }
    }
}

#[test]
fn the_time_for_an_index_does_not_grow_with_the_names() {
    let lengths: Vec<u16> = vec![0xfff; 200_000];
    let mut names = vec![(0, &b""[..]); lengths.len()];
    let long = [b"a/".repeat(2047).as_slice(), b"b"].concat();
    names[0] = (0, &long);
    let begin = std::time::Instant::now();
    assert_eq!(problem(&compressed(&names, &lengths), 20), None);
    // Looking at each whole name would take minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
}
