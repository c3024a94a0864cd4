//! Conflicts that are decided for the run, with the version of the workspace that was kept beside.

use crate::meta::Meta;
use crate::shared_path::SharedPath;
use nexus_model::ByteText;

/// A path whose conflict is decided for the run, and what the workspace had there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Yours {
    /// The path in conflict.
    pub path: ByteText,
    /// The workspace's version, copied; `None` if the workspace has nothing at the path any more.
    pub copy: Option<ByteText>,
    /// The version that was copied.
    pub(crate) seen: Option<Meta>,
}

impl Yours {
    /// Reports whether the workspace has at this path what was copied.
    pub(crate) fn is_kept(all: &[Self], at: &SharedPath, found: Option<&Meta>) -> bool {
        all.iter().any(|one| match (&one.seen, found) {
            (Some(seen), Some(meta)) => one.path.0 == *at.0 && is_same(seen, meta),
            (None, None) => one.path.0 == *at.0,
            (Some(_), None) | (None, Some(_)) => false,
        })
    }
}

/// Reports whether a file was neither replaced nor written nor changed in its attributes between two looks.
pub(crate) fn is_same(before: &Meta, after: &Meta) -> bool {
    let facts = |meta: &Meta| (meta.kind, meta.id, meta.size, meta.mtime, meta.ctime);
    facts(before) == facts(after)
}
