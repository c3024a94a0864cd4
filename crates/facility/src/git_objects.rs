//! Recognises the objects of git repositories by their paths. Pure.
//!
//! A run that deletes objects (`git gc`, `git prune`, `git repack -d`) knows the references of its own view alone: some of its
//! references may wait, others may have been made on the host meanwhile, and a further working tree that the run did not see has
//! a HEAD and an index of its own. Objects have their content's name and are only ever added to, so that a deletion is left out:
//! the next `git gc` on the host removes what no reference needs.

use crate::fold::fold;

/// Tells whether an entry that goes away from this path is an object of git, a pack, or a directory of them.
pub(crate) fn stays(path: &[u8]) -> bool {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    let is_inside = |at: usize| names[..at].contains(&&b".git"[..]);
    let places = (0..names.len()).filter(|at| names[*at] == b"objects");
    places.into_iter().any(|at| {
        let below = &names[at + 1..];
        (is_inside(at) && !below.is_empty() && !is_pointer(below)) || has_shape(below)
    })
}

/// Tells whether a path below `objects` is a file that names other places.
fn is_pointer(below: &[&[u8]]) -> bool {
    matches!(below, [b"info", b"alternates" | b"http-alternates"])
}

/// Tells whether only git has such a path below a directory `objects`: a repository may have any name.
fn has_shape(below: &[&[u8]]) -> bool {
    match below {
        [directory, object] => {
            let is_object =
                directory.len() == 2 && matches!(object.len(), 38 | 62) && is_hex(directory) && is_hex(object);
            is_object || (*directory == b"pack" && is_pack(object))
        }
        _ => false,
    }
}

/// Tells whether a name is that of a pack or of a file beside one: `pack-`, the checksum, and a kind.
fn is_pack(name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'.').collect();
    let [pack, _kind] = parts[..] else { return false };
    pack.strip_prefix(b"pack-").is_some_and(|checksum| matches!(checksum.len(), 40 | 64) && is_hex(checksum))
}

fn is_hex(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_recognised_by_their_paths() {
        let object = "0123456789abcdef0123456789abcdef012345";
        let of = |text: &str| stays(text.replace('P', &format!("{object}00")).replace('H', object).as_bytes());
        for path in [
            ".git/objects/ab/H",
            ".git/objects/ab",
            ".git/objects/pack/pack-P.idx",
            "a/.git/modules/b/objects/pack/multi-pack-index",
            "a/.GIT/Objects/ab/H",
            "bare.git/objects/ab/H",
            "x/objects/pack/pack-P.pack",
        ] {
            assert!(of(path), "{path}");
        }
        for path in [
            ".git",
            ".git/objects",
            ".git/objects/info/alternates",
            ".git/modules/b/objects/info/alternates",
            "objects/ab/file",
            "objects/ab",
            "objects/pack/readme",
            "objects/pack/pack-1.bin",
            "objects/pack/pack-P",
            "objects/pack/pack-H.pack",
            "objects",
            "src/objects/H",
        ] {
            assert!(!of(path), "{path}");
        }
    }
}
