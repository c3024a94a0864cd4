//! Carries out a plan. Every action may run for the second time, after a crash in the middle of the first.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_gone, pin, split, unlink_if_there};
use crate::copy::{Attrs, adorn, copy_entry, copy_tree, overwrite, times};
use crate::faults::Faults;
use crate::journal::Journal;
use crate::meta::{EntryType, FileId, FsTime, Meta, stat, stat_if_there};
use crate::plan::{Action, AttrList, resolve};
use crate::remove::remove_tree;
use crate::tree::Source;
use crate::xattr;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Directories that are synced one by one; with more of them the whole file system is.
const SYNCED_ONE_BY_ONE: usize = 32;

/// Brings the actions of a journal to the workspace.
pub(crate) struct Apply<'a> {
    pub(crate) base: &'a Workspace,
    pub(crate) index: Option<&'a Workspace>,
    pub(crate) journal: &'a Journal,
    pub(crate) faults: &'a Faults,
    parents: Parents<'a>,
    layer_parents: Parents<'a>,
    /// First name of each group that was copied in this pass.
    copied: HashMap<usize, Vec<u8>>,
    touched: BTreeSet<Vec<u8>>,
    content: bool,
}

/// The directory used last, opened up if it kept us out.
struct Parents<'a> {
    tree: &'a Workspace,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Parents<'_> {
    fn get(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            self.last = Some((path.to_vec(), self.tree.dir_by_force(path)?));
        }
        self.last.as_ref().map(|(_, dir)| dir.as_fd()).ok_or_else(|| io::Error::other("no directory"))
    }
}

impl<'a> Apply<'a> {
    pub(crate) fn new(
        base: &'a Workspace,
        upper: &'a Workspace,
        index: Option<&'a Workspace>,
        journal: &'a Journal,
        faults: &'a Faults,
    ) -> Self {
        Self {
            base,
            index,
            journal,
            faults,
            parents: Parents { tree: base, last: None },
            layer_parents: Parents { tree: upper, last: None },
            copied: HashMap::new(),
            touched: BTreeSet::new(),
            content: false,
        }
    }

    /// Does everything.
    pub(crate) fn run(&mut self) -> Result<(), IoFailure> {
        for action in &self.journal.actions {
            self.faults.action();
            self.one(action)?;
        }
        Ok(())
    }

    /// Makes the result durable.
    pub(crate) fn sync(&self) -> Result<(), IoFailure> {
        if self.content || self.touched.len() > SYNCED_ONE_BY_ONE {
            return rustix::fs::syncfs(self.base.fd()).doing("sync", b"");
        }
        for path in &self.touched {
            match self.base.readable_dir(path) {
                Ok(dir) => rustix::fs::fsync(dir).doing("sync", path)?,
                // Renamed or closed to us since: let the file system decide what is left to write.
                Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                    return rustix::fs::syncfs(self.base.fd()).doing("sync", b"");
                }
                Err(error) => return Err(error).doing("sync", path),
            }
        }
        Ok(())
    }

    fn temp(&self, number: usize) -> Vec<u8> {
        temp_name(&self.journal.run, number)
    }

    fn touch(&mut self, dir: &[u8]) {
        if self.touched.len() <= SYNCED_ONE_BY_ONE && !self.touched.contains(dir) {
            self.touched.insert(dir.to_vec());
        }
    }

    fn one(&mut self, action: &Action) -> Result<(), IoFailure> {
        match action {
            Action::Stage { at, id, temp } => self.stage(&at.0, *id, *temp).doing("take away", &at.0),
            Action::Hold { at, id, temp } => self.hold(&at.0, *id, *temp).doing("hold", &at.0),
            Action::Delete { at, id } => self.delete(&at.0, *id).doing("delete", &at.0),
            Action::MakeDir { path } => self.make_dir(&path.0).doing("make the directory", &path.0),
            Action::Place { path, id, temp } => self.place(&path.0, *id, *temp).doing("put in place", &path.0),
            Action::Strip { path, names } => self.strip(&path.0, names).doing("clean", &path.0),
            Action::Move { path, strip, mode, copy, group, temp } => {
                self.move_in(&path.0, strip, *mode, *copy, *group, *temp).doing("put in place", &path.0)
            }
            Action::Write { path, content, temp } => self.write(&path.0, &content.0, *temp).doing("write", &path.0),
            Action::Overwrite { held, source } => {
                self.overwrite(*held, source).doing("write a file with several names", b"")
            }
            Action::Link { held, path, temp } => self.link(*held, &path.0, *temp).doing("link", &path.0),
            Action::SetDir { path, mode, uid, gid, mtime, attrs } => self
                .set_dir(&path.0, *mode, (*uid, *gid), *mtime, attrs.as_ref())
                .doing("set the attributes of", &path.0),
            Action::Release { temp } => unlink_if_there(self.base.fd(), &self.temp(*temp)).doing("release", b""),
        }
    }

    fn stage(&mut self, at: &[u8], id: FileId, temp: usize) -> io::Result<()> {
        let temp = self.temp(temp);
        self.parents.last = None;
        if stat_if_there(self.base.fd(), &temp)?.is_some_and(|meta| meta.id == id) {
            return Ok(());
        }
        let (parent, name) = split(at);
        let dir = match self.parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Absent or another one: it is in its new place already, and `place` makes sure of that.
        let Some(meta) = stat_if_there(dir, name)?.filter(|meta| meta.id == id) else { return Ok(()) };
        make_movable(dir, name, &meta)?;
        rustix::fs::renameat_with(dir, name, self.base.fd(), &*temp, RenameFlags::NOREPLACE)?;
        self.parents.last = None;
        self.touch(parent);
        self.touch(b"");
        Ok(())
    }

    fn place(&mut self, path: &[u8], id: FileId, temp: usize) -> io::Result<()> {
        let temp = self.temp(temp);
        self.parents.last = None;
        let (parent, name) = split(path);
        let dir = self.parents.get(parent)?;
        if stat_if_there(self.base.fd(), &temp)?.is_some_and(|meta| meta.id == id) {
            rustix::fs::renameat_with(self.base.fd(), &*temp, dir, name, RenameFlags::NOREPLACE)?;
            self.touch(parent);
            return Ok(());
        }
        match stat_if_there(dir, name)? {
            Some(meta) if meta.id == id => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "the renamed directory is lost")),
        }
    }

    fn hold(&mut self, at: &[u8], id: FileId, temp: usize) -> io::Result<()> {
        let temp = self.temp(temp);
        let at = resolve(at, |number| temp_name(&self.journal.run, number));
        if stat_if_there(self.base.fd(), &temp)?.is_some_and(|meta| meta.id == id) {
            return Ok(());
        }
        let (parent, name) = split(&at);
        let dir = match self.parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        if stat_if_there(dir, name)?.is_some_and(|meta| meta.id == id) {
            rustix::fs::linkat(dir, name, self.base.fd(), &*temp, AtFlags::empty())?;
        }
        Ok(())
    }

    fn delete(&mut self, at: &[u8], id: FileId) -> io::Result<()> {
        let at = resolve(at, |number| temp_name(&self.journal.run, number));
        let (parent, name) = split(&at);
        let dir = match self.parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        match stat_if_there(dir, name)? {
            Some(meta) if meta.id == id && meta.kind == EntryType::Directory => {
                self.parents.last = None;
                remove_tree(self.base, &at)?;
            }
            Some(meta) if meta.id == id => unlink_if_there(dir, name)?,
            _ => return Ok(()),
        }
        self.touch(parent);
        Ok(())
    }

    fn make_dir(&mut self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = split(path);
        let dir = self.parents.get(parent)?;
        match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {}
            Err(Errno::EXIST) if stat(dir, name)?.kind == EntryType::Directory => {}
            Err(error) => return Err(error.into()),
        }
        self.touch(parent);
        Ok(())
    }

    fn strip(&mut self, path: &[u8], names: &[ByteText]) -> io::Result<()> {
        let (parent, name) = split(path);
        let dir = match self.layer_parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        strip_marks(dir, name, names)
    }

    fn move_in(
        &mut self,
        path: &[u8],
        strip: &[ByteText],
        mode: u32,
        copy: bool,
        group: Option<usize>,
        temp: usize,
    ) -> io::Result<()> {
        let temp = self.temp(temp);
        let (parent, name) = split(path);
        let source = match self.layer_parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Not in the layer any more: it was moved before the crash.
        let Some(meta) = stat_if_there(source, name)? else { return Ok(()) };
        let target = self.parents.get(parent)?;
        if meta.kind != EntryType::Symlink && meta.mode != mode {
            // A crash left it opened up.
            chmod(pin(source, name)?.as_fd(), mode)?;
        }
        if !copy {
            strip_marks(source, name, strip)?;
            match rustix::fs::renameat(source, name, target, name) {
                Ok(()) => {
                    if meta.kind == EntryType::Directory {
                        self.layer_parents.last = None;
                        self.parents.last = None;
                    }
                    self.touch(parent);
                    return Ok(());
                }
                Err(Errno::XDEV) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.content = true;
        let attrs = Attrs::Content(self.journal.mode);
        if meta.kind == EntryType::Directory {
            remove_tree(self.base, &crate::beneath::join(parent, &temp))?;
            copy_dir(source, name, target, &temp, attrs, &meta)?;
        } else if let Some(first) = group.and_then(|number| self.copied.get(&number)).cloned() {
            crate::copy::clear(target, &temp)?;
            let (first_parent, first_name) = split(&first);
            let first_dir = self.base.dir(first_parent)?;
            rustix::fs::linkat(first_dir.as_fd(), first_name, target, &*temp, AtFlags::empty())?;
        } else {
            crate::copy::clear(target, &temp)?;
            copy_entry(source, name, target, &temp, attrs)?;
            if let Some(number) = group {
                self.copied.insert(number, path.to_vec());
            }
        }
        rustix::fs::renameat(target, &*temp, target, name)?;
        // A rename of one name of a file onto another name of it does nothing at all.
        crate::copy::clear(target, &temp)?;
        self.touch(parent);
        Ok(())
    }

    fn write(&mut self, path: &[u8], content: &[u8], temp: usize) -> io::Result<()> {
        use std::io::Write as _;
        let temp = self.temp(temp);
        let (parent, name) = split(path);
        let target = self.parents.get(parent)?;
        crate::copy::clear(target, &temp)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(target, &*temp, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(file);
        file.write_all(content)?;
        let source = self.layer_parents.get(parent)?;
        adorn(source, name, file.as_fd(), Attrs::Content(self.journal.mode))?;
        rustix::fs::renameat(target, &*temp, target, name)?;
        self.content = true;
        self.touch(parent);
        Ok(())
    }

    fn overwrite(&mut self, held: usize, source: &Source) -> io::Result<()> {
        let held = self.temp(held);
        // Released: everything was done before the crash.
        if stat_if_there(self.base.fd(), &held)?.is_none() {
            return Ok(());
        }
        self.content = true;
        let attrs = Attrs::Content(self.journal.mode);
        match source {
            Source::Upper(path) => {
                let (parent, name) = split(&path.0);
                overwrite(self.layer_parents.get(parent)?, name, self.base.fd(), &held, attrs)
            }
            Source::Index(name) => {
                let index =
                    self.index.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the layer has no index"))?;
                overwrite(index.fd(), &name.0, self.base.fd(), &held, attrs)
            }
        }
    }

    fn link(&mut self, held: usize, path: &[u8], temp: usize) -> io::Result<()> {
        let (held, temp) = (self.temp(held), self.temp(temp));
        if stat_if_there(self.base.fd(), &held)?.is_none() {
            return Ok(());
        }
        let (parent, name) = split(path);
        let target = self.parents.get(parent)?;
        crate::copy::clear(target, &temp)?;
        rustix::fs::linkat(self.base.fd(), &*held, target, &*temp, AtFlags::empty())?;
        rustix::fs::renameat(target, &*temp, target, name)?;
        crate::copy::clear(target, &temp)?;
        self.touch(parent);
        Ok(())
    }

    fn set_dir(
        &mut self,
        path: &[u8],
        mode: u32,
        owner: (u32, u32),
        mtime: Option<FsTime>,
        attrs: Option<&AttrList>,
    ) -> io::Result<()> {
        let dir = self.base.dir_by_force(path)?;
        let now = stat(dir.as_fd(), b"")?;
        if let Some(attrs) = attrs {
            for old in xattr::list(dir.as_fd(), b"")? {
                let content =
                    matches!(crate::marks::attr(crate::marks::LayerMode::Root, &old), crate::marks::Attr::Copy(_));
                if content && !attrs.iter().any(|(name, _)| name.0 == old) {
                    xattr::remove(dir.as_fd(), b"", &old)?;
                }
            }
            for (name, value) in attrs {
                xattr::set(dir.as_fd(), b"", &name.0, &value.0)?;
            }
        }
        if (now.uid, now.gid) != owner {
            let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            rustix::fs::chownat(dir.as_fd(), "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        chmod(dir.as_fd(), mode)?;
        if let Some(mtime) = mtime {
            let stamps = times(&Meta { mtime, ..now });
            rustix::fs::utimensat(rustix::fs::CWD, crate::beneath::proc_path(dir.as_fd()), &stamps, AtFlags::empty())?;
        }
        // The cached descriptor stays valid, but the directory may be closed to us now.
        self.parents.last = None;
        self.touch(path);
        Ok(())
    }
}

/// The temporary name of a commit in the workspace.
pub(crate) fn temp_name(run: &str, number: usize) -> Vec<u8> {
    format!(".nexus-tmp-{run}-{number}").into_bytes()
}

/// A directory that changes its parent has its `..` rewritten, for which its owner needs the write bit.
fn make_movable(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<()> {
    if meta.mode & 0o700 != 0o700 && !rustix::process::geteuid().is_root() {
        chmod(pin(dir, name)?.as_fd(), meta.mode | 0o700)?;
    }
    Ok(())
}

fn strip_marks(dir: BorrowedFd<'_>, name: &[u8], names: &[ByteText]) -> io::Result<()> {
    for one in names {
        match xattr::remove(dir, name, &one.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Copies a directory that should have been movable: two file systems behind one mount, for instance.
fn copy_dir(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    temp: &[u8],
    attrs: Attrs,
    meta: &Meta,
) -> io::Result<()> {
    let open = |dir: BorrowedFd<'_>, name: &[u8]| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map(Workspace::from_fd)
    };
    let source = open(from, name)?;
    rustix::fs::mkdirat(to, temp, Mode::from_raw_mode(0o700))?;
    let target = open(to, temp)?;
    copy_tree(&source, &target, attrs)?;
    adorn(from, name, target.fd(), attrs)?;
    chmod(target.fd(), meta.mode)
}
