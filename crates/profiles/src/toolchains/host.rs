//! The host as a search for tools sees it: the caller's PATH, home and variables, and the directories of a tool.

use super::places;
pub use super::places::is_system;
use super::reading;
use super::searches::Searches;
use super::walk::{Links, Refused, Walk};
use crate::host::Host;
use rustix::fs::{Access, AtFlags, CWD};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time that all searches for logins have together, where a profile or a flag names the toolchains.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Time that they have where nothing names the toolchains.
const MAX_TIME_OF_AUTO: Duration = Duration::from_secs(5);

/// View of the host for a search for tools.
#[derive(Clone)]
pub struct ToolHost {
    /// The caller's PATH, without relative entries.
    pub path: Vec<PathBuf>,
    /// The caller's home, resolved.
    pub home: Option<PathBuf>,
    /// The workspace, resolved.
    pub workspace: PathBuf,
    /// True if the command has a network. With one, a tool fills a cache of its own; without one, the caller's
    /// downloads are shown read-only.
    pub network: bool,
    /// Environment of the calling process.
    pub caller: Host,
    /// The entries of `path` together with those in which only the program of the command is searched.
    pub whole: Vec<PathBuf>,
    /// Time at which searches for logins end.
    pub(super) until: Instant,
    /// Rules by which paths are followed.
    walk: Walk,
    /// Answers of the host that were read already.
    known: RefCell<Known>,
    /// Searches for logins, of earlier runs too.
    pub(super) searches: Rc<RefCell<Searches>>,
}

/// Answers of the host that were read already: most questions are about the same few directories.
#[derive(Clone, Default)]
struct Known {
    /// Entries of PATH that were followed, and where they lead.
    followed: BTreeMap<PathBuf, Result<PathBuf, Refused>>,
    /// Paths that are not shown, with the sentence that says so.
    left_out: Vec<(PathBuf, String)>,
    /// Names in entries of PATH; `None` where they cannot be listed.
    names: BTreeMap<PathBuf, Option<BTreeSet<OsString>>>,
}

/// Program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Directory of PATH in which the program was found.
    pub entry: PathBuf,
    /// Path by which the program is called.
    pub file: PathBuf,
    /// Path of the program with links resolved.
    pub real: PathBuf,
    /// Directories of PATH in the workspace that also have a program of this name, before this one.
    pub in_workspace: Vec<PathBuf>,
}

impl ToolHost {
    /// Takes PATH and home from the caller.
    pub fn of(caller: &Host, workspace: &Path, network: bool) -> Self {
        let path = caller.variable("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = std::env::split_paths(path).filter(|entry| entry.is_absolute()).collect();
        let home = caller.home.as_ref().and_then(|home| std::fs::canonicalize(home).ok());
        Self {
            whole: path.clone(),
            path,
            until: Instant::now() + MAX_TIME,
            walk: Walk::new(home.clone(), workspace),
            home,
            workspace: workspace.to_owned(),
            network,
            caller: caller.clone(),
            known: RefCell::default(),
            searches: Rc::default(),
        }
    }

    /// Takes the searches of earlier runs.
    #[must_use]
    pub(super) fn with_searches(self, searches: Searches) -> Self {
        Self { searches: Rc::new(RefCell::new(searches)), ..self }
    }

    /// Returns the view for what no file and no flag named: owners and known places of toolchains count, entries of PATH
    /// that other users decide are left out, and so are shims that need the state of their manager. `~/bin` and
    /// `~/.local/bin` are set apart, which hold programs of any kind. Entries in the workspace stay: they lead to nothing
    /// that is shown.
    #[must_use]
    pub fn for_auto(&self) -> Self {
        let until = Instant::now() + MAX_TIME_OF_AUTO;
        let mut strict = Self { path: Vec::new(), whole: Vec::new(), walk: self.walk.strict(), until, ..self.clone() };
        // What was followed without these rules says nothing.
        strict.known.borrow_mut().followed.clear();
        for entry in &self.path {
            if strict.whole.contains(entry) {
                continue;
            }
            let real = if is_system(entry) { None } else { Some(strict.followed(entry)) };
            match &real {
                Some(Err(refused @ (Refused::Open(_) | Refused::Elsewhere(_)))) => {
                    strict.leave_out(entry, refused);
                    continue;
                }
                Some(Ok(real)) if is_shims(real) && !has_versions(real) => continue,
                _ => {}
            }
            strict.whole.push(entry.clone());
            let is_in = |home: &PathBuf| ["bin", ".local/bin"].iter().any(|name| real == Some(Ok(home.join(name))));
            if !self.home.as_ref().is_some_and(is_in) && !is_twin(entry, &self.path) {
                strict.path.push(entry.clone());
            }
        }
        strict
    }

    /// Reports whether this view is that of `auto`.
    pub(super) fn is_auto(&self) -> bool {
        self.walk.is_strict()
    }

    /// Returns the directory that a variable names, if it exists outside the workspace.
    pub fn directory_of(&self, variable: &str) -> Option<PathBuf> {
        let value = self.caller.variable(variable).map(PathBuf::from)?;
        self.directory(&value)
    }

    /// Returns a directory of the home, if it exists.
    pub fn in_home(&self, name: &str) -> Option<PathBuf> {
        self.directory(&self.home.as_ref()?.join(name))
    }

    /// Returns a variable as text, if it is UTF-8.
    pub fn text_of(&self, variable: &str) -> Option<String> {
        self.caller.variable(variable)?.to_str().map(str::to_owned)
    }

    /// Returns the real path of an existing, readable directory that neither lies in the workspace nor is reached
    /// through it.
    pub fn directory(&self, path: &Path) -> Option<PathBuf> {
        let real = self.outside(path, Links::OfManager)?;
        (self.is_directory(&real) && can(&real, Access::READ_OK | Access::EXEC_OK)).then_some(real)
    }

    /// Reports whether a real path is that of a directory.
    pub(super) fn is_directory(&self, real: &Path) -> bool {
        self.walk.kind(real).is_some_and(|kind| kind.is_dir())
    }

    fn is_file(&self, real: &Path) -> bool {
        self.walk.kind(real).is_some_and(|kind| kind.is_file())
    }

    /// Reports whether a file or directory can be read, is not a link, and lies where no one else decides.
    pub(super) fn part(&self, path: &Path) -> bool {
        let is_there = path.symlink_metadata().is_ok_and(|meta| meta.is_dir() || meta.is_file());
        is_there && self.outside(path, Links::OfManager).is_some_and(|real| real == path) && can(path, Access::READ_OK)
    }

    /// Returns the real path of an existing, readable file, under the same condition.
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        self.file_with(path, Links::Known)
    }

    /// Returns the real path of a file in a directory.
    pub(super) fn file_in(&self, directory: &Path, name: &str) -> Option<PathBuf> {
        self.file(&directory.join(name))
    }

    /// Returns the real path of a file of settings, of which only a list of harmless keys is shown. Many keep such
    /// files in a directory of their own and link to them.
    pub(crate) fn settings(&self, path: &Path) -> Option<PathBuf> {
        self.file_with(path, Links::Anywhere)
    }

    /// Returns the real path of a directory with such files.
    pub(crate) fn settings_directory(&self, path: &Path) -> Option<PathBuf> {
        let real = self.outside(path, Links::Anywhere)?;
        (self.is_directory(&real) && can(&real, Access::READ_OK | Access::EXEC_OK)).then_some(real)
    }

    /// Returns the installation that an entry of PATH belongs to, if the system or a manager in the home made it. That of a
    /// project, such as a virtual environment, is none: earlier runs write there.
    pub(crate) fn installation(&self, entry: &Path) -> Option<PathBuf> {
        let real = self.followed(entry).ok()?;
        let installation = real.parent()?;
        let is_of_manager = || places::is_tool_alone(installation, self.home.as_deref());
        let of_system = places::installation_of_system(&real);
        of_system.map(Path::to_owned).or_else(|| is_of_manager().then(|| installation.to_owned()))
    }

    /// Returns the real path of a file of an installation, if it still lies in one and only its owner decides what is in it.
    pub(crate) fn of_installation(&self, path: &Path) -> Option<PathBuf> {
        let real = self.outside(path, Links::Anywhere)?;
        let is_trusted =
            if is_system(&real) { is_of_administrator(&real) } else { places::is_target(&real, self.home.as_deref()) };
        is_trusted.then_some(real)
    }

    fn file_with(&self, path: &Path, links: Links) -> Option<PathBuf> {
        let real = self.outside(path, links)?;
        (self.is_file(&real) && can(&real, Access::READ_OK)).then_some(real)
    }

    /// Returns the real path, unless the workspace, or with `auto` an earlier run or another user, decides where it leads.
    fn outside(&self, path: &Path, links: Links) -> Option<PathBuf> {
        match self.walk.resolve(&self.caller, path, links) {
            Ok(real) => Some(real),
            Err(Refused::Elsewhere(real)) if matches!(links, Links::Known) && self.is_of_active(&real) => Some(real),
            Err(refused) => {
                self.leave_out(path, &refused);
                None
            }
        }
    }

    /// Reports whether a path lies in the environment of conda that the caller's own variable names: the base of a virtual
    /// environment may lie there.
    fn is_of_active(&self, real: &Path) -> bool {
        let active = self.directory_of("CONDA_PREFIX");
        active.is_some_and(|active| real.starts_with(&active) && places::is_tool(&active, self.home.as_deref()))
    }

    /// Reports whether a directory is the workspace or holds it or the home.
    pub(super) fn holds_own(&self, directory: &Path) -> bool {
        self.home.as_deref().is_some_and(|home| home.starts_with(directory)) || self.holds_workspace(directory)
    }

    /// Reports whether a directory is the workspace or holds it, also at a second mount of it.
    pub(super) fn holds_workspace(&self, directory: &Path) -> bool {
        self.walk.holds_workspace(directory)
    }

    /// Records why a path is not shown.
    fn leave_out(&self, path: &Path, refused: &Refused) {
        let (of, text) = match refused {
            Refused::Missing | Refused::InWorkspace => return,
            Refused::Open(at) => {
                let text = format!("{}: other users can change {}, so it is not shown", path.display(), at.display());
                (path, text)
            }
            Refused::Elsewhere(real) => (
                real.as_path(),
                format!(
                    "{} leads to {}, which is not a known place of toolchains, so it is not shown. Show it with \
                     --ro {1}:{0}",
                    path.display(),
                    real.display()
                ),
            ),
        };
        self.note(of, text);
    }

    /// Records a sentence about a path that is not shown.
    pub(super) fn note(&self, of: &Path, text: String) {
        let mut known = self.known.borrow_mut();
        if self.is_auto() && !known.left_out.iter().any(|(_, other)| *other == text) {
            known.left_out.push((of.to_owned(), text));
        }
    }

    /// Takes what was recorded about paths that are not shown.
    pub(crate) fn left_out(&self) -> Vec<(PathBuf, String)> {
        std::mem::take(&mut self.known.borrow_mut().left_out)
    }

    /// Returns the first program on PATH with one of these names that does not come from the workspace.
    pub fn find(&self, names: &[&str]) -> Option<Tool> {
        self.find_in(&self.path, names)
    }

    /// Returns the first program in these directories.
    pub fn find_in(&self, entries: &[PathBuf], names: &[&str]) -> Option<Tool> {
        let mut in_workspace: Vec<PathBuf> = Vec::new();
        for (entry, name) in entries.iter().flat_map(|entry| names.iter().map(move |name| (entry, *name))) {
            if !self.may_have(entry, name) {
                continue;
            }
            let file = entry.join(name);
            let followed = if is_system(entry) { Ok(entry.clone()) } else { self.followed(entry) };
            if followed == Err(Refused::InWorkspace) {
                if can(&file, Access::EXEC_OK) && !in_workspace.contains(entry) {
                    in_workspace.push(entry.clone());
                }
                continue;
            }
            if followed.is_err() || !can(&file, Access::EXEC_OK) {
                continue;
            }
            let real = self.outside(&file, Links::Known).filter(|real| self.is_file(real));
            if let Some(real) = real.filter(|real| self.is_usable(&file, real)) {
                return Some(Tool { entry: entry.clone(), file, real, in_workspace });
            }
        }
        None
    }

    /// Reports whether a program runs where it is shown. With `auto` one that does not leaves its place to the next entry of
    /// PATH.
    fn is_usable(&self, file: &Path, real: &Path) -> bool {
        if !self.is_auto() || is_system(real) {
            return true;
        }
        if let Some(store) = places::store_of(real) {
            let text = format!(
                "{} needs all of {1}, which is not shown. Show it with --ro {1}",
                file.display(),
                store.display()
            );
            self.note(store, text);
            return false;
        }
        // No entry of PATH can name such a directory.
        let is_plain = !real.as_os_str().as_encoded_bytes().iter().any(|byte| *byte == b':' || byte.is_ascii_control());
        if !is_plain {
            self.note(real, format!("{} has a character that PATH cannot hold, so it is not shown", real.display()));
        }
        is_plain
    }

    /// Returns where an entry of PATH leads, if it neither lies in the workspace nor is reached through it.
    fn followed(&self, entry: &Path) -> Result<PathBuf, Refused> {
        if let Some(known) = self.known.borrow().followed.get(entry) {
            return known.clone();
        }
        let real = self.walk.resolve(&self.caller, entry, Links::Known);
        self.known.borrow_mut().followed.insert(entry.to_owned(), real.clone());
        real
    }

    /// Reports whether an entry of PATH may have a program of this name. The directories of the system have thousands of
    /// names, so that each is asked for there.
    fn may_have(&self, entry: &Path, name: &str) -> bool {
        if is_system(entry) {
            return true;
        }
        let mut known = self.known.borrow_mut();
        let names = known.names.entry(entry.to_owned()).or_insert_with(|| match reading::names(entry) {
            Ok(names) => Some(names.into_iter().collect()),
            // There is nothing in a directory that does not exist; one may be searched that cannot be listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(BTreeSet::new()),
            Err(_) => None,
        });
        names.as_ref().is_none_or(|names| names.contains(OsStr::new(name)))
    }
}

/// Reports whether a directory of the system has no toolchains that another entry of PATH lacks: `/bin` is the same as
/// `/usr/bin` on most systems, and those of root's programs have none.
fn is_twin(entry: &Path, path: &[PathBuf]) -> bool {
    let has = |other: &str| path.iter().any(|known| known == Path::new(other));
    (entry == Path::new("/bin") || is_system(entry) && entry.ends_with("sbin")) && has("/usr/bin")
}

/// Reports whether root owns a file and all directories above it, and no one else writes to them.
fn is_of_administrator(real: &Path) -> bool {
    let is_fixed = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o022 == 0);
    real.ancestors().all(is_fixed)
}

/// Reports whether the caller has this access to a path.
pub fn can(path: &Path, access: Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Reports whether an entry of PATH holds the shims of a version manager.
pub(super) fn is_shims(entry: &Path) -> bool {
    entry.ends_with("shims")
}

/// Reports whether the manager of a directory of shims keeps its versions as pyenv does. Others need their own state.
fn has_versions(shims: &Path) -> bool {
    shims.parent().is_some_and(|root| root.join("versions").is_dir())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Prepared host: a home with tools and a workspace in it.
    pub struct Scene {
        /// Guard that deletes the temporary directory.
        _dir: tempfile::TempDir,
        /// View of the prepared host for a search.
        pub host: ToolHost,
    }

    impl Scene {
        /// Creates an empty home and an empty workspace.
        pub fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = std::fs::canonicalize(dir.path()).unwrap();
            let (home, workspace) = (root.join("home"), root.join("home/code/ws"));
            std::fs::create_dir_all(&workspace).unwrap();
            let caller = Host { home: Some(home), ..crate::host::tests::host() };
            let host = ToolHost::of(&caller, &workspace, false);
            Self { _dir: dir, host }
        }

        /// Returns the home directory.
        pub fn home(&self) -> PathBuf {
            self.host.home.clone().unwrap()
        }

        /// Writes a file of the home and returns its path.
        pub fn file(&self, name: &str, content: &str) -> PathBuf {
            let path = self.home().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        /// Puts a directory of the home on the PATH.
        pub fn on_path(&mut self, name: &str) {
            let directory = self.home().join(name);
            self.host.path.push(directory);
        }
    }

    #[test]
    fn what_lies_in_the_workspace_leads_nowhere() {
        let mut scene = Scene::new();
        let secret = scene.file("private/bin/python3", "");
        let venv = scene.home().join("code/ws/.venv/bin");
        std::fs::create_dir_all(&venv).unwrap();
        symlink(&secret, venv.join("python3")).unwrap();
        // A link outside that leads through the workspace is the workspace's word as well.
        std::fs::create_dir_all(scene.home().join("links")).unwrap();
        symlink(venv.join("python3"), scene.home().join("links/python3")).unwrap();
        scene.on_path("code/ws/.venv/bin");
        scene.on_path("links");
        assert_eq!(scene.host.find(&["python3"]), None);
        // So does a directory of the workspace that became a link.
        symlink(scene.home().join("private"), scene.home().join("code/ws/env")).unwrap();
        scene.on_path("code/ws/env/bin");
        assert_eq!(scene.host.find(&["python3"]), None);
        scene.on_path("private/bin");
        let found = scene.host.find(&["python3"]).unwrap();
        assert_eq!((found.real, found.in_workspace), (secret, vec![venv, scene.home().join("code/ws/env/bin")]));
    }
}
