//! Removes a tree below a directory descriptor.
//!
//! Nothing is followed, so links to host directories are removed as links (F09). Directories without permission bits
//! (overlay makes its `work/work` with mode 000, and so may any workload) are opened up first. The depth of the tree
//! costs no stack and no descriptors.

use crate::beneath::{Workspace, is_gone, join, may_enter, names, split, unlink_if_there};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Removes `path` and everything below it; that it is not there is fine.
pub(crate) fn remove_tree(root: &Workspace, top: &[u8]) -> io::Result<()> {
    remove_tree_until(root, top, &mut || false).map(drop)
}

/// Removes `path` and everything below it until `stop`. Returns whether nothing is left.
pub(crate) fn remove_tree_until(root: &Workspace, top: &[u8], stop: &mut dyn FnMut() -> bool) -> io::Result<bool> {
    let mut stack = vec![(top.to_vec(), State::Unknown)];
    let mut lifted = first_lifted();
    while let Some((path, state)) = stack.pop() {
        if stop() {
            return Ok(false);
        }
        if matches!(remove_one(root, &path)?, Gone::Yes) {
            continue;
        }
        if state == State::Queued {
            return Err(io::Error::other("a directory fills up while it is removed"));
        }
        let dir = match readable_by_force(root, &path) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        if depth(&path) - depth(top) > DEEP
            && let Some(near) = lift(root, top, &path, &mut lifted)?
        {
            stack.push((near, State::Unknown));
            continue;
        }
        stack.push((path.clone(), State::Queued));
        for name in names(dir.as_fd())? {
            if stop() {
                return Ok(false);
            }
            match rustix::fs::unlinkat(dir.as_fd(), &*name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => stack.push((join(&path, &name), State::Unknown)),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(true)
}

/// Returns the number of the first directory that is moved up: another one than in a removal that was stopped before.
fn first_lifted() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() << 24)
}

/// A directory that lies deeper than this below the top is moved up first: each call on it would look up its whole
/// path.
const DEEP: usize = 64;

fn depth(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'/').count()
}

/// Moves the directory `path` to a free name in `top`. Returns where it is now; `None` where it cannot be moved.
fn lift(root: &Workspace, top: &[u8], path: &[u8], lifted: &mut u64) -> io::Result<Option<Vec<u8>>> {
    let (parent, name) = split(path);
    let (from, to) = (root.dir_by_force(parent)?, root.dir_by_force(top)?);
    for _ in 0..64 {
        *lifted += 1;
        let near = format!(".nexus-deep-{lifted}");
        match rustix::fs::renameat_with(from.as_fd(), name, to.as_fd(), &*near, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(join(top, near.as_bytes()))),
            Err(Errno::EXIST) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Removes the entry `name` of a layer's directory, which is a file unless something else took its place.
pub(crate) fn remove_name(root: &Workspace, name: &str) -> io::Result<()> {
    match unlink_if_there(root.fd(), name.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => remove_tree(root, name.as_bytes()),
        other => other,
    }
}

/// Tells git to pass a directory by, as long as that has something else in it.
const IGNORE: &[u8] = b".gitignore";

/// Removes the directory `path` with the entries of it that `known` names, of which a directory must be empty. Anything
/// else stays, and is an error; `.gitignore` then stays with it, so that a `git clean` does not take it.
pub(crate) fn remove_known(root: &Workspace, path: &[u8], known: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
    let dir = match readable_by_force(root, path) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut has_ignore, mut has_more) = (false, false);
    for name in names(dir.as_fd())? {
        if name == IGNORE && known(IGNORE) {
            has_ignore = true;
        } else {
            has_more |= !known(&name) || matches!(unlink(dir.as_fd(), &name)?, Gone::NotEmpty);
        }
    }
    if has_more {
        return Err(Errno::NOTEMPTY.into());
    }
    if has_ignore {
        unlink(dir.as_fd(), IGNORE)?;
    }
    match remove_one(root, path)? {
        Gone::Yes => Ok(()),
        Gone::NotEmpty => Err(Errno::NOTEMPTY.into()),
    }
}

#[derive(PartialEq, Eq)]
enum State {
    /// Not looked at.
    Unknown,
    /// Its entries are removed, or wait above it on the stack.
    Queued,
}

enum Gone {
    Yes,
    NotEmpty,
}

/// Removes a file or an empty directory. The directory that holds it is opened up only when that is needed.
fn remove_one(root: &Workspace, path: &[u8]) -> io::Result<Gone> {
    let (parent, name) = split(path);
    let tried = match parent {
        b"" => unlink(root.fd(), name),
        _ => root.dir(parent).and_then(|parent| unlink(parent.as_fd(), name)),
    };
    let done = match tried {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            root.dir_by_force(parent).and_then(|parent| unlink(parent.as_fd(), name))
        }
        other => other,
    };
    match done {
        Err(error) if is_gone(&error) => Ok(Gone::Yes),
        other => other,
    }
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Gone> {
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Gone::Yes),
        Err(Errno::NOTDIR) => unlink_if_there(dir, name).map(|()| Gone::Yes),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Gone::NotEmpty),
        Err(error) => Err(error.into()),
    }
}

/// A readable descriptor of a directory whose mode no longer matters.
pub(crate) fn readable_by_force(root: &Workspace, path: &[u8]) -> io::Result<OwnedFd> {
    match root.readable_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            root.dir_by_force(path)?;
            root.readable_dir(path)
        }
        // It can be listed, and must be open to changes, too.
        Ok(dir) => {
            if !may_enter(dir.as_fd())? {
                root.dir_by_force(path)?;
            }
            Ok(dir)
        }
        other => other,
    }
}

/// Removes a directory that sandboxes wrote to, with all its entries and without following links. A missing directory
/// is not an error.
pub fn remove_directory(parent: &std::path::Path, name: &str) -> io::Result<()> {
    let parent = Workspace::open(parent).map_err(|error| error.source)?;
    remove_tree(&parent, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn links_to_other_directories_are_removed_as_links() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("canary"), "alive").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(inside.path().join("t/a/b")).unwrap();
        symlink(outside.path(), inside.path().join("t/a/link")).unwrap();
        symlink(outside.path(), inside.path().join("t/a/b/link")).unwrap();
        std::fs::set_permissions(inside.path().join("t/a/b"), std::fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&Workspace::open(inside.path()).unwrap(), b"t").unwrap();
        assert!(!inside.path().join("t").exists());
        assert!(outside.path().join("canary").exists());
    }

    #[test]
    fn a_link_in_place_of_the_tree_is_removed_as_a_link() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("canary"), "alive").unwrap();
        let inside = tempfile::tempdir().unwrap();
        symlink(outside.path(), inside.path().join("t")).unwrap();
        remove_tree(&Workspace::open(inside.path()).unwrap(), b"t").unwrap();
        assert!(outside.path().join("canary").exists());
        assert!(std::fs::symlink_metadata(inside.path().join("t")).is_err());
    }

    #[test]
    fn only_known_entries_go_with_their_directory() {
        let inside = tempfile::tempdir().unwrap();
        let root = Workspace::open(inside.path()).unwrap();
        let at = |path: &str| inside.path().join(path);
        let known = |name: &[u8]| name == b"1" || name == b"2" || name == b".gitignore";
        for foreign in ["t/3", "t/2/f"] {
            std::fs::create_dir_all(at("t/2")).unwrap();
            std::fs::write(at("t/1"), "made for a commit").unwrap();
            std::fs::write(at("t/.gitignore"), "*").unwrap();
            std::fs::write(at(foreign), "of another process").unwrap();
            let error = remove_known(&root, b"t", &known).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
            assert_eq!(std::fs::read(at(foreign)).unwrap(), b"of another process");
            assert!(!at("t/1").exists() && at("t/.gitignore").exists());
            std::fs::remove_file(at(foreign)).unwrap();
        }
        remove_known(&root, b"t", &known).unwrap();
        assert!(!at("t").exists());
        remove_known(&root, b"t", &known).unwrap();
    }

    #[test]
    fn a_tree_deeper_than_the_longest_path_is_removed() {
        let inside = tempfile::tempdir().unwrap();
        let root = Workspace::open(inside.path()).unwrap();
        let name = [b'd'; 100];
        let mut path = b"t".to_vec();
        rustix::fs::mkdirat(root.fd(), "t", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        for _ in 0..120 {
            let dir = root.dir(&path).unwrap();
            rustix::fs::mkdirat(dir.as_fd(), &name[..], rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            path = join(&path, &name);
        }
        remove_tree(&root, b"t").unwrap();
        assert!(root.stat(b"t").unwrap().is_none());
    }

    #[test]
    fn a_deep_chain_is_removed_in_linear_time() {
        let inside = tempfile::tempdir().unwrap();
        let root = Workspace::open(inside.path()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(root.fd(), "t", mode).unwrap();
        let mut at = root.dir(b"t").unwrap();
        for _ in 0..20_000 {
            rustix::fs::mkdirat(at.as_fd(), "d", mode).unwrap();
            at = rustix::fs::openat(at.as_fd(), "d", rustix::fs::OFlags::PATH, mode).unwrap();
        }
        remove_tree(&root, b"t").unwrap();
        assert!(root.stat(b"t").unwrap().is_none());
    }
}
