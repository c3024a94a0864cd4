//! Follows the links of a path on the host, and tells which of its places lie in the workspace.
//!
//! Places of the workspace are reached through its open directory, the others by their path. Nothing is opened but
//! directories of the workspace: a link is read, and an entry that is not a link ends the way.

use nexus_beneath::{Workspace, is_gone, split};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// Links on the way, as the kernel counts them at most (ELOOP, path_resolution(7)).
const LINKS: usize = 40;

/// The way of a path through links to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The links on it, by their real paths.
    pub links: Vec<PathBuf>,
    /// The directories that `..` leads out of, by their real paths: a link in the place of one leads elsewhere.
    pub turns: Vec<PathBuf>,
    /// Its end, whether there is something or not.
    pub end: PathBuf,
}

/// The workspace and its real path.
#[derive(Clone, Copy)]
pub(super) struct Top<'a> {
    pub workspace: &'a Workspace,
    pub path: &'a Path,
}

impl Top<'_> {
    /// A real path relative to the workspace; empty for the workspace itself.
    pub fn inside<'b>(&self, real: &'b Path) -> Option<&'b [u8]> {
        real.strip_prefix(self.path).ok().map(|path| path.as_os_str().as_bytes())
    }

    /// Follows an absolute path.
    pub fn follow(&self, path: &Path) -> io::Result<Route> {
        let (mut links, mut turns) = (Vec::new(), Vec::new());
        let mut at = PathBuf::from("/");
        let mut rest: VecDeque<OsString> = parts(path);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                turns.push(at.clone());
                at.pop();
                continue;
            }
            let here = at.join(&name);
            let Some(target) = self.link(&here)? else {
                at = here;
                continue;
            };
            if links.len() == LINKS {
                return Ok(Route { links, turns, end: here });
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for name in parts(&target).into_iter().rev() {
                rest.push_front(name);
            }
            links.push(here);
        }
        Ok(Route { links, turns, end: at })
    }

    /// The target of a link; `None` for what is none.
    fn link(&self, real: &Path) -> io::Result<Option<PathBuf>> {
        let read = match self.inside(real) {
            Some(path) if !path.is_empty() => {
                let (parent, name) = split(path);
                let dir = match self.workspace.dir(parent) {
                    Ok(dir) => dir,
                    Err(error) if nothing_is_at(&error, real, self.path) => return Ok(None),
                    Err(error) => return Err(error),
                };
                rustix::fs::readlinkat(dir.as_fd(), name, Vec::new())
            }
            _ => rustix::fs::readlink(real, Vec::new()),
        };
        match read {
            Ok(target) => Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes())))),
            Err(Errno::INVAL) => Ok(None),
            Err(error) if nothing_is_at(&error.into(), real, self.path) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reports whether an error means that nothing that counts is at the place `real`. A place that is closed to its owner
/// in the workspace `top` counts: the run of a command may have closed it, and the next one or its user opens it again.
pub(super) fn nothing_is_at(error: &io::Error, real: &Path, top: &Path) -> bool {
    leads_nowhere(error) && (error.kind() != io::ErrorKind::PermissionDenied || closed_on_the_way(real, top).is_none())
}

/// Returns the entry of the workspace `top` on the way to `path` that its mode closes to its owner, who is this user.
/// A path of another user is closed to the programs that this user starts, and no command of theirs can open it.
pub(super) fn closed_on_the_way(path: &Path, top: &Path) -> Option<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let (seen, meta) = at.ancestors().find_map(|one| Some((one.to_owned(), rustix::fs::lstat(one).ok()?)))?;
        let rest = at.strip_prefix(&seen).ok()?.to_owned();
        let needed = match FileType::from_raw_mode(meta.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlink(&seen, Vec::new()).ok()?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                at = seen.parent()?.join(target);
                // An empty rest would add a slash.
                if !rest.as_os_str().is_empty() {
                    at.push(rest);
                }
                continue;
            }
            FileType::Directory => 0o500,
            _ => 0o400,
        };
        let user = rustix::process::geteuid();
        let is_owned = user.is_root() || meta.st_uid == user.as_raw();
        let real = std::fs::canonicalize(&seen).ok()?;
        return (is_owned && meta.st_mode & needed != needed && real.starts_with(top)).then_some(real);
    }
    None
}

/// Reports whether an error means that a place is missing, closed to this user, or cannot exist by its name.
pub(super) fn leads_nowhere(error: &io::Error) -> bool {
    let other = [Errno::LOOP, Errno::XDEV, Errno::NAMETOOLONG];
    is_gone(error)
        || error.kind() == io::ErrorKind::PermissionDenied
        || other.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_followed_through_every_link() {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        let top = base.join("ws");
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        symlink("a", top.join("l")).unwrap();
        symlink("../../l/b/end", top.join("a/b/up")).unwrap();
        symlink(&top, base.join("alias")).unwrap();
        symlink("self", top.join("self")).unwrap();
        let workspace = Workspace::open(&top).unwrap();
        let at = Top { workspace: &workspace, path: &top };
        for (path, links, turns, end) in [
            ("ws/a/x", &[][..], &[][..], "ws/a/x"),
            ("ws/l/x/y", &["ws/l"], &[], "ws/a/x/y"),
            ("ws/a/b/up", &["ws/a/b/up", "ws/l"], &["ws/a/b", "ws/a"], "ws/a/b/end"),
            ("alias/l", &["alias", "ws/l"], &[], "ws/a"),
            ("ws/a/../missing/../x", &[], &["ws/a", "ws/missing"], "ws/x"),
        ] {
            let way = at.follow(&base.join(path)).unwrap();
            let [links, turns] = [links, turns].map(|all| all.iter().map(|one| base.join(one)).collect());
            assert_eq!(way, Route { links, turns, end: base.join(end) }, "{path}");
        }
        assert_eq!(at.follow(&top.join("self")).unwrap().links.len(), LINKS);
        assert_eq!(at.inside(&top.join("a/b")), Some(&b"a/b"[..]));
        assert_eq!((at.inside(&top), at.inside(&base.join("ws2"))), (Some(&b""[..]), None));
    }
}
