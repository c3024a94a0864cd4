//! The repositories around and in a workspace, and what their configurations, the user's and the system's name.

use super::collect::{Leads, join};
use super::resolve::{leads_nowhere, nothing_is_at};
use super::settings::{self, Kind, Named};
use nexus_beneath::meta::{EntryType, stat, stat_if_there};
use nexus_beneath::{Doing as _, IoFailure, split};
use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// As git: a configuration that another one includes may include a further one, this deep (`MAX_INCLUDE_DEPTH`).
const DEPTH: usize = 10;
/// Configurations that are read for one workspace.
const FILES: usize = 8192;
/// Size limit in bytes: no user writes a larger configuration.
const MAX_BYTES: u64 = 1 << 20;
/// The files that hold the configuration of a repository.
const CONFIGURATIONS: &[&str] = &["config", "config.worktree"];

/// A repository of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Repository {
    /// The directories of its working trees: git starts programs there. A bare repository has none.
    pub tops: Vec<PathBuf>,
    /// Its git directory, and the one that it shares with other working trees.
    pub directories: Vec<PathBuf>,
}

fn is_there(path: &Path) -> Result<bool, IoFailure> {
    match rustix::fs::lstat(path) {
        Ok(_) => Ok(true),
        Err(error) if leads_nowhere(&error.into()) => Ok(false),
        Err(error) => Err(error).doing("look at", path.as_os_str().as_bytes()),
    }
}

/// Reports whether a directory is a git directory by its entries.
pub(super) fn is_repository(directory: &Path) -> Result<bool, IoFailure> {
    let has = |name: &str| is_there(&directory.join(name));
    Ok(has("HEAD")? && (has("commondir")? || (has("objects")? && has("refs")?)))
}

/// A directory on the way to the workspace, and whether it is a git directory by its entries.
pub(super) type Above<'a> = (&'a Path, bool);

/// Returns the workspace and the directories that it lies in, the nearest first.
pub(super) fn above(at: &Path) -> Result<Vec<Above<'_>>, IoFailure> {
    at.ancestors().map(|directory| Ok((directory, is_repository(directory)?))).collect()
}

/// Returns the repositories that a directory is in or a part of, whatever git would take first.
pub(super) fn around(at: &Path, above: &[Above<'_>]) -> Result<Vec<Repository>, IoFailure> {
    let mut found = Vec::new();
    for (directory, is_repository) in above.iter().copied() {
        // The workspace's own `.git` is found with those below it.
        if directory != at {
            found.extend(self::at(directory, at)?);
        }
        if is_repository {
            let parent = directory.parent().filter(|_| directory.file_name().is_some_and(|name| name == ".git"));
            found.push(Repository {
                tops: parent.map(Path::to_owned).into_iter().collect(),
                directories: with_common(directory.to_owned(), at)?,
            });
        }
    }
    Ok(found)
}

/// Returns the repository whose working tree has its top at `top`. `workspace` is the real path of the workspace.
pub(super) fn at(top: &Path, workspace: &Path) -> Result<Option<Repository>, IoFailure> {
    let place = top.join(".git");
    let shown = place.as_os_str().as_bytes();
    let directory = match rustix::fs::stat(&place) {
        Ok(meta) if rustix::fs::FileType::from_raw_mode(meta.st_mode) == rustix::fs::FileType::Directory => {
            place.clone()
        }
        Ok(_) => match pointer(&place, b"gitdir:", workspace)? {
            Some(target) => top.join(target),
            None => return Ok(None),
        },
        Err(error) if nothing_is_at(&error.into(), &place, workspace) => return Ok(None),
        Err(error) => return Err(error).doing("look at", shown),
    };
    Ok(Some(Repository { tops: vec![top.to_owned()], directories: with_common(directory, workspace)? }))
}

/// A git directory, and the one that it shares.
pub(super) fn with_common(directory: PathBuf, workspace: &Path) -> Result<Vec<PathBuf>, IoFailure> {
    let common = pointer(&directory.join("commondir"), b"", workspace)?.map(|path| directory.join(path));
    Ok([Some(directory), common].into_iter().flatten().collect())
}

/// The path that a file of one line names behind a word.
fn pointer(file: &Path, word: &[u8], workspace: &Path) -> Result<Option<PathBuf>, IoFailure> {
    let Some(text) = content(file, workspace)? else { return Ok(None) };
    let line = text.trim_ascii_end().strip_prefix(word).map(<[u8]>::trim_ascii);
    Ok(line.filter(|line| !line.is_empty()).map(|line| join(Path::new(""), line)))
}

/// Reads a small regular file of the host; `None` when there is none that this user can read.
fn content(file: &Path, workspace: &Path) -> Result<Option<Vec<u8>>, IoFailure> {
    let Some(text) = beginning(file, MAX_BYTES + 1, workspace)? else { return Ok(None) };
    if text.len() as u64 > MAX_BYTES {
        let error = io::Error::other("it is larger than a configuration of git can be here");
        return Err(error).doing("read", file.as_os_str().as_bytes());
    }
    Ok(Some(text))
}

/// Reads the first `most` bytes of a regular file of the host; `None` when there is none that this user can read.
pub(super) fn beginning(file: &Path, most: u64, workspace: &Path) -> Result<Option<Vec<u8>>, IoFailure> {
    use std::io::Read as _;
    let shown = file.as_os_str().as_bytes();
    // A FIFO would stop us.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(file, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(error) if nothing_is_at(&error.into(), file, workspace) => return Ok(None),
        // A socket or a device without a driver.
        Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => return Ok(None),
        Err(error) => return Err(error).doing("open", shown),
    };
    let meta = stat(opened.as_fd(), b"").doing("look at", shown)?;
    if meta.kind != EntryType::File {
        return Ok(None);
    }
    // One byte more than the file has, so that one read finds the end.
    let size = usize::try_from(meta.size.min(most)).unwrap_or_default();
    let mut text = Vec::with_capacity(size + 1);
    std::fs::File::from(opened).take(most).read_to_end(&mut text).doing("read", shown)?;
    Ok(Some(text))
}

/// The directories at which the relative paths of a configuration begin.
struct Bases<'a> {
    /// Tells the repositories apart: two may include one file, and each reads it in its own directories.
    number: usize,
    /// Tops of working trees and git directories.
    directories: &'a [PathBuf],
    /// The configuration holds in every repository.
    of_all: bool,
}

/// Returns the directories in which git may start programs of a repository: the tops of its working trees, also those
/// that settings name, and its git directories.
fn begins(repository: &Repository, workspace: &Path) -> Result<Vec<PathBuf>, IoFailure> {
    let mut bases = [&repository.tops[..], &repository.directories[..]].concat();
    for directory in &repository.directories {
        for name in CONFIGURATIONS {
            let text = content(&directory.join(name), workspace)?.unwrap_or_default();
            bases.extend(settings::worktrees(&text).iter().map(|path| join(directory, path)));
        }
    }
    Ok(bases)
}

/// Repositories with one configuration.
#[derive(Default)]
struct Group {
    /// Directories in which git may start programs of these repositories.
    bases: Vec<PathBuf>,
    /// The directories that hold their configurations.
    directories: Vec<PathBuf>,
}

/// Protects what all configurations name. Returns for each repository where git may start its programs.
pub(super) fn read(leads: &mut Leads<'_>, repositories: &[Repository]) -> Result<Vec<Vec<PathBuf>>, IoFailure> {
    let mut seen = HashSet::new();
    let mut begin = Vec::new();
    let mut all: Vec<PathBuf> = Vec::new();
    let add = |all: &mut Vec<PathBuf>, more: &[PathBuf]| {
        for one in more {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
    };
    // Working trees that share a configuration: git starts the programs that it names in each of them.
    let (mut groups, mut known): (Vec<Group>, HashMap<PathBuf, usize>) = Default::default();
    for repository in repositories {
        let directories = begins(repository, leads.top.path)?;
        add(&mut all, &directories);
        let next = groups.len();
        let at = match repository.directories.last() {
            Some(shared) => *known.entry(leads.follow(&shared.join("config"))?.end).or_insert(next),
            None => next,
        };
        if at == next {
            groups.push(Group::default());
        }
        add(&mut groups[at].bases, &directories);
        add(&mut groups[at].directories, &repository.directories);
        begin.push(directories);
    }
    for (number, group) in groups.iter().enumerate() {
        let bases = Bases { number, directories: &group.bases, of_all: false };
        for directory in &group.directories {
            for name in CONFIGURATIONS {
                let path = directory.join(name);
                let real = leads.follow(&path)?.end;
                file(leads, (&path, real), &bases, &mut seen, 0)?;
            }
        }
    }
    // Programs are started there too when no repository is known.
    all.push(leads.top.path.to_owned());
    let bases = Bases { number: groups.len(), directories: &all, of_all: true };
    for path in leads.host.git_configurations.clone() {
        // A link that leads nowhere is found with those of the homes.
        if !path.starts_with(leads.top.path) && !is_there(&path)? {
            continue;
        }
        let why = format!("git reads {}", path.display());
        let way = leads.follow(&path)?;
        leads.protect(&way, &why, false)?;
        file(leads, (&path, way.end), &bases, &mut seen, 0)?;
    }
    Ok(begin)
}

/// Reads one configuration, given by its path and where that leads to, and those that it includes.
fn file(
    leads: &mut Leads<'_>,
    (path, real): (&Path, PathBuf),
    bases: &Bases<'_>,
    seen: &mut HashSet<(PathBuf, usize)>,
    depth: usize,
) -> Result<(), IoFailure> {
    if depth > DEPTH || !seen.insert((real.clone(), bases.number)) {
        return Ok(());
    }
    if seen.len() > FILES {
        let error = io::Error::other("there are more configurations of git than can be read");
        return Err(error).doing("read", path.as_os_str().as_bytes());
    }
    let Some(text) = content(&real, leads.top.path)? else { return Ok(()) };
    leads.pushes_to_upstream |= settings::pushes_to_upstream(&text);
    for names in settings::of_text(&text) {
        let why = format!("named by {} in {}", names.setting, shown(leads, &real));
        for named in &names.paths {
            let places = places(leads, named, path, &real, bases);
            for place in places {
                let real = one(leads, named, &place, &why)?;
                if names.setting == "core.hookspath" && matches!(named.kind, Kind::Whole { .. }) {
                    add_hooks(leads, &named.text, &place, bases)?;
                }
                if bases.of_all
                    && relative(&named.text).is_none()
                    && matches!(named.kind, Kind::Whole { of_hooks: true })
                {
                    // git copies the hooks of a template into each new repository.
                    let directory = if names.setting == "core.hookspath" { place.clone() } else { place.join("hooks") };
                    if !leads.hooks_of_all.contains(&directory) {
                        leads.hooks_of_all.push(directory);
                    }
                }
                if named.kind == Kind::Include {
                    file(leads, (&place, real), bases, seen, depth + 1)?;
                }
            }
            match (named.kind, relative(&named.text).filter(|_| bases.of_all)) {
                (Kind::Whole { .. }, Some(relative)) => leads.add_everywhere(&relative, &why)?,
                (Kind::Word { first, of_git }, Some(relative)) if is_program(&named.text, first, of_git) => {
                    leads.add_of_any_repository(&relative, &why)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Tells whether a word of a command that git starts in every repository is a file there: a command with a slash, a
/// path that begins with a dot, or the argument of another program that looks like a script.
fn is_program(text: &[u8], first: bool, of_git: bool) -> bool {
    let (parent, name) = split(text);
    let begins = text.starts_with(b"./") || text.starts_with(b"../");
    begins || (!of_git && !parent.is_empty() && (first || name.contains(&b'.')) && !text.contains(&b':'))
}

/// Directories of hooks that are read for one workspace, each for every place that git starts them in.
const HOOKS: usize = 4096;

/// Notes a directory of hooks, and where git starts them. More than the bound is an error, so that a run which makes
/// many repositories hides none.
fn add_hooks(leads: &mut Leads<'_>, text: &[u8], place: &Path, bases: &Bases<'_>) -> Result<(), IoFailure> {
    let is_relative = relative(text).is_some();
    for base in bases.directories.iter().filter(|base| !is_relative || place.starts_with(base)) {
        let one = (place.to_owned(), base.clone());
        if leads.hooks.contains(&one) {
            continue;
        }
        if leads.hooks.len() == HOOKS {
            return Err(std::io::Error::other("too many repositories to read their hooks")).doing("read", text);
        }
        leads.hooks.push(one);
    }
    Ok(())
}

/// A configuration as people know it.
fn shown(leads: &Leads<'_>, path: &Path) -> String {
    path.strip_prefix(leads.top.path).unwrap_or(path).display().to_string()
}

/// Protects one named place and returns where it leads to.
fn one(leads: &mut Leads<'_>, named: &Named, place: &Path, why: &str) -> Result<PathBuf, IoFailure> {
    let way = leads.follow(place)?;
    match named.kind {
        Kind::Include => leads.protect(&way, why, false)?,
        Kind::Whole { of_hooks } => leads.protect(&way, why, of_hooks)?,
        Kind::Word { of_git, .. } => {
            let Some(path) = leads.top.inside(&way.end).filter(|path| !path.is_empty()) else {
                leads.protect(&way, why, false)?;
                return Ok(way.end);
            };
            let has_slash = named.text.contains(&b'/');
            let has_dot = named.text.contains(&b'.');
            let kind = kind(leads, path)?;
            let is_meant = match kind {
                Some(EntryType::Directory) => has_slash && !of_git,
                Some(_) => true,
                None => has_slash || has_dot,
            };
            if is_meant {
                leads.protect(&way, why, false)?;
            }
        }
    }
    Ok(way.end)
}

pub(super) fn kind(leads: &Leads<'_>, path: &[u8]) -> Result<Option<EntryType>, IoFailure> {
    let (parent, name) = split(path);
    let real = join(leads.top.path, path);
    let dir = match leads.top.workspace.dir(parent) {
        Ok(dir) => dir,
        Err(error) if nothing_is_at(&error, &real, leads.top.path) => return Ok(None),
        Err(error) => return Err(error).doing("open", parent),
    };
    match stat_if_there(dir.as_fd(), name) {
        Ok(meta) => Ok(meta.map(|meta| meta.kind)),
        Err(error) if nothing_is_at(&error, &real, leads.top.path) => Ok(None),
        Err(error) => Err(error).doing("look at", path),
    }
}

/// The absolute paths that a named one may stand for.
fn places(leads: &Leads<'_>, named: &Named, path: &Path, real: &Path, bases: &Bases<'_>) -> Vec<PathBuf> {
    let text = named.text.as_slice();
    if text.contains(&0) {
        return Vec::new();
    }
    if let Some(rest) = text.strip_prefix(b"~") {
        let homes = &leads.host.homes;
        return match rest {
            [] => homes.clone(),
            [b'/', rest @ ..] => homes.iter().map(|home| join(home, trim(rest))).collect(),
            // Another user's, beside this one's.
            other => homes.iter().filter_map(|home| Some(join(home.parent()?, other))).collect(),
        };
    }
    if text.starts_with(b"/") {
        return vec![join(Path::new("/"), trim(text))];
    }
    let mut begin: Vec<&Path> = [path.parent(), real.parent()].into_iter().flatten().collect();
    match named.kind {
        Kind::Include => {}
        // Looked up in PATH, or a word of git's own.
        Kind::Word { first, of_git } if (first || of_git) && !text.contains(&b'/') => begin.clear(),
        Kind::Whole { .. } | Kind::Word { .. } => begin.extend(bases.directories.iter().map(PathBuf::as_path)),
    }
    begin.sort();
    begin.dedup();
    begin.into_iter().map(|at| join(at, text)).collect()
}

fn trim(text: &[u8]) -> &[u8] {
    let at = text.iter().position(|byte| *byte != b'/').unwrap_or(text.len());
    &text[at..]
}

/// A relative path without its dots; `None` for another one.
pub(super) fn relative(text: &[u8]) -> Option<Vec<u8>> {
    if text.starts_with(b"/") || text.starts_with(b"~") || text.contains(&0) {
        return None;
    }
    let mut plain: Vec<&[u8]> = Vec::new();
    for name in text.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    (!plain.is_empty()).then(|| plain.join(&b'/'))
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
