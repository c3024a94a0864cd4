//! Entries of logs that are the last way to commits: those of `HEAD`, and those of the stash.
//!
//! ```text
//!  the stash   git finds its entries by the log alone. What git stash drop, pop and clear leave is a log in which each entry begins with
//!              the commit of the one before it (the first one with zeros), and the last one has the commit of refs/stash
//!  HEAD        git keeps an entry for 30 days. A younger one that is gone, and to whose commit nothing leads any more, is a loss
//! ```

use super::{LOG, Refs, STASH, commits, entries, is_commit, short};
use crate::beneath::{IoFailure, join};
use nexus_git::packs::history::{Missing, Reach};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Returns an entry without the commit before it, which git writes again where it drops the entry before.
fn rest(entry: &[u8]) -> &[u8] {
    entry.iter().position(|byte| *byte == b' ').map_or(entry, |at| &entry[at..])
}

/// Returns the entries of a log that another version of it does not have.
fn gone<'a>(before: &'a [u8], after: &[u8]) -> Vec<&'a [u8]> {
    let kept: HashSet<&[u8]> = entries(after).map(rest).collect();
    entries(before).filter(|entry| !kept.contains(rest(entry))).collect()
}

/// Reports whether git leaves such a log of the stash behind where it drops entries: each begins with the commit of the one before it, as
/// far as it did not begin otherwise already, and the last one has the commit of the ref.
fn is_continued(before: &[u8], after: &[u8], value: &[u8]) -> bool {
    let with_former = |log: &'_ [u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
        let all: Vec<&[u8]> = entries(log).collect();
        let former = std::iter::once(&b""[..]).chain(all.iter().map(|entry| commits(entry)[1]));
        former.zip(&all).map(|(former, entry)| (former.to_vec(), entry.to_vec())).collect()
    };
    let known: HashMap<Vec<u8>, Vec<u8>> =
        with_former(before).into_iter().map(|(former, entry)| (entry, former)).collect();
    let is_next = |(former, entry): &(Vec<u8>, Vec<u8>)| {
        let [begin, _] = commits(entry);
        let follows = if former.is_empty() { !is_commit(begin) } else { begin == former };
        follows || known.get(entry) == Some(former)
    };
    entries(after).next_back().is_some_and(|last| commits(last)[1] == value) && with_former(after).iter().all(is_next)
}

impl Refs<'_> {
    /// Returns in words the loss of entries of the log of `HEAD` that git keeps, if nothing leads to their commits.
    pub(super) fn lost_entries(&self) -> Result<Option<String>, IoFailure> {
        let Some(before) = self.git_dir.before(LOG)? else { return Ok(None) };
        let Some(after) = self.git_dir.after(LOG)? else { return Ok(None) };
        let young = gone(&before, &after).into_iter().filter(|entry| self.is_young(entry));
        let all: BTreeSet<&[u8]> = young.flat_map(commits).filter(|id| is_commit(id)).collect();
        let logged = if all.is_empty() { HashSet::new() } else { self.logged()? };
        let lost = self.first_lost(&all.into_iter().filter(|id| !logged.contains(*id)).collect::<Vec<_>>())?;
        Ok(lost.map(|commit| {
            format!(
                "the log of HEAD (logs/HEAD) would lose entries, and nothing would lead to commit {commit} any more"
            )
        }))
    }

    /// Returns in words the loss of entries of the stash, which git finds by its log alone.
    pub(super) fn lost_stash(&self) -> Result<Option<String>, IoFailure> {
        let log = join(b"logs", STASH);
        let Some(before) = self.git_dir.before(&log)? else { return Ok(None) };
        if entries(&before).next().is_none() || self.before(STASH)?.is_none() {
            return Ok(None);
        }
        let (value, after) = (self.after(STASH)?, self.git_dir.after(&log)?.unwrap_or_default());
        let loss = match value {
            Some(_) if !self.git_dir.is_there_after(&log)? => {
                "the log of the stash (logs/refs/stash) would be gone, by which git finds the changes in the stash"
            }
            None if entries(&after).next().is_some() => {
                "refs/stash would be gone while its log stays, and git would find no changes in the stash any more"
            }
            Some(value) if !is_continued(&before, &after, value.trim_ascii()) => {
                let dropped: Vec<&[u8]> = gone(&before, &after).into_iter().map(|entry| commits(entry)[1]).collect();
                return Ok(self.first_lost(&dropped)?.map(|commit| {
                    format!(
                        "the log of the stash (logs/refs/stash) would lose entries that no git stash dropped, and nothing would lead to \
                         commit {commit} any more"
                    )
                }));
            }
            _ => return Ok(None),
        };
        Ok(Some(loss.to_owned()))
    }

    /// Returns the first of some commits that is there, and to which nothing leads after the layer.
    fn first_lost(&self, commits: &[&[u8]]) -> Result<Option<String>, IoFailure> {
        if commits.is_empty() {
            return Ok(None);
        }
        let unreached = self.unreached(commits)?;
        let Some(mut history) = self.history()? else { return Ok(None) };
        let mut is_there =
            |id: &[u8]| history.needs(&[id], &HashSet::new(), &|_, _| false, Missing::Nowhere) != Reach::Broken;
        let lost = commits.iter().rev().find(|commit| unreached.contains(**commit) && is_there(commit));
        Ok(lost.map(|commit| short(commit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stash_that_git_drops_leaves_no_cut_in_the_log() {
        let text = |log: &str| -> Vec<u8> {
            let entry = |word: &str| format!("{} {} n <n@x> 1 +0000\t{word}\n", &word[..1], &word[1..]);
            log.split_whitespace().map(entry).collect::<String>().into_bytes()
        };
        for (before, after, value, wanted) in [
            ("0a ab bc", "0a ab bc", "c", true),
            // Dropped by git: the newest, the one in the middle, the oldest.
            ("0a ab bc", "0a ab", "b", true),
            ("0a ab bc", "0a ac", "c", true),
            ("0a ab bc", "0b bc", "c", true),
            ("0a ab bc", "0x", "x", true),
            // Entries that expired already.
            ("ab bc", "ab bc cd", "d", true),
            ("0a ab bc", "ab bc", "c", false),
            ("0a ab bc", "0a bc", "c", false),
            ("0a ab bc", "0a ab", "c", false),
            ("0a ab bc", "cd", "d", false),
            ("0a ab bc", "", "c", false),
        ] {
            assert_eq!(is_continued(&text(before), &text(after), value.as_bytes()), wanted, "{before} {after}");
        }
    }
}
