//! Conditions that hold after a fault: the changes are in the workspace, wait for a decision, or never came to be; a
//! person's bytes are there; and later commands work and come to an end.

use super::calls::Harm;
use super::phases::{Phase, Versions};
use crate::bounded::Ended;
use crate::tree::{Content, Tree, difference};
use crate::world::World;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The file that a person edits after the fault.
const EDITED: &str = "f2";
const EDIT: &str = "written by a person\n";

/// Actions of the harness after the fault.
#[derive(Debug, Clone, Copy)]
pub struct After {
    /// Lets a person edit a file before any later command.
    pub edit: bool,
    /// Accepts the waiting changes; otherwise they are rejected.
    pub accept: bool,
}

/// Evaluates a workspace after a command with a fault; the error is one sentence about what is wrong.
pub fn evaluate(
    world: &World,
    versions: &Versions,
    phase: Phase,
    harm: &Harm,
    ended: &Ended,
    after: After,
) -> Result<(), String> {
    if ended.timed_out {
        return Err("the command did not come to an end".to_owned());
    }
    let rules = Rules { world, versions, edited: after.edit };
    // A recovery that fails leaves what it found, which was half a commit.
    if matches!(harm, Harm::Error(_)) && phase != Phase::Recover {
        let found = world.tree()?;
        Rules { world, versions, edited: false }
            .one_of_both(&found)
            .map_err(|why| format!("right after the command ({}) {why}", brief(ended)))?;
    }
    if after.edit {
        world.write(EDITED, EDIT).map_err(|error| format!("a person cannot edit {EDITED}: {error}"))?;
    }
    later_commands(world)?;
    let found = world.tree()?;
    rules.one_of_both(&found).map_err(|why| format!("after the recovery {why}; the command: {}", brief(ended)))?;
    let waiting = world.waiting()?;
    let is_old = rules.same(&found, &versions.old);
    if is_old && waiting.is_empty() && phase.has_work(ended) {
        return Err(format!("the work of the run is gone; the command: {}", brief(ended)));
    }
    // A command that was killed before its end leaves a part of its work, which is neither version.
    let unfinished = matches!(phase, Phase::Commit | Phase::Park) && !phase.has_work(ended);
    let after = After { accept: after.accept && !unfinished, ..after };
    // Half of what is being rejected may be gone: it need not be shown, and no half of it may be accepted.
    let whole = phase != Phase::Reject;
    let reported = if after.accept { accept(world, &waiting, whole)? } else { String::new() };
    if after.accept && !after.edit && whole && !waiting.is_empty() {
        let found = world.tree()?;
        if found != versions.new {
            return Err(format!(
                "an accept did not bring the changes ({reported}): {}",
                difference(&found, &versions.new)
            ));
        }
    }
    let kept = world.tree()?;
    rules.one_of_both(&kept).map_err(|why| format!("after accept ({reported}) {why}"))?;
    for run in world.waiting()? {
        world.must(&world.workspace(), &["changes", "reject", "--run", &run])?;
    }
    let found = world.tree()?;
    if found != kept {
        return Err(format!("a reject changed the workspace: {}", difference(&found, &kept)));
    }
    if let Some(run) = world.waiting()?.first() {
        return Err(format!("{run} still waits after it was rejected"));
    }
    usable(world)
}

/// Every later command works, in this directory and elsewhere.
fn later_commands(world: &World) -> Result<(), String> {
    let (workspace, other) = (world.workspace(), world.other());
    world.must(&other, &["changes", "list"])?;
    let recovered = world.nexus(&workspace, &["changes", "recover"])?;
    // 2: a program without this command.
    if recovered.code != Some(0) && recovered.code != Some(2) {
        return Err(format!("`nexus changes recover`: {}", brief(&recovered)));
    }
    world.must(&other, &["run", "--", "true"])?;
    world.must(&workspace, &["run", "--", "true"])?;
    Ok(())
}

fn accept(world: &World, waiting: &[String], whole: bool) -> Result<String, String> {
    let workspace = world.workspace();
    let mut reported = Vec::new();
    for run in waiting {
        if whole {
            world.must(&workspace, &["changes", "show", "--run", run])?;
            world.must(&workspace, &["changes", "diff", "--run", run])?;
        }
        reported.push(brief(&world.nexus(&workspace, &["changes", "accept", "--run", run])?));
    }
    Ok(reported.join("; "))
}

fn usable(world: &World) -> Result<(), String> {
    let workspace = world.workspace();
    world.must(&workspace, &["run", "--changes", "commit", "--", "sh", "-c", "echo later > later"])?;
    match fs::read(workspace.join("later")) {
        Ok(text) if text == b"later\n" => Ok(()),
        other => Err(format!("a later commit did nothing: {other:?}")),
    }
}

/// Returns the exit of a command and its first words.
pub fn brief(ended: &Ended) -> String {
    let line = ended.describe().replace('\n', ", ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{} …", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The rules about the workspace's content.
pub struct Rules<'a> {
    /// Directories and program of the play.
    pub world: &'a World,
    /// The old version and the new one.
    pub versions: &'a Versions,
    /// Set when a person has edited a file.
    pub edited: bool,
}

impl Rules<'_> {
    /// Returns whether a tree is this version, apart from the file that a person edited.
    fn same(&self, found: &Tree, version: &Tree) -> bool {
        if !self.edited {
            return found == version;
        }
        let without = |tree: &Tree| {
            let mut tree = tree.clone();
            tree.remove(EDITED);
            // A version that was kept beside it, under a name of the program's choice.
            tree.retain(|name, _| !name.starts_with(&format!("{EDITED}.")));
            tree
        };
        without(found) == without(version)
    }

    /// Demands that the tree is the old version or the new one, but for paths that were kept back and wait, and that a
    /// person's bytes are there.
    pub fn one_of_both(&self, found: &Tree) -> Result<(), String> {
        let edit = found.get(EDITED).map(|entry| &entry.content);
        if self.edited && edit != Some(&Content::File(EDIT.as_bytes().to_vec())) {
            let now = match edit {
                Some(Content::File(bytes)) => format!("{:?}", String::from_utf8_lossy(bytes)),
                other => format!("{other:?}"),
            };
            return Err(format!("what a person wrote to {EDITED} is gone, it is {now}"));
        }
        let Versions { old, new, .. } = self.versions;
        let found = &without_kept_beside(found, old);
        if self.same(found, old) || self.same(found, new) {
            return Ok(());
        }
        let waiting = self.world.waiting_paths()?;
        if self.same(&with_kept_back(found, old, new, &waiting), new) {
            return Ok(());
        }
        let nearest = [old, new].map(|version| difference(found, version)).into_iter().min_by_key(String::len);
        Err(format!("the workspace is half old and half new: {}", nearest.unwrap_or_default()))
    }
}

/// Leaves out old versions that lie beside the new one under a name that says so: what came out of the workspace and could not
/// be removed. One that differs from the old version stays in the tree.
fn without_kept_beside(found: &Tree, old: &Tree) -> Tree {
    let mut tree = found.clone();
    tree.retain(|name, entry| {
        let Some((stem, rest)) = name.split_once(".nexus-conflict-") else { return true };
        let below = rest.split_once('/').map_or(String::new(), |(_, below)| format!("/{below}"));
        old.get(&format!("{stem}{below}")) != Some(entry)
    });
    tree
}

/// Returns the tree as if the paths that wait and are still old were new.
fn with_kept_back(found: &Tree, old: &Tree, new: &Tree, waiting: &BTreeSet<String>) -> Tree {
    let mut tree = found.clone();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        // What is in a directory waits with it.
        let waits = Path::new(name).ancestors().any(|part| part.to_str().is_some_and(|part| waiting.contains(part)));
        if waits && found.get(name) == old.get(name) {
            match new.get(name) {
                Some(entry) => tree.insert(name.clone(), entry.clone()),
                None => tree.remove(name),
            };
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Entry;

    #[test]
    fn an_old_version_beside_the_new_one_is_no_half() {
        let old = tree(&[("gone/a", "old"), ("f", "old")]);
        let kept = tree(&[("f", "new"), ("gone.nexus-conflict-12ab/a", "old"), ("f.nexus-conflict-12ab", "old")]);
        assert_eq!(without_kept_beside(&kept, &old), tree(&[("f", "new")]));
        let other = tree(&[("f.nexus-conflict-12ab", "half"), ("new.nexus-conflict-12ab", "old")]);
        assert_eq!(without_kept_beside(&other, &old), other);
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        files
            .iter()
            .map(|(name, text)| {
                ((*name).to_owned(), Entry { mode: 0o644, content: Content::File(text.as_bytes().to_vec()) })
            })
            .collect()
    }

    #[test]
    fn a_path_that_waits_may_be_old_and_no_other() {
        let (old, new) = (tree(&[("a", "1"), ("b", "1")]), tree(&[("a", "2"), ("c", "2")]));
        let found = tree(&[("a", "2"), ("b", "1")]);
        let waiting = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(with_kept_back(&found, &old, &new, &waiting(&["b", "c"])), new);
        assert_ne!(with_kept_back(&found, &old, &new, &waiting(&["b"])), new);
        let third = tree(&[("a", "3"), ("c", "2")]);
        assert_ne!(with_kept_back(&third, &old, &new, &waiting(&["a"])), new);
    }
}
