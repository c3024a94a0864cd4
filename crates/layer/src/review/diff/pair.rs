//! Finds for each file its other version. Pure.

use crate::meta::EntryType;
use crate::review::diff::model::DiffKind;
use crate::review::diff::views::{Entry, Views};
use std::collections::BTreeMap;

/// A file that differs, or may differ.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: DiffKind,
    pub(crate) old: Option<Entry>,
    pub(crate) new: Option<Entry>,
    pub(crate) rename_from: Option<Vec<u8>>,
}

/// Pairs the files at `is_chosen` paths, ordered by path; what is gone before what came in its place.
///
/// A rename is only shown when its old name is free and its new name was: as in git, and because `git apply` depends on
/// no order then. (Two directories that changed places are shown as changed files.) Links are never renamed: their
/// header says nothing about their type, and git would follow the old one when a directory took its place.
pub(crate) fn pair(mut views: Views, is_chosen: impl Fn(&[u8]) -> bool) -> Vec<Pair> {
    let mut renamed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (path, new) in &views.new {
        let Some(from) = new.was.as_ref().filter(|from| *from != path) else { continue };
        let free = !views.old.contains_key(path) && !views.new.contains_key(from);
        let fits = views.old.get(from).is_some_and(|old| old.meta.kind == new.meta.kind);
        if free && fits && new.meta.kind == EntryType::File && is_chosen(path) {
            renamed.insert(path.clone(), from.clone());
        }
    }
    let mut pairs = Vec::new();
    let mut olds = std::mem::take(&mut views.old);
    for (path, new) in views.new {
        let (rename_from, kind) = match renamed.remove(&path) {
            Some(from) => (Some(from), DiffKind::Renamed),
            None => (None, DiffKind::Modified),
        };
        // Of several new names of one file the first is the renamed one.
        let old = olds.remove(rename_from.as_ref().unwrap_or(&path));
        match old {
            _ if !is_chosen(&path) => {}
            None => pairs.push(Pair { path, kind: DiffKind::Added, old: None, new: Some(new), rename_from: None }),
            Some(old) if old.meta.kind == new.meta.kind => {
                if !(new.same && kind == DiffKind::Modified) {
                    pairs.push(Pair { path, kind, old: Some(old), new: Some(new), rename_from });
                }
            }
            Some(old) => {
                let gone = Entry { protected: new.protected.clone(), ..old };
                let deleted = DiffKind::Deleted;
                pairs.push(Pair { path: path.clone(), kind: deleted, old: Some(gone), new: None, rename_from: None });
                pairs.push(Pair { path, kind: DiffKind::Added, old: None, new: Some(new), rename_from: None });
            }
        }
    }
    for (path, old) in olds {
        if is_chosen(&path) {
            pairs.push(Pair { path, kind: DiffKind::Deleted, old: Some(old), new: None, rename_from: None });
        }
    }
    for (path, old, new) in views.elsewhere {
        if is_chosen(&path) {
            let kind = DiffKind::Modified;
            pairs.push(Pair { path, kind, old: Some(old), new: Some(new), rename_from: None });
        }
    }
    pairs.sort_by(|a, b| (&a.path, a.new.is_some()).cmp(&(&b.path, b.new.is_some())));
    pairs
}
