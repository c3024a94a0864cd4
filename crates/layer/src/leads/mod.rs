//! Finds what trusted things of the host lead to in a workspace: paths that are protected although their names say
//! nothing.
//!
//! * `place`: the workspace's own path, since `hooks/pre-commit` in the workspace `.git` is a hook.
//! * `links`: links at protected names. `fixed` looks those up that are known by name, without a bound.
//! * `git`: the files that git's configurations include or name, of every repository around and in the workspace, and
//!   of the user and the system. `settings` knows which those are, `resolve` where a path leads.
//! * the configuration of Nexus, which a link or a missing directory may lead into the workspace: it grants rights.
//! * `scripts`: what existing hooks, `.envrc` files and configurations start or read by its path. `words` finds the
//!   paths. Hooks that git starts in every repository name a helper in each directory, since a run may make a
//!   repository of any.
//!
//! All of it is looked up when there is something to commit, in the workspace as it is then: the layer is not part of
//! it. The work is bounded. What cannot be read within the bounds of a configuration is an error, and the changes wait.

mod fixed;
mod git;
mod links;
mod place;
mod queue;
mod resolve;
mod scripts;
mod settings;
mod variables;
mod word_lists;
mod words;

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::meta::EntryType;
use crate::names::Pattern;
use crate::protected::Rules;
use resolve::{Top, Way};
use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The directories of a user and the configurations of git that hold in every repository.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Home directories of the users whose programs work in the workspace.
    pub homes: Vec<PathBuf>,
    /// git's configurations of these users and of the system.
    pub git_configurations: Vec<PathBuf>,
    /// Places from which Nexus reads its own configuration and that of package clients, whether there is something or not.
    pub configurations: Vec<PathBuf>,
}

/// Bounds of the search of the workspace for links and repositories, the nearest and the oldest directories first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Directories that are listed.
    pub directories: usize,
    /// Entries that are looked at.
    pub entries: usize,
}

impl Reach {
    /// For a commit.
    pub const COMMIT: Self = Self { directories: 2000, entries: 100_000 };
    /// For a run without a layer, whose protected names are those of the top directory.
    pub const TOP: Self = Self { directories: 64, entries: 4096 };
}

/// Paths that a workspace may have protected this way; no user writes a configuration that names more.
const MAX_PATHS: usize = 4096;

impl Rules {
    /// Adds the protected names of one workspace, which is open and has the real path `at`: those that its own place
    /// makes, and what links and git's configurations lead to. `touched` are directories of the workspace in which a
    /// layer changes something: a repository there is found however far it is from the top. Everything is protected
    /// where a directory that has to be looked into is closed to its owner.
    pub fn for_workspace(
        mut self,
        workspace: &Workspace,
        at: &Path,
        host: &Host,
        reach: Reach,
        touched: &[Vec<u8>],
    ) -> Result<Self, IoFailure> {
        match self.look_up(workspace, at, host, reach, touched) {
            // What it leads to is unknown, so that everything waits.
            Err(failure) if failure.source.kind() == std::io::ErrorKind::PermissionDenied => {
                let place = join(at, &failure.path.0);
                let closed = resolve::closed_on_the_way(&place, at).unwrap_or(place);
                let closed = closed.strip_prefix(at).unwrap_or(&closed).display().to_string();
                let closed = if closed.is_empty() { "the workspace".to_owned() } else { closed };
                self.protected.protect_everything(format!("{closed} is closed to its owner and may name this path"));
            }
            other => other?,
        }
        self.protected.trim_place();
        Ok(self)
    }

    fn look_up(
        &mut self,
        workspace: &Workspace,
        at: &Path,
        host: &Host,
        reach: Reach,
        touched: &[Vec<u8>],
    ) -> Result<(), IoFailure> {
        let above = git::above(at)?;
        self.protected.stand_at(place::names(&above));
        let mut leads = Leads {
            top: Top { workspace, path: at },
            host,
            known: HashSet::new(),
            found: Vec::new(),
            everywhere: Vec::new(),
            everything: None,
            pushes_to_upstream: false,
            hooks: Vec::new(),
            hooks_of_all: Vec::new(),
        };
        let mut repositories = git::around(at, &above)?;
        repositories.extend(git::at(at, at)?);
        let searched = links::search(&mut leads, self, reach)?;
        repositories.extend(searched.repositories.iter().cloned());
        for path in touched.iter().filter(|path| !searched.listed.contains(*path)) {
            repositories.extend(git::at(&join(at, path), at)?);
        }
        fixed::follow_all(&mut leads, self, &repositories, &searched)?;
        links::from_outside(&mut leads, self, &repositories, &searched, reach)?;
        for place in &host.configurations {
            let way = leads.follow(place)?;
            leads.protect(&way, &format!("Nexus reads {} here", place.display()), true)?;
        }
        let begins = git::read(&mut leads, &repositories)?;
        scripts::read(&mut leads, &repositories, &begins, &searched)?;
        let not_listed = touched.iter().filter(|path| !searched.listed.contains(*path));
        scripts::envrcs(&mut leads, searched.envrcs.iter().chain(not_listed))?;
        let Leads { found, everywhere, everything, pushes_to_upstream, .. } = leads;
        self.pushes_to_upstream = pushes_to_upstream;
        self.protected.extend(found.into_iter().chain(everywhere));
        if let Some(why) = everything {
            self.protected.protect_everything(why);
        }
        Ok(())
    }
}

/// Directories of one layer that are looked at.
const MAX_TOUCHED: usize = 1 << 20;

/// Returns the directories of a tree that the workspace has too. Where the tree's own directory is closed, those of the
/// workspace's stand for it.
pub(crate) fn touched(upper: &Workspace, workspace: &Workspace) -> Result<Vec<Vec<u8>>, IoFailure> {
    let mut all = vec![Vec::new()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        let dir = match upper.readable_dir(&path) {
            Err(error) if is_closed(&error) || crate::beneath::is_gone(&error) => match workspace.readable_dir(&path) {
                Err(error) if resolve::leads_nowhere(&error) => continue,
                other => other.doing("open", &path)?,
            },
            other => other.doing("open", &path)?,
        };
        for entry in links::list(&dir, usize::MAX).doing("list", &path)? {
            let inner = crate::beneath::join(&path, &entry.name);
            if entry.kind == EntryType::Directory && workspace.dir(&inner).is_ok() {
                all.push(inner);
            }
        }
        if all.len() > MAX_TOUCHED {
            return Err(std::io::Error::other("too many directories changed")).doing("list", &path);
        }
    }
    Ok(all)
}

/// Collects what is led to.
struct Leads<'a> {
    top: Top<'a>,
    host: &'a Host,
    known: HashSet<Vec<u8>>,
    /// Paths of the workspace.
    found: Vec<Pattern>,
    /// Paths relative to whatever repository is worked in.
    everywhere: Vec<Pattern>,
    /// The reason to protect all of the workspace, if there is one.
    everything: Option<String>,
    /// A configuration has `git push` go to the upstream of a branch, whatever its name.
    pushes_to_upstream: bool,
    /// Directories that `core.hooksPath` names, each with the directory in which git starts their hooks.
    hooks: Vec<(PathBuf, PathBuf)>,
    /// Directories of hooks that git starts in every repository, also in one that a run makes.
    hooks_of_all: Vec<PathBuf>,
}

impl Leads<'_> {
    /// Follows an absolute path.
    fn follow(&self, path: &Path) -> Result<Way, IoFailure> {
        self.top.follow(path).doing("follow", path.as_os_str().as_bytes())
    }

    /// Protects the links on a way and its end, and keeps the directories before a `..` on it from becoming links. With
    /// `around` also a workspace that lies in what it leads to.
    fn protect(&mut self, way: &Way, why: &str, around: bool) -> Result<(), IoFailure> {
        for real in way.links.iter().chain([&way.end]) {
            match self.top.inside(real) {
                Some([]) | None => {}
                Some(path) => self.add(path, why)?,
            }
        }
        for real in &way.turns {
            match self.top.inside(real) {
                Some([]) | None => {}
                // No entry has that name, so that nothing in the directory waits; it alone has to stay a directory.
                Some(path) => self.add(&crate::beneath::join(path, b".."), why)?,
            }
        }
        if around && self.top.path.starts_with(&way.end) {
            self.everything.get_or_insert_with(|| why.to_owned());
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        if self.known.insert(path.to_vec()) {
            self.is_room(path)?;
            self.found.push(Pattern::of_directory(path, why));
        }
        Ok(())
    }

    /// Protects a relative path wherever it is.
    fn add_everywhere(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        self.push_everywhere(Pattern::anywhere(path, why), path)
    }

    /// Protects a relative path that programs start in whatever repository is worked in.
    fn add_of_any_repository(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        self.push_everywhere(Pattern::of_any_repository(path, why), path)
    }

    fn push_everywhere(&mut self, pattern: Pattern, path: &[u8]) -> Result<(), IoFailure> {
        if !self.everywhere.contains(&pattern) {
            self.is_room(path)?;
            self.everywhere.push(pattern);
        }
        Ok(())
    }

    fn is_room(&self, path: &[u8]) -> Result<(), IoFailure> {
        if self.found.len() + self.everywhere.len() < MAX_PATHS {
            return Ok(());
        }
        Err(std::io::Error::other("more paths are named than can be protected")).doing("protect", path)
    }
}

/// Joins bytes to a path.
fn join(at: &Path, rest: &[u8]) -> PathBuf {
    at.join(std::ffi::OsString::from_vec(rest.to_vec()))
}

/// Reports whether `rules` protect a path itself, beyond refusing a link there.
fn is_listed(rules: &Rules, path: &[u8]) -> bool {
    use crate::protected::Class;
    !matches!(rules.class(path), Class::Plain | Class::NoLink)
}

/// The default names, for directories other than the workspace.
fn standard() -> Rules {
    Rules::default()
}
