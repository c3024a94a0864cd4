//! `nexusd.toml`: the settings of a daemon that an operator writes. Pure, but for reading the file.
//!
//! ```text
//!  version = 1
//!  max_concurrent = 4          # directives at one time
//!  heartbeat = "2500ms"        # time between two heartbeats
//!  poll_wait = "20s"           # time that a poll waits at the control plane
//!  [labels]
//!  zone = "a"                  # labels by which directives choose the territory
//!  [bounds]
//!  network = "allowlist"       # none, allowlist or unrestricted: the widest network of a directive
//!  timeout = "24h"             # the longest time limit of a directive
//!  [launcher]
//!  networks = 4                # networks that are made in advance; needs a restart
//! ```
//! A name that is not known is refused: a bound must not be absent because of a misspelt word.

use crate::territory::Settings;
use nexus_api::Labels;
use nexus_api::conduits::MAX_WAIT_SECONDS;
use nexus_model::capability::NetMode;
use nexus_model::units::parse_duration_ms;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the file in the data directory.
pub const FILE: &str = "nexusd.toml";
/// Version of the form.
const FORM: u32 = 1;
/// Longest file, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Networks that are made in advance unless the file says otherwise. None is used a second time.
pub const NETWORKS: u32 = 4;

/// The settings as the file has them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    version: Option<u32>,
    max_concurrent: Option<u32>,
    heartbeat: Option<String>,
    poll_wait: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    bounds: BoundsTable,
    launcher: LauncherTable,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct BoundsTable {
    network: Option<NetMode>,
    timeout: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LauncherTable {
    networks: Option<u32>,
}

/// The file cannot be used. The settings stay as they were.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// Another user can write the file.
    #[error("{} can be written by other users", path.display())]
    OpenToOthers {
        /// The path of the file.
        path: PathBuf,
    },
    /// The text is not one of these settings.
    #[error("{}: {why}", path.display())]
    Text {
        /// The path of the file.
        path: PathBuf,
        /// The rule that it breaks.
        why: String,
    },
}

impl ConfigError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "daemon_config"
    }
}

impl Config {
    /// Reads the file; `None` where there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let file =
            File::options().read(true).custom_flags((rustix::fs::OFlags::NONBLOCK).bits().cast_signed()).open(path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")));
        }
        let own = [0, rustix::process::geteuid().as_raw()];
        if meta.mode() & 0o022 != 0 || !own.contains(&meta.uid()) {
            return Err(ConfigError::OpenToOthers { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        let fault = |why: String| ConfigError::Text { path: path.to_owned(), why };
        if text.len() as u64 > MAX_BYTES {
            return Err(fault(format!("it is larger than {MAX_BYTES} bytes")));
        }
        Self::parse(&text).map(Some).map_err(fault)
    }

    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        match config.version {
            Some(FORM) => {}
            Some(other) => return Err(format!("version {other} is not one that this program reads")),
            None => return Err(format!("it needs the line version = {FORM}")),
        }
        // Each value is looked at here, so that a check finds what a start would refuse.
        config.settings(Settings::here(""))?;
        let networks = config.networks();
        if networks > 64 {
            return Err("launcher.networks is not in the range from 0 to 64".to_owned());
        }
        Ok(config)
    }

    /// Returns the settings, over those of the program.
    pub fn settings(&self, mut settings: Settings) -> Result<Settings, String> {
        let range = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(value)
            } else {
                Err(format!("{name} is not in the range from {low} to {high}"))
            }
        };
        let ms = |name: &str, text: &str| parse_duration_ms(text).map_err(|error| format!("{name}: {error}"));
        if let Some(count) = self.max_concurrent {
            range("max_concurrent", u64::from(count), 1, 1000)?;
            settings.max_concurrent = count;
        }
        if let Some(text) = &self.heartbeat {
            let ms = range("heartbeat (in milliseconds)", ms("heartbeat", text)?, 500, 20_000)?;
            settings.heartbeat = Duration::from_millis(ms);
        }
        if let Some(text) = &self.poll_wait {
            let most = u64::from(MAX_WAIT_SECONDS) * 1000;
            let ms = range("poll_wait (in milliseconds)", ms("poll_wait", text)?, 1000, most)?;
            settings.poll_wait = Duration::from_millis(ms);
        }
        if let Some(labels) = &self.labels {
            if labels.keys().any(String::is_empty) {
                return Err("a label has no name".to_owned());
            }
            settings.labels = Labels(labels.clone());
        }
        if let Some(mode) = self.bounds.network {
            settings.bounds.max_net = mode;
        }
        if let Some(text) = &self.bounds.timeout {
            let ms = range("bounds.timeout (in milliseconds)", ms("bounds.timeout", text)?, 1000, 7 * 86_400_000)?;
            settings.bounds.max_timeout_seconds = ms / 1000;
        }
        Ok(settings)
    }

    /// Returns the number of networks that the launcher makes in advance.
    #[must_use]
    pub fn networks(&self) -> u32 {
        self.launcher.networks.unwrap_or(NETWORKS)
    }

    /// Names the settings that differ from those of a start and hold only after the next one.
    #[must_use]
    pub fn needs_restart(&self, at_start: &Self) -> Vec<&'static str> {
        if self.networks() == at_start.networks() { Vec::new() } else { vec!["launcher.networks"] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_settings_is_read_and_each_bound_holds() {
        let text = "version = 1\nmax_concurrent = 3\nheartbeat = \"1s\"\npoll_wait = \"10s\"\n[labels]\nzone = \"a\"\n\
                    [bounds]\nnetwork = \"none\"\ntimeout = \"1h\"\n[launcher]\nnetworks = 2\n";
        let config = Config::parse(text).unwrap();
        let settings = config.settings(Settings::here("1")).unwrap();
        assert_eq!((settings.max_concurrent, settings.heartbeat.as_millis()), (3, 1000));
        assert_eq!(settings.labels.0["zone"], "a");
        assert_eq!((settings.bounds.max_net, settings.bounds.max_timeout_seconds), (NetMode::None, 3600));
        assert_eq!(config.needs_restart(&Config::default()), ["launcher.networks"]);
        assert!(config.needs_restart(&config).is_empty());
        for bad in [
            "",
            "version = 2",
            "version = 1\nmax_concurent = 3",
            "version = 1\nmax_concurrent = 0",
            "version = 1\nheartbeat = \"1\\n\"",
            "version = 1\nheartbeat = \"100ms\"",
            "version = 1\npoll_wait = \"31s\"",
            "version = 1\n[bounds]\nnetwork = \"open\"",
            "version = 1\n[bounds]\ntimeout = \"0s\"",
            "version = 1\n[launcher]\nnetworks = 65",
            "version = 1\n[labels]\n\"\" = \"x\"",
            "{}",
        ] {
            assert!(Config::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(Config::read(&path).unwrap(), None);
        std::fs::write(&path, "version = 1").unwrap();
        assert!(Config::read(&path).unwrap().is_some());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(Config::read(&path), Err(ConfigError::OpenToOthers { .. })));
    }
}
