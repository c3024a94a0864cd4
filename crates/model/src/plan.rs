//! The validated order that a driver gets.
//!
//! A [`PlanDraft`] is what the command line or the daemon puts together; [`Plan::new`] checks it, and a driver takes
//! only a [`Plan`]. The checks are pure: whether a path exists is for those who touch it.

mod cover;

use crate::bytes::ByteText;
use crate::guarantee::Guarantee;
use crate::ids::RunId;
use crate::limits::Limits;
use crate::network::{INSIDE_PORTS, MAX_HOST_PORTS, Network};
use crate::spec::SandboxProfile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

pub use cover::{Cover, EnteredOnly, FileId, SecondSearch};

/// HOME inside; private, and gone after the run.
pub const HOME: &str = "/home/nexus";
/// User and group id inside.
pub const INNER_ID: u32 = 1000;
/// Longest single argument that Linux executes, with its NUL (MAX_ARG_STRLEN, execve(2)).
pub const MAX_ARG_BYTES: usize = 131_072;
/// Directory inside that holds the files of secrets; it lies in memory and cannot be written.
pub const SECRETS: &str = "/run/secrets";
/// Maximum number of secrets of one sandbox.
pub const MAX_SECRETS: usize = 32;
/// Places that only the sandbox itself fills; neither a bind nor the workspace may lie there or above.
const RESERVED: &[&str] =
    &["/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr/bin", "/usr/lib"];
/// Names in `/dev` that only the sandbox itself fills.
const OWN_DEVICES: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr",
    "core", "console", "mqueue",
];
/// Places that the sandbox fills from the host: a bind may lie there only if it shows what the host has there itself.
const FROM_HOST: &[&str] = &[
    "/usr",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];
/// Directory of the machine's own programs: a bind may show other ones there.
const LOCAL: &str = "/usr/local/";

/// Access of a command to a bound directory or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Look, not touch.
    ReadOnly,
    /// Write straight through to the host.
    ReadWrite,
    /// Use a character device of the host, at its own path below `/dev`.
    Device {
        /// Number of its driver.
        major: u32,
        /// Number that the driver gave it.
        minor: u32,
    },
}

impl Access {
    /// Reports whether it is access to a device.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Self::Device { .. })
    }
}

/// A host path that appears inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Absolute host path.
    pub source: ByteText,
    /// Absolute path inside.
    pub target: ByteText,
    /// Access of the command to it.
    pub access: Access,
}

/// Destination of writes to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writes {
    /// Into a layer on disk: `root` holds `upper` and `work`.
    Layer {
        /// Absolute host path of the layer.
        root: ByteText,
    },
    /// Into a layer in memory of at most so many bytes; a hard disk limit.
    MemoryLayer {
        /// Maximum size of the layer, in bytes.
        bytes: u64,
    },
    /// Straight into the workspace. These paths inside it, relative, stay read-only.
    Direct {
        /// Existing protected names.
        protected: Vec<ByteText>,
    },
}

/// The directory that the command works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceMount {
    /// Absolute host path.
    pub source: ByteText,
    /// Absolute path inside; the same path for `nexus run`.
    pub target: ByteText,
    /// Destination of writes.
    pub writes: Writes,
}

/// Image whose unpacked root takes the place of the host's system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRoot {
    /// Absolute host path of the root, which is never written.
    pub path: ByteText,
    /// Digest of the manifest, as images write it: `sha256:` and hexadecimal digits.
    pub digest: String,
}

/// Everything about one sandbox and its first command, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDraft {
    /// Identifier of the run.
    pub run_id: RunId,
    /// Strength of the isolation.
    pub profile: SandboxProfile,
    /// Image in place of the host's system.
    pub image: Option<ImageRoot>,
    /// Workspace that the command works on.
    pub workspace: WorkspaceMount,
    /// Existing paths in the workspace, relative, that cannot be read inside.
    pub hidden: Vec<ByteText>,
    /// More host paths.
    pub binds: Vec<Bind>,
    /// Absolute paths inside at which a directory of this sandbox alone lies: empty, written by the command, and gone afterwards,
    /// as HOME is. A bind may lie in one.
    pub private: Vec<ByteText>,
    /// Sockets of the host, and what else in binds is covered.
    pub covered: Vec<Cover>,
    /// The binds to be searched again when they are covered; `None` where none was searched.
    pub second_search: Option<SecondSearch>,
    /// The command and its arguments.
    pub argv: Vec<ByteText>,
    /// Working directory inside, the workspace or a directory under it.
    pub cwd: ByteText,
    /// The whole environment.
    pub env: Vec<(ByteText, ByteText)>,
    /// Names of secrets, each a file in [`SECRETS`]. The values are not a part of a plan: they go to the sandbox on their own, in this
    /// order.
    pub secrets: Vec<String>,
    /// Network of the sandbox.
    pub network: Network,
    /// Ports of the host's loopback that are reached at the same port inside (`--allow-host-port`).
    pub host_ports: Vec<u16>,
    /// Resources that the run may use.
    pub limits: Limits,
    /// Guarantees without which the run must not start.
    pub required: BTreeSet<Guarantee>,
    /// Lets processes inside trace each other (`--allow-ptrace`).
    pub allow_ptrace: bool,
    /// A host path that exists and that the sandbox must not see; the launch proves it.
    #[serde(rename = "marker")]
    pub canary: ByteText,
}

impl PlanDraft {
    /// The least that a plan says: a command that starts in its workspace, which is seen at its own path and written at
    /// once, without a network, a variable or a limit but the ones that always hold. The rest is set on the draft.
    #[must_use]
    pub fn direct<W: Into<ByteText>>(workspace: &Path, argv: impl IntoIterator<Item = W>, canary: &Path) -> Self {
        Self {
            run_id: RunId::new(),
            profile: SandboxProfile::Untrusted,
            image: None,
            workspace: WorkspaceMount {
                source: workspace.into(),
                target: workspace.into(),
                writes: Writes::Direct { protected: Vec::new() },
            },
            hidden: Vec::new(),
            binds: Vec::new(),
            private: Vec::new(),
            covered: Vec::new(),
            second_search: None,
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: workspace.into(),
            env: Vec::new(),
            secrets: Vec::new(),
            network: Network::None,
            host_ports: Vec::new(),
            limits: Limits::defaults(1 << 20),
            required: BTreeSet::new(),
            allow_ptrace: false,
            canary: canary.into(),
        }
    }
}

/// A plan that passed [`Plan::new`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PlanDraft", into = "PlanDraft")]
pub struct Plan(PlanDraft);

/// Reason for which a draft cannot become a plan.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The draft has no command.
    #[error("there is no command to run")]
    NoCommand,
    /// A NUL byte in something that becomes a C string.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Part of the plan that is refused.
        what: String,
    },
    /// An argument that no Linux kernel executes.
    #[error(
        "argument {index} has {bytes} bytes; the kernel takes at most {MAX_ARG_BYTES} with its NUL: pass long input by a file or by --stdin"
    )]
    ArgumentTooLong {
        /// Position of the argument or variable, counted from 0.
        index: usize,
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Not an absolute path without `.` and `..`.
    #[error("{what} {path:?} is not an absolute path without . and ..")]
    NotNormal {
        /// Part of the plan that is refused.
        what: String,
        /// Path that is refused.
        path: ByteText,
    },
    /// A place that the sandbox fills itself.
    #[error("{what} {path:?} would cover a part of the system that the sandbox provides itself")]
    Reserved {
        /// Part of the plan that is refused.
        what: String,
        /// Path that is refused.
        path: ByteText,
    },
    /// Two things at one place.
    #[error("two binds have the same place {path:?} inside")]
    Overlap {
        /// Path that is refused.
        path: ByteText,
    },
    /// A bind that hides or opens the workspace.
    #[error("the bind at {path:?} would cover the workspace")]
    CoversWorkspace {
        /// Path that is refused.
        path: ByteText,
    },
    /// A path to cover that no bind shows.
    #[error("the path to cover {path:?} is not below a bind")]
    CoveredOutside {
        /// Path that is refused.
        path: ByteText,
    },
    /// cwd is elsewhere.
    #[error("the working directory {path:?} is not inside the workspace")]
    CwdOutside {
        /// Directory that is refused.
        path: ByteText,
    },
    /// An environment variable's name is empty or has `=`.
    #[error("{name:?} is not a name for an environment variable")]
    EnvName {
        /// Name that is refused.
        name: ByteText,
    },
    /// A name of a secret that cannot be the name of its file, or that two secrets have.
    #[error("{name:?} is not a name for a secret, or two secrets have it")]
    SecretName {
        /// Name that is refused.
        name: String,
    },
    /// More secrets than one sandbox may have.
    #[error("{count} secrets are too many ({MAX_SECRETS} at most)")]
    TooManySecrets {
        /// Number of secrets that were asked for.
        count: usize,
    },
    /// A guarantee that the plan's own network breaks.
    #[error("the guarantee {name} is required, and the plan has a network", name = Guarantee::NetNone.name())]
    Contradiction,
    /// More ports of the host's loopback than one sandbox may reach.
    #[error("{count} ports of this machine's loopback are too many ({MAX_HOST_PORTS} at most)")]
    TooManyHostPorts {
        /// Number of ports that were asked for.
        count: usize,
    },
    /// A port of the host's loopback that cannot be reached.
    #[error("port {port} of this machine's loopback cannot be reached from inside: {why}")]
    HostPort {
        /// Port that is refused.
        port: u16,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// A limit of zero.
    #[error("a limit of zero {what} leaves nothing to run with")]
    ZeroLimit {
        /// Limit that is refused.
        what: &'static str,
    },
}

impl Plan {
    /// Checks a draft.
    pub fn new(draft: PlanDraft) -> Result<Self, PlanError> {
        check_command(&draft)?;
        check_places(&draft)?;
        check_secrets(&draft)?;
        check_limits(&draft.limits)?;
        if draft.network.has_egress() && draft.required.contains(&Guarantee::NetNone) {
            return Err(PlanError::Contradiction);
        }
        check_host_ports(&draft)?;
        Ok(Self(draft))
    }
}

impl std::ops::Deref for Plan {
    type Target = PlanDraft;
    fn deref(&self) -> &PlanDraft {
        &self.0
    }
}

impl TryFrom<PlanDraft> for Plan {
    type Error = PlanError;
    fn try_from(draft: PlanDraft) -> Result<Self, PlanError> {
        Self::new(draft)
    }
}

impl From<Plan> for PlanDraft {
    fn from(plan: Plan) -> Self {
        plan.0
    }
}

fn check_command(draft: &PlanDraft) -> Result<(), PlanError> {
    if draft.argv.first().is_none_or(|command| command.0.is_empty()) {
        return Err(PlanError::NoCommand);
    }
    for (index, argument) in draft.argv.iter().enumerate() {
        no_nul(&format!("argument {index}"), argument)?;
        if argument.0.len() >= MAX_ARG_BYTES {
            return Err(PlanError::ArgumentTooLong { index, bytes: argument.0.len() });
        }
    }
    for (name, value) in &draft.env {
        if name.0.is_empty() || name.0.contains(&b'=') {
            return Err(PlanError::EnvName { name: name.clone() });
        }
        no_nul("an environment variable", name)?;
        no_nul(&format!("the environment variable {}", name.as_os_str().display()), value)?;
    }
    Ok(())
}

fn check_places(draft: &PlanDraft) -> Result<(), PlanError> {
    let workspace = draft.workspace.target.as_path();
    draft.image.as_ref().map_or(Ok(()), |image| normal("the root of the image", &image.path))?;
    normal("the workspace", &draft.workspace.source)?;
    normal("the workspace", &draft.workspace.target)?;
    unreserved("the workspace", &draft.workspace.target)?;
    normal("the working directory", &draft.cwd)?;
    if !draft.cwd.as_path().starts_with(workspace) {
        return Err(PlanError::CwdOutside { path: draft.cwd.clone() });
    }
    let mut places = BTreeSet::new();
    for bind in &draft.binds {
        normal("the bind", &bind.source)?;
        normal("the bind", &bind.target)?;
        if bind.access.is_device() {
            check_device(bind)?;
        } else {
            unreserved("the bind", &bind.target)?;
        }
        if bind.source != bind.target {
            uncovered(&bind.target)?;
        }
        if workspace.starts_with(bind.target.as_path()) {
            return Err(PlanError::CoversWorkspace { path: bind.target.clone() });
        }
        if !places.insert(&bind.target) {
            return Err(PlanError::Overlap { path: bind.target.clone() });
        }
    }
    draft.private.iter().try_for_each(|path| check_private(draft, path))?;
    for Cover { path, .. } in &draft.covered {
        normal("the covered path", path)?;
        let inside = |bind: &Bind| path.as_path().starts_with(bind.target.as_path()) && *path != bind.target;
        if !draft.binds.iter().any(inside) {
            return Err(PlanError::CoveredOutside { path: path.clone() });
        }
    }
    // A bind that is named and not there would not be searched.
    for path in draft.second_search.iter().flat_map(|search| &search.binds) {
        if !draft.binds.iter().any(|bind| bind.target == *path) {
            return Err(PlanError::CoveredOutside { path: path.clone() });
        }
    }
    if let Writes::Direct { protected } = &draft.workspace.writes {
        protected.iter().try_for_each(|name| beneath("the protected name", name))?;
    }
    draft.hidden.iter().try_for_each(|name| beneath("the hidden path", name))
}

/// Refuses names that no file can have, and places that meet the directory of secrets.
fn check_secrets(draft: &PlanDraft) -> Result<(), PlanError> {
    if draft.secrets.is_empty() {
        return Ok(());
    }
    if draft.secrets.len() > MAX_SECRETS {
        return Err(PlanError::TooManySecrets { count: draft.secrets.len() });
    }
    let mut names = BTreeSet::new();
    for name in &draft.secrets {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if name.is_empty() || name.starts_with('.') || !plain || !names.insert(name) {
            return Err(PlanError::SecretName { name: name.clone() });
        }
    }
    let places = draft.binds.iter().map(|bind| &bind.target).chain(&draft.private).chain([&draft.workspace.target]);
    for path in places {
        if path.as_path().starts_with(SECRETS) || Path::new(SECRETS).starts_with(path.as_path()) {
            return Err(PlanError::Reserved { what: "what is shown".to_owned(), path: path.clone() });
        }
    }
    Ok(())
}

/// Refuses a private directory in what the sandbox has of the host: it would be made there, or cover it.
fn check_private(draft: &PlanDraft, path: &ByteText) -> Result<(), PlanError> {
    normal("the private directory", path)?;
    unreserved("the private directory", path)?;
    uncovered(path)?;
    let (place, workspace) = (path.as_path(), draft.workspace.target.as_path());
    // What is directly below the root or in the directory of settings is the same for all sandboxes.
    if place.starts_with("/etc") || place.starts_with("/usr") || place.parent() == Some(Path::new("/")) {
        return Err(PlanError::Reserved { what: "the private directory".to_owned(), path: path.clone() });
    }
    if place.starts_with(workspace) || workspace.starts_with(place) {
        return Err(PlanError::CoversWorkspace { path: path.clone() });
    }
    if draft.binds.iter().any(|bind| place.starts_with(bind.target.as_path())) {
        return Err(PlanError::Overlap { path: path.clone() });
    }
    Ok(())
}

/// Refuses a device at another place than its own, and one that every sandbox has for itself.
fn check_device(bind: &Bind) -> Result<(), PlanError> {
    let own = bind.target.as_path().strip_prefix("/dev").ok().and_then(|path| path.iter().next());
    match own.and_then(std::ffi::OsStr::to_str) {
        Some(first) if bind.source == bind.target && !OWN_DEVICES.contains(&first) => Ok(()),
        _ => Err(PlanError::Reserved { what: "the device".to_owned(), path: bind.target.clone() }),
    }
}

/// A relative path that stays where it starts.
fn beneath(what: &str, path: &ByteText) -> Result<(), PlanError> {
    no_nul(what, path)?;
    let plain = path.as_path().components().all(|part| matches!(part, Component::Normal(_)));
    if path.0.is_empty() || !plain {
        return Err(PlanError::NotNormal { what: what.to_owned(), path: path.clone() });
    }
    Ok(())
}

/// Refuses ports that the sandbox could not serve: its set-up makes a listener for each.
fn check_host_ports(draft: &PlanDraft) -> Result<(), PlanError> {
    let ports = &draft.host_ports;
    if ports.len() > MAX_HOST_PORTS {
        return Err(PlanError::TooManyHostPorts { count: ports.len() });
    }
    for (at, port) in ports.iter().copied().enumerate() {
        let why = match port {
            0 => "0 is not a port",
            port if INSIDE_PORTS.contains(&port) => "Nexus itself listens there inside",
            port if ports[..at].contains(&port) => "the port stands twice",
            _ if !draft.network.has_egress() => "nothing serves it",
            _ => continue,
        };
        return Err(PlanError::HostPort { port, why });
    }
    Ok(())
}

fn check_limits(limits: &Limits) -> Result<(), PlanError> {
    let zero = [
        (limits.memory_bytes == Some(0), "memory"),
        (limits.cpu_millis == Some(0), "cpu"),
        (limits.disk_bytes == Some(0), "disk"),
        (limits.pids == 0, "processes"),
        (limits.scratch_bytes == 0, "scratch space"),
    ];
    match zero.into_iter().find(|(is_zero, _)| *is_zero) {
        Some((_, what)) => Err(PlanError::ZeroLimit { what }),
        None => Ok(()),
    }
}

fn no_nul(what: &str, text: &ByteText) -> Result<(), PlanError> {
    if text.0.contains(&0) {
        return Err(PlanError::Nul { what: what.to_owned() });
    }
    Ok(())
}

fn normal(what: &str, path: &ByteText) -> Result<(), PlanError> {
    no_nul(what, path)?;
    let error = || PlanError::NotNormal { what: what.to_owned(), path: path.clone() };
    let mut parts = path.as_path().components();
    if parts.next() != Some(Component::RootDir) || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(error());
    }
    // `components` is kind to `//` and `/./`; the bytes must already be the one normal spelling.
    let spelled: Vec<u8> = path.as_path().components().collect::<std::path::PathBuf>().as_os_str().as_bytes().to_vec();
    if spelled == path.0 { Ok(()) } else { Err(error()) }
}

fn unreserved(what: &str, path: &ByteText) -> Result<(), PlanError> {
    let place = path.as_path();
    let covers = |reserved: &&str| place.starts_with(reserved) || Path::new(reserved).starts_with(place);
    if RESERVED.iter().any(covers) || place == Path::new("/etc") || place == Path::new("/home") {
        return Err(PlanError::Reserved { what: what.to_owned(), path: path.clone() });
    }
    Ok(())
}

/// Refuses a place at which something else than the host's own would cover the system view.
fn uncovered(path: &ByteText) -> Result<(), PlanError> {
    let place = path.as_path();
    let covers = |system: &&str| place.starts_with(system) || Path::new(system).starts_with(place);
    let is_local = path.0.starts_with(LOCAL.as_bytes());
    if FROM_HOST.iter().any(covers) && !is_local {
        return Err(PlanError::Reserved { what: "the bind".to_owned(), path: path.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
