//! Where the repository of a workspace has its hooks, when its configuration names another directory than `.git/hooks`.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone};
use crate::facts::read_small;
use crate::gitconfig::parse;
use crate::linked::is_link;
use crate::names::Pattern;
use crate::protected::Rules;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

/// The files that may say it, the later ones before the earlier.
const FILES: &[&[u8]] = &[b"config.worktree", b"config"];

impl Rules {
    /// Adds the directory that `core.hooksPath` of the workspace's repository names, if it lies in the workspace. `at` is
    /// the workspace's own path, for a setting with a whole path.
    pub fn with_hooks_directory(mut self, workspace: &Workspace, at: &Path) -> Result<Self, IoFailure> {
        if let Some(directory) = hooks_directory(workspace, at)? {
            self.protected.extend([Pattern::of_directory(&directory, "git hook: core.hooksPath")]);
        }
        Ok(self)
    }
}

/// Returns the directory, relative to the workspace.
pub fn hooks_directory(workspace: &Workspace, at: &Path) -> Result<Option<Vec<u8>>, IoFailure> {
    let dir = match workspace.dir(b".git") {
        Ok(dir) => dir,
        // A link is followed by its names elsewhere (`linked`).
        Err(error) if is_gone(&error) || is_link(&error) => return Ok(None),
        Err(error) => return Err(error).doing("open", b".git"),
    };
    for file in FILES {
        let text = match read_small(dir.as_fd(), file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.doing("read", file)?,
        };
        let settings = text.and_then(|text| parse(&text).ok()).unwrap_or_default();
        let mut named = settings
            .into_iter()
            .filter(|one| one.section == "core" && one.subsection.is_none() && one.name == "hookspath");
        if let Some(value) = named.next_back().and_then(|one| one.value) {
            return Ok(inside(&value, at));
        }
    }
    Ok(None)
}

/// The path of a setting relative to the workspace; `None` outside of it, or for the workspace itself.
fn inside(value: &[u8], at: &Path) -> Option<Vec<u8>> {
    let path = at.join(std::ffi::OsStr::from_bytes(value));
    let mut plain = std::path::PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    let relative = plain.strip_prefix(at).ok()?.as_os_str().as_bytes().to_vec();
    // The files of `.git` have rules of their own.
    (!relative.is_empty() && !relative.starts_with(b".git/")).then_some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protected::Class;

    #[test]
    fn the_directory_that_core_hooks_path_names_is_protected() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        std::fs::create_dir(at.join(".git")).unwrap();
        let whole = at.join("deep/hooks").display().to_string();
        for (value, wanted) in [
            ("tools/hooks", Some("tools/hooks")),
            ("./a/../hooks/", Some("hooks")),
            (whole.as_str(), Some("deep/hooks")),
            ("../outside", None),
            ("/etc", None),
            (".git/hooks", None),
        ] {
            std::fs::write(at.join(".git/config"), format!("[core]\nhooksPath = x\nhooksPath = {value}\n")).unwrap();
            let workspace = Workspace::open(at).unwrap();
            let found = hooks_directory(&workspace, at).unwrap();
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{value}");
            let rules = Rules::default().with_hooks_directory(&workspace, at).unwrap();
            if let Some(wanted) = wanted {
                let path = format!("{wanted}/pre-commit");
                assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{path}");
                assert_eq!(rules.class(format!("sub/{path}").as_bytes()), Class::Plain, "{path}");
            }
        }
        std::fs::remove_file(at.join(".git/config")).unwrap();
        assert_eq!(hooks_directory(&Workspace::open(at).unwrap(), at).unwrap(), None);
    }
}
