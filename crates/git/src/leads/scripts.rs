//! Finds what scripts that programs of the host start unasked, the hooks of git and `.envrc`, start or read in the
//! workspace: a changed helper would run as the script would.
//!
//! `words` knows which words of a script count. What a helper starts in turn is not followed, and packages in
//! `node_modules` are passed by: they are replaced as a whole by every installation.

use super::collect::{Leads, join};
use super::git::{Repository, beginning, relative};
use super::links::Searched;
use super::resolve::nothing_is_at;
use super::word_lists::MODULES_OF_START;
use super::{links, words};
use nexus_beneath::fold::fold;
use nexus_beneath::meta::EntryType;
use nexus_beneath::{Doing as _, IoFailure, split};
use rustix::fs::{Mode, OFlags};
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Scripts that are read in one directory, and their size: a larger file or one with a zero byte is a program, which
/// names nothing. In a directory with more scripts than this it is unknown what they name.
const SCRIPTS: usize = 512;
const MAX_BYTES: u64 = 64 * 1024;

/// Entries of the top of a working tree that are listed to find configurations.
const MAX_LISTED: usize = 4096;

/// By these words a script finds out where it is.
const OF_ITSELF: &[&[u8]] = &[b"$0", b"${0", b"BASH_SOURCE"];

/// Directories of a working tree whose scripts git runs.
const OF_HOOKS: &[&str] = &[".husky", ".githooks", ".git-hooks"];

/// Configurations of a working tree whose commands programs of the host start when it is opened, or when git commits.
/// Files that they name are protected.
const CONFIGURATIONS: &[&str] = &[
    ".cargo/config",
    ".cargo/config.toml",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/config.toml",
    ".config/hk.pkl",
    ".config/lefthook-local.json",
    ".config/lefthook-local.toml",
    ".config/lefthook-local.yaml",
    ".config/lefthook-local.yml",
    ".config/lefthook.json",
    ".config/lefthook.toml",
    ".config/lefthook.yaml",
    ".config/lefthook.yml",
    ".config/mise.toml",
    ".config/mise/config.toml",
    ".cursor/mcp.json",
    ".devcontainer.json",
    ".devcontainer/devcontainer.json",
    ".gemini/settings.json",
    ".hg/hgrc",
    ".lefthook-local.json",
    ".lefthook-local.toml",
    ".lefthook-local.yaml",
    ".lefthook-local.yml",
    ".lefthook.json",
    ".lefthook.toml",
    ".lefthook.yaml",
    ".lefthook.yml",
    ".lintstagedrc",
    ".lintstagedrc.cjs",
    ".lintstagedrc.js",
    ".lintstagedrc.json",
    ".lintstagedrc.mjs",
    ".lintstagedrc.ts",
    ".lintstagedrc.yaml",
    ".lintstagedrc.yml",
    ".local-overcommit.yml",
    ".mcp.json",
    ".mise.local.toml",
    ".mise.toml",
    ".mise/config.toml",
    ".npmrc",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".simple-git-hooks.cjs",
    ".simple-git-hooks.js",
    ".simple-git-hooks.json",
    ".simple-git-hooks.mjs",
    ".vscode/mcp.json",
    ".vscode/settings.json",
    ".yarnrc",
    ".yarnrc.yml",
    ".zed/settings.json",
    "devbox.json",
    "hk.pkl",
    "lefthook-local.json",
    "lefthook-local.toml",
    "lefthook-local.yaml",
    "lefthook-local.yml",
    "lefthook.json",
    "lefthook.toml",
    "lefthook.yaml",
    "lefthook.yml",
    "lint-staged.config.cjs",
    "lint-staged.config.js",
    "lint-staged.config.mjs",
    "lint-staged.config.ts",
    "mise.local.toml",
    "mise.toml",
    "mise/config.toml",
    "prek.toml",
    "simple-git-hooks.cjs",
    "simple-git-hooks.js",
    "simple-git-hooks.json",
    "simple-git-hooks.mjs",
];
/// The same where the text has this word.
const CONFIGURATIONS_WITH: &[(&str, &[u8])] = &[(".vscode/tasks.json", b"folderOpen")];

/// Protects what the scripts name. `begins` says for each repository where git may start its programs.
pub(super) fn read(
    leads: &mut Leads<'_>,
    repositories: &[Repository],
    begins: &[Vec<PathBuf>],
    searched: &Searched,
) -> Result<(), IoFailure> {
    let mut tops: Vec<PathBuf> = vec![leads.top.path.to_owned()];
    for (repository, begins) in repositories.iter().zip(begins) {
        tops.extend(repository.tops.iter().filter(|top| *top != leads.top.path).cloned());
        // git starts hooks at the top of the working tree, which a setting may move, and in the git directory.
        for (directory, begin) in repository.directories.iter().flat_map(|one| begins.iter().map(move |at| (one, at))) {
            directory_of_hooks(leads, &directory.join("hooks"), begin)?;
        }
        let own = leads.top.path;
        for top in repository.tops.iter().filter(|top| *top != own) {
            configurations(leads, top, None)?;
        }
        for (top, name) in repository.tops.iter().flat_map(|top| OF_HOOKS.iter().map(move |name| (top, name))) {
            directory_of_hooks(leads, &top.join(name), top)?;
        }
    }
    for (directory, begin) in std::mem::take(&mut leads.hooks) {
        directory_of_hooks(leads, &directory, &begin)?;
    }
    for directory in std::mem::take(&mut leads.hooks_of_all) {
        hooks_of_any_repository(leads, &directory)?;
    }
    configurations(leads, leads.top.path, searched.top.as_deref())?;
    for top in tops {
        let is_listed = searched.top.is_some() && top == leads.top.path;
        if !is_listed || searched.has_at_top(b".envrc") {
            script(leads, &top.join(".envrc"), &top)?;
        }
    }
    Ok(())
}

/// Protects what the `.envrc` of further directories of the workspace name.
pub(super) fn envrcs<'a>(
    leads: &mut Leads<'_>,
    directories: impl Iterator<Item = &'a Vec<u8>>,
) -> Result<(), IoFailure> {
    for directory in directories {
        let at = join(leads.top.path, directory);
        script(leads, &at.join(".envrc"), &at)?;
    }
    Ok(())
}

/// Reads hooks that git starts in `begin`.
fn directory_of_hooks(leads: &mut Leads<'_>, directory: &Path, begin: &Path) -> Result<(), IoFailure> {
    for path in hooks_in(leads, directory)? {
        script(leads, &path, begin)?;
    }
    Ok(())
}

/// Reads hooks that git starts in every repository. What they name there is protected in each directory: a run may make
/// a repository of any, and fill it in an earlier run.
fn hooks_of_any_repository(leads: &mut Leads<'_>, directory: &Path) -> Result<(), IoFailure> {
    for path in hooks_in(leads, directory)? {
        let Some(text) = text_of(leads, &path)? else { continue };
        let why = format!("named by {}", path.strip_prefix(leads.top.path).unwrap_or(&path).display());
        for word in words::of_script(&text) {
            let has_end = split(&word.text).1.contains(&b'.') && word.text.contains(&b'/');
            let is_meant = !word.only_programs && (has_end || !word.only_files);
            // A file beside the hook is what `"$(dirname "$0")/x"` means.
            let is_beside = || word.beside && directory.join(join(Path::new(""), &word.text)).exists();
            if !is_meant || word.in_git || is_of_packages(&word.text) || is_beside() {
                continue;
            }
            if let Some(path) = relative(&word.text) {
                leads.add_of_any_repository(&path, &why)?;
            }
        }
    }
    Ok(())
}

/// Returns the paths of the hooks in a directory.
fn hooks_in(leads: &Leads<'_>, directory: &Path) -> Result<Vec<PathBuf>, IoFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(error) if nothing_is_at(&error.into(), directory, leads.top.path) => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("open", directory.as_os_str().as_bytes()),
    };
    let shown = directory.as_os_str().as_bytes();
    let mut scripts = links::list(&dir, usize::MAX).doing("list", shown)?;
    scripts.retain(|entry| {
        matches!(entry.kind, EntryType::File | EntryType::Symlink) && !entry.name.ends_with(b".sample")
    });
    if scripts.len() > SCRIPTS {
        return Err(std::io::Error::other("too many hooks to read")).doing("read", shown);
    }
    Ok(scripts.iter().map(|entry| join(directory, &entry.name)).collect())
}

/// Reads a script; `None` for a file that is not text, or is too large for a script.
fn text_of(leads: &Leads<'_>, path: &Path) -> Result<Option<Vec<u8>>, IoFailure> {
    let text = beginning(path, MAX_BYTES + 1, leads.top.path)?;
    Ok(text.filter(|text| text.len() as u64 <= MAX_BYTES && !text.contains(&0)))
}

fn script(leads: &mut Leads<'_>, path: &Path, begin: &Path) -> Result<(), IoFailure> {
    let Some(text) = text_of(leads, path)? else { return Ok(()) };
    let found = words::of_script(&text);
    if let Some(beside) = path.parent().filter(|_| OF_ITSELF.iter().any(|word| contains(&text, word))) {
        // `HERE="$(dirname "$0")"` and `"$HERE/../x"`.
        protect(leads, path, beside, found.iter().filter(|word| word.beside).cloned().collect())?;
    }
    protect(leads, path, begin, found)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

/// Protects what the configurations of a working tree name. `listed` holds the folded names of its top, where these are
/// known.
fn configurations(leads: &mut Leads<'_>, top: &Path, listed: Option<&[Vec<u8>]>) -> Result<(), IoFailure> {
    let shown = top.as_os_str().as_bytes();
    // Most of them are missing, and one listing tells.
    let names = if let Some(names) = listed {
        Some(Cow::Borrowed(names))
    } else {
        let dir = match rustix::fs::open(top, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(dir) => dir,
            Err(error) if nothing_is_at(&error.into(), top, leads.top.path) => return Ok(()),
            Err(error) => return Err(error).doing("open", shown),
        };
        let entries = links::list(&dir, MAX_LISTED).doing("list", shown)?;
        let names = || entries.iter().map(|entry| fold(&entry.name).into_owned()).collect::<Vec<_>>();
        (entries.len() < MAX_LISTED).then(|| Cow::Owned(names()))
    };
    let is_there = |name: &str| {
        let first = name.split('/').next().unwrap_or(name).as_bytes();
        names.as_ref().is_none_or(|names| names.iter().any(|one| one == first))
    };
    let any = CONFIGURATIONS.iter().map(|name| (*name, &b""[..]));
    for (name, word) in any.chain(CONFIGURATIONS_WITH.iter().copied()).filter(|(name, _)| is_there(name)) {
        let path = top.join(name);
        let Some(text) = beginning(&path, MAX_BYTES, leads.top.path)? else { continue };
        if word.is_empty() || contains(&text, word) {
            let found = words::of_configuration(&text);
            // What a development container is built from lies beside its configuration.
            if let Some(beside) = path.parent().filter(|beside| *beside != top) {
                protect(leads, &path, beside, found.clone())?;
            }
            protect(leads, &path, top, found)?;
        }
    }
    Ok(())
}

/// Protects the words that the file `path` names, relative to `begin`.
fn protect(leads: &mut Leads<'_>, path: &Path, begin: &Path, found: Vec<words::Word>) -> Result<(), IoFailure> {
    let shown = path.strip_prefix(leads.top.path).unwrap_or(path).display().to_string();
    let is_envrc = split(path.as_os_str().as_bytes()).1 == b".envrc";
    for word in found {
        let text = word.text.as_slice();
        let is_passed_by = is_of_packages(text) && !(is_envrc && word.in_packages);
        if text.is_empty() || text.contains(&0) || is_passed_by {
            continue;
        }
        let place = if text.starts_with(b"/") { join(Path::new("/"), &text[1..]) } else { join(begin, text) };
        let way = leads.follow(&place)?;
        if word.only_files && !is_file(leads, &way.end)? || word.only_programs && !is_program(leads, &way.end)? {
            continue;
        }
        let why = format!("named by {shown}");
        // A hook is about to load modules; a `.envrc` sets the variable for programs that a person starts.
        if is_envrc && word.of_modules && !is_file(leads, &way.end)? {
            for name in MODULES_OF_START {
                let way = leads.follow(&join(&place, name))?;
                leads.protect(&way, &why, false)?;
            }
            continue;
        }
        leads.protect(&way, &why, false)?;
    }
    Ok(())
}

fn is_of_packages(text: &[u8]) -> bool {
    contains(text, b"node_modules")
}

/// Reports whether a place of the workspace holds an entry that is not a directory.
fn is_file(leads: &Leads<'_>, real: &Path) -> Result<bool, IoFailure> {
    let Some(path) = leads.top.inside(real).filter(|path| !path.is_empty()) else { return Ok(false) };
    Ok(super::git::kind(leads, path)?.is_some_and(|kind| kind != EntryType::Directory))
}

/// Reports whether an entry of the workspace has an execute bit.
fn is_program(leads: &Leads<'_>, real: &Path) -> Result<bool, IoFailure> {
    let Some(path) = leads.top.inside(real).filter(|path| !path.is_empty()) else { return Ok(false) };
    match leads.top.workspace.stat(path) {
        Ok(meta) => Ok(meta.is_some_and(|meta| meta.mode & 0o111 != 0)),
        Err(error) if nothing_is_at(&error, real, leads.top.path) => Ok(false),
        Err(error) => Err(error).doing("look at", path),
    }
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
