//! The host as a search for tools sees it: the caller's PATH, home and variables, and the directories of a tool.

use super::access;
use crate::host::Host;
use rustix::fs::{Access, AtFlags, CWD};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

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
    /// Answers of the host that were read already.
    known: RefCell<Known>,
}

/// Answers of the host that were read already: most questions are about the same few directories.
#[derive(Clone, Default)]
struct Known {
    /// Entries of PATH that were followed, and where they lead if that is outside the workspace.
    followed: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Directories that are not links.
    real: BTreeSet<PathBuf>,
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
        Self {
            whole: path.clone(),
            path,
            home: caller.home.as_ref().and_then(|home| std::fs::canonicalize(home).ok()),
            workspace: workspace.to_owned(),
            network,
            caller: caller.clone(),
            known: RefCell::default(),
        }
    }

    /// Returns the view for what no file and no flag named: without the entries of PATH that other users can write to, and with
    /// `~/bin` and `~/.local/bin` set apart, which hold programs of any kind. Entries in the workspace stay: they lead
    /// to nothing that is shown.
    #[must_use]
    pub fn for_auto(&self) -> Self {
        let mut strict = Self { path: Vec::new(), whole: Vec::new(), ..self.clone() };
        for entry in &self.path {
            if strict.whole.contains(entry) {
                continue;
            }
            let real = if is_system(entry) { None } else { self.followed(entry) };
            if real.as_ref().is_some_and(|real| access::is_open_to_others(&self.caller, real)) {
                continue;
            }
            strict.whole.push(entry.clone());
            let is_in = |home: &PathBuf| ["bin", ".local/bin"].iter().any(|name| real == Some(home.join(name)));
            if !self.home.as_ref().is_some_and(is_in) && !is_twin(entry, &self.path) {
                strict.path.push(entry.clone());
            }
        }
        strict.known.clone_from(&self.known);
        strict
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
        let real = self.outside(path)?;
        (real.is_dir() && can(&real, Access::READ_OK | Access::EXEC_OK)).then_some(real)
    }

    /// Returns the real path of an existing, readable file, under the same condition.
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        let real = self.outside(path)?;
        (real.is_file() && can(&real, Access::READ_OK)).then_some(real)
    }

    /// Returns the real path, unless the workspace can decide where it leads. Every step is checked: a check of the
    /// ends alone would accept a directory of the workspace that is now a link (`.venv` → a directory of the home).
    fn outside(&self, path: &Path) -> Option<PathBuf> {
        let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
        let mut rest = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next()? {
                Component::ParentDir => {
                    at.pop();
                }
                Component::RootDir => at = PathBuf::from("/"),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = at.join(name);
                    if next.starts_with(&self.workspace) {
                        return None;
                    }
                    if self.known.borrow().real.contains(&next) {
                        at = next;
                        continue;
                    }
                    match std::fs::read_link(&next) {
                        Ok(link) if links < 40 => {
                            links += 1;
                            rest.extend(parts(&link));
                        }
                        // It is there and no link. If something lies below it, it is a directory.
                        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                            if !rest.is_empty() {
                                self.known.borrow_mut().real.insert(next.clone());
                            }
                            at = next;
                        }
                        Ok(_) | Err(_) => return None,
                    }
                }
            }
        }
        Some(at)
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
            if !is_system(entry) && self.followed(entry).is_none() {
                if can(&file, Access::EXEC_OK) && !in_workspace.contains(entry) {
                    in_workspace.push(entry.clone());
                }
                continue;
            }
            if !can(&file, Access::EXEC_OK) || !file.is_file() {
                continue;
            }
            if let Some(real) = self.outside(&file) {
                return Some(Tool { entry: entry.clone(), file, real, in_workspace });
            }
        }
        None
    }

    /// Returns where an entry of PATH leads, if it neither lies in the workspace nor is reached through it.
    fn followed(&self, entry: &Path) -> Option<PathBuf> {
        if let Some(known) = self.known.borrow().followed.get(entry) {
            return known.clone();
        }
        let real = self.outside(entry);
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
        let names = known.names.entry(entry.to_owned()).or_insert_with(|| match std::fs::read_dir(entry) {
            Ok(entries) => Some(entries.flatten().map(|entry| entry.file_name()).collect()),
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

/// Reports whether the caller has this access to a path.
pub fn can(path: &Path, access: Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Reports whether a path lies in a directory that every sandbox shows.
pub fn is_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"].iter().any(|system| path.starts_with(system))
}

/// Directories of a home that hold more than one tool, or keys.
const SHARED: &[&str] =
    &["", ".local", ".local/share", ".local/lib", ".config", ".cache", "bin", ".bin", "opt", "src", "projects", "work"];

/// Returns the directory of a program `DIRECTORY/bin/NAME`, if it is plainly the tool's own: not a home, nothing above
/// a home, not a directory shared by many tools, and none that holds the workspace.
pub fn prefix(real: &Path, host: &ToolHost) -> Option<PathBuf> {
    let bin = real.parent()?;
    let directory = if bin.file_name().is_some_and(|name| name == "bin") { bin.parent()? } else { bin };
    let depth = directory.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let home = host.home.as_deref();
    let holds = |other: &Path| other.starts_with(directory);
    let shared = home.is_some_and(|home| holds(home) || SHARED.iter().any(|name| directory == home.join(name)));
    // Another user's home is refused too.
    let other_home = directory.parent() == Some(Path::new("/home"));
    let keys =
        [".ssh", ".gnupg", ".netrc", ".config"].iter().any(|name| directory.join(name).symlink_metadata().is_ok());
    // `~/dev/bin/node` says nothing about `~/dev`; `~/miniconda3` and `~/.volta` are a tool's for sure.
    let hidden = directory.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let shared = shared || (directory.parent() == home && !hidden && !is_marked(directory));
    let allowed = depth >= 2 && !shared && !other_home && !keys && !holds(&host.workspace) && !is_system(directory);
    (allowed && can(directory, Access::READ_OK | Access::EXEC_OK)).then(|| directory.to_owned())
}

/// Reports whether a directory is laid out as the installation of a language.
pub(super) fn is_marked(directory: &Path) -> bool {
    const MARKS: &[&str] = &["conda-meta", "pyvenv.cfg", "lib/node_modules", "lib/rustlib", "lib/modules", "pkg/tool"];
    let python = || {
        let mut names = std::fs::read_dir(directory.join("lib")).into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python"))
    };
    MARKS.iter().any(|mark| directory.join(mark).exists()) || python()
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

    #[test]
    fn only_a_folder_of_the_tools_own_is_shown_whole() {
        let scene = Scene::new();
        let prefix_of = |name: &str| prefix(&scene.file(name, ""), &scene.host);
        assert_eq!(prefix_of(".nvm/versions/node/v22/bin/node"), Some(scene.home().join(".nvm/versions/node/v22")));
        for shared in ["bin/node", ".local/bin/node", "node", "code/bin/node", "opt/bin/go"] {
            assert_eq!(prefix_of(shared), None, "{shared}");
        }
        assert_eq!(prefix_of("dev/bin/node"), None, "nothing says that this directory is Node's");
        scene.file("node22/lib/node_modules/npm/x", "");
        assert_eq!(prefix_of("node22/bin/node"), Some(scene.home().join("node22")));
        scene.file("odd/.ssh/id", "");
        assert_eq!(prefix_of("odd/bin/node"), None);
        assert_eq!(prefix(Path::new("/usr/bin/node"), &scene.host), None);
        assert_eq!(prefix(Path::new("/opt/bin/node"), &scene.host), None);
    }
}
