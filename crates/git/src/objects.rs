//! Recognizes the objects of git repositories by their paths. Pure.

use nexus_beneath::fold::fold;

/// Tells whether Git LFS has such a path: its objects have the hash of their content as their name.
pub fn is_of_lfs(above: &[&[u8]], below: &[&[u8]]) -> bool {
    let [.., b"lfs"] = above else { return false };
    let [one, two, object] = below else { return false };
    [*one, *two].iter().all(|part| part.len() == 2 && is_hex(part)) && object.len() == 64 && is_hex(object)
}

/// Directories of `refs` in which names are free.
const REFS: &[&[u8]] = &[b"heads", b"tags", b"remotes"];

/// Tells whether an entry that goes away from this path is an object of git, a pack, or a directory of them.
pub fn stays(path: &[u8]) -> bool {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    // A branch may be named so.
    let is_ref = |at: usize| names[..at].windows(2).any(|pair| pair[0] == b"refs" && REFS.contains(&pair[1]));
    let is_inside = |at: usize| names[..at].contains(&&b".git"[..]) && !is_ref(at);
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

/// Reports whether only an object of git or a file of a pack has such a path.
pub fn is_shaped(path: &[u8]) -> bool {
    let names: Vec<_> = path.rsplit(|byte| *byte == b'/').take(3).map(fold).collect();
    let [object, directory, objects] = &names[..] else { return false };
    objects.as_ref() == b"objects" && has_shape(&[directory, object])
}

/// Tells whether only git has such a path below a directory `objects`: a repository may have any name.
pub fn has_shape(below: &[&[u8]]) -> bool {
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

/// Tells whether a name is that of an index which others share, with its checksum.
pub fn is_shared_index(name: &[u8]) -> bool {
    name.strip_prefix(b"sharedindex.").is_some_and(|sum| matches!(sum.len(), 40 | 64) && is_hex(sum))
}

/// Reports whether a name has nothing but hexadecimal digits.
pub fn is_hex(name: &[u8]) -> bool {
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
            ".git/refs/heads/objects/x",
            ".git/logs/refs/remotes/o/objects/x",
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
