//! Looks for git repositories around the ends of links that lie outside of the workspace.
//!
//! Only the end and the directories above it are looked at, and no link on the way is followed: the end of a link has none. A place
//! that cannot be looked at counts as one in another repository.

use crate::beneath::split;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The nearest repository around a directory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Around {
    Nothing,
    /// The absolute path of its top.
    At(Rc<[u8]>),
    /// A place that this user may not look at, or too many of them.
    Unknown,
}

/// The repositories of the host, by the directories that were looked at.
#[derive(Default)]
pub(crate) struct OtherRepositories {
    known: RefCell<HashMap<Vec<u8>, Around>>,
}

impl OtherRepositories {
    /// Tells whether a link with the absolute path `end` leads out of its repository into another one. `around` is a directory
    /// that is known to lie in the link's own repository; `None` where that one is in the workspace.
    ///
    /// No commit can be made below a plain file: programs of `~/.pyenv`, which is a repository, may be linked.
    pub(crate) fn has(&self, can_look: &dyn Fn(&[u8]) -> bool, around: Option<&[u8]>, end: &[u8]) -> bool {
        match kind_at(end) {
            Ok(Some(FileType::Directory) | None) => {}
            Ok(Some(_)) => return false,
            Err(_) => return true,
        }
        match self.nearest(can_look, end) {
            Around::Nothing => false,
            Around::Unknown => true,
            other @ Around::At(_) => around.is_none_or(|own| other != self.nearest(can_look, own)),
        }
    }

    fn nearest(&self, can_look: &dyn Fn(&[u8]) -> bool, end: &[u8]) -> Around {
        let (mut at, mut seen) = (end, Vec::new());
        let found = loop {
            if let Some(known) = self.known.borrow().get(at) {
                break known.clone();
            }
            if !can_look(at) {
                break Around::Unknown;
            }
            seen.push(at.to_vec());
            match is_top(at) {
                Ok(true) => break Around::At(at.into()),
                Ok(false) if at.is_empty() => break Around::Nothing,
                Ok(false) => at = split(at).0,
                Err(_) => break Around::Unknown,
            }
        };
        self.known.borrow_mut().extend(seen.into_iter().map(|at| (at, found.clone())));
        found
    }
}

/// Tells whether a directory has a `.git`, or is a repository without that name.
fn is_top(directory: &[u8]) -> rustix::io::Result<bool> {
    let has = |name: &[u8]| Ok::<_, Errno>(kind_at(&[directory, b"/", name].concat())?.is_some());
    Ok(has(b".git")? || (has(b"HEAD")? && (has(b"commondir")? || (has(b"objects")? && has(b"refs")?))))
}

/// Returns the kind of what is at an absolute path; `None` for nothing.
pub(crate) fn kind_at(path: &[u8]) -> rustix::io::Result<Option<FileType>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = if path.is_empty() { &b"/"[..] } else { path };
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}
