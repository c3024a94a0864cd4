//! `DirectiveSpec`: one execution as the control plane hands it out. The field names are frozen (Conduits v1).

use crate::capability::Capabilities;
use crate::directive::OnLeaseLoss;
use crate::guarantee::Guarantee;
use crate::ids::{DirectiveId, FacilityId};
use serde::{Deserialize, Serialize};

/// Strength of the isolation around a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxProfile {
    /// Namespaces or a microVM; nothing of the host but the workspace and a read-only system.
    #[default]
    Untrusted,
    /// A container from an image.
    Trusted,
    /// No isolation; every directive needs an approval.
    Host,
    /// Reserved for macOS.
    DarwinAutomation,
}

impl SandboxProfile {
    /// The name on the command line and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Trusted => "trusted",
            Self::Host => "host",
            Self::DarwinAutomation => "darwin-automation",
        }
    }
}

/// The workspace of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FacilityRef {
    /// Identifier of the facility.
    pub id: FacilityId,
    /// Path at which it appears inside.
    #[serde(default = "default_mount", deserialize_with = "read_mount")]
    pub mount: String,
    /// Repository to clone into the facility when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_url: Option<String>,
}

/// Reads a field for which `null` means the default.
fn read_mount<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_else(default_mount))
}

fn default_mount() -> String {
    "/workspace".to_owned()
}

/// Reads a field for which `null` means the default.
fn read_shell<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_else(default_shell))
}

fn default_shell() -> String {
    "/bin/sh".to_owned()
}

/// Limits as they stand in a directive; [`crate::Limits`] is what a driver gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DirectiveLimits {
    /// Processor time, in millicores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Memory, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Disk space, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// Bytes of stdout and stderr together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Bytes of the diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_diff_bytes: Option<u64>,
}

/// Files to keep after the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ArtifactRules {
    /// Globs under the workspace.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub collect: Vec<String>,
    /// Report a diff even when nothing failed.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub always_diff: bool,
}

/// Runtime that a directive asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RuntimeRequest {
    /// Kind of the runtime, for example `namespace` or `oci`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Image that the sandbox starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Platform of the image, for example `linux/amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// Treatment of the changes that the command made to its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum DirectiveChanges {
    /// The changes become part of the facility.
    #[default]
    Commit,
    /// The changes are reported as a diff and then removed.
    Discard,
}

/// Specification of one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveSpec {
    /// Identifier of the directive.
    pub directive_id: DirectiveId,
    /// Facility that serves as its workspace.
    pub facility: FacilityRef,
    /// Strength of the isolation.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub sandbox_profile: SandboxProfile,
    /// A command **string**, run by `shell -c`.
    pub command: String,
    /// Shell that runs the command.
    #[serde(default = "default_shell", deserialize_with = "read_shell")]
    pub shell: String,
    /// Working directory under the workspace.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Seconds until SIGTERM.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Resources that the directive may use.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub limits: DirectiveLimits,
    /// Capabilities that the directive asks for.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub capabilities: Capabilities,
    /// Files to collect when the directive has ended.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub artifacts: ArtifactRules,
    /// Guarantees that the driver must give.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::absent::or_default")]
    pub requirements: Vec<Guarantee>,
    /// Runtime that the directive asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRequest>,
    /// Treatment of a lost territory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lease_loss: Option<OnLeaseLoss>,
    /// Treatment of the changes; absent means commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<DirectiveChanges>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frozen_field_names_are_read_and_unknown_ones_are_ignored() {
        let json = r#"{
            "directive_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "facility": {"id": "01890a5d-ac96-774b-bcce-b302099a8058"},
            "sandbox_profile": "untrusted", "command": "make test", "cwd": "sub", "timeout_seconds": 60,
            "limits": {"cpu": 1500, "memory_mb": 512, "disk_mb": 10, "max_output_bytes": 5, "max_diff_bytes": 6},
            "capabilities": {"net": {"mode": "none"}, "fs": {"read": ["workspace:**"], "write": ["workspace:**"]}},
            "artifacts": {"collect": ["out/*"], "always_diff": true},
            "requirements": ["net.none"], "from_the_future": 1
        }"#;
        let spec: DirectiveSpec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.facility.mount, "/workspace");
        assert_eq!(spec.shell, "/bin/sh");
        assert_eq!(spec.limits.cpu, Some(1500));
        assert_eq!(spec.requirements, [Guarantee::NetNone]);
        let again = serde_json::to_value(&spec).unwrap();
        for field in [
            "directive_id",
            "facility",
            "sandbox_profile",
            "command",
            "shell",
            "cwd",
            "timeout_seconds",
            "limits",
            "capabilities",
            "artifacts",
        ] {
            assert!(again.get(field).is_some(), "{field}");
        }
    }
}
