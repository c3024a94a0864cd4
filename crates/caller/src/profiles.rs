//! Describes this process to `nexus-profiles`, and adds advice to the errors of that crate.

use crate::failure::Failure;
use crate::host;
use nexus_profiles::clients::ClientError;
use nexus_profiles::{
    BrokenDocument, GitSetting, Host as ProfileHost, LibraryError, PoliciesError, ReadOwnedError, SettingsError,
    ToolHost, UnreadableGitConfig, WorkspaceFileError, workspace_file,
};
use nexus_runner::state::trust::TrustError;
use std::path::{Path, PathBuf};

/// Takes variables, home and identity from this process.
pub fn caller() -> ProfileHost {
    let nexus_runner::host::Host { variables, home, uid } = host::here();
    ProfileHost { variables, home, uid, git: git_settings }
}

/// Takes the host for a search for tools from this process.
pub fn tool_host(workspace: &Path, network: bool) -> ToolHost {
    ToolHost::of(&caller(), workspace, network)
}

/// Returns the directory in which this caller's own configuration is.
pub fn configuration_directory() -> Option<PathBuf> {
    nexus_profiles::library::own_directory(&caller())
}

/// Reads a configuration file that only its owner can have written; `None` when there is none.
pub fn read_owned(path: &Path, workspace: Option<&Path>) -> Result<Option<String>, Failure> {
    Ok(nexus_profiles::read_owned(&caller(), path, workspace)?)
}

fn git_settings(text: &[u8]) -> Result<Vec<GitSetting>, UnreadableGitConfig> {
    let found = nexus_git::config::parse(text);
    let found = found.map_err(|error| UnreadableGitConfig { why: error.to_string() })?;
    let setting = |one: nexus_git::config::Setting| GitSetting {
        section: one.section,
        subsection: one.subsection,
        name: one.name,
        value: one.value,
    };
    Ok(found.into_iter().map(setting).collect())
}

impl From<ReadOwnedError> for Failure {
    fn from(error: ReadOwnedError) -> Self {
        let hint = match &error {
            ReadOwnedError::Unreadable { .. } => "make it readable, or move it away",
            ReadOwnedError::InWorkspace { .. } => {
                "move the configuration out of the workspace, or set NEXUS_CONFIG_DIR to another directory"
            }
            ReadOwnedError::OpenToOthers { .. } => {
                "chown it to yourself and take the right to write from others: chmod go-w"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        let hint = match &error {
            TrustError::Unusable { .. } => "make room there, or remove it and say nexus trust again".to_owned(),
            TrustError::Unsafe { path, .. } => format!(
                "nothing in it counts as trusted: look at who wrote there, remove {} and say nexus trust again",
                path.display()
            ),
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<BrokenDocument> for Failure {
    fn from(error: BrokenDocument) -> Self {
        // Without a name the check looks at profiles only, and the workspace's file is none.
        let hint = match error.name.as_str() {
            workspace_file::NAME => "fix the line; in the workspace nexus profile check nexus.yaml looks at it",
            _ => "fix the line; nexus profile check looks at all profiles",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<LibraryError> for Failure {
    fn from(error: LibraryError) -> Self {
        let hint = match error {
            LibraryError::File(inner) => return inner.into(),
            LibraryError::Document(inner) => return inner.into(),
            LibraryError::Relative { .. } => "write the whole path in NEXUS_CONFIG_DIR",
            LibraryError::InWorkspace { .. } => {
                "set NEXUS_CONFIG_DIR to a directory outside, or name a smaller workspace"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::File(inner) => inner.into(),
            SettingsError::Broken { .. } => Self::refused(error.code(), error.to_string(), "fix the line"),
        }
    }
}

impl From<PoliciesError> for Failure {
    fn from(error: PoliciesError) -> Self {
        let hint = match error {
            PoliciesError::File(inner) => return inner.into(),
            PoliciesError::Workspace { .. } => "make it a plain file that you can read, or move it away",
            PoliciesError::Broken { .. } | PoliciesError::Set(_) => {
                "fix the document; nexus policy check looks at one before it counts"
            }
            PoliciesError::Misplaced { .. } => "move it to where its level belongs, or take the part out",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<WorkspaceFileError> for Failure {
    fn from(error: WorkspaceFileError) -> Self {
        let hint = match error {
            WorkspaceFileError::Document(inner) => return inner.into(),
            WorkspaceFileError::Unusable { .. } => "make it a plain file that you can read, or move it away",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let hint = "fix the client's settings, or leave the group out and name its hosts with --allow";
        Self::refused(error.code(), error.to_string(), hint)
    }
}
