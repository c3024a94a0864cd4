//! Which folder may be a workspace.

use crate::failure::Failure;
use crate::host;
use nexus_runner::state::directory::StateDir;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that belong to the system or to everybody: too much to show, and mounting there would cover what the
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

/// Finds the workspace: the folder that was named, or the current one.
pub fn find(named: Option<&Path>, places: &StateDir) -> Result<PathBuf, Failure> {
    let path = match named {
        Some(asked) => std::fs::canonicalize(asked).map_err(|error| unusable(asked, &error))?,
        // The kernel tells a real path (getcwd(2)).
        None => std::env::current_dir().map_err(|error| {
            Failure::refused(
                "workspace",
                format!("the current folder cannot be used: {error}"),
                "name one with --workspace",
            )
        })?,
    };
    check(&path, places)?;
    readable(&path).map_err(|error| unusable(&path, &error))?;
    Ok(path)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("the workspace {} cannot be used: {error}", path.display());
    Failure::refused("workspace", message, "name a folder that you can read and enter with --workspace")
}

/// Refuses what belongs to the system, the home folder, and what overlaps with the state directory.
pub fn check(path: &Path, places: &StateDir) -> Result<(), Failure> {
    let refuse = |message: String, hint: &str| Err(Failure::refused("workspace", message, hint));
    let name = path.display();
    if TOO_MUCH.iter().any(|folder| path == Path::new(folder)) {
        return refuse(
            format!("{name} is no workspace: it belongs to the system"),
            "name a project folder with --workspace",
        );
    }
    if host::home().and_then(|home| std::fs::canonicalize(home).ok()).is_some_and(|home| home == *path) {
        let message = format!("{name} is your home folder: all your keys and settings would be in the sandbox");
        return refuse(message, "name a project folder in it with --workspace");
    }
    if places.state.starts_with(path) {
        let message = format!("the state directory {} lies inside the workspace {name}", places.state.display());
        return refuse(message, "set NEXUS_STATE_DIR to a directory outside, or name a smaller workspace");
    }
    if path.starts_with(&places.state) {
        let message = format!("the workspace {name} lies inside the state directory");
        return refuse(message, "name a project folder with --workspace");
    }
    Ok(())
}

/// Opens it as the command will: to list and to enter.
fn readable(path: &Path) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::accessat(CWD, path, Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// The working directory: `--cwd` from inside the workspace, else where the caller stands if that is inside, else the
/// workspace itself. It never widens what can be written (CVE-2025-59532).
pub fn working_directory(named: Option<&Path>, workspace: &Path) -> Result<PathBuf, Failure> {
    let Some(named) = named else {
        let here = std::env::current_dir().ok();
        return Ok(here.filter(|here| here.starts_with(workspace)).unwrap_or_else(|| workspace.to_owned()));
    };
    let asked = if named.is_absolute() { named.to_owned() } else { workspace.join(named) };
    let hint = "name a folder inside the workspace with --cwd";
    let cwd = std::fs::canonicalize(&asked).map_err(|error| {
        Failure::refused("cwd", format!("the working directory {} cannot be used: {error}", asked.display()), hint)
    })?;
    if !cwd.starts_with(workspace) {
        let message =
            format!("the working directory {} is not inside the workspace {}", cwd.display(), workspace.display());
        return Err(Failure::refused("cwd", message, hint));
    }
    if !cwd.is_dir() {
        return Err(Failure::refused("cwd", format!("{} is not a folder", cwd.display()), hint));
    }
    Ok(cwd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(state: &str) -> StateDir {
        StateDir::below(state.into())
    }

    #[test]
    fn the_system_and_the_state_directory_are_no_workspace_and_a_project_is() {
        let places = places("/var/lib/nexus");
        for bad in ["/", "/usr", "/etc", "/home", "/tmp", "/var/lib", "/var/lib/nexus/x"] {
            assert!(check(Path::new(bad), &places).is_err(), "{bad}");
        }
        assert!(check(Path::new("/srv/project"), &places).is_ok());
        assert!(check(Path::new("/tmp/project"), &places).is_ok());
    }

    #[test]
    fn the_state_directory_may_not_lie_inside() {
        assert!(check(Path::new("/srv/project"), &places("/srv/project/.state")).is_err());
    }

    #[test]
    fn cwd_stays_inside_even_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(workspace.join("sub")).unwrap();
        std::os::unix::fs::symlink("/usr", workspace.join("out")).unwrap();
        let sub = working_directory(Some(Path::new("sub")), &workspace).unwrap();
        assert_eq!(sub, workspace.join("sub"));
        for bad in ["..", "out", "/usr", "missing"] {
            assert!(working_directory(Some(Path::new(bad)), &workspace).is_err(), "{bad}");
        }
    }
}
