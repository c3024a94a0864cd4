//! Decides whether this territory runs a directive. What cannot be enforced is refused with a typed reason; nothing is left out.

use nexus_facility::glob::{self, Glob};
use nexus_facility::{FacilityName, KindError, RepoUrl};
use nexus_model::capability::{FsCapability, NetCapability, NetMode, NetPreset};
use nexus_model::spec::{DirectiveSpec, SandboxProfile};
use std::path::{Component, Path, PathBuf};

/// A directive that this territory runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Name of its facility.
    pub facility: FacilityName,
    /// Repository from which an empty facility is cloned.
    pub repo_url: Option<RepoUrl>,
    /// Path at which the workspace appears inside.
    pub mount: PathBuf,
    /// Working directory below the workspace.
    pub cwd: PathBuf,
    /// Time limit in seconds.
    pub timeout_seconds: u64,
    /// Patterns of the files to keep.
    pub keeps: Vec<Glob>,
}

/// Bounds of a territory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The widest network that a directive may have.
    pub max_net: NetMode,
    /// The longest time limit in seconds.
    pub max_timeout_seconds: u64,
}

/// Time limit of a directive that names none, in seconds.
pub const DEFAULT_TIMEOUT: u64 = 300;
/// Longest command, in bytes.
pub const MAX_COMMAND: usize = 128 << 10;

/// A directive is refused: a policy of this territory forbids it, or this version cannot enforce it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The profile is not there.
    #[error("this territory runs directives of the profile untrusted only, and this one asks for {}", profile.name())]
    Profile {
        /// Profile of the directive.
        profile: SandboxProfile,
    },
    /// A host path is asked for.
    #[error("the directive asks for {rule:?}: a territory shows nothing of its host but the facility")]
    HostPath {
        /// Rule as written.
        rule: String,
    },
    /// A rule of the workspace cannot be enforced.
    #[error("the directive asks for {rule:?}: this version gives the whole workspace (workspace:**) or nothing")]
    FsRule {
        /// Rule as written.
        rule: String,
    },
    /// The network is wider than the territory allows.
    #[error("{why}")]
    Net {
        /// Rule that the network breaks.
        why: String,
    },
    /// Secrets need a provider.
    #[error("the directive asks for secrets, which this version does not provide")]
    Secrets,
    /// Images need a container.
    #[error("the directive asks for an image, which the profile untrusted does not have")]
    Image,
    /// A pattern of files to keep cannot be read.
    #[error("artifacts.collect: {why}")]
    Artifacts {
        /// Rule that the pattern breaks.
        why: String,
    },
    /// The facility is not one of a territory.
    #[error(transparent)]
    Facility(#[from] KindError),
    /// A field is out of its range.
    #[error("{field}: {why}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Rule that it breaks.
        why: String,
    },
}

impl Refused {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Profile { .. } => "profile",
            Self::HostPath { .. } => "host_path",
            Self::FsRule { .. } => "fs",
            Self::Net { .. } => "net",
            Self::Secrets => "secrets",
            Self::Image => "image",
            Self::Artifacts { .. } => "artifacts",
            Self::Facility(error) => error.code(),
            Self::Field { .. } => "field",
        }
    }
}

/// Checks a directive against the bounds of the territory.
pub fn admit(spec: &DirectiveSpec, bounds: Bounds) -> Result<Admitted, Refused> {
    if spec.sandbox_profile != SandboxProfile::Untrusted {
        return Err(Refused::Profile { profile: spec.sandbox_profile });
    }
    if spec.runtime.as_ref().is_some_and(|runtime| runtime.image.is_some()) {
        return Err(Refused::Image);
    }
    if !spec.capabilities.secrets.is_empty() {
        return Err(Refused::Secrets);
    }
    let keeps = globs(&spec.artifacts.collect)?;
    files(&spec.capabilities.fs)?;
    network(&spec.capabilities.net, bounds.max_net)?;
    let field = |field, why: &str| Refused::Field { field, why: why.to_owned() };
    if spec.command.is_empty() || spec.command.len() > MAX_COMMAND || spec.command.contains('\0') {
        return Err(field("command", "it is empty, longer than 128 KiB, or holds a NUL byte"));
    }
    if !spec.shell.starts_with('/') || spec.shell.contains('\0') {
        return Err(field("shell", "it is not an absolute path"));
    }
    let mount = mount_point(&spec.facility.mount)
        .ok_or_else(|| field("facility.mount", "it is not a plain path of its own"))?;
    let cwd = below(spec.cwd.as_deref().unwrap_or("."), &mount)
        .ok_or_else(|| field("cwd", "it does not lie below the workspace"))?;
    let wanted = spec.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT);
    if wanted == 0 || wanted > bounds.max_timeout_seconds {
        return Err(Refused::Field {
            field: "timeout_seconds",
            why: format!("it is not in the range from 1 to {}", bounds.max_timeout_seconds),
        });
    }
    // A policy that holds for a shorter time ends the directive: its network must not outlive the permission.
    let ttl = spec.capabilities.net.ttl_seconds.filter(|_| spec.capabilities.net.mode != NetMode::None);
    let timeout_seconds = ttl.map_or(wanted, |ttl| wanted.min(u64::from(ttl)));
    let name = spec.facility.id.to_string();
    let facility = name.parse().map_err(|_| field("facility.id", "it cannot name a directory"))?;
    let repo_url = spec.facility.repo_url.as_deref().map(RepoUrl::parse).transpose()?;
    Ok(Admitted { facility, repo_url, mount, cwd, timeout_seconds, keeps })
}

/// Refuses every rule but the whole workspace, which is what a directive without rules gets.
fn files(fs: &FsCapability) -> Result<(), Refused> {
    let host = fs.writable_roots.iter().chain(&fs.read_only_subpaths);
    if let Some(rule) = fs.read.iter().chain(&fs.write).filter(|rule| rule.starts_with("host:")).chain(host).next() {
        return Err(Refused::HostPath { rule: rule.clone() });
    }
    if let Some(rule) = fs.read.iter().chain(&fs.write).find(|rule| *rule != "workspace:**") {
        return Err(Refused::FsRule { rule: rule.clone() });
    }
    if !fs.read.is_empty() && fs.write.is_empty() {
        return Err(Refused::FsRule { rule: "read without write".to_owned() });
    }
    Ok(())
}

fn network(net: &NetCapability, max: NetMode) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused::Net { why: why.to_owned() });
    if rank(net.mode) > rank(max) {
        let word = |mode| match mode {
            NetMode::None => "none",
            NetMode::Allowlist => "allowlist",
            NetMode::Unrestricted => "unrestricted",
        };
        return refused(&format!(
            "this territory allows at most the network {}, and the directive asks for {}",
            word(max),
            word(net.mode)
        ));
    }
    match (net.preset, net.mode) {
        (Some(NetPreset::Off), _) => return refused("the network preset off is for the profiles trusted and host"),
        (Some(NetPreset::NoExternal), mode) if mode != NetMode::None => {
            return refused("the network preset no_external has no network, and the mode asks for one");
        }
        (Some(NetPreset::Strict), _) => {
            let rules = net.allow.iter().flatten();
            for rule in rules {
                if rule.starts_with("*.") || !rule.ends_with(":443") {
                    return refused(&format!(
                        "the network preset strict allows names on port 443 only, and {rule:?} needs an approval"
                    ));
                }
            }
        }
        _ => {}
    }
    if let Err(error) = net.ask_seconds() {
        return refused(&error.to_string());
    }
    match (&net.allow, net.mode) {
        (None, NetMode::Allowlist) => refused("the network mode allowlist needs a list of destinations"),
        (Some(_), NetMode::None | NetMode::Unrestricted) => {
            refused("a list of destinations needs the network mode allowlist")
        }
        _ => Ok(()),
    }
}

fn rank(mode: NetMode) -> u8 {
    match mode {
        NetMode::None => 0,
        NetMode::Allowlist => 1,
        NetMode::Unrestricted => 2,
    }
}

/// Reads the patterns of the files to keep.
fn globs(patterns: &[String]) -> Result<Vec<Glob>, Refused> {
    if patterns.len() > glob::MAX_PATTERNS {
        return Err(Refused::Artifacts { why: format!("there are more than {} patterns", glob::MAX_PATTERNS) });
    }
    let read = |text: &String| Glob::parse(text).map_err(|error| Refused::Artifacts { why: error.to_string() });
    patterns.iter().map(read).collect()
}

/// Directories of the system, at which no workspace may appear.
const OF_SYSTEM: &[&str] = &[
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp", "usr",
    "var",
];

fn mount_point(mount: &str) -> Option<PathBuf> {
    let path = Path::new(mount);
    let mut parts = path.components();
    let Some(Component::RootDir) = parts.next() else { return None };
    let names: Option<Vec<_>> =
        parts.map(|part| if let Component::Normal(name) = part { name.to_str() } else { None }).collect();
    let names = names?;
    let first = *names.first()?;
    if OF_SYSTEM.contains(&first)
        || names.iter().any(|name| name.contains('\0'))
        || names == ["home", "nexus"]
        || names == ["home"]
    {
        return None;
    }
    Some(path.components().collect())
}

/// Returns a path below the workspace, from one that may name it by the place inside.
fn below(cwd: &str, mount: &Path) -> Option<PathBuf> {
    let path = Path::new(cwd);
    let relative = if path.is_absolute() { path.strip_prefix(mount).ok()? } else { path };
    let mut kept = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) if !name.as_encoded_bytes().contains(&0) => kept.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { max_net: NetMode::Allowlist, max_timeout_seconds: 3600 };

    fn spec(change: serde_json::Value) -> DirectiveSpec {
        let mut whole = serde_json::json!({
            "directive_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "facility": {"id": "01890a5d-ac96-774b-bcce-b302099a8058"},
            "command": "true",
        });
        let (Some(into), serde_json::Value::Object(from)) = (whole.as_object_mut(), change) else { panic!() };
        into.extend(from);
        serde_json::from_value(whole).unwrap()
    }

    fn code(change: serde_json::Value) -> &'static str {
        admit(&spec(change), BOUNDS).unwrap_err().code()
    }

    fn fs(read: &[&str], write: &[&str]) -> serde_json::Value {
        serde_json::json!({"capabilities": {"net": {"mode": "none"}, "fs": {"read": read, "write": write}}})
    }

    fn net(net: &serde_json::Value) -> serde_json::Value {
        serde_json::json!({"capabilities": {"net": net, "fs": {}}})
    }

    #[test]
    fn a_directive_without_rules_gets_the_workspace_and_no_network() {
        let admitted = admit(&spec(serde_json::json!({})), BOUNDS).unwrap();
        assert_eq!(admitted.mount, Path::new("/workspace"));
        assert_eq!((admitted.cwd.as_path(), admitted.timeout_seconds), (Path::new(""), DEFAULT_TIMEOUT));
        admit(&spec(fs(&["workspace:**"], &["workspace:**"])), BOUNDS).unwrap();
    }

    #[test]
    fn what_a_territory_cannot_enforce_is_refused_by_name() {
        for profile in ["trusted", "host", "darwin-automation"] {
            assert_eq!(code(serde_json::json!({"sandbox_profile": profile})), "profile");
        }
        assert_eq!(code(fs(&["host:/etc"], &[])), "host_path");
        assert_eq!(code(fs(&["workspace:/src"], &["workspace:**"])), "fs");
        assert_eq!(code(fs(&["workspace:**"], &[])), "fs");
        let roots = serde_json::json!({"capabilities": {"net": {"mode": "none"}, "fs": {"writable_roots": ["/srv"]}}});
        assert_eq!(code(roots), "host_path");
        let secrets = serde_json::json!({"capabilities": {"net": {"mode": "none"}, "fs": {}, "secrets": ["x"]}});
        assert_eq!(code(secrets), "secrets");
        assert_eq!(code(serde_json::json!({"runtime": {"image": "x"}})), "image");
        for bad in [serde_json::json!(["/etc/*"]), serde_json::json!(["../x"]), serde_json::json!(vec!["a"; 65])] {
            assert_eq!(code(serde_json::json!({"artifacts": {"collect": bad}})), "artifacts");
        }
        admit(&spec(serde_json::json!({"artifacts": {"collect": ["out/", "*.log"]}})), BOUNDS).unwrap();
        let repo = |url: &str| serde_json::json!({"facility": {"id": "01890a5d-ac96-774b-bcce-b302099a8058", "repo_url": url}});
        assert_eq!(code(repo("ext::sh -c id")), "repo_url");
        admit(&spec(repo("https://example.test/a")), BOUNDS).unwrap();
    }

    #[test]
    fn a_network_beyond_the_bounds_or_against_its_preset_is_refused() {
        for bad in [
            serde_json::json!({"mode": "unrestricted"}),
            serde_json::json!({"mode": "allowlist"}),
            serde_json::json!({"mode": "none", "allow": ["example.test:443"]}),
            serde_json::json!({"mode": "allowlist", "allow": ["example.test:443"], "preset": "off"}),
            serde_json::json!({"mode": "allowlist", "allow": ["example.test:443"], "preset": "no_external"}),
            serde_json::json!({"mode": "allowlist", "allow": ["example.test:80"], "preset": "strict"}),
            serde_json::json!({"mode": "allowlist", "allow": ["*.example.test:443"], "preset": "strict"}),
        ] {
            assert_eq!(code(net(&bad)), "net", "{bad}");
        }
        let good = serde_json::json!({"mode": "allowlist", "allow": ["example.test:443"], "preset": "strict", "ttl_seconds": 20});
        assert_eq!(admit(&spec(net(&good)), BOUNDS).unwrap().timeout_seconds, 20, "the permission ends the directive");
    }

    #[test]
    fn a_working_directory_stays_below_the_workspace() {
        let cwd = |cwd: &str| admit(&spec(serde_json::json!({"cwd": cwd})), BOUNDS).map(|admitted| admitted.cwd);
        for (written, kept) in [(".", ""), ("a/b", "a/b"), ("/workspace", ""), ("/workspace/a/./b", "a/b")] {
            assert_eq!(cwd(written).unwrap(), Path::new(kept), "{written}");
        }
        for bad in ["..", "a/../..", "/etc", "/", "/workspacex", "a\0b"] {
            assert!(cwd(bad).is_err(), "{bad:?}");
        }
        let mount = |mount: &str| {
            let facility = serde_json::json!({"id": "01890a5d-ac96-774b-bcce-b302099a8058", "mount": mount});
            admit(&spec(serde_json::json!({"facility": facility})), BOUNDS).is_ok()
        };
        assert!(mount("/workspace") && mount("/srv/project"));
        for bad in ["", "/", "workspace", "/etc", "/usr/x", "/proc/1", "/workspace/..", "/home/nexus", "/home"] {
            assert!(!mount(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_time_limit_has_a_range() {
        for bad in [0, 3601, u64::MAX] {
            assert_eq!(code(serde_json::json!({"timeout_seconds": bad})), "field", "{bad}");
        }
        assert_eq!(code(serde_json::json!({"command": ""})), "field");
        assert_eq!(code(serde_json::json!({"shell": "sh"})), "field");
    }
}
