//! Looks through a workspace for the paths that a direct run covers.
//!
//! Every directory in which a protected name could be is listed, so the work for one entry is small: most entries are
//! files that begin no pattern, and of those nothing but the name and the type in the listing is looked at. A directory
//! that cannot be listed, whose path is too long for a call, or that lies below hundreds of others, is an error or is covered as
//! a whole.

use crate::plan::watch::{Watched, is_index};
use nexus_layer::Rules;
use nexus_layer::entries::protected::{Class, EntryRules, PACKAGES};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Names of a git directory that git reads as configuration or starts.
pub(super) const OF_GIT: &[&str] = &["hooks", "config", "config.worktree", "commondir"];
/// Directories of packages at any depth are replaced as a whole by package managers, which covers would stop.
const PASSED_BY: &[&[u8]] = PACKAGES;
/// Directories below so many others are covered as a whole: each look costs what its path is long, and a command makes chains
/// of more than a thousand for nothing.
const MAX_DEPTH: usize = 256;
/// Holds the entries that one call of getdents64(2) lists.
const BUFFER: usize = 64 * 1024;

/// The paths to cover that a workspace has.
pub(super) struct Found<'a> {
    rules: &'a Rules,
    opens_git: bool,
    pub protected: BTreeSet<ByteText>,
    /// The patterns that found something.
    pub matched: BTreeSet<String>,
    /// Files that git acts on later and that are not covered.
    pub watched: Watched,
}

/// The names by which a directory is a bare repository.
#[derive(Default)]
struct Names {
    head: bool,
    common: bool,
    objects: bool,
    refs: bool,
}

impl Names {
    fn see(&mut self, name: &[u8]) {
        self.head |= name.eq_ignore_ascii_case(b"HEAD");
        self.common |= name.eq_ignore_ascii_case(b"commondir");
        self.objects |= name.eq_ignore_ascii_case(b"objects");
        self.refs |= name.eq_ignore_ascii_case(b"refs");
    }

    fn is_bare(&self) -> bool {
        self.head && (self.common || (self.objects && self.refs))
    }
}

impl<'a> Found<'a> {
    pub fn new(rules: &'a Rules, opens_git: bool) -> Self {
        Self { rules, opens_git, protected: BTreeSet::new(), matched: BTreeSet::new(), watched: Watched::default() }
    }

    /// Looks through a workspace.
    pub fn scan(&mut self, workspace: &Path) -> Result<(), Error> {
        self.scan_below(workspace, vec![Vec::new()])
    }

    /// Looks through directories of a workspace.
    pub fn scan_below(&mut self, workspace: &Path, mut directories: Vec<Vec<u8>>) -> Result<(), Error> {
        let top = match rustix::fs::open(workspace, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(top) => top,
            Err(error) if is_gone(&error.into()) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut buffer = Vec::with_capacity(BUFFER);
        while let Some(at) = directories.pop() {
            if depth(&at) > MAX_DEPTH {
                self.protected.insert(ByteText(at));
                continue;
            }
            match open(&top, &at) {
                Ok(directory) => self.look_into(&directory, &at, &mut buffer, &mut directories)?,
                Err(error) if is_gone(&error) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied && !at.is_empty() => {
                    if opens_to_command(&workspace.join(Path::new(std::ffi::OsStr::from_bytes(&at))))? {
                        self.protected.insert(ByteText(at));
                    }
                }
                Err(error) if is_too_long(&error) => {
                    self.protected.insert(ByteText(in_reach(workspace, &at)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Classifies the entries of one directory and adds the directories in it that have to be looked into.
    fn look_into(
        &mut self,
        directory: &OwnedFd,
        at: &[u8],
        buffer: &mut Vec<u8>,
        below: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let rules = self.rules.entries_of(at);
        let mut names = Names::default();
        // Classified at the end of the list, which tells whether the directory is a bare repository.
        let mut of_git = Vec::new();
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            names.see(name);
            let class = rules.class(name);
            if class == Class::Plain && OF_GIT.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes())) {
                of_git.push((entry.file_name().to_owned(), entry.file_type()));
            } else {
                self.entry(directory, at, (entry.file_name(), entry.file_type()), class, below)?;
            }
        }
        if names.is_bare() && rules.class(b"any name") == Class::Plain {
            self.watched.add_refs(directory, c"refs", join(at, b"refs"));
            self.watched.add_head(directory, c"HEAD", &join(at, b"HEAD"));
        }
        for (name, listed) in of_git {
            if names.is_bare() {
                self.protected.insert(ByteText(join(at, name.to_bytes())));
            } else {
                self.entry(directory, at, (&name, listed), Class::Plain, below)?;
            }
        }
        Ok(())
    }

    /// Classifies one entry, given as its name and its type in the listing.
    fn entry(
        &mut self,
        directory: &OwnedFd,
        at: &[u8],
        (name, listed): (&CStr, FileType),
        class: Class,
        below: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let path = || join(at, name.to_bytes());
        if is_index(name.to_bytes()) {
            let kind = kind(directory, name, listed)?;
            if kind == FileType::RegularFile || (kind == FileType::Symlink && class == Class::NoLink) {
                self.watched.add_index(directory, name, path());
            }
        }
        match class {
            Class::Plain => match kind(directory, name, listed)? {
                FileType::Directory if !PASSED_BY.contains(&name.to_bytes()) => below.push(path()),
                FileType::Symlink => self.watched.add_link(directory, name, path()),
                _ => {}
            },
            Class::Listed(pattern) => {
                self.matched.insert(pattern);
                self.protected.insert(ByteText(path()));
            }
            // In a git directory what decides what git runs. Its other files are git's own business.
            Class::GitConfig | Class::GitCommonDir | Class::GitHook => {
                self.protected.insert(ByteText(path()));
            }
            Class::GitState(_) if last(at) == b"info" => {
                self.protected.insert(ByteText(path()));
            }
            Class::GitState(_) => self.watched.add_state(directory, name, path()),
            Class::GitRoot if !self.opens_git => {
                self.protected.insert(ByteText(path()));
            }
            // A name that leads on, such as `.config`, and a git directory.
            Class::GitRoot | Class::MustBeDirectory | Class::NoLink => {
                let path = path();
                let inside = self.rules.entries_of(&path);
                let kind = kind(directory, name, listed)?;
                if inside.class(b"any name") == Class::GitHook
                    || kind == FileType::Symlink
                    || (kind == FileType::RegularFile && class == Class::GitRoot)
                {
                    self.protected.insert(ByteText(path));
                } else if kind == FileType::Directory {
                    if class == Class::NoLink && last(&path) == b"refs" {
                        self.watched.add_refs(directory, name, path.clone());
                    }
                    below.extend(inside_of_git(&path, &inside));
                } else if class == Class::NoLink && name.to_bytes().eq_ignore_ascii_case(b"HEAD") {
                    self.watched.add_head(directory, name, &path);
                }
            }
        }
        Ok(())
    }
}

fn depth(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'/').count() - 1
}

/// Returns where to look on in a directory that may hold protected names. Of what git itself fills, nothing is looked at
/// but the places of objects elsewhere.
fn inside_of_git(at: &[u8], rules: &EntryRules<'_>) -> Option<Vec<u8>> {
    let of_git = matches!(rules.class(b"any name"), Class::NoLink);
    match last(at) {
        b"objects" if of_git => Some(join(at, b"info")),
        // Only replaced objects.
        name if of_git && name != b"replace" && last(parent(at)) == b"refs" => None,
        b"logs" | b"lfs" if of_git => None,
        _ => Some(at.to_owned()),
    }
}

/// Opens a directory of the workspace to list it. A directory that is listed but cannot be entered hides what lies below
/// it, too.
fn open(top: &OwnedFd, at: &[u8]) -> Result<OwnedFd, Error> {
    let at = if at.is_empty() { b"." } else { at };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(top, at, flags, Mode::empty())?;
    rustix::fs::statat(&directory, c".", AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(directory)
}

/// Returns the type of an entry. File systems that do not list it are asked for it. An entry that went away has none.
fn kind(directory: &OwnedFd, name: &CStr, listed: FileType) -> Result<FileType, Error> {
    if listed != FileType::Unknown {
        return Ok(listed);
    }
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(FileType::from_raw_mode(found.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(error) => Err(error.into()),
    }
}

fn join(at: &[u8], name: &[u8]) -> Vec<u8> {
    if at.is_empty() { name.to_owned() } else { [at, name].join(&b'/') }
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &path[..at])
}

fn is_too_long(error: &Error) -> bool {
    error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error())
}

/// Bytes of a path that the launcher can still cover, below the root that it makes.
const MAX_PATH: usize = 3 << 10;

/// The deepest directory on the way to `at` that a call can name. It is covered, or named, with all that is below it.
fn in_reach(workspace: &Path, at: &[u8]) -> Vec<u8> {
    let at = Path::new(std::ffi::OsStr::from_bytes(at));
    let fits = |one: &&Path| workspace.join(one).as_os_str().len() <= MAX_PATH;
    at.ancestors().find(fits).unwrap_or(at).as_os_str().as_bytes().to_vec()
}

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Reports whether the command could reach something in a directory that this process cannot look through: the command is the
/// owner and may set the mode, or it may enter the directory and use names that it knows. Such a directory is covered as a whole.
fn opens_to_command(directory: &Path) -> Result<bool, Error> {
    match directory.symlink_metadata() {
        Ok(found) if found.uid() == rustix::process::geteuid().as_raw() => Ok(true),
        Ok(_) => Ok(directory.join(".").symlink_metadata().is_ok()),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
