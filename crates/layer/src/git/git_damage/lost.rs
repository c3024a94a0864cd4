//! Finds repositories of which a layer takes the names of the user's commits: branches, the log of `HEAD`, or the stash.
//!
//! ```text
//!  HEAD names the same branch as before, which has a commit before and none after the layer
//!  the same branch gets a commit without a common ancestor, and nothing leads to the one of before
//!  logs/HEAD has entries, and is gone
//!  logs/HEAD has no longer its last entry of before, which is younger than git keeps any (gc.reflogExpireUnreachable)
//!  logs/HEAD has no longer its last entry of before, which is older, and nothing leads to its commit
//!  logs/HEAD has no entry of before, another branch is gone, and nothing leads to its commit
//!  logs/HEAD has no longer an entry of before that is as young, and nothing leads to its commit
//!  only one of refs/stash and logs/refs/stash goes, or the log loses entries in another way than by git stash drop ([`entries`])
//!  an index goes, and no other one comes in its place
//! ```
//!
//! What leads to a commit: a ref, a commit after it that a ref names, and an entry of the log of `HEAD` or of its branch that is
//! young enough for git to keep it.
//!
//! git itself does none of this: it renames a branch together with `HEAD`, deletes no branch that is checked out, adds to the log,
//! and removes the stash together with its log. A log that `git reflog expire --expire=now` emptied is fine while a ref names
//! the commit of before, and refs lead to those of younger entries.

mod entries;

use crate::beneath::{Doing as _, IoFailure, is_beneath, join, split};
use crate::entries::tree::{Found, Node, Role};
use crate::fold::fold;
use crate::git::replaced::{Effect, GitDir, packed};
use crate::meta::EntryType;
use crate::read::git_dirs::has;
use nexus_git::forms::{SYMBOLIC, is_name as is_ref, time};
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::history::History;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Seconds for which git keeps an entry that no branch needs.
const KEPT: i64 = 30 * 24 * 60 * 60;
const LOG: &[u8] = b"logs/HEAD";
const STASH: &[u8] = b"refs/stash";
const BRANCHES: &[u8] = b"refs/heads";
/// Digits of an id in a message.
const SHORT: usize = 10;
const PACKED_REFS: &[u8] = b"packed-refs";
/// Entries of a git directory by which its commits, and what is staged, are found.
const NAMES: &[&[u8]] = &[b"head", b"packed-refs", b"refs", b"logs", b"index", b"worktrees"];
const INDEX: &[u8] = b"index";

/// Reports whether a name in a git directory, or what is below it, leads to commits or to what is staged.
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
    if refs.lost_log()?.is_some() && refs.is_log_of_host()? {
        return Ok(Some("another process wrote to the log of HEAD (logs/HEAD) since the run began".to_owned()));
    }
    for find in [Refs::lost_log, Refs::lost_entries, Refs::lost_history, Refs::lost_stash, Refs::lost_index] {
        if let Some(loss) = find(&refs)? {
            return Ok(Some(loss));
        }
    }
    Ok(None)
}

/// Returns the entries of a log.
fn entries(log: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Returns the commit before an entry of a log, and the one after it.
fn commits(entry: &[u8]) -> [&[u8]; 2] {
    let mut ids = entry.split(|byte| *byte == b' ');
    [ids.next().unwrap_or_default(), ids.next().unwrap_or_default()]
}

fn is_commit(id: &[u8]) -> bool {
    id.iter().any(|byte| *byte != b'0')
}

fn short(commit: &[u8]) -> String {
    String::from_utf8_lossy(&commit[..commit.len().min(SHORT)]).into_owned()
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

    /// Returns the branch of `HEAD` if it is the same before and after the layer.
    fn branch(&self) -> Result<Option<Vec<u8>>, IoFailure> {
        let branch =
            |head: Option<Vec<u8>>| head.and_then(|text| Some(text.strip_prefix(SYMBOLIC)?.trim_ascii().to_vec()));
        let before = branch(self.git_dir.before(b"HEAD")?).filter(|before| is_beneath(before, b"refs"));
        let is_same = before.is_some() && branch(self.git_dir.after(b"HEAD")?) == before;
        Ok(before.filter(|_| is_same))
    }

    /// Returns the branch of `HEAD` if the layer leaves it without a commit.
    fn lost_branch(&self) -> Result<Option<Vec<u8>>, IoFailure> {
        let Some(branch) = self.branch()? else { return Ok(None) };
        let is_lost = self.before(&branch)?.is_some() && self.after(&branch)?.is_none();
        Ok(is_lost.then_some(branch))
    }

    /// Returns in words what becomes of the log of `HEAD`, if the layer takes entries from it that git keeps, or the last way to
    /// commits.
    fn lost_log(&self) -> Result<Option<String>, IoFailure> {
        let Some(before) = self.git_dir.before(LOG)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let Some(after) = self.git_dir.after(LOG)? else {
            let is_gone = !self.git_dir.is_there_after(LOG)?;
            return Ok(is_gone.then(|| "the log of HEAD (logs/HEAD) would be gone".to_owned()));
        };
        let kept: HashSet<&[u8]> = entries(&after).collect();
        let last = entries(&before).next_back().unwrap_or_default();
        if kept.contains(last) {
            return Ok(None);
        }
        let cut = "the log of HEAD (logs/HEAD) would lose its last entry";
        let [_, commit] = commits(last);
        let is_fine = after.is_empty() && self.names_after()?.values().any(|value| value == commit);
        if self.is_young(last) && !is_fine {
            return Ok(Some(cut.to_owned()));
        }
        if is_commit(commit) && !self.is_logged(commit)? && !self.unreached(&[commit])?.is_empty() {
            return Ok(Some(format!("{cut}, and nothing would lead to its commit {} any more", short(commit))));
        }
        if entries(&before).any(|line| kept.contains(line)) { Ok(None) } else { self.lost_branches() }
    }

    /// Reports whether the log of `HEAD` changed outside of the run meanwhile: the run loses nothing that it saw.
    fn is_log_of_host(&self) -> Result<bool, IoFailure> {
        let GitDir { walk, base, tree, .. } = self.git_dir;
        let at = join(base, LOG);
        let meta = walk.base.stat(&at).doing("look at", &at)?;
        Ok(meta.is_some_and(|meta| tree.is_fresh(&Found { at: at.into(), meta })))
    }

    /// Returns in words the loss of a branch that is gone, if nothing leads to its commit.
    fn lost_branches(&self) -> Result<Option<String>, IoFailure> {
        let mut gone: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for name in self.git_dir.loose()?.into_iter().chain(self.packed_before.keys().cloned()) {
            if is_beneath(&name, BRANCHES)
                && is_ref(&name)
                && self.after(&name)?.is_none()
                && let Some(commit) = self.before(&name)?
                && !commit.starts_with(SYMBOLIC)
            {
                gone.insert(name, commit.trim_ascii().to_vec());
            }
        }
        let wanted: Vec<&[u8]> = gone.values().map(Vec::as_slice).collect();
        let unreached = self.unreached(&wanted)?;
        let lost = gone.iter().find(|(_, commit)| unreached.contains(*commit));
        Ok(lost.map(|(name, commit)| {
            let (name, commit) = (String::from_utf8_lossy(name), short(commit));
            format!(
                "{name} and the log of HEAD of before would be gone, and nothing would lead to commit {commit} any more"
            )
        }))
    }

    /// Returns in words the loss of the commits of the branch of `HEAD`, if it gets others and nothing leads to them.
    fn lost_history(&self) -> Result<Option<String>, IoFailure> {
        let Some(branch) = self.branch()? else { return Ok(None) };
        let (Some(before), Some(after)) = (self.before(&branch)?, self.after(&branch)?) else { return Ok(None) };
        let (before, after) = (before.trim_ascii(), after.trim_ascii());
        let is_other = before != after && ![before, after].iter().any(|text| text.starts_with(SYMBOLIC));
        if !is_other
            || self.is_logged(before)?
            || self.history()?.is_none_or(|mut history| history.is_related(before, after))
            || self.unreached(&[before])?.is_empty()
        {
            return Ok(None);
        }
        let (name, commit) = (String::from_utf8_lossy(&branch), short(before));
        Ok(Some(format!(
            "HEAD names {name}, which would begin again, and nothing would lead to its commit {commit} any more"
        )))
    }

    /// Reports whether git keeps an entry of a log, whatever becomes of its commits.
    fn is_young(&self, entry: &[u8]) -> bool {
        time(entry).is_some_and(|time| time.saturating_add(KEPT) > self.git_dir.walk.started.sec)
    }

    /// Reports whether an entry that git keeps names a commit.
    fn is_logged(&self, commit: &[u8]) -> Result<bool, IoFailure> {
        Ok(self.logged()?.contains(commit))
    }

    /// Returns the commits in entries that git keeps: in the log of `HEAD`, and in that of its branch, after the layer.
    fn logged(&self) -> Result<HashSet<Vec<u8>>, IoFailure> {
        let of_branch = self.branch()?.map(|branch| join(b"logs", &branch));
        let mut found = HashSet::new();
        for log in [Some(LOG.to_vec()), of_branch].into_iter().flatten() {
            let text = self.git_dir.after(&log)?.unwrap_or_default();
            found.extend(entries(&text).filter(|entry| self.is_young(entry)).flat_map(commits).map(<[u8]>::to_vec));
        }
        Ok(found)
    }

    /// Returns in words the loss of an index, which alone may name what is staged. git replaces the file, and does not remove it.
    fn lost_index(&self) -> Result<Option<String>, IoFailure> {
        let GitDir { walk, tree, at, base, .. } = self.git_dir;
        let is_gone = match self.git_dir.effect(INDEX) {
            Effect::Stays => false,
            Effect::Gone => has(walk.base, base, INDEX)?,
            Effect::New(node) => node.meta.kind != EntryType::File && has(walk.base, base, INDEX)?,
        };
        let others = join(&tree.nodes[*at].path.0, b"worktrees");
        let takes = |node: &&Node| node.role != Role::Entry && split(&node.path.0).1 == INDEX;
        let of_other = tree.nodes.iter().filter(takes).find(|node| split(split(&node.path.0).0).0 == others);
        let inside = of_other.map(|node| node.path.0[others.len() - b"worktrees".len()..].to_vec());
        let lost = is_gone.then(|| INDEX.to_vec()).or(inside);
        Ok(lost.map(|path| {
            format!("the index ({}) would be gone, which alone names what is staged", String::from_utf8_lossy(&path))
        }))
    }

    /// Opens the objects of the workspace and of the layer.
    fn history(&self) -> Result<Option<History<'a>>, IoFailure> {
        let GitDir { walk, tree, at, base, .. } = self.git_dir;
        History::of(&[(walk.base, base), (walk.upper, &tree.nodes[*at].path.0)], id_lengths, false)
    }

    /// Returns those of some commits to which neither a ref nor `HEAD` leads after the layer.
    fn unreached(&self, wanted: &[&[u8]]) -> Result<HashSet<Vec<u8>>, IoFailure> {
        let names = self.names_after()?;
        let head = self.git_dir.after(b"HEAD")?.unwrap_or_default();
        let head = match head.strip_prefix(SYMBOLIC) {
            Some(branch) => names.get(branch.trim_ascii()).cloned().unwrap_or_default(),
            None => head.trim_ascii().to_vec(),
        };
        let starts: Vec<&[u8]> = std::iter::once(&head).chain(names.values()).map(Vec::as_slice).collect();
        let named: HashSet<&[u8]> = starts.iter().copied().collect();
        let mut left: Vec<&[u8]> = wanted.iter().copied().filter(|commit| !named.contains(commit)).collect();
        if !left.is_empty()
            && let Some(mut history) = self.history()?
        {
            left = history.unreached(&starts, &left);
        }
        Ok(left.into_iter().map(<[u8]>::to_vec).collect())
    }

    /// Returns the text of a ref, or its commit in `packed-refs`, before the layer.
    fn before(&self, name: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        Ok(self.git_dir.before(name)?.or_else(|| self.packed_before.get(name).cloned()))
    }

    /// Returns the same after the layer.
    fn after(&self, name: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        Ok(self.git_dir.after(name)?.or_else(|| self.packed_after.get(name).cloned()))
    }

    /// Returns the refs after the layer with their texts. The file of a ref counts before a line of `packed-refs`.
    fn names_after(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, IoFailure> {
        let GitDir { tree, at, .. } = self.git_dir;
        let top = &tree.nodes[*at].path.0;
        let refs = join(top, b"refs");
        let is_new = |node: &&Node| node.role == Role::Entry && node.meta.kind == EntryType::File;
        let new = tree.nodes.iter().filter(|node| is_beneath(&node.path.0, &refs)).filter(is_new);
        let new = new.map(|node| node.path.0[refs.len() - b"refs".len()..].to_vec());
        let mut found = BTreeMap::new();
        for name in new.chain(self.git_dir.loose()?).chain(self.packed_after.keys().cloned()) {
            if is_ref(&name)
                && !found.contains_key(&name)
                && let Some(text) = self.after(&name)?
            {
                found.insert(name, text.trim_ascii().to_vec());
            }
        }
        Ok(found)
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
