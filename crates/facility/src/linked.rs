//! Links of the workspace that stand at protected names: the files they lead to are protected like the names.
//!
//! `.git/hooks/pre-commit -> ../../scripts/pre-commit.sh` is what installers of hooks make, and git runs the script. The
//! links looked at are those in the top directory, in `.git`, `.git/hooks` and `.config`.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, names};
use crate::meta::EntryType;
use crate::names::Pattern;
use crate::protected::{Class, Rules};
use std::io;
use std::os::fd::AsFd as _;

/// The directories whose entries are looked at.
const PLACES: &[&[u8]] = &[b"", b".git", b".git/hooks", b".config"];

/// Links that lead to links, as the kernel counts them at most (ELOOP, path_resolution(7)).
const CHAIN: usize = 40;

impl Rules {
    /// Adds what links at protected names lead to, as far as it lies in the workspace.
    pub fn with_linked(mut self, workspace: &Workspace) -> Result<Self, IoFailure> {
        let mut found = Vec::new();
        for place in PLACES {
            let dir = match workspace.readable_dir(place) {
                Ok(dir) => dir,
                // Not there, or itself a link, which the directory that holds it shows.
                Err(error) if is_gone(&error) || is_link(&error) => continue,
                // Closed to this user, and to what this user starts.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                Err(error) => return Err(error).doing("open", place),
            };
            for name in names(dir.as_fd()).doing("list", place)? {
                let path = join(place, &name);
                if self.class(&path) != Class::Plain
                    && self.class(&path) != Class::NoLink
                    && let Some(target) = target(workspace, &path).doing("read the link", &path)?
                {
                    let why = format!("{} leads here", String::from_utf8_lossy(&path));
                    found.push(Pattern::of_directory(&target, &why));
                }
            }
        }
        self.protected.extend(found);
        Ok(self)
    }
}

/// Whether a directory could not be entered because a link or another mount stands there.
pub(crate) fn is_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::LOOP, Errno::XDEV].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The end of a chain of links, relative to the workspace; `None` for what is not a link or leads outside.
fn target(workspace: &Workspace, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut at = path.to_vec();
    for _ in 0..CHAIN {
        if workspace.stat(&at)?.is_none_or(|meta| meta.kind != EntryType::Symlink) {
            return Ok((at != path && !at.is_empty()).then_some(at));
        }
        let (parent, name) = crate::beneath::split(&at);
        let dir = workspace.dir(parent)?;
        let link = rustix::fs::readlinkat(dir.as_fd(), name, Vec::new())?;
        let Some(next) = follow(parent, link.to_bytes()) else { return Ok(None) };
        at = next;
    }
    Ok(None)
}

/// The path that a link in `parent` names, by its names alone. Pure. An absolute one leads outside.
fn follow(parent: &[u8], link: &[u8]) -> Option<Vec<u8>> {
    if link.starts_with(b"/") {
        return None;
    }
    let mut plain: Vec<&[u8]> = parent.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    for name in link.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                plain.pop()?;
            }
            other => plain.push(other),
        }
    }
    Some(plain.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_links_at_protected_names_lead_to_is_protected() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for path in [".git/hooks", "scripts", "conf/vscode", "env", "tools/h"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        std::fs::write(at("scripts/pre-commit.sh"), "x").unwrap();
        symlink("../../scripts/pre-commit.sh", at(".git/hooks/pre-commit")).unwrap();
        symlink("conf/vscode", at(".vscode")).unwrap();
        symlink("env/first", at(".envrc")).unwrap();
        symlink("second", at("env/first")).unwrap();
        symlink("/etc/profile", at(".profile")).unwrap();
        symlink("../outside", at(".bashrc")).unwrap();
        symlink("scripts", at("plain")).unwrap();
        let workspace = Workspace::open(directory.path()).unwrap();
        let rules = Rules::default().with_linked(&workspace).unwrap();
        for path in ["scripts/pre-commit.sh", "conf/vscode/tasks.json", "env/second"] {
            assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{path}");
        }
        for path in ["scripts/other.sh", "conf/other", "tools/h/x", "env/third"] {
            assert_eq!(rules.class(path.as_bytes()), Class::Plain, "{path}");
        }
    }

    #[test]
    fn a_git_hooks_directory_that_is_a_link_protects_its_target() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join(".git")).unwrap();
        std::fs::create_dir_all(directory.path().join("tools/h")).unwrap();
        symlink("../tools/h", directory.path().join(".git/hooks")).unwrap();
        let workspace = Workspace::open(directory.path()).unwrap();
        let rules = Rules::default().with_linked(&workspace).unwrap();
        assert!(matches!(rules.class(b"tools/h/pre-commit"), Class::Listed(_)));
        assert_eq!(rules.class(b"tools/other"), Class::Plain);
    }
}
