//! Which working tree a submodule's git directory belongs to: the `.git` file there names it.

use crate::beneath::{Workspace, split};
use crate::facts::read_small;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

/// Whether the `.git` file in the directory `tree` of the workspace names the git directory `git_dir`. The file needs an accept
/// to change, so what the workspace has is what a person has seen. Both paths are relative to the workspace.
pub(crate) fn names_back(base: &Workspace, tree: &[u8], git_dir: &[u8]) -> bool {
    let text = base.dir(tree).and_then(|dir| read_small(dir.as_fd(), b".git"));
    // What cannot be read names nothing, and the setting waits.
    text.ok().flatten().is_some_and(|text| target(&text, base, tree).as_deref() == Some(git_dir))
}

/// The path in the workspace that a `.git` file names.
fn target(text: &[u8], base: &Workspace, tree: &[u8]) -> Option<Vec<u8>> {
    let path = text.strip_prefix(b"gitdir:")?.trim_ascii();
    let (from, path) = if path.starts_with(b"/") {
        let inside = path.strip_prefix(base.path().as_os_str().as_bytes())?;
        (&b""[..], inside.strip_prefix(b"/")?)
    } else {
        (tree, path)
    };
    let mut at = from.to_vec();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if at.is_empty() => return None,
            b".." => at = split(&at).0.to_vec(),
            name => at = crate::beneath::join(&at, name),
        }
    }
    Some(at)
}
