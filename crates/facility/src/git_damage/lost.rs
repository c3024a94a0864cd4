//! Finds repositories of which a layer takes the names of the user's commits: the branch that `HEAD` names, or the log of
//! `HEAD`.
//!
//! ```text
//!  HEAD names the same branch as before, which has a commit before and none after the layer
//!  logs/HEAD has entries, and is gone
//!  logs/HEAD has no longer its last entry of before, which is younger than git keeps any (gc.reflogExpireUnreachable)
//! ```
//!
//! git itself does none of this: it renames a branch together with `HEAD`, deletes no branch that is checked out, and
//! adds to the log. A log that `git reflog expire --expire=now` emptied is fine while a ref names the commit of before.

use super::forms::{SYMBOLIC, time};
use crate::beneath::{IoFailure, is_beneath, join};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::nested::has;
use crate::replaced::{Effect, GitDir, packed};
use crate::tree::Role;
use std::collections::HashMap;

/// Seconds for which git keeps an entry that no branch needs.
const KEPT: i64 = 30 * 24 * 60 * 60;
const LOG: &[u8] = b"logs/HEAD";
const PACKED_REFS: &[u8] = b"packed-refs";
/// Entries of a git directory by which its commits are found.
const NAMES: &[&[u8]] = &[b"head", b"packed-refs", b"refs", b"logs"];

/// Reports whether a name in a git directory, or what is below it, leads to commits.
pub(super) fn is_name(name: &[u8]) -> bool {
    NAMES.contains(&fold(name).as_ref())
}

/// Returns the loss of a git directory in words, if there is one.
pub(super) fn lost(git_dir: &GitDir<'_>) -> Result<Option<String>, IoFailure> {
    let refs = Refs::of(git_dir)?;
    if let Some(branch) = refs.lost_branch()? {
        let branch = String::from_utf8_lossy(&branch).into_owned();
        return Ok(Some(format!("HEAD names {branch}, which would have no commit any more")));
    }
    refs.lost_log()
}

/// The refs of a git directory before and after a layer.
struct Refs<'a> {
    git_dir: &'a GitDir<'a>,
    /// Commits in `packed-refs` by their names.
    packed_before: HashMap<Vec<u8>, Vec<u8>>,
    packed_after: HashMap<Vec<u8>, Vec<u8>>,
}

impl<'a> Refs<'a> {
    fn of(git_dir: &'a GitDir<'a>) -> Result<Self, IoFailure> {
        let all = |text: Option<Vec<u8>>| text.map(|text| packed(&text)).unwrap_or_default();
        let (packed_before, packed_after) = (all(git_dir.before(PACKED_REFS)?), all(git_dir.after(PACKED_REFS)?));
        Ok(Self { git_dir, packed_before, packed_after })
    }

    /// Returns the branch of `HEAD` if the layer leaves it without a commit.
    fn lost_branch(&self) -> Result<Option<Vec<u8>>, IoFailure> {
        let branch = |head: Option<Vec<u8>>| head.and_then(|text| text.strip_prefix(SYMBOLIC).map(<[u8]>::to_vec));
        let name = |text: Vec<u8>| text.trim_ascii().to_vec();
        let Some(before) = branch(self.git_dir.before(b"HEAD")?).map(name) else { return Ok(None) };
        let is_same = branch(self.git_dir.after(b"HEAD")?).map(name).as_ref() == Some(&before);
        let is_lost = is_same
            && is_beneath(&before, b"refs")
            && self.before(&before)?.is_some()
            && self.after(&before)?.is_none();
        Ok(is_lost.then_some(before))
    }

    /// Returns in words what becomes of the log of `HEAD`, if the layer takes entries from it that git keeps.
    fn lost_log(&self) -> Result<Option<String>, IoFailure> {
        let Some(before) = self.git_dir.before(LOG)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let Some(after) = self.git_dir.after(LOG)? else {
            let is_gone = !self.git_dir.is_there_after(LOG)?;
            return Ok(is_gone.then(|| "the log of HEAD (logs/HEAD) would be gone".to_owned()));
        };
        let last = before.strip_suffix(b"\n").unwrap_or(&before).rsplit(|byte| *byte == b'\n').next();
        let last = last.unwrap_or_default();
        let is_young = time(last).is_some_and(|time| time.saturating_add(KEPT) > self.git_dir.walk.started.sec);
        if !is_young || after.split(|byte| *byte == b'\n').any(|line| line == last) {
            return Ok(None);
        }
        // The second id of an entry is that of the commit.
        let commit = last.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        if after.is_empty() && self.names(commit)? {
            return Ok(None);
        }
        Ok(Some("the log of HEAD (logs/HEAD) would lose its last entry".to_owned()))
    }

    /// Returns the text of a ref, or its commit in `packed-refs`, before the layer.
    fn before(&self, name: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        Ok(self.git_dir.before(name)?.or_else(|| self.packed_before.get(name).cloned()))
    }

    /// Returns the same after the layer.
    fn after(&self, name: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        Ok(self.git_dir.after(name)?.or_else(|| self.packed_after.get(name).cloned()))
    }

    /// Reports whether a ref has a commit after the layer.
    fn names(&self, commit: &[u8]) -> Result<bool, IoFailure> {
        if self.packed_after.values().any(|value| value == commit) {
            return Ok(true);
        }
        for name in self.git_dir.loose()? {
            if self.git_dir.after(&name)?.is_some_and(|text| text.trim_ascii() == commit) {
                return Ok(true);
            }
        }
        let GitDir { walk, tree, at, .. } = self.git_dir;
        let refs = join(&tree.nodes[*at].path.0, b"refs");
        for node in tree.nodes.iter().filter(|node| is_beneath(&node.path.0, &refs)) {
            let is_file = node.role == Role::Entry && node.meta.kind == EntryType::File;
            if is_file && self.git_dir.read(walk.upper, &node.path.0)?.is_some_and(|text| text.trim_ascii() == commit) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl GitDir<'_> {
    /// Returns the text of a file before the layer; `None` for what is not there or cannot be read.
    fn before(&self, inside: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        self.read(self.walk.base, &join(self.base, inside))
    }

    /// Returns the text of a file after the layer; `None` for what is not there or cannot be read.
    fn after(&self, inside: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        match self.effect(inside) {
            Effect::Stays => self.before(inside),
            Effect::Gone => Ok(None),
            Effect::New(node) => self.read(self.walk.upper, &node.path.0),
        }
    }

    fn is_there_after(&self, inside: &[u8]) -> Result<bool, IoFailure> {
        match self.effect(inside) {
            Effect::Stays => has(self.walk.base, self.base, inside),
            Effect::Gone => Ok(false),
            Effect::New(_) => Ok(true),
        }
    }
}
