//! Conflicts that the user decided in favour of the run; the workspace's version was saved beside each path.

use crate::beneath::{join, split};
use crate::entries::shared_path::SharedPath;
use crate::entries::tree::{Found, LayerTree, Role};
use crate::meta::{EntryType, Meta};
use nexus_model::ByteText;

/// A path whose conflict the user decided in favour of the run, with the workspace's version at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Yours {
    /// The path in conflict, as the layer has it and the workspace will.
    pub path: ByteText,
    /// The path at which the workspace has the file until the commit. It differs if the run renamed a directory above it.
    pub from: ByteText,
    /// The workspace's version, copied; `None` if the workspace has nothing at the path any more.
    pub copy: Option<ByteText>,
    /// The copy as it was made.
    pub(crate) made: Option<Meta>,
    /// The version that was copied.
    pub(crate) seen: Option<Meta>,
    /// The text that comes in the place of both versions.
    pub(crate) merged: Option<Merge>,
}

/// A merge of both versions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The run's version, copied beside the workspace's.
    pub copy: ByteText,
    /// The copy as it was made.
    pub(crate) made: Option<Meta>,
    /// The merged text.
    pub(crate) text: Vec<u8>,
}

impl Yours {
    /// Returns the merge of both versions, if this is one.
    pub fn merged(&self) -> Option<&Merge> {
        self.merged.as_ref()
    }

    /// Returns the path of the saved version after the commit.
    #[must_use]
    pub fn after(&self, copy: &ByteText) -> ByteText {
        let (parent, name) = (split(&self.path.0).0, split(&copy.0).1);
        ByteText(join(parent, name))
    }

    /// Reports whether the workspace has what was copied for this path of the layer. A merge counts where its text `comes` in
    /// the place of the run's version.
    pub(crate) fn is_kept(all: &[Self], at: &SharedPath, found: Option<&Found>, comes: bool) -> bool {
        all.iter().any(|one| one.is_of(at, found) && (comes || one.merged.is_none()))
    }

    fn is_of(&self, at: &SharedPath, found: Option<&Found>) -> bool {
        let is_same = match (&self.seen, found) {
            (Some(seen), Some(found)) => self.from.0 == *found.at.0 && is_same(seen, &found.meta),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same && self.path.0 == *at.0
    }

    /// Lets merged texts come in the place of the run's versions, where the workspace still has what was merged. What is
    /// more than a plain file keeps its version, and with that its conflict.
    pub(crate) fn bring_merged(all: &[Self], tree: &mut LayerTree) {
        for one in all {
            let Some(merge) = &one.merged else { continue };
            let Some(node) = tree.nodes.iter_mut().find(|node| node.path == one.path) else { continue };
            let covered = node.covers.as_deref().filter(|_| !node.claimed);
            let is_plain = node.role == Role::Entry && node.meta.kind == EntryType::File && node.group().is_none();
            let has_verdict = node.rare.verdict.is_some() || node.rare.instead.is_some() || node.rare.in_unit;
            if is_plain && !has_verdict && covered.is_some_and(|covered| one.is_of(&node.path, Some(covered))) {
                node.rare.instead = Some(merge.text.clone());
            }
        }
    }
}

/// Reports whether a file was neither replaced nor written nor changed in its attributes between two looks.
pub(crate) fn is_same(before: &Meta, after: &Meta) -> bool {
    let facts = |meta: &Meta| (meta.kind, meta.id, meta.size, meta.mtime, meta.ctime);
    facts(before) == facts(after)
}
