//! Finds the lengths of object ids that the configurations of a git directory allow.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, open_file, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::fold::fold;
use crate::read::walk::{Walk, lower_path};
use nexus_git::index::format::{LONG, SHORT};
use nexus_git::index::lengths::{MAX_CONFIG, lengths_by};
use nexus_git::reads::Reads;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::collections::hash_map;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

/// Returns the bytes that the configurations of a git directory allow for an object id. Where they disagree, the index
/// must be understood in each way, and so where none says it for certain: the configuration may come, or change, in a
/// later run.
pub(super) fn said_lengths(
    allowed: &mut Lengths<'_>,
    tree: &LayerTree,
    moved: &HashMap<usize, usize>,
    directory: usize,
) -> Result<Vec<usize>, IoFailure> {
    let walk = allowed.walk;
    // The configuration of a further working tree is in the directory that the working trees share.
    let parent = tree.nodes[directory].parent;
    let is_further = fold(split(&tree.nodes[parent].path.0).1).as_ref() == b"worktrees";
    let mut found = allowed.at(tree, directory)?.to_vec();
    if is_further {
        let shared = tree.nodes[parent].parent;
        found.extend(allowed.at(tree, shared)?);
    } else {
        // It names a place whose configuration is not looked for.
        let base = lower_path(&tree.nodes[directory]);
        let is_moved = base.map_or(Ok(false), |base| has(walk.base, &join(base, b"commondir")))?;
        if is_moved || moved.contains_key(&directory) {
            return Ok(vec![SHORT, LONG]);
        }
    }
    if found.is_empty() {
        found = vec![SHORT, LONG];
    }
    Ok(found)
}

/// The lengths of object ids that configurations allow, by their directories: many further working trees share one.
pub(super) struct Lengths<'a> {
    pub(super) walk: &'a Walk<'a>,
    pub(super) configs: &'a HashMap<usize, usize>,
    pub(super) reads: &'a Reads,
    pub(super) known: HashMap<usize, Vec<usize>>,
}

impl Lengths<'_> {
    fn at(&mut self, tree: &LayerTree, directory: usize) -> Result<&[usize], IoFailure> {
        Ok(match self.known.entry(directory) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => {
                let config = self.configs.get(&directory);
                let found = object_id_lengths(self.walk, tree, config, directory, self.reads)?;
                // Where no bytes are left, not all of it was read.
                new.insert(if self.reads.has(1) { found } else { vec![SHORT, LONG] })
            }
        })
    }
}

/// Returns the bytes that the configuration in a directory allows for an object id: none where there is no
/// configuration.
fn object_id_lengths(
    walk: &Walk<'_>,
    tree: &LayerTree,
    config: Option<&usize>,
    directory: usize,
    reads: &Reads,
) -> Result<Vec<usize>, IoFailure> {
    let place = &tree.nodes[directory];
    let base = match lower_path(place) {
        Some(base) if is_classified(walk, &place.path.0, base)? => small(walk.base, &join(base, b"config"), reads)?,
        Some(_) | None => None,
    };
    let mut found = base.as_deref().map(lengths_by).unwrap_or_default();
    if let Some(config) = config.map(|at| &tree.nodes[*at]).filter(|one| one.role == Role::Entry) {
        let path = &config.path.0;
        match &config.rare.verdict {
            Some(Verdict::Strip(text)) => found.extend(lengths_by(text)),
            Some(Verdict::Commit) => {
                found.extend(small(walk.upper, path, reads)?.iter().flat_map(|text| lengths_by(text)));
            }
            // It may come later, if the one of the workspace says nothing.
            Some(Verdict::Park(_)) if base.is_some() => {
                found.extend(small(walk.upper, path, reads)?.iter().flat_map(|text| lengths_by(text)));
            }
            Some(Verdict::Park(_) | Verdict::LeaveOut) | None => found = vec![SHORT, LONG],
        }
    }
    Ok(found)
}

/// Reports whether a change of the configuration in a directory would be classified as one of git.
fn is_classified(walk: &Walk<'_>, path: &[u8], base: &[u8]) -> Result<bool, IoFailure> {
    let by_name = walk.rules.class(&join(path, b"config")) == Class::GitConfig;
    Ok(by_name || crate::read::git_dirs::is_one(walk.base, base)?)
}

fn has(base: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    Ok(base.stat(path).doing("look at", path)?.is_some())
}

fn small(tree: &Workspace, path: &[u8], reads: &Reads) -> Result<Option<Vec<u8>>, IoFailure> {
    let (parent, name) = split(path);
    if !reads.has(1) {
        return Ok(None);
    }
    let opened = tree.dir(parent).and_then(|dir| open_file(dir.as_fd(), name, OFlags::RDONLY));
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_gone(&error) || crate::beneath::is_other_mount(&error) => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error).doing("open", path),
    };
    let mut text = Vec::new();
    std::fs::File::from(file).take(MAX_CONFIG).read_to_end(&mut text).doing("read", path)?;
    reads.spend(text.len() as u64);
    Ok(Some(text))
}
