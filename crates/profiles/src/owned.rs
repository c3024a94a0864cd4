//! Reads files of configuration that only their owner can have written.
//!
//! A file or directory that another user can write could grant anything in the caller's name, so it is refused, and so
//! is one inside the workspace: the command would write its own permissions (Claude Code CVE-2026-25725 and its
//! family).

use crate::host::Host;
use nexus_policy::profile::MAX_BYTES;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Error of a configuration file that is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadOwnedError {
    /// The file or its directory cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file, or its directory.
        path: PathBuf,
        /// Error of the system, or a description of the mistake.
        reason: String,
    },
    /// The command could write the file.
    #[error("{} lies inside the workspace, where the command could write it", path.display())]
    InWorkspace {
        /// Real path of the file.
        path: PathBuf,
    },
    /// Another user could write the file.
    #[error("{} can be written by others, who could grant anything in your name", path.display())]
    OpenToOthers {
        /// Path of the file or of its directory.
        path: PathBuf,
    },
}

impl ReadOwnedError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "profile",
            Self::InWorkspace { .. } | Self::OpenToOthers { .. } => "config_dir",
        }
    }

    pub(crate) fn unreadable(path: &Path, reason: &impl ToString) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Reads a configuration file that only its owner can have written; `None` when the file does not exist.
pub fn read_owned(host: &Host, path: &Path, workspace: Option<&Path>) -> Result<Option<String>, ReadOwnedError> {
    let unreadable = |error: std::io::Error| ReadOwnedError::unreadable(path, &error);
    // A FIFO would wait for a writer; the kind of file is checked below.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let real = std::fs::canonicalize(path).map_err(unreadable)?;
    if workspace.is_some_and(|workspace| real.starts_with(workspace)) {
        return Err(ReadOwnedError::InWorkspace { path: real });
    }
    let directory = real.parent().unwrap_or(&real);
    let parent = std::fs::metadata(directory).map_err(|error| ReadOwnedError::unreadable(directory, &error))?;
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(ReadOwnedError::unreadable(path, &"it is not a file"));
    }
    for (what, meta) in [(directory, &parent), (real.as_path(), &meta)] {
        if !is_owner(host, meta.uid()) || meta.mode() & 0o022 != 0 {
            return Err(ReadOwnedError::OpenToOthers { path: what.to_owned() });
        }
    }
    let mut text = String::new();
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() > MAX_BYTES {
        // A text that is cut off would say less than its author meant.
        return Err(ReadOwnedError::unreadable(path, &format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

/// Reports whether a user may own the caller's configuration: the caller, root, and for root the user who called sudo.
pub(crate) fn is_owner(host: &Host, uid: u32) -> bool {
    let sudo = || host.variable("SUDO_UID")?.to_str()?.parse::<u32>().ok();
    uid == 0 || uid == host.uid || (host.uid == 0 && sudo() == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;

    #[test]
    fn a_fifo_in_place_of_the_configuration_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = read_owned(&host(), &path, None).unwrap_err();
        assert!(error.to_string().contains("it is not a file"), "{error}");
    }

    #[test]
    fn a_file_that_others_can_write_or_that_lies_in_the_workspace_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let path = root.join("p.yaml");
        std::fs::write(&path, "changes: review\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_owned(&host(), &path, None).unwrap().unwrap(), "changes: review\n");
        assert!(read_owned(&host(), &path, Some(&root)).is_err());
        assert!(read_owned(&host(), &root.join("missing"), None).unwrap().is_none());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read_owned(&host(), &path, None).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read_owned(&host(), &path, None).is_err());
    }
}
