//! Finds the workspace of a run and its working directory, and refuses directories that cannot be one.

use crate::host::Host;
use crate::state::directory::StateDir;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of the system or of all users: too much to show, and mounting there would cover what the
/// sandbox provides itself.
const TOO_MUCH: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/lib",
    "/var/tmp",
];

/// The directory that a caller chose to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceChoice {
    /// A path that the caller named.
    Named(PathBuf),
    /// The current directory of the caller, as getcwd(2) returns it: a real path.
    Current(PathBuf),
}

/// A directory cannot be the workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A call failed.
    #[error("the workspace {} cannot be used: {source}", path.display())]
    Unusable {
        /// The path of the directory.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The directory belongs to the system.
    #[error("{} is not a workspace: it belongs to the system", path.display())]
    OfSystem {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The directory is the home of the caller.
    #[error("{} is your home directory: all your keys and settings would be in the sandbox", path.display())]
    Home {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The state directory lies inside.
    #[error("the state directory {} lies inside the workspace {}", state.display(), path.display())]
    HoldsState {
        /// The path of the directory.
        path: PathBuf,
        /// The state directory.
        state: PathBuf,
    },
    /// The directory lies inside the state directory.
    #[error("the workspace {} lies inside the state directory", path.display())]
    InState {
        /// The path of the directory.
        path: PathBuf,
    },
}

impl WorkspaceError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "workspace"
    }
}

/// A directory cannot be the working directory.
#[derive(Debug, thiserror::Error)]
pub enum WorkingDirectoryError {
    /// A call failed.
    #[error("the working directory {} cannot be used: {source}", path.display())]
    Unusable {
        /// The path that was asked for.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The directory lies elsewhere.
    #[error("the working directory {} is not inside the workspace {}", path.display(), workspace.display())]
    Outside {
        /// The real path of the directory.
        path: PathBuf,
        /// The path of the workspace.
        workspace: PathBuf,
    },
    /// The path does not lead to a directory.
    #[error("{} is not a directory", path.display())]
    NotDirectory {
        /// The real path.
        path: PathBuf,
    },
}

impl WorkingDirectoryError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "cwd"
    }
}

/// Finds the real path of the workspace, and checks that the caller can list and enter it.
pub fn find(choice: WorkspaceChoice, host: &Host, places: &StateDir) -> Result<PathBuf, WorkspaceError> {
    let unusable = |path: &Path, source| WorkspaceError::Unusable { path: path.to_owned(), source };
    let path = match choice {
        WorkspaceChoice::Named(asked) => std::fs::canonicalize(&asked).map_err(|error| unusable(&asked, error))?,
        WorkspaceChoice::Current(path) => path,
    };
    check(&path, host, places)?;
    readable(&path).map_err(|error| unusable(&path, error))?;
    Ok(path)
}

/// Refuses directories of the system, the home directory, and what overlaps with the state directory.
pub fn check(path: &Path, host: &Host, places: &StateDir) -> Result<(), WorkspaceError> {
    let path = path.to_owned();
    if TOO_MUCH.iter().any(|directory| path == Path::new(directory)) {
        return Err(WorkspaceError::OfSystem { path });
    }
    let home = host.home.as_ref().and_then(|home| std::fs::canonicalize(home).ok());
    if home.is_some_and(|home| home == path) {
        return Err(WorkspaceError::Home { path });
    }
    if places.state.starts_with(&path) {
        return Err(WorkspaceError::HoldsState { path, state: places.state.clone() });
    }
    if path.starts_with(&places.state) {
        return Err(WorkspaceError::InState { path });
    }
    Ok(())
}

/// Opens a directory as the command will: to list and to enter.
fn readable(path: &Path) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::accessat(CWD, path, Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// Returns the working directory: the named one, as seen from the workspace, otherwise the caller's current directory if that is
/// inside, otherwise the workspace itself. It never widens what can be written (CVE-2025-59532).
pub fn working_directory(
    named: Option<&Path>,
    current: Option<&Path>,
    workspace: &Path,
) -> Result<PathBuf, WorkingDirectoryError> {
    let Some(named) = named else {
        let inside = current.filter(|current| current.starts_with(workspace));
        return Ok(inside.unwrap_or(workspace).to_owned());
    };
    let asked = if named.is_absolute() { named.to_owned() } else { workspace.join(named) };
    let path =
        std::fs::canonicalize(&asked).map_err(|source| WorkingDirectoryError::Unusable { path: asked, source })?;
    if !path.starts_with(workspace) {
        return Err(WorkingDirectoryError::Outside { path, workspace: workspace.to_owned() });
    }
    if !path.is_dir() {
        return Err(WorkingDirectoryError::NotDirectory { path });
    }
    Ok(path)
}

/// Returns the path that a directory of the workspace has inside, where the workspace appears at `target`.
pub fn as_inside(directory: &Path, workspace: &Path, target: &Path) -> PathBuf {
    match directory.strip_prefix(workspace) {
        Ok(rest) if rest.as_os_str().is_empty() => target.to_owned(),
        Ok(rest) => target.join(rest),
        Err(_) => directory.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(state: &str) -> StateDir {
        StateDir::below(state.into())
    }

    fn host() -> Host {
        Host { variables: std::collections::BTreeMap::new(), home: Some("/srv/you".into()), uid: 1000 }
    }

    #[test]
    fn the_system_and_the_state_directory_are_no_workspace_and_a_project_is() {
        let places = places("/var/lib/nexus");
        for bad in ["/", "/usr", "/etc", "/home", "/tmp", "/var/lib", "/var/lib/nexus/x"] {
            assert!(check(Path::new(bad), &host(), &places).is_err(), "{bad}");
        }
        assert!(check(Path::new("/srv/project"), &host(), &places).is_ok());
        assert!(check(Path::new("/tmp/project"), &host(), &places).is_ok());
    }

    #[test]
    fn the_state_directory_may_not_lie_inside() {
        assert!(check(Path::new("/srv/project"), &host(), &places("/srv/project/.state")).is_err());
    }

    #[test]
    fn a_working_directory_follows_the_workspace_to_its_place() {
        let (workspace, target) = (Path::new("/srv/w"), Path::new("/workspace"));
        assert_eq!(as_inside(Path::new("/srv/w"), workspace, target), target);
        assert_eq!(as_inside(Path::new("/srv/w/a/b"), workspace, target), Path::new("/workspace/a/b"));
        assert_eq!(as_inside(Path::new("/srv/w/a"), workspace, workspace), Path::new("/srv/w/a"));
    }

    #[test]
    fn cwd_stays_inside_even_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(workspace.join("sub")).unwrap();
        std::os::unix::fs::symlink("/usr", workspace.join("out")).unwrap();
        let sub = working_directory(Some(Path::new("sub")), None, &workspace).unwrap();
        assert_eq!(sub, workspace.join("sub"));
        for bad in ["..", "out", "/usr", "missing"] {
            assert!(working_directory(Some(Path::new(bad)), None, &workspace).is_err(), "{bad}");
        }
    }
}
