//! Reading `config.toml`. The operator's always counts for an ordinary user, wherever `NEXUS_CONFIG_DIR` points: a
//! ceiling that the user could set aside would be none.

use super::library::{MACHINE, folders, read_owned};
use crate::failure::Failure;
use nexus_policy::settings::{Settings, parse};
use std::path::{Path, PathBuf};

/// The settings of this machine and this user.
pub fn load(workspace: Option<&Path>) -> Result<Settings, Failure> {
    let by_root = rustix::process::geteuid().is_root();
    let mut own: Vec<PathBuf> = folders();
    let machine = PathBuf::from(MACHINE);
    let operators = if by_root {
        // Root is the operator: the nearest file there is, and no other beneath it.
        return match own.iter().map(|folder| one(folder, workspace)).find(|found| !matches!(found, Ok(None))) {
            Some(found) => found.map(Option::unwrap_or_default),
            None => Ok(Settings::default()),
        };
    } else {
        one(&machine, workspace)?.unwrap_or_default()
    };
    own.retain(|folder| *folder != machine);
    own.iter().try_fold(operators, |settings, folder| match one(folder, workspace)? {
        None => Ok(settings),
        Some(lower) => settings.with_own(lower).map_err(|error| broken(&folder.join("config.toml"), &error)),
    })
}

fn one(folder: &Path, workspace: Option<&Path>) -> Result<Option<Settings>, Failure> {
    let path = folder.join("config.toml");
    let Some(text) = read_owned(&path, workspace)? else { return Ok(None) };
    parse(&text, &path.display().to_string()).map(Some).map_err(|error| broken(&path, &error))
}

fn broken(path: &Path, error: &nexus_policy::profile::DocumentError) -> Failure {
    let message = format!("{}:{}: {}", path.display(), error.place, error.message);
    Failure::refused("config", message, "mend the line")
}
