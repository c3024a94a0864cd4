//! Adds advice to each refusal of the engine: the flags and commands that the user can use.

pub mod go_on;
pub mod launch;
pub mod receipts;
mod review;
mod run;
mod sessions;

use crate::failure::Failure;
use crate::used_up;
use nexus_egress::StartError;
use nexus_layer::disk::top_directory::Unfit;
use nexus_model::plan::PlanError;
use nexus_runner::live::full_output::FullOutputError;
use nexus_runner::live::ports::PublishError;
use nexus_runner::net::record::CreateError;
use nexus_runner::net::rules::RulesError;
use nexus_runner::net::service::ServeError;
use nexus_runner::plan::binds::{BindError, NoHome};
use nexus_runner::plan::devices::{DeviceError, DeviceRefusal};
use nexus_runner::plan::direct::DirectError;
use nexus_runner::plan::environment::{EnvironmentError, PassedCredential};
use nexus_runner::plan::fit::FitError;
use nexus_runner::plan::hide::HideError;
use nexus_runner::plan::mounts::MountError;
use nexus_runner::plan::protect::ProtectError;
use nexus_runner::plan::resolve::ResolveError;
use nexus_runner::plan::site::SiteError;
use nexus_runner::plan::sockets::{SocketError, SocketRefusal};
use nexus_runner::plan::workspace::{WorkingDirectoryError, WorkspaceError};
use nexus_runner::review::take_back::TakeBackError;
use nexus_runner::state::approvals::ApprovalError;
use nexus_runner::state::directory::StateDirError;
use nexus_runner::state::generated::WriteError;
use std::io::ErrorKind;

/// The variable of the caller that makes a credential a warning instead of a refusal, for one version.
pub const CREDENTIALS: &str = "NEXUS_ENV_SECRET";

const OPERATOR: &str =
    "The operator can open it by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml.";

impl From<StateDirError> for Failure {
    fn from(error: StateDirError) -> Self {
        let hint = match &error {
            StateDirError::Relative { .. } => "set NEXUS_STATE_DIR to an absolute path",
            StateDirError::WithParent { .. } => "set NEXUS_STATE_DIR to the whole path without ..",
            StateDirError::NoHome => "set HOME, or NEXUS_STATE_DIR to a directory that you can write",
            StateDirError::Unusable { .. } => "set NEXUS_STATE_DIR to a directory that you can write",
            StateDirError::OpenToOthers { .. } => "set NEXUS_STATE_DIR to another directory, or chmod 700 it",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let hint = match &error {
            WorkspaceError::Unusable { .. } => "name a directory that you can read and enter with --workspace",
            WorkspaceError::OfSystem { .. } | WorkspaceError::InState { .. } => {
                "name a project directory with --workspace"
            }
            WorkspaceError::Home { .. } => "name a project directory in it with --workspace",
            WorkspaceError::HoldsState { .. } => {
                "set NEXUS_STATE_DIR to a directory outside, or name a smaller workspace"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<WorkingDirectoryError> for Failure {
    fn from(error: WorkingDirectoryError) -> Self {
        Self::refused(error.code(), error.to_string(), "name a directory inside the workspace with --cwd")
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
            // At its own place the workspace has it anyway.
            HideError::Shown { path, at, .. } if at.starts_with(path) => {
                let hint = "leave the bind out: the workspace shows this directory without it, hides the file, and takes what the \
                            command writes there as changes. Or bind a directory in it that does not have the file";
                Self::refused(error.code(), error.to_string(), hint)
            }
            HideError::Shown { .. } => {
                let hint = "bind a directory that does not have it, move it out of there, or leave one of the two out";
                Self::refused(error.code(), error.to_string(), hint)
            }
            HideError::Under { .. } => {
                Self::refused(error.code(), error.to_string(), "leave one of the two out, or show it at another place")
            }
            HideError::Restless => {
                let hint = "nothing was run: wait until the other program or run has done its work, and run it again";
                Self::refused(error.code(), error.to_string(), hint)
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
            ProtectError::Runs { .. } => "nothing was changed",
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
            DirectError::Configuration { .. } => "make the directory first, or leave --direct out",
            DirectError::AllProtected { .. } => {
                "leave --direct out: then the changes wait, and nexus changes accept brings those that you name"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<SiteError> for Failure {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::State(inner) => inner.into(),
            SiteError::Workspace(inner) => inner.into(),
            SiteError::Unopened { .. } | SiteError::Unidentified { .. } => {
                let hint = "name a directory that you can read and enter with --workspace";
                Self::refused(error.code(), error.to_string(), hint)
            }
        }
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::WorkingDirectory(inner) => inner.into(),
            ResolveError::Direct(inner) => inner.into(),
            ResolveError::Mount(inner) => inner.into(),
            ResolveError::Fit(inner) => inner.into(),
            ResolveError::Pattern { .. } => {
                let hint = "write a pattern such as \"*.pem\" or \"config/secrets/**\"";
                Self::refused(error.code(), error.to_string(), hint)
            }
            ResolveError::Hide(inner) => inner.into(),
            ResolveError::Environment(inner) => inner.into(),
            ResolveError::Bind(inner) => inner.into(),
            ResolveError::Socket(inner) => inner.into(),
            ResolveError::Made(inner) => inner.into(),
            ResolveError::Cache(_) => {
                let hint = "Leave --cache out, or remove the directory caches in the state directory.";
                Self::refused(error.code(), error.to_string(), hint)
            }
            ResolveError::Plan(inner) => inner.into(),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let hint = match &error.why {
            DeviceRefusal::Unreadable { .. } => "Name a device that exists.".to_owned(),
            DeviceRefusal::Linked { real } => format!("Name the device itself: {} {}.", error.from, real.display()),
            DeviceRefusal::Elsewhere => "Name a device below /dev.".to_owned(),
            DeviceRefusal::Never { .. } => "Leave it out; no setting opens it.".to_owned(),
            DeviceRefusal::Unknown => OPERATOR.to_owned(),
            DeviceRefusal::Closed => {
                "As root, commands run as a user of their own: chmod o+rw the device. As a user, join the group of the \
                 device."
                    .to_owned()
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<NoHome> for Failure {
    fn from(error: NoHome) -> Self {
        Self::refused("bind", error.to_string(), "write the whole path, or set HOME")
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        let hint = match error {
            BindError::Device(inner) => return inner.into(),
            BindError::NoHome(inner) => return inner.into(),
            BindError::Unreachable { .. } => "bind a path that exists and that you can reach",
            BindError::OfState { .. } | BindError::OfConfiguration { .. } => "bind a smaller directory",
            BindError::OfPrograms { .. } => {
                "show it with --ro, bind a smaller directory that does not hold it, or keep downloads with --cache. The operator can open it by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml"
            }
            BindError::HoldsWorkspace { .. } => {
                "bind a smaller directory, or use --direct to write the workspace without a layer"
            }
            BindError::Guarded { .. } => {
                "Name a smaller directory. The operator can open this one by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml."
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let by_names = "Show the files in it that the command needs, by their names.".to_owned();
        let hint = match &error {
            SocketError::Socket { path, .. } => {
                format!("Add --allow-socket {} if the command may connect to it.", path.display())
            }
            SocketError::Pipe { .. } => "Show it with --rw if the command may do that.".to_owned(),
            SocketError::TooMuch { .. } | SocketError::TooSpread { .. } => {
                "Show the directories in it that the command needs, by their names.".to_owned()
            }
            SocketError::Closed { .. } => by_names,
            SocketError::Mounts(_) => "Mount /proc.".to_owned(),
            SocketError::InClosed { path, .. } => {
                format!("Show it at another place: --ro {}:/srv/NAME.", path.display())
            }
            SocketError::NotAllowed { why, .. } => match why {
                SocketRefusal::Missing => "Name a socket that exists.".to_owned(),
                SocketRefusal::NotSocket => "Name a socket in a directory that --ro or --rw shows.".to_owned(),
                SocketRefusal::Known => OPERATOR.to_owned(),
                SocketRefusal::NotShown => "Show it, or its directory, with --ro.".to_owned(),
            },
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

/// Returns the advice about a credential that would be passed on.
pub fn credential(passed: &PassedCredential) -> String {
    let name = passed.name.as_os_str().display();
    format!(
        "Write --env-secret {name} if the command may have it, or leave it out; with {CREDENTIALS}=warn this version only warns."
    )
}

impl From<PassedCredential> for Failure {
    fn from(error: PassedCredential) -> Self {
        let hint = credential(&error);
        Self::usage(error.code(), error.to_string(), hint)
    }
}

impl From<EnvironmentError> for Failure {
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::Credential(inner) => inner.into(),
            EnvironmentError::NoHome(inner) => inner.into(),
            EnvironmentError::ColonInPath { .. } => {
                Self::refused(error.code(), error.to_string(), "name it by another path")
            }
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let hint = "make room there, or set NEXUS_STATE_DIR to another directory";
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let hint = match &error {
            PlanError::NoCommand => "write it after --, for example: nexus run -- make test",
            PlanError::Nul { .. } => "take it out",
            PlanError::NotNormal { .. } => "write the whole path without . and ..",
            PlanError::Reserved { .. } | PlanError::CoversWorkspace { .. } => "bind it somewhere else with SRC:DST",
            PlanError::Overlap { .. } => "give each bind its own place with SRC:DST",
            PlanError::CoveredOutside { .. } => "this should not happen; run nexus doctor",
            PlanError::CwdOutside { .. } => "name a directory inside the workspace with --cwd",
            PlanError::EnvName { .. } => "write --env NAME=VALUE",
            PlanError::Contradiction => "use --net none, or --require net.destination_checked",
            PlanError::ZeroLimit { .. } => "leave the limit out, or make it larger",
            PlanError::TooManyHostPorts { .. } | PlanError::HostPort { .. } => {
                "name other ports with --allow-host-port"
            }
            PlanError::SecretName { .. } => "give each secret a name of its own, of letters, digits, '.', '_' and '-'",
            PlanError::TooManySecrets { .. } => "put several values into one file",
            PlanError::ArgumentTooLong { .. } => "",
        };
        match &error {
            PlanError::NoCommand
            | PlanError::EnvName { .. }
            | PlanError::Contradiction
            | PlanError::ZeroLimit { .. }
            | PlanError::TooManyHostPorts { .. }
            | PlanError::HostPort { .. }
            | PlanError::SecretName { .. }
            | PlanError::TooManySecrets { .. }
            | PlanError::ArgumentTooLong { .. } => Self::usage("plan", error.to_string(), hint),
            _ => Self::refused("plan", error.to_string(), hint),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match &error {
            PublishError::OpenedToSandbox { port } => {
                let message = format!(
                    "--publish takes port {port} of this machine, and --allow-host-port {port} would lead back into the sandbox"
                );
                Self::usage(error.code(), message, "publish another port of this machine")
            }
            PublishError::Untaken { inside, source, .. } => {
                let hint = match source.kind() {
                    ErrorKind::AddrInUse => format!("another program has it; --publish 0:{inside} picks one"),
                    _ => format!("--publish 0:{inside} picks another one"),
                };
                Self::refused(error.code(), error.to_string(), hint)
            }
        }
    }
}

impl From<FullOutputError> for Failure {
    fn from(error: FullOutputError) -> Self {
        Self::refused(error.code(), error.to_string(), "name a file that you can write, outside of the workspace")
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let hint = "make room there, or set NEXUS_STATE_DIR to another directory";
        Self::refused(error.code(), error.to_string(), hint)
    }
}

/// Returns the group that a name was meant to be: one with these letters behind its colon, else the closest.
fn meant_group<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let same = known.iter().find(|group| group.split_once(':').is_some_and(|(_, short)| short == name));
    same.copied().or_else(|| nexus_policy::profile::closest(name, known.iter().copied()))
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        let hint = match &error {
            RulesError::Rule { .. } => {
                "write HOST, HOST:PORT or *.HOST:PORT, with /tcp behind the port for a host without TLS, each with @/PATH for one program alone; --allow-private takes addresses too".to_owned()
            }
            RulesError::Group { known, name, .. } => {
                let known: Vec<&str> = known.iter().map(String::as_str).chain(nexus_profiles::clients::GROUPS).collect();
                let meant = meant_group(name, &known).map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
                format!("{meant}Known are {}", known.join(", "))
            }
            RulesError::HostPort { .. } => "write one port".to_owned(),
            RulesError::Range { .. } => "write the range as NETWORK/BITS in config.toml".to_owned(),
            RulesError::Bypass { .. } => "write NAME, .NAME or ADDRESS/BITS in config.toml".to_owned(),
            RulesError::Upstream { .. } => "fix the line in config.toml".to_owned(),
            RulesError::Contradiction(_) => "use --net allowlist, or leave the rule out".to_owned(),
        };
        match &error {
            // Wrong use where the user typed it, a refusal where a file says it.
            RulesError::Rule { from, .. } | RulesError::Group { from, .. } if !from.is_flag() => {
                Self::refused(error.code(), error.to_string(), hint)
            }
            RulesError::Range { .. } | RulesError::Bypass { .. } | RulesError::Upstream { .. } => {
                Self::refused(error.code(), error.to_string(), hint)
            }
            _ => Self::usage(error.code(), error.to_string(), hint),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let hint = match &error {
            ServeError::Twice => "nothing more was run",
            ServeError::Egress { source: StartError::Thread { source } } => {
                used_up::advice_for_thread(source).unwrap_or("nothing was run")
            }
            ServeError::Questions { .. } | ServeError::Egress { .. } => "nothing was run",
            ServeError::Programs { .. } => "load its modules inet_diag and tcp_diag, or leave @/PATH out of the rules",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<TakeBackError> for Failure {
    fn from(error: TakeBackError) -> Self {
        let hint = match &error {
            TakeBackError::Failed { run, .. } => format!(
                "nothing was removed; nexus changes recover --run {run} tries again, and --set-aside keeps what it displaced \
                 and leaves the directory as it is"
            ),
            TakeBackError::Away { kept, .. } => format!(
                "put the directory back and try again, or add --set-aside, which moves the layer to {} and leaves the \
                 directory as it is",
                kept.display()
            ),
            TakeBackError::Applied { .. } => "nexus changes list shows what waits".to_owned(),
            TakeBackError::Signals { .. } => "nothing was changed".to_owned(),
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<ApprovalError> for Failure {
    fn from(error: ApprovalError) -> Self {
        let hint = match &error {
            ApprovalError::Unknown { .. } => "nexus approvals ls lists them",
            ApprovalError::Refused(_) => "nexus approvals show has its state",
            ApprovalError::TooMany => "Deny those that are not needed.",
            ApprovalError::Busy => "Try it again.",
            _ => "Look at the directory approvals in the state directory.",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
