//! Judges the refs of git directories by what they say.

use crate::beneath::IoFailure;
use crate::facts::Version;
use crate::git_refs::{self, RefFile, is_head, is_of_remote, is_symbolic, ref_file, target};
use crate::meta::EntryType;
use crate::protected::Class;
use crate::tree::{LayerTree, Role};
use crate::walk::{Walk, lower_path};

impl Walk<'_> {
    /// Tells why an entry that is or replaces a ref waits. `inside` is its path in the git directory.
    pub(crate) fn holds_ref(
        &self,
        tree: &LayerTree,
        at: usize,
        inside: &[u8],
    ) -> Result<Option<&'static str>, IoFailure> {
        let one = &tree.nodes[at];
        let Some(file) = ref_file(inside) else { return Ok(None) };
        let is_file = one.role == Role::Entry && one.meta.kind == EntryType::File;
        let new = || if is_file { self.version(self.upper, &one.path.0, &Class::NoLink) } else { Ok(Version::Absent) };
        let old = || match &one.covers {
            Some(found) if found.meta.kind == EntryType::File => self.version(self.base, &found.at.0, &Class::NoLink),
            Some(_) | None => Ok(Version::Absent),
        };
        Ok(match file {
            RefFile::One(names) => {
                let (new, old) = (new()?, old()?);
                let git_dir = (0..=names.len()).fold(at, |at, _| tree.nodes[at].parent);
                let is_old = lower_path(&tree.nodes[git_dir]).is_some();
                of_one(&names, &new, &old).or_else(|| {
                    let waits = is_old && self.rules.pushes_to_upstream && matches!(old, Version::Absent);
                    begins_branches(&names, &new).filter(|_| waits)
                })
            }
            RefFile::Head if is_file => {
                let is_new = lower_path(&tree.nodes[one.parent]).is_none();
                match (new()?, old()?) {
                    (Version::Bytes(new), _) if is_head(&new, is_new) => None,
                    (Version::Bytes(new), Version::Bytes(old)) if new == old => None,
                    (Version::Bytes(_) | Version::Unreadable | Version::Absent, _) => Some(git_refs::HEAD),
                }
            }
            RefFile::Head => None,
            // The directory of a new repository, and what is in it.
            RefFile::Table { .. } if one.role == Role::Entry && one.meta.kind == EntryType::Directory => None,
            RefFile::Table { depth } => {
                let git_dir = (0..depth).fold(at, |at, _| tree.nodes[at].parent);
                lower_path(&tree.nodes[git_dir]).is_some().then_some(git_refs::TABLES)
            }
        })
    }
}

/// Why the change of one ref waits.
fn of_one(names: &[Vec<u8>], new: &Version, old: &Version) -> Option<&'static str> {
    let is_one = |version: &Version| match version {
        Version::Bytes(text) => is_symbolic(names, text),
        // git passes over blanks behind the name, however many: what is too large to be looked into may be one.
        Version::Unreadable => true,
        Version::Absent => false,
    };
    if is_one(new) || is_one(old) {
        return Some(git_refs::SYMBOLIC);
    }
    let of_remote = |version: &Version| match version {
        Version::Bytes(text) => target(text).map(<[u8]>::to_vec),
        Version::Unreadable | Version::Absent => None,
    };
    // A branch that begins at the remote would get the upstream that it names.
    let changes = is_of_remote(names) && of_remote(old).is_some_and(|old| of_remote(new) != Some(old));
    changes.then_some(git_refs::OF_REMOTE)
}

/// Why a new `HEAD` of a remote waits where a push goes to the upstream of a branch, which one that begins there gets from it.
fn begins_branches(names: &[Vec<u8>], new: &Version) -> Option<&'static str> {
    let is_symbolic = matches!(new, Version::Bytes(text) if target(text).is_some());
    (is_of_remote(names) && is_symbolic).then_some(git_refs::OF_REMOTE)
}

/// Why a ref that a moved directory brings to `inside` of another git directory waits.
pub(crate) fn of_moved(inside: &[u8], version: &Version) -> Option<&'static str> {
    match (ref_file(inside)?, version) {
        (RefFile::One(names), version) => {
            of_one(&names, version, &Version::Absent).or_else(|| begins_branches(&names, version))
        }
        (RefFile::Head, Version::Bytes(text)) if is_head(text, false) => None,
        (RefFile::Head, Version::Absent) => None,
        (RefFile::Head, Version::Bytes(_) | Version::Unreadable) => Some(git_refs::HEAD),
        (RefFile::Table { .. }, _) => Some(git_refs::TABLES),
    }
}

/// Why the file of a ref does not go away with a directory in its git directory.
pub(crate) fn of_gone(inside: &[u8], version: &Version) -> Option<&'static str> {
    match ref_file(inside)? {
        RefFile::One(names) => begins_branches(&names, version),
        RefFile::Table { .. } => Some(git_refs::TABLES),
        RefFile::Head => None,
    }
}

/// Tells whether a file of a git directory, at the path `inside` of it, is a ref that stands for another one, or a `HEAD` that names
/// no branch and no commit. Of a longer file its beginning is enough.
#[must_use]
pub fn stands_for_another(inside: &[u8], text: &[u8]) -> bool {
    match ref_file(inside) {
        Some(RefFile::One(names)) => is_symbolic(&names, text),
        Some(RefFile::Head) => !is_head(text, true),
        // Tables are not read.
        Some(RefFile::Table { .. }) | None => false,
    }
}
