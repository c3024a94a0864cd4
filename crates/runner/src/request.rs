//! Asks for one run, as plain data: from flags, from a directive, or from a client of an interface.

use crate::net::network::RunNetwork;
use nexus_driver::frames::TerminalSize;
use nexus_model::plan::{Access, ImageRoot};
use nexus_model::{ByteText, Guarantee};
use nexus_policy::profile::{Grants, Origin, ProfileName, Sourced};
use nexus_secrets::Request as SecretRequest;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A host path that is to be shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// The path on the host.
    pub source: PathBuf,
    /// The path inside; without one, the path on the host as it was written.
    pub target: Option<PathBuf>,
    /// The rights of the command.
    pub access: Access,
    /// The flag or file that asked for it.
    pub from: Origin,
}

/// A variable of the command's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableRequest {
    /// Sets a variable.
    Set {
        /// The name of the variable.
        name: ByteText,
        /// The value of the variable.
        value: ByteText,
        /// The flag or file that asked for it.
        from: Origin,
    },
    /// Passes a variable of the caller on, if the caller has it and it does not look like a credential.
    Pass {
        /// The name of the variable.
        name: ByteText,
        /// The flag or file that asked for it.
        from: Origin,
    },
    /// Passes a variable of the caller on that holds a credential.
    PassSecret {
        /// The name of the variable.
        name: ByteText,
        /// The flag or file that asked for it.
        from: Origin,
    },
}

/// A path that toolchains of the host need inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolBind {
    /// The origin of the content.
    pub source: ToolSource,
    /// The path inside.
    pub target: PathBuf,
    /// A description of it for a person.
    pub why: &'static str,
    /// The flag or file that asked for the toolchain.
    pub from: Origin,
}

/// The content of a path that toolchains need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSource {
    /// A path of the host.
    Path(PathBuf),
    /// A file that Nexus makes with this content.
    Made(Vec<u8>),
}

/// All that toolchains of the host need inside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    /// Paths to show.
    pub binds: Vec<ToolBind>,
    /// Directories in front of the usual PATH.
    pub path: Vec<Sourced<PathBuf>>,
    /// Variables to set.
    pub env: BTreeMap<String, Sourced<OsString>>,
    /// Directories that keep their path of outside.
    pub homes: Vec<ToolHome>,
}

/// A directory of a tool that has inside the path that it has outside, and is private there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolHome {
    /// The variable that names it to the tool.
    pub variable: &'static str,
    /// Absolute path, outside and inside.
    pub path: PathBuf,
}

/// The host paths, devices and sockets of a run.
#[derive(Debug, Clone, Default)]
pub struct Shows {
    /// Paths of the caller, before those of profiles.
    pub binds: Vec<BindRequest>,
    /// Character devices that the command may use.
    pub devices: Vec<Sourced<PathBuf>>,
    /// Sockets in the paths that the command may connect to.
    pub sockets: Vec<Sourced<PathBuf>>,
    /// Paths that the operator opened although they are guarded.
    pub opened: Vec<Sourced<String>>,
}

/// The way in which the command writes to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Into a change layer.
    Layer,
    /// Into the workspace itself.
    Direct {
        /// Lets git write to its directories, except for what decides which programs git runs.
        opens_git: bool,
    },
}

/// The wanted outcome of the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeMode {
    /// Into the workspace, when the command has ended.
    Commit,
    /// Nowhere: they are thrown away.
    Discard,
    /// In the layer, until a person accepts them.
    Review,
    /// As the user answers at the end.
    Ask,
}

impl ChangeMode {
    /// Returns its name in flags and receipts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Discard => "discard",
            Self::Review => "review",
            Self::Ask => "ask",
        }
    }
}

/// The streams of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streams {
    /// The size of the command's own terminal; `None` gives pipes to the command.
    pub terminal: Option<TerminalSize>,
    /// Passes standard input on; a command with a terminal always gets it.
    pub input: bool,
}

/// An image in place of the host's system, resolved.
#[derive(Debug, Clone)]
pub struct RunImage {
    /// Its unpacked root and its digest.
    pub root: ImageRoot,
    /// The name that the caller gave it.
    pub reference: String,
    /// The variables that it suggests.
    pub variables: Vec<(String, String)>,
}

/// Asks for one run.
#[derive(Clone)]
pub struct RunRequest {
    /// The command and its arguments.
    pub argv: Vec<ByteText>,
    /// The image in place of the host's system.
    pub image: Option<RunImage>,
    /// The path at which the workspace appears inside; `None` means its path on the host.
    pub mount: Option<PathBuf>,
    /// The working directory, inside the workspace, as a path of the host.
    pub cwd: Option<PathBuf>,
    /// The current directory of the caller, which counts if it is inside the workspace and no working directory is named.
    pub current_directory: Option<PathBuf>,
    /// All that profiles, files and flags grant.
    pub grants: Grants,
    /// The paths, devices and sockets of the host.
    pub shows: Shows,
    /// Variables of the environment, before those of profiles.
    pub variables: Vec<VariableRequest>,
    /// Secrets that the command gets as files.
    pub secrets: Vec<SecretRequest>,
    /// Lets variables pass with a notice that look like credentials.
    pub credentials_only_warn: bool,
    /// Hides what usually holds secrets.
    pub hide_secrets: bool,
    /// All that toolchains need.
    pub tools: Tools,
    /// The way in which the command writes.
    pub writes: WriteMode,
    /// Guarantees without which nothing is run.
    pub required: BTreeSet<Guarantee>,
    /// The network and its policy, if the run has one.
    pub network: Option<RunNetwork>,
    /// The wanted outcome of the changes.
    pub changes: ChangeMode,
    /// Names the files that a commit replaces while programs read them.
    pub names_readers: bool,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// The streams of the command.
    pub streams: Streams,
    /// The documents that said what the run may do.
    pub profiles: Vec<ProfileName>,
}
