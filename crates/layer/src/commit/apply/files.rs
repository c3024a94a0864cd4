//! Reads the files that a step brings, or brought: one of its own, or all of a directory that comes as a whole.

use super::Apply;
use crate::beneath::{Workspace, is_beneath, join, names, split};
use crate::entries::protected::Class;
use crate::git::git_rules::Version;
use crate::journal::step::{Origin, Put};
use crate::meta::{EntryType, stat_if_there};
use nexus_git::git_dir::PACKED;
use nexus_git::reads::Reads;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Returns the paths of the files that a step brings to a git directory.
    pub(super) fn files_of(&self, put: &Put, git_dir: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        if !put.whole {
            return Ok(vec![put.path.0.clone()]);
        }
        let Some((tree, top)) = self.source_of(put) else { return Ok(Vec::new()) };
        let first = if is_beneath(git_dir, &put.path.0) {
            let inside = &git_dir[put.path.0.len()..];
            (join(&top, inside.strip_prefix(b"/").unwrap_or(inside)), git_dir.to_vec())
        } else {
            (top, put.path.0.clone())
        };
        let (mut found, mut left) = (Vec::new(), vec![first]);
        while let Some((at, path)) = left.pop() {
            let dir = tree.readable_dir(&at)?;
            for name in names(dir.as_fd())? {
                match stat_if_there(dir.as_fd(), &name)?.map(|meta| meta.kind) {
                    Some(EntryType::Directory) => left.push((join(&at, &name), join(&path, &name))),
                    Some(_) => found.push(join(&path, &name)),
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// Reads a file that a step brings. An entry of another kind is empty; `None` for a file that cannot be read.
    pub(super) fn text_at(&self, put: &Put, file: &[u8]) -> Option<Vec<u8>> {
        if !put.whole {
            return self.text_of(put);
        }
        let (tree, top) = self.source_of(put)?;
        let inside = file.strip_prefix(&*put.path.0).and_then(|inside| inside.strip_prefix(b"/")).unwrap_or_default();
        let path = join(&top, inside);
        match tree.stat(&path).ok()?.map(|meta| meta.kind) {
            Some(EntryType::File) => read(tree, &path),
            _ => Some(Vec::new()),
        }
    }

    /// Reads the file that a step alone brings.
    fn text_of(&self, put: &Put) -> Option<Vec<u8>> {
        let Some(new) = put.new.filter(|new| new.kind == EntryType::File) else { return Some(Vec::new()) };
        let slot_name;
        let at_source: (Option<&Workspace>, &[u8]) = match &put.from {
            Origin::Layer => (Some(self.upper), &put.path.0),
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                (self.slots, &slot_name)
            }
        };
        for (tree, path) in [(Some(self.base), &*put.path.0), at_source] {
            let (parent, name) = split(path);
            let Some(dir) = tree.and_then(|tree| tree.dir_by_force(parent).ok()) else { continue };
            let is_it = stat_if_there(dir.as_fd(), name).is_ok_and(|meta| meta.is_some_and(|meta| meta.id == new.id));
            if is_it
                && let Ok(Version::Bytes(text)) =
                    Version::read(dir.as_fd(), name, &Class::GitState(PACKED), &Reads::default())
            {
                return Some(text);
            }
        }
        None
    }

    /// Reads the file of the workspace in whose place a step is about to bring another one. It is empty where there is none, and
    /// where the step was carried out.
    pub(super) fn present(&self, put: &Put) -> Vec<u8> {
        if put.whole || put.old.is_none() {
            return Vec::new();
        }
        let (parent, name) = split(&put.path.0);
        let Ok(dir) = self.base.dir_by_force(parent) else { return Vec::new() };
        let is_ours = stat_if_there(dir.as_fd(), name)
            .is_ok_and(|meta| meta.is_some_and(|meta| put.new.is_some_and(|new| new.id == meta.id)));
        if is_ours { Vec::new() } else { read(self.base, &put.path.0).unwrap_or_default() }
    }

    /// Returns the place of a directory that a step brings, or brought.
    fn source_of(&self, put: &Put) -> Option<(&Workspace, Vec<u8>)> {
        let new = put.new?;
        let is_there = |tree: &Workspace, path: &[u8]| {
            tree.stat(path).is_ok_and(|meta| meta.is_some_and(|meta| meta.id == new.id))
        };
        if is_there(self.base, &put.path.0) {
            return Some((self.base, put.path.0.clone()));
        }
        match put.from {
            Origin::Layer => Some((self.upper, put.path.0.clone())),
            Origin::Slot(slot) => Some((self.slots?, slot.to_string().into_bytes())),
        }
    }
}

/// Reads a file of refs, a log or an index; `None` where it cannot be read.
pub(super) fn read(tree: &Workspace, path: &[u8]) -> Option<Vec<u8>> {
    let (parent, name) = split(path);
    let dir = tree.dir_by_force(parent).ok()?;
    match Version::read(dir.as_fd(), name, &Class::GitState(PACKED), &Reads::default()).ok()? {
        Version::Bytes(text) => Some(text),
        Version::Absent | Version::Unreadable => None,
    }
}
