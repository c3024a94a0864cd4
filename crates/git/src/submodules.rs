//! The submodules of a repository in the workspace: where their working trees are, and the URLs that `.gitmodules`
//! says.

use crate::config::{Setting, parse};
use crate::small::read_small;
use nexus_beneath::fold::fold;
use nexus_beneath::{Workspace, join, split};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

/// Reports whether the `.git` file in the directory `tree` of the workspace names the git directory `git_dir`. The file
/// needs an accept to change, so what the workspace has is what a person has seen. Both paths are relative to the
/// workspace.
pub fn names_back(base: &Workspace, tree: &[u8], git_dir: &[u8]) -> bool {
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
            name => at = nexus_beneath::join(&at, name),
        }
    }
    Some(at)
}

/// The submodules of the repository that a git directory is, or lies in as `.git/modules/NAME`.
pub struct Modules<'a> {
    base: &'a Workspace,
    /// The top of its working tree; `None` for a directory without the name `.git`.
    top: Option<&'a [u8]>,
    own: Option<&'a [u8]>,
    urls: OnceCell<HashMap<Vec<u8>, Vec<u8>>>,
}

impl<'a> Modules<'a> {
    /// Finds the repository around a git directory of the workspace.
    pub fn around(base: &'a Workspace, git_dir: &'a [u8]) -> Self {
        let is = |name: &[u8], wanted: &[u8]| fold(name).as_ref() == wanted;
        let (mut top, mut own, mut start) = (None, None, 0);
        for name in git_dir.split(|byte| *byte == b'/') {
            let end = start + name.len();
            if is(name, b".git") {
                top = Some(&git_dir[..start.saturating_sub(1)]);
                // What a run makes together with the repository around it is as new as that.
                let is_old = base.stat(&git_dir[..end]).map_or(true, |found| found.is_some());
                let rest = git_dir.get(end + 1..).unwrap_or_default();
                let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
                own = (is_old && is(first, b"modules")).then(|| rest.get(first.len() + 1..).unwrap_or_default());
                break;
            }
            start = end + 1;
        }
        Self { base, top, own, urls: OnceCell::new() }
    }

    /// Returns the name of the submodule that the git directory is of, when the workspace has the repository around it.
    pub fn own(&self) -> Option<&'a [u8]> {
        self.own
    }

    /// Returns the URL of a submodule as `git submodule init` writes it. `.gitmodules` needs an accept to change, so
    /// what the workspace has is what a person has seen. A file that cannot be read says nothing, and the setting
    /// waits.
    pub fn url(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.urls.get_or_init(|| self.read().unwrap_or_default()).get(name).cloned()
    }

    fn read(&self) -> Option<HashMap<Vec<u8>, Vec<u8>>> {
        let top = self.top?;
        let settings = |directory: &[u8], name: &[u8]| {
            let dir = self.base.dir(directory).ok()?;
            parse(&read_small(dir.as_fd(), name).ok()??).ok()
        };
        let origin = settings(&join(top, b".git"), b"config").and_then(|all| {
            let is_url = |one: &&Setting| one.section == "remote" && one.name == "url";
            let own = all.iter().filter(is_url).find(|one| one.subsection.as_deref() == Some(b"origin"));
            own.and_then(|one| one.value.clone())
        });
        let all = settings(top, b".gitmodules")?;
        let is_url = |one: &Setting| one.section == "submodule" && one.name == "url";
        let urls = all.into_iter().filter(is_url).filter_map(|one| {
            let url = resolve(one.value?, origin.as_deref())?;
            Some((one.subsection?, url))
        });
        Some(urls.collect())
    }
}

/// Resolves a URL of `.gitmodules` against that of `origin`, as git does it (`relative_url` in remote.c).
fn resolve(url: Vec<u8>, origin: Option<&[u8]>) -> Option<Vec<u8>> {
    if !url.starts_with(b"./") && !url.starts_with(b"../") {
        return Some(url);
    }
    let origin = origin?;
    let mut base = origin.strip_suffix(b"/").unwrap_or(origin);
    // Relative to a place that this function does not know.
    if !base.starts_with(b"/") && !base.contains(&b':') {
        return None;
    }
    let (mut rest, mut separator) = (url.as_slice(), b'/');
    loop {
        if let Some(next) = rest.strip_prefix(b"../") {
            let at = base.iter().rposition(|byte| *byte == b'/');
            let at = at.or_else(|| base.iter().rposition(|byte| *byte == b':'))?;
            separator = base[at];
            (base, rest) = (&base[..at], next);
        } else if let Some(next) = rest.strip_prefix(b"./") {
            rest = next;
        } else {
            break;
        }
    }
    let whole = [base, &[separator], rest].concat();
    Some(whole.strip_suffix(b"/").map_or(whole.clone(), <[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn a_relative_url_is_resolved_as_git_does_it() {
        for (url, origin, wanted) in [
            ("https://e.org/a", None, Some("https://e.org/a")),
            ("../a", Some("https://e.org/x/b.git"), Some("https://e.org/x/a")),
            ("../../y/a/", Some("https://e.org/x/b.git/"), Some("https://e.org/y/a")),
            ("./a", Some("/srv/b"), Some("/srv/b/a")),
            ("../a", Some("git@h:b"), Some("git@h:a")),
            ("../a", Some("../b"), None),
            ("../a", None, None),
        ] {
            let resolved = resolve(url.as_bytes().to_vec(), origin.map(str::as_bytes));
            assert_eq!(resolved.as_deref(), wanted.map(str::as_bytes), "{url} at {origin:?}");
        }
    }
}
