//! Reads `config.toml`. The operator's file always counts for an ordinary user, wherever `NEXUS_CONFIG_DIR` points: a
//! ceiling that the user could set aside would have no effect.

use crate::host::Host;
use crate::library::{MACHINE, directories};
use crate::owned::{ReadOwnedError, read_owned};
use nexus_policy::profile::DocumentError;
use nexus_policy::settings::{Settings, parse};
use std::path::{Path, PathBuf};

/// Settings cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is refused.
    #[error(transparent)]
    File(#[from] ReadOwnedError),
    /// The file cannot be understood.
    #[error("{}:{}: {}", path.display(), error.place, error.message)]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// Place and description of the mistake.
        error: DocumentError,
    },
}

impl SettingsError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(inner) => inner.code(),
            Self::Broken { .. } => "config",
        }
    }
}

/// Reads the settings of this machine and this user.
pub fn load(host: &Host, workspace: Option<&Path>) -> Result<Settings, SettingsError> {
    let one = |directory: &Path| one(host, directory, workspace);
    let mut own: Vec<PathBuf> = directories(host);
    let machine = PathBuf::from(MACHINE);
    let operators = if host.uid == 0 {
        // Root is the operator: the nearest file there is, and no other below it.
        return match own.iter().map(|directory| one(directory)).find(|found| !matches!(found, Ok(None))) {
            Some(found) => found.map(Option::unwrap_or_default),
            None => Ok(Settings::default()),
        };
    } else {
        one(&machine)?.unwrap_or_default()
    };
    own.retain(|directory| *directory != machine);
    own.iter().try_fold(operators, |settings, directory| match one(directory)? {
        None => Ok(settings),
        Some(lower) => {
            let path = directory.join(NAME);
            settings.with_own(lower).map_err(|error| SettingsError::Broken { path, error })
        }
    })
}

const NAME: &str = "config.toml";

fn one(host: &Host, directory: &Path, workspace: Option<&Path>) -> Result<Option<Settings>, SettingsError> {
    let path = directory.join(NAME);
    let Some(text) = read_owned(host, &path, workspace)? else { return Ok(None) };
    match parse(&text, &path.display().to_string()) {
        Ok(settings) => Ok(Some(settings)),
        Err(error) => Err(SettingsError::Broken { path, error }),
    }
}
