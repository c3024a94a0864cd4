//! Finds git commits that are named only by files which a commit kept back after its decision. The plan does the same for files that
//! it holds back.

use super::{Reading, Waiting, text, to_name};
use crate::beneath::{Workspace, join, names};
use crate::git::stash::Stash;
use crate::journal::file::KeptBack;
use crate::meta::EntryType;
use nexus_model::ByteText;
use std::collections::HashMap;
use std::os::fd::AsFd as _;

/// Files below a directory that are looked through for names of commits.
const MAX_FILES: usize = 10_000;

/// Returns the files of the layer that were kept back and alone name commits, and the commits that are to be named.
pub(crate) fn of_kept(kept: &[KeptBack], upper: &Workspace, base: &Workspace) -> (Vec<ByteText>, Vec<Stash>) {
    let mut reading = Reading { plan: None, upper, base, refs: HashMap::new() };
    let mut waiting: Vec<Waiting<Vec<u8>>> = Vec::new();
    for path in files(kept, upper) {
        let Some(place) = reading.place_of(&path) else { continue };
        // Written by another process meanwhile, as the run has it.
        if text(upper, &path).is_some_and(|new| text(base, &path) == Some(new)) {
            continue;
        }
        let holds = reading.holds(&path, Some(&path), &place);
        if !holds.is_empty() {
            waiting.push(Waiting { form: place.form, at: path.clone(), holds });
        }
    }
    waiting.sort_by(|one, other| (one.form, &one.at).cmp(&(other.form, &other.at)));
    let paths = waiting.iter().map(|one| ByteText(one.at.clone())).collect();
    (paths, to_name(waiting))
}

/// Lists the files that were kept back, as far as the layer has them.
fn files(kept: &[KeptBack], upper: &Workspace) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut left: Vec<Vec<u8>> = kept.iter().filter(|one| one.in_layer).map(|one| one.path.0.clone()).collect();
    let is_whole = |path: &[u8]| kept.iter().any(|one| one.subtree && crate::beneath::is_beneath(path, &one.path.0));
    while let Some(path) = left.pop() {
        match upper.stat(&path).ok().flatten().map(|meta| meta.kind) {
            Some(EntryType::File) => found.push(path),
            Some(EntryType::Directory) if left.len() < MAX_FILES && is_whole(&path) => {
                let Ok(dir) = upper.readable_dir(&path) else { continue };
                left.extend(names(dir.as_fd()).unwrap_or_default().into_iter().map(|name| join(&path, &name)));
            }
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    found
}
