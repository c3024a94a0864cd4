//! Gives each refusal of the engine its advice: the flags and commands that a person can use.

use crate::failure::Failure;
use nexus_facility::top::Unfit;
use nexus_runner::plan::direct::DirectError;
use nexus_runner::plan::fit::FitError;
use nexus_runner::plan::hide::HideError;
use nexus_runner::plan::mounts::MountError;
use nexus_runner::plan::protect::ProtectError;
use nexus_runner::plan::workspace::{WorkingDirectoryError, WorkspaceError};
use nexus_runner::state::directory::StateDirError;

impl From<StateDirError> for Failure {
    fn from(error: StateDirError) -> Self {
        let hint = match &error {
            StateDirError::Relative { .. } => "set NEXUS_STATE_DIR to an absolute path",
            StateDirError::WithParent { .. } => "set NEXUS_STATE_DIR to the whole path without ..",
            StateDirError::NoHome | StateDirError::Unusable { .. } => {
                "set NEXUS_STATE_DIR to a folder that you can write"
            }
            StateDirError::OpenToOthers { .. } => "set NEXUS_STATE_DIR to another directory, or chmod 700 it",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let hint = match &error {
            WorkspaceError::Unusable { .. } => "name a folder that you can read and enter with --workspace",
            WorkspaceError::OfSystem { .. } | WorkspaceError::InState { .. } => {
                "name a project folder with --workspace"
            }
            WorkspaceError::Home { .. } => "name a project folder in it with --workspace",
            WorkspaceError::HoldsState { .. } => {
                "set NEXUS_STATE_DIR to a directory outside, or name a smaller workspace"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<WorkingDirectoryError> for Failure {
    fn from(error: WorkingDirectoryError) -> Self {
        Self::refused(error.code(), error.to_string(), "name a folder inside the workspace with --cwd")
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let hint = match &error {
            MountError::Unreadable { .. } => "Mount /proc, or use --direct.".to_owned(),
            MountError::Mounted { first, .. } => {
                format!("Unmount {}, name a smaller workspace with --workspace, or use --direct.", first.display())
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<FitError> for Failure {
    fn from(error: FitError) -> Self {
        let hint = match &error {
            FitError::Unreadable { .. } => "Name a directory that you can read and enter with --workspace.",
            FitError::Unfit { unfit: Unfit::Group { .. }, .. } => {
                "Use --direct, run nexus as root, or join the group (newgrp)."
            }
            FitError::Unfit { unfit: Unfit::GroupInMemory { .. }, .. } => {
                "Leave --disk out, use --direct, or make the group your own first (newgrp)."
            }
            FitError::Unfit { unfit: Unfit::AccessListInMemory { .. }, .. } => {
                "Leave --disk out, use --direct, or run nexus as root."
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<HideError> for Failure {
    fn from(error: HideError) -> Self {
        match &error {
            HideError::Search { .. } => {
                Self::refused(error.code(), error.to_string(), "make it readable, or name the paths more narrowly")
            }
            HideError::Pattern { pattern: Some(pattern), reason } => {
                let hint = "write a pattern such as '*.pem' or 'config/secrets/**'";
                Self::usage(error.code(), format!("--hide {pattern}: {reason}"), hint)
            }
            HideError::Pattern { pattern: None, reason } => {
                Self::usage(error.code(), format!("--hide: {reason}"), "use fewer or simpler patterns")
            }
        }
    }
}

impl From<ProtectError> for Failure {
    fn from(error: ProtectError) -> Self {
        let hint = match &error {
            ProtectError::Layer { .. } => "look at it in the state directory, or throw it away: nexus changes reject",
            ProtectError::Name { .. } => "take the name out of the run's run.json in the state directory",
            ProtectError::Workspace { .. } => "make that readable, or take it out of the configuration that names it",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<DirectError> for Failure {
    fn from(error: DirectError) -> Self {
        let hint = match error {
            DirectError::Protect(inner) => return inner.into(),
            DirectError::Unreadable { .. } => "leave --direct out, or make it readable",
            DirectError::TooMany { .. } => "name a smaller workspace with --workspace, or leave --direct out",
            DirectError::AllProtected { .. } => {
                "leave --direct out: then the changes wait, and nexus changes accept brings those that you name"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
