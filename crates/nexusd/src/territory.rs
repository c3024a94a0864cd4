//! The data directory of a territory, and its settings.
//!
//! ```text
//!  DATA_DIR/
//!    identity.json   which territory this is, and where its control plane is
//!    daemon.lock     held by the daemon while it lives
//!    state/          NEXUS_STATE_DIR of its runs: records, layers, receipts, keys
//!    facilities/     workspaces
//!    claims/         notes about claims that were not acknowledged as ended
//!    trial/          an empty directory for trial sandboxes
//! ```

use crate::decide::admit::Bounds;
use nexus_api::Labels;
use nexus_model::capability::NetMode;
use nexus_model::ids::TerritoryId;
use nexus_runner::host::Host;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of a daemon.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directives at one time.
    pub max_concurrent: u32,
    /// Time between two heartbeats, unless the control plane wants a shorter one.
    pub heartbeat: Duration,
    /// Time that a poll waits at the control plane.
    pub poll_wait: Duration,
    /// Time without progress after which the end of a directive is reported before its last output.
    pub output_within: Duration,
    /// Time between two tries to finish commits that could not be finished at the start.
    pub finish_every: Duration,
    /// Labels by which directives choose the territory.
    pub labels: Labels,
    /// Bounds of directives.
    pub bounds: Bounds,
    /// Version of this program.
    pub version: String,
}

impl Settings {
    /// Returns the defaults for this machine.
    #[must_use]
    pub fn here(version: &str) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            max_concurrent: u32::try_from(processors).unwrap_or(u32::MAX).max(2),
            heartbeat: Duration::from_millis(2500),
            poll_wait: Duration::from_secs(20),
            output_within: Duration::from_secs(30),
            finish_every: Duration::from_secs(60),
            labels: Labels::default(),
            bounds: Bounds { max_net: NetMode::Allowlist, max_timeout_seconds: 24 * 3600 },
            version: version.to_owned(),
        }
    }
}

/// The identity of a territory, as its control plane gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of the form.
    pub version: u32,
    /// Id of the territory.
    pub territory_id: TerritoryId,
    /// Address of the control plane.
    pub server: String,
    /// Name of the file with the certificate, the private key and the authority's certificates, in the data directory; `None`
    /// where a header identifies the territory, which is for loopback only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// Version of [`Identity`].
pub const IDENTITY_FORM: u32 = 1;

const IDENTITY: &str = "identity.json";
const LOCK: &str = "daemon.lock";

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TerritoryError {
    /// Another daemon works in it.
    #[error("another daemon works in {}", path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
    },
    /// Another user can write to it, or owns it.
    #[error("{} is not a directory that only its owner can write", path.display())]
    OpenToOthers {
        /// The directory that is refused.
        path: PathBuf,
    },
    /// The identity cannot be read.
    #[error("the identity in {} cannot be used: {why}", path.display())]
    Identity {
        /// The path of the file.
        path: PathBuf,
        /// The fault of the identity.
        why: String,
    },
    /// A call failed.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// The path of the call.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
}

impl TerritoryError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "in_use",
            Self::OpenToOthers { .. } | Self::Io { .. } => "data_dir",
            Self::Identity { .. } => "identity",
        }
    }
}

/// The data directory of one territory, which one daemon holds.
#[derive(Debug)]
pub struct Territory {
    path: PathBuf,
    _lock: File,
}

impl Territory {
    /// Opens the data directory, makes its missing parts, and takes its lock.
    pub fn open(path: &Path) -> Result<Self, TerritoryError> {
        let failed = |path: &Path, source| TerritoryError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed(path, error))?;
        let path = std::fs::canonicalize(path).map_err(|error| failed(path, error))?;
        for directory in [path.clone(), path.join("state"), path.join("trial")] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(|error| failed(&directory, error))?;
            let meta = std::fs::symlink_metadata(&directory).map_err(|error| failed(&directory, error))?;
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
                return Err(TerritoryError::OpenToOthers { path: directory });
            }
        }
        let lock = path.join(LOCK);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed())
            .open(&lock)
            .map_err(|error| failed(&lock, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(TerritoryError::InUse { path }),
            Err(error) => Err(failed(&lock, error.into())),
        }
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what a run sees of this process: the state directory of the territory, and nothing of the daemon's environment.
    #[must_use]
    pub fn host(&self) -> Host {
        let state = self.path.join("state");
        let variables = BTreeMap::from([("NEXUS_STATE_DIR".into(), state.into())]);
        Host { variables, home: None, uid: rustix::process::geteuid().as_raw() }
    }

    /// Reads the identity; `None` before the territory has joined a control plane.
    pub fn identity(&self) -> Result<Option<Identity>, TerritoryError> {
        read_identity(&self.path)
    }

    /// Writes the identity, whole and synced.
    pub fn set_identity(&self, identity: &Identity) -> Result<(), TerritoryError> {
        let path = self.path.join(IDENTITY);
        let hidden = self.path.join(".new-identity");
        let written = (|| {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
            file.write_all(&serde_json::to_vec(identity)?)?;
            file.sync_all()?;
            std::fs::rename(&hidden, &path)?;
            File::open(&self.path)?.sync_all()
        })();
        written.map_err(|source| TerritoryError::Io { path, source })
    }
}

/// Reads the identity of a territory whose data directory another process may hold.
pub fn read_identity(data_dir: &Path) -> Result<Option<Identity>, TerritoryError> {
    let path = data_dir.join(IDENTITY);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TerritoryError::Io { path, source }),
        Ok(text) => text,
    };
    let fault = |why: String| TerritoryError::Identity { path: path.clone(), why };
    let identity: Identity = serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))?;
    if identity.version > IDENTITY_FORM {
        return Err(fault(format!("it was written by a newer version of Nexus (form {})", identity.version)));
    }
    Ok(Some(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_at_a_time_works_in_a_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = Territory::open(&path).unwrap();
        assert_eq!(Territory::open(&path).unwrap_err().code(), "in_use");
        assert!(first.identity().unwrap().is_none());
        let identity = Identity {
            version: IDENTITY_FORM,
            territory_id: TerritoryId::new(),
            server: "http://127.0.0.1:1".to_owned(),
            certificate: None,
        };
        first.set_identity(&identity).unwrap();
        drop(first);
        let again = Territory::open(&path).unwrap();
        assert_eq!(again.identity().unwrap(), Some(identity.clone()));
        let newer = serde_json::to_vec(&Identity { version: 2, ..identity }).unwrap();
        std::fs::write(path.join(IDENTITY), newer).unwrap();
        assert_eq!(again.identity().unwrap_err().code(), "identity");
    }

    #[test]
    fn a_run_of_a_directive_sees_nothing_of_the_daemons_environment() {
        let dir = tempfile::tempdir().unwrap();
        let host = Territory::open(&dir.path().join("data")).unwrap().host();
        assert_eq!(host.variables.len(), 1);
        assert!(host.home.is_none());
    }
}
