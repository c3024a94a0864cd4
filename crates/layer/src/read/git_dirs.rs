//! Tells which directories of a workspace are git directories by their entries, and what their entries are.
//!
//! git takes a directory for a repository that has `HEAD`, and `objects` and `refs` or a `commondir`.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, is_no_way, is_other_mount, join, names, split};
use crate::entries::protected::Class;
use crate::fold::fold;
use crate::meta::EntryType;
use nexus_git::git_dir::git_class;
use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::AsFd as _;

/// Name of the file by which git recognizes a repository, together with the rest of [`MAKERS`].
pub(crate) const HEAD: &[u8] = b"HEAD";

/// Names of the entries that make a directory a repository: [`HEAD`] and some of the others.
const MAKERS: &[&[u8]] = &[HEAD, b"objects", b"refs", b"commondir"];

/// Reports whether a directory is a repository; `has` tells for a name whether it has such an entry.
pub(crate) fn is_repository(has: &impl Fn(&[u8]) -> Result<bool, IoFailure>) -> Result<bool, IoFailure> {
    Ok(has(HEAD)? && (has(b"commondir")? || (has(b"objects")? && has(b"refs")?)))
}

/// Reports whether a directory with entries of these names is a repository.
pub(crate) fn is_one_by(names: &[Vec<u8>]) -> bool {
    let has = |name: &[u8]| names.iter().any(|one| one == name);
    has(HEAD) && (has(b"commondir") || (has(b"objects") && has(b"refs")))
}

/// Reports whether a folded name is one that makes a directory a repository.
pub(crate) fn is_maker(name: &[u8]) -> bool {
    MAKERS.iter().any(|maker| fold(maker) == name)
}

/// Reports whether a directory of the workspace is a git directory by its entries, as far as this user can see them.
pub(crate) fn is_one(base: &Workspace, directory: &[u8]) -> Result<bool, IoFailure> {
    let is_closed = |error: &IoFailure| error.source.kind() == std::io::ErrorKind::PermissionDenied;
    match is_repository(&|name| is_there(base, &join(directory, name))) {
        Err(error) if is_closed(&error) => Ok(false),
        other => other,
    }
}

/// Reports whether the workspace has a git directory there. What cannot be looked at counts as one.
pub(crate) fn may_be_repository(base: &Workspace, git_dir: &[u8]) -> bool {
    let kind = |name: &[u8]| {
        let found = base.stat(&join(git_dir, name));
        found.map_or(Some(EntryType::Directory), |found| found.map(|meta| meta.kind))
    };
    kind(b"HEAD").is_some() && matches!(kind(b"objects"), Some(EntryType::Directory | EntryType::Symlink))
}

/// Returns the class of a path as if `repository` were named `.git`.
pub(crate) fn class(path: &[u8], repository: &[u8]) -> Class {
    let rest = path.strip_prefix(repository).unwrap_or(path);
    let inside: Vec<Cow<'_, [u8]>> =
        rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(fold).collect();
    git_class(&inside)
}

/// Reports whether a link that ends in a repository may lead on to something protected there. From inside of the
/// repository it does so only by its own end.
pub(crate) fn enters(link: &[u8], end: &[u8], repository: &[u8]) -> bool {
    let is_inside = repository.is_empty() || is_beneath(link, repository);
    !is_inside || !matches!(class(end, repository), Class::NoLink | Class::Plain | Class::GitRoot)
}

/// Reports whether the `link` that ends at a path of the workspace leads to a bare repository or into one. `known`
/// remembers for each directory whether it is a repository.
pub(crate) fn is_entered(
    base: &Workspace,
    link: &[u8],
    end: &[u8],
    known: &mut HashMap<Vec<u8>, bool>,
) -> Result<bool, IoFailure> {
    let mut at = end;
    loop {
        let is_one = match known.get(at) {
            Some(is_one) => *is_one,
            None => match is_one(base, at) {
                // The path is what a link says, and may lead nowhere.
                Err(error) if is_no_way(&error.source) => false,
                other => other?,
            },
        };
        known.insert(at.to_vec(), is_one);
        if is_one && enters(link, end, at) {
            return Ok(true);
        }
        if at.is_empty() {
            return Ok(false);
        }
        at = split(at).0;
    }
}

/// Reports whether a path of the workspace is a hook, a setting or the like of a bare repository there.
pub(crate) fn holds(base: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    let mut repository = split(path).0;
    loop {
        if class(path, repository).is_protected() && is_repository(&|name| is_there(base, &join(repository, name)))? {
            return Ok(true);
        }
        if repository.is_empty() {
            return Ok(false);
        }
        repository = split(repository).0;
    }
}

/// Reports whether a tree has an entry at a path.
pub(crate) fn is_there(tree: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    Ok(tree.stat(path).doing("look at", path)?.is_some())
}

/// Tells whether a directory of the workspace has an entry, as far as this user can see it.
pub(crate) fn has(base: &Workspace, directory: &[u8], name: &[u8]) -> Result<bool, IoFailure> {
    let path = join(directory, name);
    match base.stat(&path) {
        Ok(found) => Ok(found.is_some()),
        Err(error) if is_no_way(&error) => Ok(false),
        Err(error) => Err(error).doing("look at", &path),
    }
}

/// Reports whether the workspace has something in a directory, or something else in its place.
pub(crate) fn has_entries(base: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    match base.stat(path).doing("look at", path)?.map(|meta| meta.kind) {
        None => Ok(false),
        Some(EntryType::Directory) => {
            let dir = match base.readable_dir(path) {
                // What this user cannot see may be anything.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied || is_other_mount(&error) => {
                    return Ok(true);
                }
                other => other.doing("open", path)?,
            };
            Ok(!names(dir.as_fd()).doing("list", path)?.is_empty())
        }
        Some(_) => Ok(true),
    }
}

/// Reports whether a git directory of the workspace has remotes in the form that git used before they were settings.
pub(crate) fn has_old_remotes(base: &Workspace, git_dir: &[u8]) -> Result<bool, IoFailure> {
    for name in [&b"remotes"[..], b"branches"] {
        if has_entries(base, &join(git_dir, name))? {
            return Ok(true);
        }
    }
    Ok(false)
}
