//! The git directory that an entry of it belongs to, by its path alone. Pure.

use crate::commits::{Form, common, place};
use nexus_beneath::fold::fold;
use nexus_beneath::split;

/// Entries of a git directory that name objects, beside refs and logs.
const NAMING: &[&[u8]] = &[
    b"index",
    b"logs",
    b"merge_autostash",
    b"rebase-apply",
    b"rebase-merge",
    b"refs",
    b"reftable",
    b"shallow",
    b"worktrees",
];

/// Names of a git directory that may lead to what is gone.
const FORMER: &[&[u8]] = &[b"orig_head", b"fetch_head", b"rebase_head"];
/// Directories of work that git resumes.
const WORK: &[&[u8]] = &[b"rebase-apply", b"rebase-merge"];

/// The form in which a file of a git directory names objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// A ref, or many of them.
    Refs,
    /// A log of a ref.
    Log,
    /// The index of a working tree.
    Index,
    /// The part of a split index that others share. It may name what is gone.
    SharedIndex,
    /// Work that git resumes. It may name what is gone.
    Work,
    /// A part of the refs in the form `reftable`, which is not read.
    Tables,
}

impl Naming {
    /// Reports whether all objects have to be there that such a file names.
    pub fn is_strict(self) -> bool {
        !matches!(self, Self::SharedIndex | Self::Work)
    }

    /// Reports whether only what differs from the file of before is new.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Log | Self::Index)
    }
}

/// Returns the form in which a file names objects; `None` for one that names none, or only what may be gone.
pub fn naming(path: &[u8]) -> Option<Naming> {
    if let Some(place) = place(path) {
        return match place.form {
            Form::Ref | Form::Packed => Some(Naming::Refs),
            Form::Log => Some(Naming::Log),
            Form::Head => (!FORMER.contains(&fold(split(path).1).as_ref())).then_some(Naming::Refs),
            Form::Table => Some(Naming::Tables),
        };
    }
    let (parent, name) = split(path);
    let name = fold(name);
    if name.as_ref() == b"index" {
        return Some(Naming::Index);
    }
    if name.starts_with(b"sharedindex.") {
        return Some(Naming::SharedIndex);
    }
    let is_work = parent.split(|byte| *byte == b'/').any(|name| WORK.contains(&fold(name).as_ref()));
    (is_work || name.as_ref() == b"merge_autostash").then_some(Naming::Work)
}

/// Returns the git directory of an object, of a pack, or of a directory of them.
pub fn git_dir_of_object(path: &[u8]) -> Option<&[u8]> {
    const OBJECTS: &[u8] = b"objects";
    // Most entries have no such name.
    if !path.windows(OBJECTS.len()).any(|part| part.eq_ignore_ascii_case(OBJECTS)) {
        return None;
    }
    let (mut begin, mut is_in_git) = (0, false);
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    for (at, name) in path.split(|byte| *byte == b'/').enumerate() {
        let git_dir = path[..begin].strip_suffix(b"/").unwrap_or(b"");
        begin += name.len() + 1;
        let next = names.get(at + 1).map(AsRef::as_ref);
        let has_shape =
            next.is_some_and(|next| next == b"pack" || (next.len() == 2 && next.iter().all(u8::is_ascii_hexdigit)));
        match names[at].as_ref() {
            b".git" => is_in_git = true,
            // A branch may have any name.
            b"refs" | b"logs" | b"hooks" if is_in_git => return None,
            b"objects" if has_shape || (is_in_git && next != Some(b"info")) => return Some(git_dir),
            _ => {}
        }
    }
    None
}

/// Returns the git directory whose objects an entry names.
pub fn git_dir_of_names(path: &[u8]) -> Option<&[u8]> {
    let mut begin = 0;
    let mut found = None;
    // A directory around the repository may have any name.
    let is_git = |name: &[u8]| fold(name).as_ref() == b".git";
    let first = path
        .split(|byte| *byte == b'/')
        .enumerate()
        .filter(|(_, name)| is_git(name))
        .last()
        .map_or(0, |(at, _)| at + 1);
    for (at, name) in path.split(|byte| *byte == b'/').enumerate() {
        let git_dir = path[..begin].strip_suffix(b"/").unwrap_or(b"");
        begin += name.len() + 1;
        if at < first {
            continue;
        }
        let name = fold(name);
        if NAMING.contains(&name.as_ref()) || name.starts_with(b"sharedindex.") {
            found = found.or(Some(git_dir));
        }
    }
    place(path).map(|place| common(place.git_dir)).or(found)
}

/// Reports whether a path may be that of an index. A branch may have that name, too.
pub fn is_index(path: &[u8]) -> bool {
    fold(split(path).1).as_ref() == b"index" && place(path).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_what_names_them_have_the_same_git_directory() {
        for (path, wanted) in [
            (".git/objects/9f/00", Some(".git")),
            (".git/objects/9f", Some(".git")),
            (".git/objects", Some(".git")),
            ("a/.GIT/Objects/pack/pack-1.pack", Some("a/.GIT")),
            (".git/modules/m/objects/9f/00", Some(".git/modules/m")),
            ("srv/objects/9f", Some("srv")),
            ("objects/pack/x", Some("")),
            (".git/objects/info/commit-graph", None),
            (".git/refs/heads/objects/9f", None),
            (".git/logs/objects/9f", None),
            ("src/objects/x", None),
            (".git/config", None),
        ] {
            assert_eq!(git_dir_of_object(path.as_bytes()), wanted.map(str::as_bytes), "{path}");
        }
        for (path, wanted) in [
            (".git/refs/heads/objects/9f", Some(".git")),
            (".git/refs/remotes/origin/x", Some(".git")),
            (".git/refs", Some(".git")),
            (".git/logs", Some(".git")),
            (".git/logs/HEAD", Some(".git")),
            (".git/HEAD", Some(".git")),
            (".git/FETCH_HEAD", Some(".git")),
            (".git/packed-refs", Some(".git")),
            (".git/index", Some(".git")),
            (".git/worktrees/w/index", Some(".git")),
            (".git/worktrees/w", Some(".git")),
            (".git/rebase-merge/onto", Some(".git")),
            (".git/worktrees/w/gitdir", Some(".git")),
            (".git/worktrees/w/HEAD", Some(".git")),
            (".git/worktrees/w/refs/bisect/bad", Some(".git")),
            (".git/worktrees/w/modules/m/HEAD", Some(".git/worktrees/w/modules/m")),
            (".git/sharedindex.9f00", Some(".git")),
            (".git/MERGE_AUTOSTASH", Some(".git")),
            (".git/shallow", Some(".git")),
            (".git/reftable/tables.list", Some(".git")),
            (".git/modules/m/index", Some(".git/modules/m")),
            (".git/modules/m/HEAD", Some(".git/modules/m")),
            ("srv/HEAD", Some("srv")),
            ("src/worktrees/.git/HEAD", Some("src/worktrees/.git")),
            ("logs/x/.git/index", Some("logs/x/.git")),
            ("index/.git", None),
            (".git/config", None),
            (".git/objects/9f/00", None),
            ("src/main.rs", None),
        ] {
            assert_eq!(git_dir_of_names(path.as_bytes()), wanted.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn files_name_objects_in_known_forms() {
        for (path, wanted) in [
            (".git/refs/heads/feature/x", Some(Naming::Refs)),
            (".git/refs/heads/index", Some(Naming::Refs)),
            (".git/refs/heads/rebase-merge/x", Some(Naming::Refs)),
            (".git/HEAD", Some(Naming::Refs)),
            (".git/MERGE_HEAD", Some(Naming::Refs)),
            (".git/packed-refs", Some(Naming::Refs)),
            (".git/worktrees/w/HEAD", Some(Naming::Refs)),
            (".git/ORIG_HEAD", None),
            (".git/FETCH_HEAD", None),
            (".git/logs/HEAD", Some(Naming::Log)),
            (".git/worktrees/w/logs/HEAD", Some(Naming::Log)),
            (".git/worktrees/w/index", Some(Naming::Index)),
            (".git/worktrees/w/gitdir", None),
            (".git/sharedindex.9f00", Some(Naming::SharedIndex)),
            (".git/rebase-merge/autostash", Some(Naming::Work)),
            (".git/MERGE_AUTOSTASH", Some(Naming::Work)),
            (".git/reftable/tables.list", Some(Naming::Tables)),
            (".git/config", None),
        ] {
            assert_eq!(naming(path.as_bytes()), wanted, "{path}");
        }
    }

    #[test]
    fn a_branch_with_the_name_of_an_index_is_none() {
        for (path, wanted) in [
            (".git/index", true),
            (".git/INDEX", true),
            (".git/worktrees/w/index", true),
            (".git/refs/heads/index", false),
            (".git/logs/refs/heads/index", false),
            (".git/index.lock", false),
        ] {
            assert_eq!(is_index(path.as_bytes()), wanted, "{path}");
        }
    }
}
