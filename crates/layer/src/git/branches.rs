//! Decides whether a layer deletes a branch, in which case the branch's settings may be deleted with it, and gives the reasons
//! to hold back a change of a ref.
//!
//! If any file involved cannot be read, the branch counts as not deleted and its settings are held back.

use crate::beneath::{Workspace, join, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Role, SharedPath, Verdict};
use crate::git::git_rules::{Version, classify_packed};
use crate::meta::{EntryType, Meta};
use crate::read::walk::{Walk, lower_path};
use nexus_git::git_dir::PACKED;
use nexus_git::refs::{self as git_refs, RefFile, is_head, is_of_remote, is_symbolic, packed, ref_file, target};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

/// The entries of a layer by their paths, collected at the first lookup.
#[derive(Default)]
pub(crate) struct ByPath(OnceCell<HashMap<SharedPath, usize>>);

impl ByPath {
    fn get(&self, tree: &LayerTree, path: &[u8]) -> Option<usize> {
        let collect = || tree.nodes.iter().enumerate().map(|(at, node)| (node.path.clone(), at)).collect();
        self.0.get_or_init(collect).get(&SharedPath::from(path)).copied()
    }
}

/// The branches of one repository.
pub(crate) struct Branches<'a> {
    walk: &'a Walk<'a>,
    tree: &'a LayerTree,
    by_path: &'a ByPath,
    /// The git directory.
    at: usize,
    packed: OnceCell<Option<Packed>>,
}

/// A file before and after the commit; `None` for what is not there.
type Both = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The refs in `packed-refs`.
struct Packed {
    before: HashSet<Vec<u8>>,
    after: HashSet<Vec<u8>>,
}

impl<'a> Branches<'a> {
    /// Prepares to look up the branches of the repository whose git directory is the node `at`.
    pub(crate) fn new(walk: &'a Walk<'a>, tree: &'a LayerTree, by_path: &'a ByPath, at: usize) -> Self {
        Self { walk, tree, by_path, at, packed: OnceCell::new() }
    }

    /// Reports whether the workspace has the branch, the layer has it no more, and `HEAD` names another one.
    pub(crate) fn goes(&self, branch: &[u8]) -> bool {
        self.goes_for_certain(branch).unwrap_or(false)
    }

    fn goes_for_certain(&self, branch: &[u8]) -> Option<bool> {
        if branch.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
            return None;
        }
        let name = join(b"refs/heads", branch);
        let base = lower_path(&self.tree.nodes[self.at])?;
        let packed = self.packed.get_or_init(|| self.read_packed()).as_ref()?;
        let was = packed.before.contains(&name) || is_there(self.walk.base, &join(base, &name))?;
        let stays = packed.after.contains(&name) || self.stays(&name)?;
        let head = self.read(b"HEAD")?.1?;
        let is_head = head.strip_prefix(b"ref:").is_some_and(|target| target.trim_ascii() == name);
        Some(was && !stays && !is_head)
    }

    /// Reports whether the repository has a branch of a remote, before the commit or after it.
    pub(crate) fn tracks(&self, remote: &[u8], branch: &[u8]) -> bool {
        self.tracks_for_certain(remote, branch).unwrap_or(false)
    }

    fn tracks_for_certain(&self, remote: &[u8], branch: &[u8]) -> Option<bool> {
        let name = join(&join(b"refs/remotes", remote), branch);
        if name.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
            return None;
        }
        let base = lower_path(&self.tree.nodes[self.at])?;
        let packed = self.packed.get_or_init(|| self.read_packed()).as_ref()?;
        if packed.before.contains(&name) || packed.after.contains(&name) {
            return Some(true);
        }
        let is_file = |meta: &Meta| meta.kind == EntryType::File;
        if let Some(at) = self.node(&name) {
            let node = &self.tree.nodes[at];
            if node.role == Role::Entry && is_file(&node.meta) {
                return Some(true);
            }
        }
        Some(self.walk.base.stat(&join(base, &name)).ok()?.as_ref().is_some_and(is_file))
    }

    fn node(&self, inside: &[u8]) -> Option<usize> {
        if inside.is_empty() {
            return Some(self.at);
        }
        self.by_path.get(self.tree, &join(&self.tree.nodes[self.at].path.0, inside))
    }

    /// Reports whether an entry of the git directory is there after the commit; `None` if that cannot be known.
    fn stays(&self, inside: &[u8]) -> Option<bool> {
        if let Some(at) = self.node(inside) {
            return Some(self.tree.nodes[at].role == Role::Entry);
        }
        let mut above = split(inside).0;
        let at = loop {
            match self.node(above) {
                Some(at) => break at,
                None => above = split(above).0,
            }
        };
        let node = &self.tree.nodes[at];
        match lower_path(node) {
            _ if node.role != Role::Entry => Some(false),
            None => Some(false),
            Some(lower) => {
                let rest = inside.strip_prefix(above)?;
                is_there(self.walk.base, &join(lower, rest.strip_prefix(b"/").unwrap_or(rest)))
            }
        }
    }

    /// Reads a file of the git directory; `None` when it cannot be read.
    fn read(&self, name: &[u8]) -> Option<Both> {
        let class = Class::GitState(PACKED);
        let bytes = |tree: &Workspace, path: &[u8]| match self.walk.version(tree, path, &class).ok()? {
            Version::Bytes(bytes) => Some(bytes),
            Version::Absent | Version::Unreadable => None,
        };
        let place = join(lower_path(&self.tree.nodes[self.at])?, name);
        let before = if is_there(self.walk.base, &place)? { Some(bytes(self.walk.base, &place)?) } else { None };
        let after = match self.node(name).map(|at| &self.tree.nodes[at]) {
            None => before.clone(),
            Some(node) if node.role == Role::Entry => Some(bytes(self.walk.upper, &node.path.0)?),
            Some(_) => None,
        };
        Some((before, after))
    }

    fn read_packed(&self) -> Option<Packed> {
        let (before, after) = self.read(b"packed-refs")?;
        let as_version = |bytes: &Option<Vec<u8>>| bytes.clone().map_or(Version::Absent, Version::Bytes);
        // The old one may stay.
        if matches!(classify_packed(&as_version(&after), &as_version(&before)), Verdict::Park(_)) {
            return None;
        }
        Some(Packed { before: packed(before.as_deref()), after: packed(after.as_deref()) })
    }
}

/// Reports whether a path is there; `None` if that cannot be known.
fn is_there(tree: &Workspace, path: &[u8]) -> Option<bool> {
    tree.stat(path).ok().map(|found| found.is_some())
}

/// Returns the reason for which the change of one ref waits.
pub(crate) fn of_one(names: &[Vec<u8>], new: &Version, old: &Version) -> Option<&'static str> {
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

/// Returns the reason for which a new `HEAD` of a remote waits where a push goes to the upstream of a branch, which a
/// branch that begins there gets from it.
pub(crate) fn begins_branches(names: &[Vec<u8>], new: &Version) -> Option<&'static str> {
    let is_symbolic = matches!(new, Version::Bytes(text) if target(text).is_some());
    (is_of_remote(names) && is_symbolic).then_some(git_refs::OF_REMOTE)
}

/// Returns the reason for which a ref that a moved directory brings to `inside` of another git directory waits.
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

/// Returns the reason for which the file of a ref does not go away with a directory in its git directory.
pub(crate) fn of_gone(inside: &[u8], version: &Version) -> Option<&'static str> {
    match ref_file(inside)? {
        RefFile::One(names) => begins_branches(&names, version),
        RefFile::Table { .. } => Some(git_refs::TABLES),
        RefFile::Head => None,
    }
}
