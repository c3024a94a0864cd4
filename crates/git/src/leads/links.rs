//! Links at protected names: `.vscode -> conf/editor`, `.git/hooks/pre-commit -> ../../scripts/pre-commit.sh`.
//!
//! The search lists the directories of the workspace up to a bound, the nearest and the oldest by turns (`queue`). On
//! its way it finds the repositories. What must be found wherever the bound ends is in `fixed`.

use super::collect::{Leads, Reach, is_listed, join, standard};
use super::git::{self, Repository};
use super::queue::{self, Place, Queue};
use super::resolve::{Top, leads_nowhere, nothing_is_at};
use crate::class::Class;
use crate::names::Names;
use nexus_beneath::fold::fold;
use nexus_beneath::meta::{EntryType, stat_if_there};
use nexus_beneath::{Doing as _, IoFailure, join as join_names, split};
use rustix::fs::{FileType, RawDir};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories that hold no working tree of anybody, by their names.
const PASSED_BY: &[&[u8]] = &[b"node_modules"];
/// Directories of a repository in which no link matters, and which are large.
const OF_GIT: &[&[u8]] = &[b"objects", b"refs", b"logs", b"lfs", b"rr-cache"];

/// Directories of a home directory that hold protected names.
const OF_HOME: &[&str] = &["", ".config", ".config/git", ".claude", ".codex", ".cursor", ".local", ".ssh"];
/// The names of the top directory are kept when they are fewer.
const MAX_NAMES: usize = 4096;
/// Entries of homes that are listed.
const OUTSIDE: usize = 1 << 17;
/// Directories of a repository that hold protected names.
const OF_REPOSITORY: &[&str] = &["", ".git", ".git/hooks", ".github", ".config", ".vscode", ".claude"];

/// An entry of a listed directory.
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub kind: EntryType,
}

/// The result of a search.
pub(super) struct Searched {
    /// The repositories in the workspace.
    pub repositories: Vec<Repository>,
    /// The directories that were listed to their end.
    pub listed: HashSet<Vec<u8>>,
    /// The search ended before its bound.
    pub is_whole: bool,
    /// The folded names in the top directory, if these are all.
    pub top: Option<Vec<Vec<u8>>>,
    /// Directories below the top with a `.envrc`.
    pub envrcs: Vec<Vec<u8>>,
}

impl Searched {
    /// Reports whether a directory was searched with all that is below it.
    pub fn has_seen(&self, top: Top<'_>, directory: &Path) -> bool {
        self.is_whole && top.inside(directory).is_some_and(|path| self.listed.contains(path))
    }

    /// Tells whether the top directory has an entry with a folded name.
    pub fn has_at_top(&self, name: &[u8]) -> bool {
        self.top.iter().flatten().any(|one| one == name)
    }
}

/// Protects what links in the workspace lead to, and returns the repositories that it holds.
pub(super) fn search(leads: &mut Leads<'_>, protected: &Names, reach: Reach) -> Result<Searched, IoFailure> {
    let (mut repositories, mut listed) = (Vec::new(), HashSet::new());
    let mut queue = Queue::new(reach);
    let mut is_whole = true;
    let (mut top, mut envrcs) = (None, Vec::new());
    while let Some((Place { path: at, in_git }, most)) = queue.next() {
        let dir = match leads.top.workspace.readable_dir(&at) {
            Ok(dir) => dir,
            // Gone meanwhile.
            Err(error) if nothing_is_at(&error, &join(leads.top.path, &at), leads.top.path) => continue,
            // A closed directory that is not a part of git and not on the way to a protected name is passed by, or one
            // that a user keeps closed would hold every run up. No run closes one with a repository in it unasked
            // (`closed`), and what a configuration or a script names in it is found closed on its way.
            Err(error) if leads_nowhere(&error) && !is_needed(leads, protected, &at, in_git)? => continue,
            Err(error) => return Err(error).doing("open", &at),
        };
        let entries = list(&dir, most).doing("list", &at)?;
        if queue.count(entries.len()) {
            listed.insert(at.clone());
            if at.is_empty() && entries.len() < MAX_NAMES {
                top = Some(entries.iter().map(|entry| fold(&entry.name).into_owned()).collect());
            }
        } else {
            is_whole = false;
        }
        let has = |wanted: &[u8]| entries.iter().any(|one| is_spelling(&one.name, wanted));
        let is_git_directory = split(&at).1 == b".git" || at.is_empty();
        if !is_git_directory && has(b"head") && (has(b"commondir") || (has(b"objects") && has(b"refs"))) {
            let directories = git::with_common(join(leads.top.path, &at), leads.top.path)?;
            repositories.push(Repository { tops: Vec::new(), directories });
        }
        for Entry { name, kind } in entries {
            // Most names of files need no second look.
            let is_odd = kind != EntryType::File || matches!(name.first(), Some(b'.' | b'g' | b'G' | 0x80..));
            let folded = if is_odd { fold(&name) } else { Cow::Borrowed(name.as_slice()) };
            let is_git = folded.as_ref() == b".git";
            // That of the workspace is known.
            if is_git && !at.is_empty() {
                repositories.extend(git::at(&join(leads.top.path, &at), leads.top.path)?);
            }
            if folded.as_ref() == b".envrc" && !at.is_empty() {
                envrcs.push(at.clone());
            }
            match kind {
                EntryType::Symlink => {
                    let path = join_names(&at, &name);
                    if is_listed(protected, &path) {
                        follow(leads, &join(leads.top.path, &path), &path)?;
                    }
                }
                EntryType::Directory if !is_passed_by(&folded, in_git) => {
                    let born = queue::born(dir.as_fd(), &name);
                    queue.push(Place { path: join_names(&at, &name), in_git: in_git || is_git }, born);
                }
                _ => {}
            }
        }
    }
    is_whole &= queue.is_empty();
    Ok(Searched { repositories, listed, is_whole, top, envrcs })
}

/// Reports whether the targets of protected names are known only from a directory that cannot be listed.
fn is_needed(leads: &Leads<'_>, protected: &Names, at: &[u8], in_git: bool) -> Result<bool, IoFailure> {
    let has_name_of_git = fold(split(at).1).ends_with(b".git");
    let is_special = at.is_empty() || in_git || has_name_of_git || protected.class(at) != Class::Plain;
    // It may be entered although it cannot be listed.
    Ok(is_special || git::is_repository(&join(leads.top.path, at))?)
}

/// Tells whether a name is a spelling of `wanted`, a folded name that begins with a letter. Folding keeps the letter
/// that an ASCII name begins with.
fn is_spelling(name: &[u8], wanted: &[u8]) -> bool {
    let may_be = |byte: &u8| !byte.is_ascii() || wanted.first() == Some(&byte.to_ascii_lowercase());
    name.first().is_some_and(may_be) && fold(name).as_ref() == wanted
}

fn is_passed_by(name: &[u8], in_git: bool) -> bool {
    PASSED_BY.contains(&name) || (in_git && OF_GIT.contains(&name))
}

/// Protects what links lead to in the workspace that its search does not see: those of the homes, of the repositories
/// that the workspace is a part of, and of those beyond the bound of the search.
pub(super) fn from_outside(
    leads: &mut Leads<'_>,
    protected: &Names,
    repositories: &[Repository],
    searched: &Searched,
    reach: Reach,
) -> Result<(), IoFailure> {
    let standard = standard();
    let homes = leads.host.homes.iter().flat_map(|home| OF_HOME.iter().map(move |place| (home.as_path(), *place)));
    let tops = repositories.iter().flat_map(|one| &one.tops);
    let around = tops.filter(|top| !searched.has_seen(leads.top, top));
    let around = around.flat_map(|top| OF_REPOSITORY.iter().map(move |place| (top.as_path(), *place)));
    let around = around.filter(|(top, place)| {
        leads.top.inside(top).is_none_or(|path| !searched.listed.contains(&join_names(path, place.as_bytes())))
    });
    let places: Vec<_> = homes.chain(around).map(|(at, place)| (at.to_owned(), place)).collect();
    let of_homes = leads.host.homes.len() * OF_HOME.len();
    let (mut in_homes, mut in_repositories) = (OUTSIDE, reach.entries);
    // The folded names that places have, of the directories that were listed to their end.
    let mut names: HashMap<PathBuf, HashSet<Vec<u8>>> = HashMap::new();
    for (number, (at, place)) in places.into_iter().enumerate() {
        let (parent, name) = split(place.as_bytes());
        let is_missing = |names: &HashSet<Vec<u8>>| !place.is_empty() && !names.contains(name);
        if names.get(&join(&at, parent)).is_some_and(is_missing) {
            // Nothing is below it, either.
            names.insert(at.join(place), HashSet::new());
            continue;
        }
        let left = if number < of_homes { &mut in_homes } else { &mut in_repositories };
        let directory = at.join(place);
        // What is reached through a link is a place of its own.
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&directory, flags, rustix::fs::Mode::empty()) {
            Ok(dir) => dir,
            Err(error) if nothing_is_at(&error.into(), &directory, leads.top.path) => continue,
            Err(error) => return Err(error).doing("open", directory.as_os_str().as_bytes()),
        };
        let entries = list(&dir, *left).doing("list", directory.as_os_str().as_bytes())?;
        if entries.len() < *left {
            let folded = entries.iter().map(|entry| fold(&entry.name));
            let matter = folded.filter(|name| is_of_place(name)).map(Cow::into_owned);
            names.insert(directory.clone(), matter.collect());
        }
        *left -= entries.len();
        for entry in entries.into_iter().filter(|entry| entry.kind == EntryType::Symlink) {
            let name = join_names(place.as_bytes(), &entry.name);
            if is_listed(&standard, &name) || is_listed(protected, &name) {
                follow(leads, &join(&directory, &entry.name), join(&at, &name).as_os_str().as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Tells whether a name is one of the directories that hold protected names.
fn is_of_place(name: &[u8]) -> bool {
    OF_HOME.iter().chain(OF_REPOSITORY).any(|place| split(place.as_bytes()).1 == name)
}

/// Protects what one link leads to.
pub(super) fn follow(leads: &mut Leads<'_>, link: &Path, shown: &[u8]) -> Result<(), IoFailure> {
    let way = leads.follow(link)?;
    let why = format!("{} leads here", String::from_utf8_lossy(shown));
    leads.protect(&way, &why, true)
}

/// Lists a directory, up to a number of entries.
pub(super) fn list(dir: &OwnedFd, most: usize) -> io::Result<Vec<Entry>> {
    let mut buffer: Vec<u8> = Vec::with_capacity(32 * 1024);
    let mut found = Vec::new();
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if found.len() == most {
            break;
        }
        let kind = match entry.file_type() {
            FileType::Symlink => EntryType::Symlink,
            FileType::Directory => EntryType::Directory,
            FileType::RegularFile => EntryType::File,
            // The file system does not tell.
            FileType::Unknown => match stat_if_there(dir.as_fd(), name)? {
                Some(meta) => meta.kind,
                None => continue,
            },
            _ => EntryType::Socket,
        };
        found.push(Entry { name: name.to_vec(), kind });
    }
    Ok(found)
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
