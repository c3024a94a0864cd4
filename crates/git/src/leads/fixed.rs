//! Links at places that are known by name: they are looked up one by one, so that no number of other directories and
//! files keeps them from being found.

use super::collect::{Leads, join, standard};
use super::git::Repository;
use super::links::{Searched, follow, list};
use super::resolve::nothing_is_at;
use crate::names::Names;
use nexus_beneath::meta::EntryType;
use nexus_beneath::{Doing as _, IoFailure};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Places of a git directory that redirect what git reads or runs when they are links.
const OF_GIT_DIRECTORY: &[&str] = &[
    "",
    "config",
    "config.worktree",
    "commondir",
    "hooks",
    "info",
    "info/attributes",
    "info/grafts",
    "modules",
    "objects",
    "objects/info",
    "objects/info/alternates",
    "worktrees",
];
/// Directories that are protected as a whole: every link in them counts, and no run adds entries unasked.
const WHOLE: &[&str] =
    &[".vscode", ".claude", ".husky", ".githooks", ".git-hooks", ".github/workflows", ".github/hooks"];

/// Protects what links lead to at the fixed places of the workspace's top and of each repository, as far as the search has not
/// seen them.
pub(super) fn follow_all(
    leads: &mut Leads<'_>,
    names: &Names,
    repositories: &[Repository],
    searched: &Searched,
) -> Result<(), IoFailure> {
    let fixed = std::cell::LazyCell::new(|| literal(names));
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let tops = repositories.iter().flat_map(|one| &one.tops).cloned();
    for top in std::iter::once(leads.top.path.to_owned()).chain(tops) {
        if searched.has_seen(leads.top, &top) || !seen.insert(top.clone()) {
            continue;
        }
        for name in fixed.iter() {
            one(leads, &top.join(name))?;
        }
        one(leads, &top.join(".git"))?;
        for name in WHOLE {
            links_in(leads, &top.join(name))?;
        }
    }
    for (one, directory) in repositories.iter().flat_map(|one| one.directories.iter().map(move |at| (one, at))) {
        // The search knows the links of a git directory by the name `.git`, which a bare repository does not have.
        let is_searched = !one.tops.is_empty() && searched.has_seen(leads.top, directory);
        if is_searched || !seen.insert(directory.clone()) {
            continue;
        }
        for name in OF_GIT_DIRECTORY {
            self::one(leads, &directory.join(name))?;
        }
        links_in(leads, &directory.join("hooks"))?;
    }
    Ok(())
}

/// Literal protected names, and the directories on the way to them.
fn literal(names: &Names) -> Vec<String> {
    let standard = standard();
    let mut found = HashSet::new();
    for text in names.literal().chain(standard.literal()) {
        let ends = text.match_indices('/').map(|(at, _)| at).chain([text.len()]);
        found.extend(ends.map(|end| text[..end].to_owned()));
    }
    let mut found: Vec<String> = found.into_iter().collect();
    found.sort();
    found
}

/// Protects what a place leads to if it is a link.
fn one(leads: &mut Leads<'_>, place: &Path) -> Result<(), IoFailure> {
    let shown = place.as_os_str().as_bytes();
    match rustix::fs::lstat(place) {
        Ok(meta) if FileType::from_raw_mode(meta.st_mode) == FileType::Symlink => {
            let name = place.strip_prefix(leads.top.path).unwrap_or(place).to_owned();
            follow(leads, place, name.as_os_str().as_bytes())
        }
        Ok(_) => Ok(()),
        Err(error) if nothing_is_at(&error.into(), place, leads.top.path) => Ok(()),
        Err(error) => Err(error).doing("look at", shown),
    }
}

/// Protects what the links in a directory lead to.
fn links_in(leads: &mut Leads<'_>, directory: &Path) -> Result<(), IoFailure> {
    let shown = directory.as_os_str().as_bytes();
    let dir = match rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(dir) => dir,
        Err(error) if nothing_is_at(&error.into(), directory, leads.top.path) => return Ok(()),
        Err(error) => return Err(error).doing("open", shown),
    };
    for entry in list(&dir, usize::MAX).doing("list", shown)? {
        if entry.kind == EntryType::Symlink {
            one(leads, &join(directory, &entry.name))?;
        }
    }
    Ok(())
}
