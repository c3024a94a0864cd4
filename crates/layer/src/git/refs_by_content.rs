//! Classifies the refs of git directories by their content.

use crate::beneath::IoFailure;
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Role};
use crate::git::branches::{begins_branches, of_one};
use crate::git::git_rules::Version;
use crate::meta::EntryType;
use crate::read::walk::{Walk, lower_path};
use nexus_git::refs::{self as git_refs, RefFile, is_head, is_symbolic, ref_file};

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

/// Tells whether a file of a git directory, at the path `inside` of it, is a ref that stands for another one, or a
/// `HEAD` that names no branch and no commit. Of a longer file its beginning is enough.
#[must_use]
pub fn stands_for_another(inside: &[u8], text: &[u8]) -> bool {
    match ref_file(inside) {
        Some(RefFile::One(names)) => is_symbolic(&names, text),
        Some(RefFile::Head) => !is_head(text, true),
        // Tables are not read.
        Some(RefFile::Table { .. }) | None => false,
    }
}
