//! Finds new repositories in a layer that borrow objects (`alternates`) or fetch them later (partial clones): their refs may name
//! objects that are stored elsewhere.

use crate::beneath::{Workspace, join, names, split};
use crate::entries::tree::{LayerTree, Role};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::read::git_dirs::may_be_repository;
use nexus_model::ByteText;
use std::os::fd::AsFd as _;

/// Returns the git directories of a layer that are not in the workspace and whose objects lie elsewhere, all or some of them.
pub(crate) fn new_ones(tree: &LayerTree, upper: &Workspace, base: &Workspace) -> Vec<ByteText> {
    let mut found = Vec::new();
    for node in tree.nodes.iter().skip(1).filter(|node| node.role == Role::Entry) {
        let (git_dir, name) = split(&node.path.0);
        if fold(name).as_ref() == b"head"
            && !may_be_repository(base, git_dir)
            && [upper, base].map(|tree| borrows(tree, git_dir)).contains(&true)
        {
            found.push(ByteText(git_dir.to_vec()));
        }
    }
    found
}

/// Reports whether a git directory of a tree borrows or fetches objects. What cannot be looked at does.
fn borrows(tree: &Workspace, git_dir: &[u8]) -> bool {
    let objects = join(git_dir, b"objects");
    match tree.stat(&objects).map(|meta| meta.map(|meta| meta.kind)) {
        Ok(Some(EntryType::Directory)) => {}
        Ok(Some(EntryType::Symlink)) | Err(_) => return true,
        Ok(_) => return false,
    }
    if !matches!(tree.stat(&join(&objects, b"info/alternates")), Ok(None)) {
        return true;
    }
    match tree.readable_dir(&join(&objects, b"pack")).and_then(|dir| names(dir.as_fd())) {
        Ok(names) => names.iter().any(|name| name.ends_with(b".promisor")),
        Err(error) => !crate::beneath::is_gone(&error),
    }
}
