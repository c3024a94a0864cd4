//! Names beside a path for a version that cannot stay in its place: nothing is thrown away and nothing overwritten.
//!
//! | path | place of the version |
//! |---|---|
//! | `a/NAME` | `a/NAME.nexus-conflict-RUN` |
//! | `.git/refs/heads/a/NAME`, which git would take for a branch there | `.git/refs-heads-a-NAME.nexus-conflict-RUN` |

use crate::beneath::{Doing as _, IoFailure, Workspace, join, open_file, split};
use crate::entries::changes::{Conflict, Outside};
use crate::faults::Faults;
use crate::meta::{FileId, stat, stat_if_there};
use crate::moves::rename_calls::{Moved, Spot, move_to_free};
use crate::read::git_dirs::may_be_repository;
use nexus_git::commits::{Form, common, place};
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsFd as _;

/// Longest name of a directory entry on Linux.
const NAME_MAX: usize = 255;

/// Number of names that are tried before giving up.
const TRIES: usize = 99;

/// Returns the name of a version of `name` that the commit of `run` kept. Pure.
fn name_for(name: &[u8], run: &str, attempt: usize) -> Vec<u8> {
    let start = run.len().saturating_sub(8);
    let mut suffix = format!(".nexus-conflict-{}", &run[start..]);
    if attempt > 1 {
        suffix = format!("{suffix}-{attempt}");
    }
    let stem = &name[..cut(name, NAME_MAX - suffix.len())];
    [stem, suffix.as_bytes()].concat()
}

/// Returns the length to which a name is cut, so that no character in UTF-8 is cut in two. Pure.
fn cut(name: &[u8], max: usize) -> usize {
    if name.len() <= max {
        return name.len();
    }
    // A character begins at most three bytes before the cut; any other byte is not UTF-8 and may stand alone.
    let begins = |at: &usize| name[*at] & 0xc0 != 0x80;
    (max.saturating_sub(3)..=max).rev().find(begins).unwrap_or(max)
}

/// The file of the layer's directory that says where versions were put beside their paths.
pub(crate) const BESIDE: &str = "beside";

/// Puts versions beside their paths. Each is written down before it is moved, so that a recovery can name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// The directory of the workspace.
    pub(crate) base: &'a Workspace,
    /// The layer's directory.
    pub(crate) root: &'a Workspace,
    /// The run, whose id is a part of the names.
    pub(crate) run: &'a str,
    /// Faults, for tests.
    pub(crate) faults: &'a Faults,
}

/// A version that was put beside its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The path that the version belongs to.
    pub path: ByteText,
    /// The place where the version lies now.
    pub at: ByteText,
}

/// A line of the file [`BESIDE`].
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    aside: Aside,
    id: FileId,
    done: bool,
}

impl Beside<'_> {
    /// Moves the entry at `from` to a free name beside `path`, or to the top of the workspace when the directory of
    /// `path` is not to be entered any more. Returns the new path.
    pub(crate) fn put(&self, from: Spot<'_>, path: &[u8]) -> io::Result<ByteText> {
        let of_ref = self.of_ref(path);
        let (parent, name) = of_ref.as_ref().map_or_else(|| split(path), |(git_dir, name)| (*git_dir, name.as_slice()));
        let id = stat(from.dir, from.name)?.id;
        let mut last = io::Error::other("no name is free");
        for parent in [parent, b""] {
            let Ok(dir) = self.base.dir_by_force(parent) else { continue };
            for attempt in 1..=TRIES {
                let free = name_for(name, self.run, attempt);
                if stat_if_there(dir.as_fd(), &free)?.is_some_and(|other| other.id != id) {
                    continue;
                }
                let at = ByteText(join(parent, &free));
                let mut line = Line { aside: Aside { path: ByteText(path.to_vec()), at }, id, done: false };
                self.note(&line);
                match move_to_free(from, Spot { dir: dir.as_fd(), name: &free }, self.faults) {
                    Ok(Moved::Yes) => {
                        line.done = true;
                        self.note(&line);
                        return Ok(line.aside.at);
                    }
                    Ok(Moved::Occupied) => {}
                    Err(error) => {
                        last = error;
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// Returns the git directory of a ref with the name that a version of it gets there: beside the ref it would be a branch.
    fn of_ref<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], Vec<u8>)> {
        let place = place(path).filter(|place| place.form == Form::Ref)?;
        let is_one = place.is_certain || may_be_repository(self.base, common(place.git_dir));
        let name = || place.inside.split(|byte| *byte == b'/').collect::<Vec<_>>().join(&b'-');
        is_one.then(|| (place.git_dir, name()))
    }

    /// Writes a line. Where the disk is full, the version is moved all the same: this process names it.
    fn note(&self, line: &Line) {
        let write = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(self.root.fd(), BESIDE, flags, Mode::from_raw_mode(0o600))?;
            let mut file = std::fs::File::from(file);
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            file.write_all(&text)?;
            if line.done { Ok(()) } else { self.faults.sync(|| file.sync_all()) }
        };
        write().ok();
    }

    /// Lists the versions that were put beside their paths, also by a process that was killed.
    pub(crate) fn noted(&self) -> Result<Vec<Aside>, IoFailure> {
        let file = match open_file(self.root.fd(), BESIDE.as_bytes(), OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => std::fs::File::from(other.doing("open", BESIDE.as_bytes())?),
        };
        let mut found: Vec<Aside> = Vec::new();
        for line in io::BufReader::new(file).split(b'\n') {
            // A line that a power cut left incomplete was not followed by a move.
            let Ok(line) = serde_json::from_slice::<Line>(&line.doing("read", BESIDE.as_bytes())?) else { continue };
            let was_moved =
                line.done || self.base.stat(&line.aside.at.0).ok().flatten().is_some_and(|m| m.id == line.id);
            if was_moved && !found.contains(&line.aside) {
                found.push(line.aside);
            }
        }
        Ok(found)
    }

    /// Returns the latest version that was put beside `path` and is still there.
    pub(crate) fn found(&self, path: &[u8]) -> Result<Option<ByteText>, IoFailure> {
        let noted = self.noted()?.into_iter().rev().filter(|one| one.path.0 == path);
        Ok(noted.map(|one| one.at).find(|at| self.base.stat(&at.0).ok().flatten().is_some()))
    }
}

/// Names the versions that no conflict names: an interrupted pass put them beside their paths.
pub(crate) fn unnamed(noted: &[Aside], conflicts: &[Conflict]) -> Vec<Conflict> {
    let is_named = |one: &Aside| conflicts.iter().any(|conflict| conflict.beside.as_ref() == Some(&one.at));
    let conflict =
        |one: &Aside| Conflict { beside: Some(one.at.clone()), ..Conflict::new(one.path.clone(), Outside::Changed) };
    noted.iter().filter(|one| !is_named(one)).map(conflict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_a_long_name_still_fits() {
        let long = [b'x'; 255];
        let name = name_for(&long, "0199d3c1-aaaa-bbbb-cccc-0123456789ab", 12);
        assert_eq!(name.len(), 255);
        assert!(name.ends_with(b".nexus-conflict-456789ab-12"));
        assert_eq!(name_for(b"notes.md", "run", 1), b"notes.md.nexus-conflict-run");
    }

    /// git lists each file below `refs` as a ref.
    #[test]
    fn a_version_of_a_ref_becomes_no_branch() {
        let top = tempfile::tempdir().unwrap();
        for directory in [".git/objects", ".git/refs/heads/a", "srv/objects", "srv/refs/heads", "src/refs/heads"] {
            std::fs::create_dir_all(top.path().join(directory)).unwrap();
        }
        for head in [".git/HEAD", "srv/HEAD"] {
            std::fs::write(top.path().join(head), "ref: refs/heads/main\n").unwrap();
        }
        let base = Workspace::open(top.path()).unwrap();
        let faults = Faults::default();
        let beside = Beside { base: &base, root: &base, run: "run", faults: &faults };
        for (path, wanted) in [
            (".git/refs/heads/main", ".git/refs-heads-main.nexus-conflict-run"),
            (".git/refs/heads/a/b", ".git/refs-heads-a-b.nexus-conflict-run"),
            (".git/refs/heads/a", ".git/refs-heads-a.nexus-conflict-run"),
            (".git/refs", ".git/refs.nexus-conflict-run"),
            (".git/HEAD", ".git/HEAD.nexus-conflict-run"),
            ("srv/refs/heads/main", "srv/refs-heads-main.nexus-conflict-run"),
            ("src/refs/heads/main", "src/refs/heads/main.nexus-conflict-run"),
        ] {
            std::fs::write(top.path().join("version"), path).unwrap();
            let at = beside.put(Spot { dir: base.fd(), name: b"version" }, path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&at.0), wanted, "{path}");
            assert_eq!(std::fs::read_to_string(top.path().join(wanted)).unwrap(), path);
            assert_eq!(beside.found(path.as_bytes()).unwrap(), Some(at));
        }
    }

    #[test]
    fn a_long_name_is_never_cut_inside_a_character() {
        for letter in ["x", "ä", "€", "😀"] {
            for shift in 0..5 {
                let long = "y".repeat(shift) + &letter.repeat((255 - shift) / letter.len());
                for attempt in [1, 2, 12] {
                    let name = String::from_utf8(name_for(long.as_bytes(), "0199d3c1-aaaa", attempt)).unwrap();
                    assert!(name.len() <= 255 && name.len() > 255 - 4, "{name}");
                    let stem = name.split(".nexus-conflict").next().unwrap();
                    assert!(long.starts_with(stem));
                }
            }
        }
        // Bytes that are not UTF-8 at all are cut where the room ends.
        assert_eq!(name_for(&[0xbf; 255], "run", 1).len(), 255);
    }
}
