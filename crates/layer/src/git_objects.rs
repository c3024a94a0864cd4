//! Recognises the objects of git repositories by their paths. Pure.
//!
//! A run that deletes objects (`git gc`, `git prune`, `git repack -d`) knows the references of its own view alone: some of its
//! references may wait, others may have been made on the host meanwhile, and a further working tree that the run did not see has
//! a HEAD and an index of its own. Objects have their content's name and are only ever added to, so that a deletion is left out:
//! the next `git gc` on the host removes what no reference needs.
//!
//! The content of an object never changes either. What a run writes in the place of one is damaged (`sed -i` over all files), or the
//! same object in another form (`git repack -f`), so that it is left out, too. New objects come. The same goes for a shared index
//! (`sharedindex.SUM`): the index that names it may stay or wait, and git removes what no index names.

use crate::bare;
use crate::beneath::IoFailure;
use crate::fold::fold;
use crate::meta::EntryType;
use crate::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::walk::Walk;
use std::collections::HashMap;

/// Says why an entry waits that cannot be left out.
const CHANGED: &str = "takes the place of what git never changes";
/// Says why a directory waits that was renamed.
const MOVED: &str = "takes objects of git away from their place";

/// Leaves out what a layer changes or deletes of the objects of the workspace. A directory in the place of a file, another entry
/// in the place of a directory, and a directory that was renamed wait: there may be new objects behind it.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut known: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut found = Vec::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let is_held = matches!(node.rare.verdict, Some(Verdict::Park(_)));
        if let Some((old, verdict)) = change(node)
            && !(is_held && matches!(verdict, Verdict::Park(_)))
            && is_object(walk, old, &mut known)?
        {
            found.push((at, verdict));
        }
    }
    for (at, verdict) in found {
        tree.nodes[at].rare.verdict = Some(verdict);
    }
    Ok(())
}

/// Returns the entry of the workspace that is no longer what it was, and what comes of the change if that is an object.
fn change(node: &Node) -> Option<(&[u8], Verdict)> {
    let wait = |why: &str| Verdict::Park(why.to_owned());
    if let Lower::Moved(from) = &node.rare.lower {
        return Some((&from.at.0, wait(MOVED)));
    }
    let old = node.covers.as_ref()?;
    let is_directory = |kind| kind == EntryType::Directory;
    let fits = is_directory(node.meta.kind) == is_directory(old.meta.kind);
    let verdict = match node.role {
        Role::Whiteout | Role::Implied => Verdict::LeaveOut,
        // `git clone` within the workspace gives the file one more name.
        Role::Entry if node.group().is_some() && node.same_content => return None,
        Role::Entry if fits && node.group().is_none() => Verdict::LeaveOut,
        Role::Entry => wait(CHANGED),
    };
    Some((&old.at.0, verdict))
}

/// Tells whether a path of the workspace is that of an object, a file beside one, a directory of them, or a shared index.
fn is_object(walk: &Walk<'_>, path: &[u8], known: &mut HashMap<Vec<u8>, bool>) -> Result<bool, IoFailure> {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    if names.last().is_some_and(|name| is_shared_index(name)) {
        return Ok(true);
    }
    let mut begin = 0;
    for (at, name) in path.split(|byte| *byte == b'/').enumerate() {
        let (git_dir, below) = (path[..begin].strip_suffix(b"/").unwrap_or(b""), &names[at + 1..]);
        begin += name.len() + 1;
        if names[at] != b"objects" || below.first().is_none_or(|first| *first == b"info") {
            continue;
        }
        if has_shape(below) || (at > 0 && names[at - 1] == b".git") || is_of_lfs(&names[..at], below) {
            return Ok(true);
        }
        let is_one = match known.get(git_dir) {
            Some(is_one) => *is_one,
            None => bare::is_one(walk.base, git_dir)?,
        };
        known.insert(git_dir.to_vec(), is_one);
        if is_one {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells whether Git LFS has such a path: its objects have the hash of their content as their name.
fn is_of_lfs(above: &[&[u8]], below: &[&[u8]]) -> bool {
    let [.., b"lfs"] = above else { return false };
    let [one, two, object] = below else { return false };
    [*one, *two].iter().all(|part| part.len() == 2 && is_hex(part)) && object.len() == 64 && is_hex(object)
}

/// Directories of `refs` in which names are free.
const REFS: &[&[u8]] = &[b"heads", b"tags", b"remotes"];

/// Tells whether an entry that goes away from this path is an object of git, a pack, or a directory of them.
pub(crate) fn stays(path: &[u8]) -> bool {
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
pub(crate) fn is_shaped(path: &[u8]) -> bool {
    let names: Vec<_> = path.rsplit(|byte| *byte == b'/').take(3).map(fold).collect();
    let [object, directory, objects] = &names[..] else { return false };
    objects.as_ref() == b"objects" && has_shape(&[directory, object])
}

/// Tells whether only git has such a path below a directory `objects`: a repository may have any name.
pub(crate) fn has_shape(below: &[&[u8]]) -> bool {
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
fn is_shared_index(name: &[u8]) -> bool {
    name.strip_prefix(b"sharedindex.").is_some_and(|sum| matches!(sum.len(), 40 | 64) && is_hex(sum))
}

pub(crate) fn is_hex(name: &[u8]) -> bool {
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
