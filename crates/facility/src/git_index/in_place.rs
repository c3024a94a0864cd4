//! Judges an index of git that a run wrote straight into a workspace, and moves a bad one aside.
//!
//! Nothing stands between such a run and the index, so it is judged afterwards. git takes a repository without an index for
//! one with nothing staged, and `git reset` makes the index anew from the commit.

use super::{Content, LONG, MAX_CONFIG, SHORT, problem, read};
use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, open_file, split};
use crate::gitconfig::{Setting, parse};
use crate::meta::{EntryType, stat_if_there};
use nexus_model::ByteText;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

/// What is added to the name of an index that was moved aside.
const HELD: &str = ".nexus-held";
/// Names that are tried, with a number behind the first.
const MAX_NAMES: u32 = 1000;

/// An index that git must not read.
#[derive(Debug)]
pub struct HeldIndex {
    /// Where it was, in the workspace.
    pub path: ByteText,
    /// What is wrong with it.
    pub why: &'static str,
    /// Where it is now, in the workspace, or why it could not be moved.
    pub aside: Result<ByteText, IoFailure>,
}

/// Judges an index of a workspace, and moves a bad one to a free name beside it. No run may be writing to the workspace.
pub fn hold_bad_index(workspace: &Workspace, path: &[u8]) -> Result<Option<HeldIndex>, IoFailure> {
    let (parent, name) = split(path);
    let dir = match workspace.dir(parent) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error).doing("open", parent),
    };
    let Some(found) = stat_if_there(dir.as_fd(), name).doing("look at", path)? else { return Ok(None) };
    let why = match found.kind {
        EntryType::Symlink => Some("a link in place of a git index"),
        EntryType::File => match read(dir.as_fd(), name) {
            Ok(Content::Other) => None,
            Ok(Content::Closed) => Some("a git index that cannot be read"),
            Ok(Content::TooLarge) => Some("a git index that is too large to be read"),
            Ok(Content::Index(bytes)) => problem(&bytes, object_id_length(workspace, parent)?),
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

/// The bytes of an object id by the configuration of the git directory, or of the one that a further working tree belongs to.
fn object_id_length(workspace: &Workspace, directory: &[u8]) -> Result<usize, IoFailure> {
    let (above, _) = split(directory);
    let mut places = vec![directory];
    if split(above).1.eq_ignore_ascii_case(b"worktrees") {
        places.push(split(above).0);
    }
    for place in places {
        if let Some(text) = configuration(workspace, place)? {
            let settings = parse(&text).unwrap_or_default();
            let is_format = |one: &&Setting| one.section == "extensions" && one.name == "objectformat";
            let format = settings.iter().rev().find(is_format).and_then(|one| one.value.as_deref());
            return Ok(if format == Some(b"sha256") { LONG } else { SHORT });
        }
    }
    Ok(SHORT)
}

fn configuration(workspace: &Workspace, directory: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
    let path = join(directory, b"config");
    let opened = workspace.dir(directory).and_then(|dir| open_file(dir.as_fd(), b"config", OFlags::RDONLY));
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => return Err(error).doing("open", &path),
    };
    let mut text = Vec::new();
    std::fs::File::from(file).take(MAX_CONFIG).read_to_end(&mut text).doing("read", &path)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_index::tests::{closed, index};

    #[test]
    fn a_bad_index_is_moved_to_a_free_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(directory.path()).unwrap();
        let workspace = Workspace::open(&at).unwrap();
        let git = at.join(".git");
        std::fs::create_dir(&git).unwrap();
        let hold = || hold_bad_index(&workspace, b".git/index").unwrap();
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
        // With object ids of SHA-256, as the configuration says.
        std::fs::create_dir_all(git.join("worktrees/w")).unwrap();
        std::fs::write(git.join("config"), "[extensions]\nobjectformat = sha256\n").unwrap();
        for path in ["index", "worktrees/w/index"] {
            std::fs::write(git.join(path), closed(index(&[b"src/x"], 32), 32)).unwrap();
            assert!(hold_bad_index(&workspace, format!(".git/{path}").as_bytes()).unwrap().is_none(), "{path}");
        }
    }
}
