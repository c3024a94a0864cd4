//! Checks an index of git that a run wrote straight into a workspace, and moves a bad one aside.
//!
//! Nothing stands between such a run and the index, so it is checked afterwards. git takes a repository without an
//! index for one with nothing staged, and `git reset` makes the index again from the commit.

use super::file::{Content, NAMES, problem, read};
use super::format::{LONG, SHORT};
use super::lengths::{MAX_CONFIG, lengths_by};
use crate::reads::Reads;
use nexus_beneath::fold::fold;
use nexus_beneath::meta::{EntryType, stat_if_there};
use nexus_beneath::{Doing as _, IoFailure, Workspace, is_gone, join, open_file, split};
use nexus_model::ByteText;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

/// Suffix of the name of an index that was moved aside.
const HELD: &str = ".nexus-held";
/// Names that are tried, with a number behind the first.
const MAX_NAMES: u32 = 1000;

/// An index that git must not read.
#[derive(Debug)]
pub struct HeldIndex {
    /// Its path in the workspace when it was found.
    pub path: ByteText,
    /// The reason why git must not read it.
    pub why: &'static str,
    /// Its path in the workspace now, or the error for which it could not be moved.
    pub aside: Result<ByteText, IoFailure>,
}

/// Checks an index of a workspace, and moves a bad one to a free name beside it. No run may be writing to the
/// workspace. An index for which nothing may be read any more is a bad one.
pub fn hold_bad_index(workspace: &Workspace, path: &[u8], reads: &Reads) -> Result<Option<HeldIndex>, IoFailure> {
    let (parent, name) = split(path);
    let dir = match workspace.dir(parent) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error).doing("open", parent),
    };
    let Some(found) = stat_if_there(dir.as_fd(), name).doing("look at", path)? else { return Ok(None) };
    let why = match found.kind {
        EntryType::Symlink => Some("a link in place of a git index"),
        EntryType::File => match read(dir.as_fd(), name, reads) {
            Ok(Content::Other) => None,
            Ok(Content::Closed) => Some("a git index that cannot be read"),
            Ok(Content::TooLarge) => Some("a git index that is too large to be read"),
            Ok(Content::Index(index)) => reason(workspace, parent, &index.bytes, reads)?,
            Err(error) if is_gone(&error) => None,
            Err(error) => return Err(error).doing("read", path),
        },
        _ => None,
    };
    let Some(why) = why else { return Ok(None) };
    let mut aside = Err(io::Error::from(io::ErrorKind::AlreadyExists));
    for count in 0..MAX_NAMES {
        let end = if count == 0 { HELD.to_owned() } else { format!("{HELD}.{count}") };
        let to = [name, end.as_bytes()].concat();
        match rustix::fs::renameat_with(dir.as_fd(), name, dir.as_fd(), to.as_slice(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(error) => {
                aside = Err(error.into());
                break;
            }
            Ok(()) => {
                aside = Ok(ByteText(join(parent, &to)));
                break;
            }
        }
    }
    Ok(Some(HeldIndex { path: ByteText(path.to_vec()), why, aside: aside.doing("move aside", path) }))
}

/// Returns why git must not read an index. Each length of an object id that a configuration allows must make sense of
/// it, and names that no working tree may have count in every length, as for an index of a layer.
fn reason(
    workspace: &Workspace,
    directory: &[u8],
    bytes: &[u8],
    reads: &Reads,
) -> Result<Option<&'static str>, IoFailure> {
    let allowed = object_id_lengths(workspace, directory, reads)?;
    let counts = |length: usize, why: &str| allowed.contains(&length) || why == NAMES;
    Ok([SHORT, LONG].into_iter().find_map(|length| problem(bytes, length).filter(|why| counts(length, why))))
}

/// Returns the bytes that the configurations of a git directory allow for an object id: its own, and that of the
/// directory which further working trees share. Both lengths are allowed where no configuration says it for certain.
fn object_id_lengths(workspace: &Workspace, directory: &[u8], reads: &Reads) -> Result<Vec<usize>, IoFailure> {
    let (above, _) = split(directory);
    let (shared, name) = split(above);
    let is_further = fold(name).as_ref() == b"worktrees";
    let moved = file(workspace, directory, b"commondir", reads)?;
    let is_usual = match &moved {
        Text::Missing => true,
        Text::Whole(text) => is_further && text.trim_ascii_end() == b"../..",
        Text::Unknown => false,
    };
    if !is_usual {
        return Ok(vec![SHORT, LONG]);
    }
    let mut found = Vec::new();
    for place in [Some(directory), is_further.then_some(shared)].into_iter().flatten() {
        match file(workspace, place, b"config", reads)? {
            Text::Missing => {}
            Text::Whole(text) => found.extend(lengths_by(&text)),
            Text::Unknown => return Ok(vec![SHORT, LONG]),
        }
    }
    Ok(if found.is_empty() { vec![SHORT, LONG] } else { found })
}

/// The text of a file that says something about a git directory.
enum Text {
    Missing,
    Whole(Vec<u8>),
    /// It is too large, no file, or closed to this user.
    Unknown,
}

fn file(workspace: &Workspace, directory: &[u8], name: &[u8], reads: &Reads) -> Result<Text, IoFailure> {
    if !reads.has(1) {
        return Ok(Text::Unknown);
    }
    let path = join(directory, name);
    let opened = workspace.dir(directory).and_then(|dir| open_file(dir.as_fd(), name, OFlags::RDONLY));
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(Text::Missing),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
            return Ok(Text::Unknown);
        }
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(Text::Unknown),
        Err(error) => return Err(error).doing("open", &path),
    };
    let mut text = Vec::new();
    std::fs::File::from(file).take(MAX_CONFIG).read_to_end(&mut text).doing("read", &path)?;
    reads.spend(text.len() as u64);
    Ok(if text.len() as u64 == MAX_CONFIG { Text::Unknown } else { Text::Whole(text) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, index};
    use super::*;

    #[test]
    fn a_bad_index_is_moved_to_a_free_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(directory.path()).unwrap();
        let workspace = Workspace::open(&at).unwrap();
        let git = at.join(".git");
        std::fs::create_dir(&git).unwrap();
        std::fs::write(git.join("config"), "[core]\nbare = false\n").unwrap();
        let hold = || hold_bad_index(&workspace, b".git/index", &Reads::default()).unwrap();
        assert!(hold().is_none());
        for good in [closed(index(&[b"src/x"], 20), 20), b"no index".to_vec()] {
            std::fs::write(git.join("index"), good).unwrap();
            assert!(hold().is_none());
        }
        for wanted in [".git/index.nexus-held", ".git/index.nexus-held.1"] {
            let bad = closed(index(&[b".git/hooks/x"], 20), 20);
            std::fs::write(git.join("index"), &bad).unwrap();
            let held = hold().unwrap();
            assert_eq!(held.aside.unwrap().as_path().to_str(), Some(wanted));
            assert_eq!(std::fs::read(at.join(wanted)).unwrap(), bad);
            assert!(!git.join("index").exists());
        }
        std::os::unix::fs::symlink("../other", git.join("index")).unwrap();
        assert!(hold().is_some());
    }

    /// Tells for a good index of SHA-1 and one of SHA-256 in `place` whether each is held, by the given files.
    fn held(place: &str, files: &[(&str, &str)]) -> [bool; 2] {
        [20, 32].map(|length| {
            let directory = tempfile::tempdir().unwrap();
            let at = std::fs::canonicalize(directory.path()).unwrap();
            for (path, text) in files {
                let path = at.join(".git").join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let path = at.join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, closed(index(&[b"src/x"], length), length)).unwrap();
            hold_bad_index(&Workspace::open(&at).unwrap(), place.as_bytes(), &Reads::default()).unwrap().is_some()
        })
    }

    #[test]
    fn an_index_makes_sense_by_every_length_that_is_said() {
        const LONG: &str = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n";
        const SHORT: &str = "[core]\nrepositoryformatversion = 0\n";
        let further = ".git/worktrees/w/index";
        for (place, files, wanted) in [
            (".git/index", &[("config", SHORT)][..], [false, true]),
            (".git/index", &[("config", LONG)], [true, false]),
            (further, &[("config", SHORT), ("worktrees/w/commondir", "../..\n")], [false, true]),
            (further, &[("config", LONG)], [true, false]),
            // The configuration of a further working tree is not git's, and may go away.
            (further, &[("config", SHORT), ("worktrees/w/config", LONG)], [true, true]),
            (further, &[("config", SHORT), ("worktrees/w/commondir", "../../other\n")], [true, true]),
            (".git/index", &[("config", SHORT), ("commondir", "../other\n")], [true, true]),
            // git leaves the extension out, or refuses it.
            (".git/index", &[("config", "[extensions]\nobjectformat = sha256\n")], [true, true]),
            (".git/index", &[("config", "[broken\nobjectFormat = sha256\n")], [true, true]),
            (".git/index", &[("config/x", "")], [true, true]),
            (".git/index", &[], [true, true]),
        ] {
            assert_eq!(held(place, files), wanted, "{place} {files:?}");
        }
        let large = [SHORT, &"#\n".repeat(1 << 19), LONG].concat();
        assert_eq!(held(".git/index", &[("config", &large)]), [true, true]);
    }
}
