//! Properties of the readers of git's files over arbitrary bytes, as plain functions: the package `fuzz` gives each to its
//! fuzzer, and the tests of this crate call them with every seed. Each panics where a property fails.

use crate::index;
use crate::packs::inflate::Inflater;
use crate::packs::object_id::{Format, Hasher, Kind};
use crate::packs::pack_index::PackIndex;
use crate::packs::problem::Budget;
use crate::packs::{loose, pack};
use crate::refs::{RefFile, inside_git, is_head, is_symbolic, packed, ref_file, target};

/// An index: what is understood names no entry that leads out of the working tree or into a git directory, and an index hides
/// only entries that it has.
pub fn git_index(data: &[u8]) {
    for id in [20, 32] {
        let mut names = Vec::new();
        let is_good = index::format::inspect(data, id, &mut |entry| names.push(entry.name.to_vec()));
        assert_eq!(index::file::problem(data, id).is_none(), is_good == Some(true));
        if is_good != Some(true) {
            continue;
        }
        for name in names {
            let is_bad = |part: &[u8]| part == b"." || part == b".." || part.eq_ignore_ascii_case(b".git");
            assert!(!name.split(|byte| *byte == b'/').any(is_bad), "{:?}", name.escape_ascii().to_string());
            assert!(!name.starts_with(b"/") && !name.contains(&0), "{:?}", name.escape_ascii().to_string());
        }
    }
    let mut all = std::collections::HashSet::new();
    for id in [20, 32] {
        index::format::inspect(data, id, &mut |entry| {
            all.insert(entry.name.to_vec());
        });
    }
    assert!(index::flags::hidden(data).iter().all(|one| all.contains(&one.0)), "it hides what it does not have");
    assert!(
        index::recorded::entries(data).iter().all(|one| all.contains(&one.name)),
        "it records what it does not have"
    );
}

/// A ref: the first line is its path below a git directory, the rest its text.
pub fn git_refs(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (path, text) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let file = ref_file(path);
    assert_eq!(file, ref_file(&path.to_ascii_uppercase()), "a file system may fold names");
    let inside = [b"a/.git/", path].concat();
    if !path.is_empty() {
        assert_eq!(inside_git(&inside), Some(path));
    }
    let is_reference = text.starts_with(b"ref:");
    assert_eq!(target(text).is_some(), is_reference);
    if let Some(RefFile::One(names)) = &file {
        assert!(!names.is_empty());
        assert!(is_reference || !is_symbolic(names, text), "it names no other ref");
    }
    for is_new in [false, true] {
        if is_head(text, is_new) && is_reference {
            let branch = target(text).and_then(|target| target.strip_prefix(b"refs/heads/")).unwrap_or_default();
            let is_control = |byte: &u8| byte.is_ascii_control() || *byte == b' ';
            assert!(!branch.is_empty() && !branch.iter().any(is_control) && !branch.windows(2).any(|two| two == b".."));
        }
    }
    for name in packed(Some(data)) {
        assert!(!name.contains(&b'\n'));
    }
}

/// Bytes that the readers of objects may use for one input.
const OBJECT_BYTES: u64 = 4 << 20;

/// A pack and its index: the length of the index in four bytes, the index, the pack. Each whole object of a verified pack has
/// the hash that the index says, by a reader that takes the stream at once. The same bytes are read as a loose object.
pub fn git_packs(data: &[u8]) {
    for format in [Format::Sha1, Format::Sha256] {
        loose_object(data, format);
        let Some((length, rest)) = data.split_first_chunk::<4>() else { continue };
        let Some((index, pack)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else { continue };
        let Some(index) = PackIndex::parse(index.to_vec(), format) else { continue };
        for at in 0..index.count().min(1000) {
            let found = index.find(index.id(at));
            assert!(found.is_none_or(|found| index.id(found) == index.id(at)));
        }
        if pack::verify(pack, pack.len() as u64, &index, &Budget::of(OBJECT_BYTES)).is_err() {
            continue;
        }
        for at in 0..index.count() {
            assert_eq!(index.find(index.id(at)), Some(at));
            let Some(object) = index.offset(at).and_then(|offset| pack.get(offset as usize..)) else {
                panic!("an object of a verified pack lies outside of it");
            };
            let kind = match object[0] >> 4 & 7 {
                1 => Kind::Commit,
                2 => Kind::Tree,
                3 => Kind::Blob,
                4 => Kind::Tag,
                _ => continue,
            };
            let header = object.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
            let whole = miniz_oxide::inflate::decompress_to_vec_zlib(&object[header..]).unwrap_or_default();
            assert!(is_it(format, kind, &whole, index.id(at)), "a verified object has another hash");
        }
    }
}

fn is_it(format: Format, kind: Kind, content: &[u8], id: &[u8]) -> bool {
    let mut hasher = Hasher::new(format, kind, content.len() as u64);
    hasher.update(content);
    hasher.is(id)
}

/// No object is verified under the id of another one.
fn loose_object(data: &[u8], format: Format) {
    let budget = Budget::of(OBJECT_BYTES);
    let id = vec![1; format.id_length()];
    let result = loose::verify(data, data.len() as u64, (format, &id), &mut Inflater::new(&budget));
    assert!(result.is_err(), "an object is verified under an id that is not its own");
}
