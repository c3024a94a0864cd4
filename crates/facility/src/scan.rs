//! Looks through a directory of the workspace that goes away or moves as a whole: did something in it change
//! meanwhile, and is there a protected name in it. The only place that reads more of the workspace than the layer
//! touched.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, is_other_mount, join, names, split};
use crate::facts::{GitDirectory, Version, judge};
use crate::git_names::PACKED;
use crate::link_ends::Ends;
use crate::meta::{EntryType, FsTime, stat_if_there};
use crate::protected::{Class, Rules};
use crate::tree::{Found, Inodes, Own, Scan, SharedPath, Thing, Verdict, is_fresh};
use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};

/// More conflicts than this are not worth listing for one directory.
const LISTED: usize = 16;

/// What a scan needs to know.
pub(crate) struct Scanner<'a> {
    pub(crate) base: &'a Workspace,
    pub(crate) rules: &'a Rules,
    pub(crate) started: FsTime,
    pub(crate) ours: &'a [Own],
    /// Directories that were renamed away: they have a scan of their own.
    pub(crate) claimed: &'a HashSet<Vec<u8>>,
    /// Files that the layer has under another name.
    pub(crate) wanted: &'a HashSet<u64>,
}

impl Scanner<'_> {
    /// Scans the directory `top`. `place_of_top` is where its content will be: its own path for one that goes away.
    pub(crate) fn scan(&self, top: &Found, place_of_top: &[u8], inodes: &mut Inodes) -> Result<Scan, IoFailure> {
        let mut result = Scan::default();
        if is_fresh(self.started, self.ours, &top.at, &top.meta) {
            result.changed.push(top.at.text());
        }
        let mut stack = vec![(top.at.0.to_vec(), place_of_top.to_vec())];
        while let Some((at, place)) = stack.pop() {
            let dir = match self.base.readable_dir(&at) {
                Err(error) if is_other_mount(&error) => {
                    result.blocked.push(SharedPath::from(at).text());
                    continue;
                }
                other => other.doing("open", &at)?,
            };
            for name in names(dir.as_fd()).doing("list", &at)? {
                let (path, target) = (join(&at, &name), join(&place, &name));
                // Gone between the listing and now: somebody works here, and the directory's own ctime tells.
                let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &path)? else { continue };
                let path = SharedPath::from(path);
                if self.claimed.contains(&*path.0) {
                    continue;
                }
                if is_fresh(self.started, self.ours, &path, &meta) && result.changed.len() < LISTED {
                    result.changed.push(path.text());
                }
                if result.protected.is_none() {
                    let here = self.reason(dir.as_fd(), &name, &path.0, meta.kind, None)?;
                    let there = if *target == *path.0 {
                        None
                    } else {
                        let leads = self.link(dir.as_fd(), &name, &target, meta.kind)?;
                        let from = (&*top.at.0, place_of_top);
                        self.reason(dir.as_fd(), &name, &target, meta.kind, Some(from))?.or(leads)
                    };
                    result.protected = here.or(there).map(|why| (path.text(), why));
                }
                inodes.name(&meta);
                result.holds.extend(Thing::of(&meta).filter(|thing| !result.holds.contains(thing)));
                if meta.kind == EntryType::Directory {
                    stack.push((path.0.to_vec(), target));
                } else if self.wanted.contains(&meta.id.ino) {
                    inodes.scanned(Found { at: path, meta });
                }
            }
        }
        Ok(result)
    }

    /// Why an entry that is a link may not arrive at `path`.
    fn link(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        kind: EntryType,
    ) -> Result<Option<String>, IoFailure> {
        if kind != EntryType::Symlink {
            return Ok(None);
        }
        match rustix::fs::readlinkat(dir, name, Vec::new()) {
            Ok(text) => {
                let read = |at: &[u8]| crate::link_ends::link(self.base, at);
                Ends::new(self.rules, self.base.path()).reason(path, text.to_bytes(), &read)
            }
            // Gone, or no link any more.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(None),
            Err(error) => Err(error).doing("read the link", path),
        }
    }

    /// Why the entry may not go away from `path` or, when it arrives with a directory that `moved`, come to it unasked.
    fn reason(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        kind: EntryType,
        moved: Option<(&[u8], &[u8])>,
    ) -> Result<Option<String>, IoFailure> {
        let is_dir = kind == EntryType::Directory;
        let class = self.rules.class(path);
        Ok(match &class {
            Class::Plain => None,
            Class::Listed(pattern) => Some(pattern.clone()),
            Class::MustBeDirectory | Class::NoLink => {
                (kind == EntryType::Symlink).then(|| "a link on the way to protected names".to_owned())
            }
            Class::GitState(why) if *why != PACKED => moved.is_some().then(|| (*why).to_owned()),
            Class::GitRoot | Class::GitHook if is_dir => None,
            Class::GitRoot | Class::GitConfig | Class::GitHook | Class::GitCommonDir | Class::GitState(_) => {
                let version = Version::read(dir, name, &class).doing("read", path)?;
                // Where the workspace has what will be at a path.
                let before = |path: &[u8]| match moved {
                    Some((from, to)) if is_beneath(path, to) => [from, &path[to.len()..]].concat(),
                    _ => path.to_vec(),
                };
                let git_dir = before(split(path).0);
                let names_back = |tree: &[u8]| crate::submodules::names_back(self.base, &before(tree), &git_dir);
                let directory = GitDirectory::Goes(&names_back);
                match judge(self.rules, &class, path, &Version::Absent, &version, directory) {
                    Verdict::Commit => None,
                    Verdict::Strip(_) => Some(crate::verdict::stripped(&class).to_owned()),
                    Verdict::Park(why) => Some(why),
                }
            }
        })
    }
}
