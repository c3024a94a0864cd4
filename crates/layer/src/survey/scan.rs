//! Searches a workspace directory that a layer deletes or moves as a whole, for entries that changed since the run began and for
//! protected names. No other module reads parts of the workspace that the layer did not touch.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, is_other_mount, join, names, split};
use crate::decide::partial::LISTED;
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{CommittedEntry, Found, Inodes, Scan, SharedPath, Thing, Verdict, is_fresh};
use crate::fold::fold;
use crate::git::further_trees;
use crate::git::git_rules::{GitDirectory, Version, classify};
use crate::git::links_between::{BETWEEN, leads_between};
use crate::git::nested::{GOES, has_objects};
use crate::links::link_budget::{LinkEnd, Links, TOO_LONG};
use crate::links::link_ends::Ends;
use crate::meta::{EntryType, FsTime, stat_if_there};
use crate::read::access::is_closed;
use crate::read::git_dirs;
use nexus_git::git_dir::{EXCLUDE, PACKED, may_go};
use nexus_git::reads::Reads;
use nexus_git::refs::{self as git_refs, inside_git};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;

/// Of more files with several names in one directory, a partial accept makes conflicts of the rest.
const MAX_SHARED: usize = 4096;

/// Git directories without the name `.git` that an entry lies in.
type Around = Rc<Vec<Vec<u8>>>;

/// Scans the directories that a commit takes away or moves.
pub(crate) struct Scanner<'a> {
    pub(crate) base: &'a Workspace,
    pub(crate) rules: &'a Rules,
    pub(crate) started: FsTime,
    pub(crate) ours: &'a [CommittedEntry],
    /// Directories that were renamed away: they have a scan of their own.
    pub(crate) claimed: &'a HashSet<Vec<u8>>,
    /// Files that the layer has under another name.
    pub(crate) wanted: &'a HashSet<u64>,
    pub(crate) budget: Budget,
    /// The ends of links, with one number of steps for all scans.
    pub(crate) ends: Ends<'a>,
    /// The links of the workspace.
    pub(crate) links: Links<'a>,
}

/// The state that the scans of one commit share.
#[derive(Default)]
pub(crate) struct Budget {
    /// The bytes of git's files that may still be read.
    reads: Reads,
    /// The directory above the last scan, and the git directories that it lies in.
    last: RefCell<Option<(Vec<u8>, Around)>>,
}

/// The place of a directory that moves, and where its content will be.
type Moved<'a> = Option<(&'a [u8], &'a [u8])>;

/// An entry of a directory that goes away or moves.
struct Entry<'a> {
    dir: BorrowedFd<'a>,
    name: &'a [u8],
    kind: EntryType,
    size: u64,
}

impl Scanner<'_> {
    /// Scans the directory `top`. `place_of_top` is where its content will be: its own path for one that goes away.
    ///
    /// Of a directory that `stays` whole at another place, only changes in git directories are listed: what another process
    /// wrote elsewhere in it moves along, and each entry of the layer is compared on its own. A git that works there would fail
    /// half-way.
    pub(crate) fn scan(
        &self,
        top: &Found,
        place_of_top: &[u8],
        stays: bool,
        inodes: &mut Inodes,
    ) -> Result<Scan, IoFailure> {
        let mut result = Scan::default();
        if !stays && is_fresh(self.started, self.ours, &top.at, &top.meta) {
            result.changed.push(top.at.text());
        }
        let mut stack = vec![(top.at.0.to_vec(), place_of_top.to_vec(), self.around(&top.at.0)?)];
        while let Some((at, place, mut around)) = stack.pop() {
            if result.protected.is_none() {
                result.protected = self.rules.is_home(&at).map(|why| (SharedPath::from(at.clone()).text(), why));
            }
            let dir = match self.base.readable_dir(&at) {
                Err(error) if is_other_mount(&error) => {
                    result.blocked.push(SharedPath::from(at).text());
                    continue;
                }
                // It may hold anything. An accept opens it, and looks for later changes in it before it goes.
                Err(error) if is_closed(&error) => {
                    let why = "what a directory that is closed to its owner hides".to_owned();
                    result.protected.get_or_insert((SharedPath::from(at).text(), why));
                    continue;
                }
                other => other.doing("open", &at)?,
            };
            let all = names(dir.as_fd()).doing("list", &at)?;
            if fold(split(&at).1).as_ref() != b".git" && git_dirs::is_one_by(&all) {
                around = Rc::new(around.iter().cloned().chain([at.clone()]).collect());
                if at != place && result.protected.is_none() {
                    // A link may lead to where it will be.
                    let why = "a git repository without the name .git that moves".to_owned();
                    result.protected = Some((SharedPath::from(at.clone()).text(), why));
                } else if result.protected.is_none() && crate::git::replaced::is_separate(self.base, &at)? {
                    result.protected = Some((SharedPath::from(at.clone()).text(), GOES.to_owned()));
                }
            }
            for name in all {
                let (path, target) = (join(&at, &name), join(&place, &name));
                // Gone between the listing and now: a process works here, and the directory's own ctime shows that.
                let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &path)? else { continue };
                let path = SharedPath::from(path);
                if self.claimed.contains(&*path.0) {
                    continue;
                }
                let counts =
                    || !stays || !around.is_empty() || fold(&name).as_ref() == b".git" || inside_git(&path.0).is_some();
                if is_fresh(self.started, self.ours, &path, &meta) {
                    if result.changed.len() < LISTED && counts() {
                        result.changed.push(path.text());
                    }
                } else if meta.kind == EntryType::File && meta.links > 1 && result.shared.len() < MAX_SHARED {
                    result.shared.push(path.text());
                }
                if result.protected.is_none() {
                    let entry = Entry { dir: dir.as_fd(), name: &name, kind: meta.kind, size: meta.size };
                    let moved = (*target != *path.0).then_some((&*top.at.0, place_of_top));
                    let why = self.why(&entry, &path.0, &target, (&top.at.0, moved), &around)?;
                    result.protected = why.map(|why| (path.text(), why));
                }
                inodes.name(&meta);
                result.holds.extend(Thing::of(&meta).filter(|thing| !result.holds.contains(thing)));
                if meta.kind == EntryType::Directory {
                    stack.push((path.0.to_vec(), target, Rc::clone(&around)));
                } else if self.wanted.contains(&meta.id.ino) {
                    inodes.scanned(Found { at: path, meta });
                }
            }
        }
        Ok(result)
    }

    /// Returns why an entry may not go away from `path` or, when it moves, come to `target` unasked.
    fn why(
        &self,
        entry: &Entry<'_>,
        path: &[u8],
        target: &[u8],
        (top, moved): (&[u8], Moved<'_>),
        around: &[Vec<u8>],
    ) -> Result<Option<String>, IoFailure> {
        if let Some(why) = crate::special_files::endpoints::why(entry.dir, entry.name, entry.kind, moved.is_some()) {
            return Ok(Some(why.to_owned()));
        }
        let class = self.rules.class(path);
        if let Some(why) = self.reason(entry, &class, path, None)? {
            return Ok(Some(why));
        }
        let is_git = class == Class::GitRoot && entry.kind == EntryType::Directory;
        if is_git && moved.is_none() && has_objects(self.base, path)? {
            return Ok(Some(GOES.to_owned()));
        }
        if fold(entry.name).as_ref() == b"gitdir" && moved.is_none() && further_trees::is_of_one(path) {
            return Ok(further_trees::why_not(self.base, split(path).0));
        }
        if let Some(why) = Self::gone_ref(entry, path, top, &self.budget.reads)? {
            return Ok(Some(why.to_owned()));
        }
        for repository in around {
            if let Some(why) = self.reason(entry, &git_dirs::class(path, repository), path, None)? {
                return Ok(Some(why));
            }
        }
        let Some(moved) = moved else { return Ok(None) };
        let is_exclude = |path: &[u8]| self.rules.class(path) == Class::GitState(EXCLUDE);
        // It moves with its git directory.
        if is_exclude(path) && inside_git(path) == inside_git(target) {
            return Ok(None);
        }
        match self.reason(entry, &self.rules.class(target), target, Some(moved))? {
            None => match Self::moved_ref(entry, path, target, &self.budget.reads)? {
                None => self.link(entry.dir, entry.name, target, entry.kind),
                why => Ok(why.map(str::to_owned)),
            },
            why => Ok(why),
        }
    }

    /// Returns why an entry that comes with a moved directory may not become a ref unasked: it was not a ref of this
    /// name before.
    fn moved_ref(
        entry: &Entry<'_>,
        path: &[u8],
        target: &[u8],
        reads: &Reads,
    ) -> Result<Option<&'static str>, IoFailure> {
        let (Some(inside), EntryType::File) = (inside_git(target), entry.kind) else { return Ok(None) };
        if inside_git(path) == Some(inside) || git_refs::ref_file(inside).is_none() {
            return Ok(None);
        }
        let version = Version::read(entry.dir, entry.name, &Class::NoLink, reads).doing("read", path)?;
        Ok(crate::git::branches::of_moved(inside, &version))
    }

    /// Returns why an entry does not go with a directory that lies in its git directory.
    fn gone_ref(entry: &Entry<'_>, path: &[u8], top: &[u8], reads: &Reads) -> Result<Option<&'static str>, IoFailure> {
        let (Some(inside), EntryType::File) = (inside_git(path), entry.kind) else { return Ok(None) };
        // With the whole repository they may go.
        if inside_git(top).is_none() || git_refs::ref_file(inside).is_none() {
            return Ok(None);
        }
        let version = Version::read(entry.dir, entry.name, &Class::NoLink, reads).doing("read", path)?;
        Ok(crate::git::branches::of_gone(inside, &version))
    }

    /// The git directories without the name `.git` that the directory above an entry of the workspace is, or lies in.
    fn around(&self, path: &[u8]) -> Result<Around, IoFailure> {
        let parent = split(path).0;
        if let Some((last, around)) = &*self.budget.last.borrow()
            && last == parent
        {
            return Ok(Rc::clone(around));
        }
        let (mut found, mut at) = (Vec::new(), path);
        while !at.is_empty() {
            at = split(at).0;
            if fold(split(at).1).as_ref() != b".git" && git_dirs::is_one(self.base, at)? {
                found.push(at.to_vec());
            }
        }
        let found = Rc::new(found);
        *self.budget.last.borrow_mut() = Some((parent.to_vec(), Rc::clone(&found)));
        Ok(found)
    }

    /// Returns why an entry that is a link may not arrive at `path`.
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
                let (ends, links) = (&self.ends, &self.links);
                match ends.reason(path, text.to_bytes(), links)? {
                    None if ends.leads_to_bare(self.base, path, text.to_bytes(), links)? => {
                        Ok(Some(crate::links::link_ends::TO_BARE.to_owned()))
                    }
                    None => {
                        let mut found = None;
                        let mut take = |inside: Option<&[u8]>, end: &[u8]| {
                            found = Some((inside.map(<[u8]>::to_vec), end.to_vec()));
                        };
                        if ends.follow(path, text.to_bytes(), links, &mut take)? == LinkEnd::TooLong {
                            return Ok(Some(TOO_LONG.to_owned()));
                        }
                        let leads = match &found {
                            Some((inside, end)) => leads_between(self.base, ends, path, (inside.as_deref(), end))?,
                            None => false,
                        };
                        Ok(leads.then(|| BETWEEN.to_owned()))
                    }
                    why => Ok(why),
                }
            }
            // Gone, or no link any more.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(None),
            Err(error) => Err(error).doing("read the link", path),
        }
    }

    /// Returns why an entry of this class may not go away from `path` or, when it arrives with a directory that
    /// `moved`, come to it unasked.
    fn reason(
        &self,
        entry: &Entry<'_>,
        class: &Class,
        path: &[u8],
        moved: Moved<'_>,
    ) -> Result<Option<String>, IoFailure> {
        let is_dir = entry.kind == EntryType::Directory;
        Ok(match class {
            Class::Plain => None,
            Class::Listed(pattern) => Some(pattern.clone()),
            Class::MustBeDirectory | Class::NoLink => {
                (entry.kind == EntryType::Symlink).then(|| "a link on the way to protected names".to_owned())
            }
            Class::GitState(why) if *why != PACKED => (moved.is_some() || !may_go(why)).then(|| (*why).to_owned()),
            Class::GitRoot | Class::GitHook if is_dir => None,
            Class::GitRoot | Class::GitConfig | Class::GitHook | Class::GitCommonDir | Class::GitState(_) => {
                if !self.budget.reads.has(entry.size) {
                    return Ok(Some("more files of git than a commit reads".to_owned()));
                }
                let version = Version::read(entry.dir, entry.name, class, &self.budget.reads).doing("read", path)?;
                // Where the workspace has what will be at a path.
                let before = |path: &[u8]| match moved {
                    Some((from, to)) if is_beneath(path, to) => [from, &path[to.len()..]].concat(),
                    _ => path.to_vec(),
                };
                let git_dir = before(split(path).0);
                let names_back = |tree: &[u8]| nexus_git::submodules::names_back(self.base, &before(tree), &git_dir);
                let directory = GitDirectory::Goes(&names_back);
                match classify(self.rules, class, path, &Version::Absent, &version, directory) {
                    Verdict::Commit | Verdict::LeaveOut => None,
                    Verdict::Strip(_) => Some(crate::entries::verdict::stripped(class).to_owned()),
                    Verdict::Park(why) => Some(why),
                }
            }
        })
    }
}
