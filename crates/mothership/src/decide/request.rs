//! The creation of a directive: what a user asks for becomes a specification, or is refused with the rule that forbids it.

use crate::store::types::{Asks, ClassRequirements, NewDirective};
use nexus_api::mothership::{CreateDirective, DEFAULT_TIMEOUT_SECONDS, Role};
use nexus_model::capability::{Capabilities, FsCapability, NetCapability, NetMode, NetPreset};
use nexus_model::guarantee::Guarantee;
use nexus_model::ids::DirectiveId;
use nexus_model::spec::{ArtifactRules, DirectiveLimits, DirectiveSpec, FacilityRef, SandboxProfile};
use nexus_policy::document::{Admission, DirectiveRefusal, Effective, check_directive, lower_limits};
use nexus_policy::net::{PolicyInput, approval_reasons, from_capability};
use nexus_policy::profile::LimitKind;

/// Rule that forbids a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A field is out of its bounds.
    #[error("{field} is not allowed: {why}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Rule that it breaks.
        why: String,
    },
    /// The request needs what this server cannot give yet.
    #[error("{what} is not available on this server")]
    Unavailable {
        /// Part of the request.
        what: &'static str,
    },
    /// A policy document forbids the request.
    #[error(transparent)]
    Policy(#[from] DirectiveRefusal),
    /// A person with more rights has to approve the request.
    #[error("the request needs an approval: {}", reasons.join(", "))]
    NeedsApproval {
        /// Reasons, as the contract names them.
        reasons: Vec<String>,
    },
}

impl Rejection {
    /// The stable code of the rule.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Field { .. } => "invalid_field",
            Self::Unavailable { .. } => "unavailable",
            Self::Policy(refusal) => refusal.code(),
            Self::NeedsApproval { .. } => "approval_required",
        }
    }
}

const MAX_COMMAND: usize = 128 * 1024;
const MAX_TIMEOUT_SECONDS: u64 = 7 * 86_400;
/// Largest diff that a directive may ask for: it has to fit into an answer.
pub const MAX_DIFF_BYTES: u64 = 2 * 1024 * 1024;
/// Output that the server stores for a directive that names no bound.
const DEFAULT_LOG_BYTES: u64 = 64 * 1024 * 1024;
const MAX_LOG_BYTES: u64 = 1024 * 1024 * 1024;
const MAX_PRIORITY: i32 = 1_000;
/// Reason of a directive whose command a policy lets start only with an approval.
const EXEC_REASON: &str = "EXEC_APPROVAL_REQUIRED";
/// Largest number of patterns of files to keep.
const MAX_GLOBS: usize = 64;

fn field(field: &'static str, why: impl Into<String>) -> Rejection {
    Rejection::Field { field, why: why.into() }
}

/// Builds the directive that a user asks for.
pub fn build(
    request: CreateDirective,
    facility: FacilityRef,
    role: Role,
    policies: &Effective,
    approval_ms: i64,
) -> Result<NewDirective, Rejection> {
    if request.command.trim().is_empty() || request.command.len() > MAX_COMMAND || request.command.contains('\0') {
        return Err(field("command", format!("it must have 1 to {MAX_COMMAND} bytes and no NUL")));
    }
    if request.env_allowlist.as_ref().is_some_and(|list| !list.is_empty()) {
        return Err(Rejection::Unavailable { what: "env_allowlist" });
    }
    if request.env_refs.as_ref().is_some_and(|refs| !refs.is_empty()) {
        return Err(Rejection::Unavailable { what: "env_refs" });
    }
    let profile = request.sandbox_profile.unwrap_or_default();
    // A policy lowers the default.
    let max = policies.limits().get(&LimitKind::Timeout).map_or(u64::MAX, |limit| (limit.value / 1000).max(1));
    let timeout = request.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS.min(max));
    if timeout == 0 || timeout > MAX_TIMEOUT_SECONDS {
        return Err(field("timeout_seconds", format!("it must be 1 to {MAX_TIMEOUT_SECONDS}")));
    }
    let priority = request.priority.unwrap_or(0);
    if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Err(field("priority", format!("it must be -{MAX_PRIORITY} to {MAX_PRIORITY}")));
    }
    let limits = limits(request.limits.unwrap_or_default())?;
    let (capabilities, approval_reasons) = capabilities(request.requested_capabilities.unwrap_or_default())?;
    check_profile(profile, &capabilities.fs)?;
    if !approval_reasons.is_empty() && !matches!(role, Role::Operator | Role::Owner) {
        return Err(Rejection::NeedsApproval { reasons: approval_reasons });
    }
    let artifacts = artifacts(request.artifacts.unwrap_or_default())?;
    let demands = request.requirements.unwrap_or_default();
    let mut guarantees = Vec::new();
    for name in &demands.guarantees {
        guarantees.push(name.parse::<Guarantee>().map_err(|error| field("requirements", error.to_string()))?);
    }
    guarantees.sort_unstable();
    guarantees.dedup();
    let mut spec = DirectiveSpec {
        directive_id: DirectiveId::new(),
        facility,
        sandbox_profile: profile,
        command: request.command,
        shell: shell(request.shell)?,
        cwd: request.cwd.map(cwd).transpose()?,
        timeout_seconds: Some(timeout),
        limits,
        capabilities,
        artifacts,
        requirements: guarantees.clone(),
        runtime: None,
        on_lease_loss: request.on_lease_loss,
        changes: request.changes,
    };
    lower_limits(policies, &mut spec);
    let asks = match check_directive(policies, &spec)? {
        Admission::Free => None,
        Admission::NeedsApproval { reasons, quorum } => Some(Asks { reasons, quorum, life_ms: approval_ms }),
    };
    let mut approval_reasons = approval_reasons;
    if asks.is_some() {
        approval_reasons.push(EXEC_REASON.to_owned());
    }
    let log_limit = log_limit(&spec);
    let class = ClassRequirements {
        profile: profile.name().to_owned(),
        guarantees: guarantees.iter().map(|guarantee| guarantee.name().to_owned()).collect(),
        labels: demands.labels,
    };
    Ok(NewDirective {
        spec,
        class,
        policies: None,
        approval_reasons,
        asks,
        group: request.group.map(group).transpose()?,
        priority,
        queue_ms: request.queue_timeout_seconds.map(|seconds| (seconds.min(MAX_TIMEOUT_SECONDS) * 1000) as i64),
        timeout_ms: (timeout * 1000) as i64,
        log_limit,
        idempotency: None,
    })
}

/// Returns the bytes of output of a directive that are stored.
pub fn log_limit(spec: &DirectiveSpec) -> i64 {
    spec.limits.max_output_bytes.unwrap_or(DEFAULT_LOG_BYTES).min(MAX_LOG_BYTES) as i64
}

/// Checks the patterns of files to keep as far as every daemon needs it; a territory reads them.
fn artifacts(rules: ArtifactRules) -> Result<ArtifactRules, Rejection> {
    let plain = |text: &String| {
        (1..=1024).contains(&text.len())
            && !text.starts_with('/')
            && !text.chars().any(char::is_control)
            && text.split('/').all(|part| part != "..")
    };
    if rules.collect.len() > MAX_GLOBS || !rules.collect.iter().all(plain) {
        return Err(field(
            "artifacts.collect",
            format!("it must have at most {MAX_GLOBS} patterns of 1 to 1024 bytes, relative to the workspace"),
        ));
    }
    Ok(rules)
}

fn group(name: String) -> Result<String, Rejection> {
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(field("group", "it must have 1 to 100 bytes and no control characters"));
    }
    Ok(name)
}

fn shell(shell: Option<String>) -> Result<String, Rejection> {
    let shell = shell.unwrap_or_else(|| "/bin/sh".to_owned());
    if !shell.starts_with('/') || shell.len() > 4096 || shell.contains('\0') {
        return Err(field("shell", "it must be an absolute path"));
    }
    Ok(shell)
}

/// A working directory lies under `/workspace`, written absolute or relative to it.
fn cwd(cwd: String) -> Result<String, Rejection> {
    let inside = match cwd.strip_prefix('/') {
        Some(absolute) => absolute.strip_prefix("workspace").filter(|rest| rest.is_empty() || rest.starts_with('/')),
        None => Some(cwd.as_str()),
    };
    let safe = |path: &str| path.len() <= 4096 && !path.contains('\0') && path.split('/').all(|part| part != "..");
    match inside.filter(|path| safe(path)) {
        Some(_) => Ok(cwd),
        None => Err(field("cwd", "it must lie under /workspace and contain no ..")),
    }
}

fn limits(limits: DirectiveLimits) -> Result<DirectiveLimits, Rejection> {
    let zero = limits.cpu == Some(0) || [limits.memory_mb, limits.disk_mb].contains(&Some(0));
    if zero {
        return Err(field("limits", "a limit of cpu, memory_mb or disk_mb must be above 0"));
    }
    if limits.max_diff_bytes.is_some_and(|bytes| bytes > MAX_DIFF_BYTES) {
        return Err(field("limits", format!("max_diff_bytes must be at most {MAX_DIFF_BYTES}")));
    }
    Ok(limits)
}

fn check_profile(profile: SandboxProfile, fs: &FsCapability) -> Result<(), Rejection> {
    let host = |path: &String| path.starts_with("host:");
    let names_host =
        fs.read.iter().chain(&fs.write).any(host) || !fs.writable_roots.is_empty() || !fs.read_only_subpaths.is_empty();
    match profile {
        SandboxProfile::Host => Err(Rejection::Unavailable { what: "the sandbox profile host" }),
        SandboxProfile::DarwinAutomation => {
            Err(Rejection::Unavailable { what: "the sandbox profile darwin-automation" })
        }
        _ if names_host => Err(Rejection::Unavailable { what: "a path of the host in capabilities.fs" }),
        SandboxProfile::Untrusted | SandboxProfile::Trusted => {
            let workspace = |path: &String| {
                path == "workspace:**" || path.strip_prefix("workspace:").is_some_and(|rest| rest.starts_with('/'))
            };
            match fs.read.iter().chain(&fs.write).find(|path| !workspace(path)) {
                None => Ok(()),
                Some(path) => Err(field("capabilities.fs", format!("{path:?} is not workspace:** or workspace:/path"))),
            }
        }
    }
}

#[allow(clippy::default_trait_access, reason = "the form of the request is checked; its time begins on the territory")]
fn capabilities(
    requested: nexus_api::mothership::RequestedCapabilities,
) -> Result<(Capabilities, Vec<String>), Rejection> {
    if !requested.secrets.is_empty() {
        return Err(Rejection::Unavailable { what: "capabilities.secrets" });
    }
    for (name, value) in &requested.env {
        let good = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !good || name.as_bytes().first().is_some_and(u8::is_ascii_digit) || value.contains('\0') {
            return Err(field(
                "capabilities.env",
                format!("{name:?} is not the name of a variable, or its value contains NUL"),
            ));
        }
    }
    let mut net = requested.net.unwrap_or_default();
    let narrower =
        from_capability(&net, Default::default()).map_err(|error| field("capabilities.net", error.to_string()))?;
    preset(&net)?;
    let input = PolicyInput { mode: narrower.mode, allow: narrower.allow, ..PolicyInput::default() };
    let reasons = approval_reasons(net.preset, &input);
    let reasons =
        reasons.iter().filter_map(|reason| serde_json::to_value(reason).ok()?.as_str().map(str::to_owned)).collect();
    // The preset is expanded here; a daemon gets the mode and the list.
    net.preset = None;
    let fs = requested.fs.unwrap_or_else(|| FsCapability {
        read: vec!["workspace:**".to_owned()],
        write: vec!["workspace:**".to_owned()],
        ..FsCapability::default()
    });
    Ok((Capabilities { net, fs, env: requested.env, secrets: Vec::new() }, reasons))
}

fn preset(net: &NetCapability) -> Result<(), Rejection> {
    let fits = match net.preset {
        None | Some(NetPreset::Custom) => true,
        Some(NetPreset::NoExternal) => net.mode == NetMode::None,
        Some(NetPreset::Strict) => net.mode == NetMode::Allowlist,
        Some(NetPreset::Loose) => return Err(Rejection::Unavailable { what: "the preset loose" }),
        Some(NetPreset::Off) => return Err(field("capabilities.net", "the preset off is for trusted and host alone")),
    };
    if fits { Ok(()) } else { Err(field("capabilities.net", "the preset and the mode contradict each other")) }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
