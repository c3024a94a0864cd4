//! Turns a request into a run of which every path was looked at.

use crate::host::Host;
use crate::net::network::RunNetwork;
use crate::plan::binds::{self, BindError, Place};
use crate::plan::direct::{Direct, DirectError};
use crate::plan::environment::{self, EnvironmentError, PassedCredential};
use crate::plan::fit::{self, FitError};
use crate::plan::guarded::Guarded;
use crate::plan::hide::{self, HideError, Top};
use crate::plan::homes::Homes;
use crate::plan::mounts::{self, MountError};
use crate::plan::shown;
use crate::plan::site::Site;
use crate::plan::sockets::{self, SocketError, Sockets};
use crate::plan::workspace::{self, WorkingDirectoryError};
use crate::request::{ChangeMode, RunRequest, Shows, Streams, Tools, WriteMode};
use crate::state::generated::{self, WriteError};
use crate::state::project_cache::ProjectCache;
use crate::state::record::Record;
use nexus_model::limits::DEFAULT_PIDS;
use nexus_model::network::Network as NetworkKind;
use nexus_model::plan::{Bind, PlanDraft, PlanError, WorkspaceMount, Writes};
use nexus_model::spec::SandboxProfile;
use nexus_model::{ByteText, Limits, Plan, RunId};
use nexus_policy::profile::{Grants, LimitKind, Origin, ProfileName};
use nexus_receipt::AutoBind;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run of which every path was looked at.
pub struct ResolvedRun {
    /// The workspace and the state directory.
    pub site: Site,
    /// The checked plan.
    pub plan: Plan,
    /// The network and its policy, if the run has one.
    pub network: Option<RunNetwork>,
    /// The wanted outcome of the changes.
    pub changes: ChangeMode,
    /// Names the files that a commit replaces while programs read them.
    pub names_readers: bool,
    /// The streams of the command.
    pub streams: Streams,
    /// The documents that said what the run may do.
    pub profiles: Vec<ProfileName>,
    /// The time until SIGTERM.
    pub timeout: Option<Duration>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// The bytes of output that are kept.
    pub max_output: Option<u64>,
    /// The covers of a direct run.
    pub direct: Option<Direct>,
    /// Names that a commit holds back besides those that it always does.
    pub protect: Vec<String>,
    /// Secrets that the command gets as files.
    pub secrets: Vec<nexus_secrets::Request>,
    /// Names of variables that hold credentials and are passed on.
    pub env_secrets: Vec<ByteText>,
    /// Paths that are shown because the operator opened them.
    pub opened_binds: Vec<ByteText>,
    /// Paths that are shown because the caller's PATH or environment leads to them.
    pub auto_binds: Vec<AutoBind>,
    /// Caches of the caller's programs that the command may write to.
    pub written_caches: Vec<PathBuf>,
    /// Sockets of the host that the command may connect to.
    pub allowed_sockets: Vec<ByteText>,
    /// Variables that are passed on although they look like credentials.
    pub notices: Vec<PassedCredential>,
    /// The cache of the workspace, if the run has it.
    pub cache: Option<ProjectCache>,
    /// Patterns of the caller for what is to be hidden that matched nothing.
    pub hides_nothing: Vec<String>,
}

/// A request cannot be turned into a run.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The working directory cannot be used.
    #[error(transparent)]
    WorkingDirectory(#[from] WorkingDirectoryError),
    /// The workspace cannot be the one of a direct run.
    #[error(transparent)]
    Direct(#[from] DirectError),
    /// The workspace has mounts in it.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The workspace cannot carry a layer.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A pattern of a file cannot be used.
    #[error("{from}: the pattern {pattern:?} cannot be used: {reason}")]
    Pattern {
        /// The line of the file.
        from: Origin,
        /// The pattern as written.
        pattern: String,
        /// The answer of the reader of patterns.
        reason: String,
    },
    /// The paths to hide cannot be found.
    #[error(transparent)]
    Hide(#[from] HideError),
    /// The environment cannot be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A path cannot be shown.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Sockets in a path cannot be covered or allowed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A file for the sandbox cannot be made.
    #[error(transparent)]
    Made(#[from] WriteError),
    /// The cache of the workspace cannot be used.
    #[error("the cache of the workspace cannot be used: {0}")]
    Cache(io::Error),
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ResolveError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WorkingDirectory(inner) => inner.code(),
            Self::Direct(inner) => inner.code(),
            Self::Mount(inner) => inner.code(),
            Self::Fit(inner) => inner.code(),
            Self::Pattern { .. } => "hide",
            Self::Hide(inner) => inner.code(),
            Self::Environment(inner) => inner.code(),
            Self::Bind(inner) => inner.code(),
            Self::Socket(inner) => inner.code(),
            Self::Made(inner) => inner.code(),
            Self::Cache(_) => "cache",
            Self::Plan(_) => "plan",
        }
    }
}

/// Looks at the paths of a request and puts the plan together.
pub fn resolve(site: Site, request: &RunRequest, host: &Host) -> Result<ResolvedRun, ResolveError> {
    resolve_as(RunId::new(), site, request, host)
}

/// Looks at the paths of a request and puts the plan together, for a run whose id the caller chose and noted before.
pub fn resolve_as(run_id: RunId, site: Site, request: &RunRequest, host: &Host) -> Result<ResolvedRun, ResolveError> {
    let RunRequest { argv, grants, shows, tools, .. } = request;
    let workspace = site.workspace.as_path();
    let current = request.current_directory.as_deref();
    let cwd = workspace::working_directory(request.cwd.as_deref(), current, workspace)?;
    let target = request.mount.as_deref().unwrap_or(workspace);
    let cwd = workspace::as_inside(&cwd, workspace, target);
    let (total, limits) = limits(grants);
    let protect: Vec<String> = grants.protect.iter().map(|name| name.value.clone()).collect();
    // Only a direct run needs the names: a layer holds protected ones back itself.
    let direct = match request.writes {
        WriteMode::Direct { opens_git } => Some(Direct::find(host, workspace, &protect, opens_git)?),
        WriteMode::Layer => None,
    };
    let writes = match (&direct, limits.disk_bytes) {
        (Some(direct), _) => Writes::Direct { protected: direct.protected.clone() },
        (None, Some(bytes)) if bytes <= total / 4 => Writes::MemoryLayer { bytes },
        (None, _) => Writes::Layer { root: site.places.layers.join(run_id.to_string()).into() },
    };
    if direct.is_none() {
        mounts::refuse_inside(workspace)?;
        fit::check_top(workspace, matches!(writes, Writes::MemoryLayer { .. }))?;
    }
    let hidden = hidden(grants, request.hide_secrets, Top { workspace, inside: target })?;
    let env = environment::build(request, host)?;
    let canary = Record::place(&site.places.runs, run_id);
    let shown = shown(shows, grants, tools, &site, host, |one| {
        hide::check_bind(&hidden.paths, Top { workspace, inside: target }, one)
    })?;
    let cache = cache(request, &site)?;
    let homes = Homes::of(request, target, &targets(&shown.binds));
    let of_cache = cache.iter().flat_map(|cache| cache.binds(request.network.is_some(), &homes));
    let of_cache: Vec<Bind> = of_cache.filter(|part| !meets(part, &shown.binds)).collect();
    let binds: Vec<Bind> = shown.binds.into_iter().chain(of_cache).collect();
    let private = homes.private(&targets(&binds));
    let variables = env.variables.into_iter().filter(|one| !homes.lost(&one.name, &one.value)).collect::<Vec<_>>();
    let env_secrets = variables.iter().filter(|variable| variable.secret).map(|one| one.name.clone()).collect();
    let draft = PlanDraft {
        run_id,
        profile: SandboxProfile::Untrusted,
        image: request.image.as_ref().map(|image| image.root.clone()),
        hidden: hidden.paths,
        binds,
        private,
        covered: shown.sockets.covered,
        second_search: shown.sockets.second_search,
        workspace: WorkspaceMount { source: workspace.into(), target: target.into(), writes },
        argv: argv.clone(),
        cwd: cwd.into(),
        env: variables.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        secrets: request.secrets.iter().map(|secret| secret.name.clone()).collect(),
        network: kind(request.network.as_ref()),
        host_ports: grants.net.host_ports.iter().map(|port| port.value).collect(),
        limits,
        required: request.required.clone(),
        allow_ptrace: grants.allows_debug(),
        canary: canary.into(),
    };
    Ok(ResolvedRun {
        plan: Plan::new(draft)?,
        network: request.network.clone(),
        changes: request.changes,
        names_readers: request.names_readers,
        streams: request.streams,
        profiles: request.profiles.clone(),
        grace: request.grace,
        timeout: limit(grants, LimitKind::Timeout).map(Duration::from_millis),
        max_output: limit(grants, LimitKind::MaxOutput),
        direct,
        protect,
        secrets: request.secrets.clone(),
        env_secrets,
        opened_binds: shown.opened,
        auto_binds: shown.auto,
        written_caches: shown.caches,
        allowed_sockets: shown.sockets.allowed,
        notices: env.notices,
        cache,
        hides_nothing: hidden.unmatched,
        site,
    })
}

/// Takes the cache of the workspace for a run that asks for it and whose changes may all come. A limit of the disk could not be held
/// for a cache. `None` also while another run has it.
fn cache(request: &RunRequest, site: &Site) -> Result<Option<ProjectCache>, ResolveError> {
    // Without times of birth a later directory may have the number of this one.
    if !has_cache(request) || !site.identity.is_unique() {
        return Ok(None);
    }
    ProjectCache::take(&site.places, site.identity).map_err(ResolveError::Cache)
}

/// Reports whether a run is shown the cache of its workspace, unless another run has it.
#[must_use]
pub fn has_cache(request: &RunRequest) -> bool {
    let may_come = !matches!(request.changes, ChangeMode::Discard | ChangeMode::Review);
    let has_limit = limit(&request.grants, LimitKind::Disk).is_some();
    request.grants.keeps_caches() && may_come && !has_limit && request.writes == WriteMode::Layer
}

/// Returns the kind of network. The host inspects the sandbox's processes only if a rule is for one program.
fn kind(network: Option<&RunNetwork>) -> NetworkKind {
    match network {
        None => NetworkKind::None,
        Some(network) if network.policy.names_programs() => NetworkKind::EgressByProgram,
        Some(_) => NetworkKind::Egress,
    }
}

/// Refuses a pattern of what is to be hidden that cannot be used: one of a file with its line.
pub fn check_patterns(grants: &Grants, top: Top<'_>) -> Result<(), ResolveError> {
    hide::check_in(&patterns(grants), top).map_err(|error| with_line(error, grants))
}

/// Finds the paths to hide, and the flags that hide nothing. A pattern of a file is for many workspaces, so it may match
/// nothing in this one.
fn hidden(grants: &Grants, secrets: bool, top: Top<'_>) -> Result<HiddenPaths, ResolveError> {
    let found = hide::find(&patterns(grants), secrets, top).map_err(|error| with_line(error, grants))?;
    let flags = found.unmatched.into_iter().map(|at| &grants.hide[at]).filter(|pattern| pattern.from.is_flag());
    Ok(HiddenPaths { paths: found.paths, unmatched: flags.map(|pattern| pattern.value.clone()).collect() })
}

struct HiddenPaths {
    paths: Vec<ByteText>,
    unmatched: Vec<String>,
}

fn patterns(grants: &Grants) -> Vec<String> {
    grants.hide.iter().map(|pattern| pattern.value.clone()).collect()
}

/// Names the line of a pattern that a file has.
fn with_line(error: HideError, grants: &Grants) -> ResolveError {
    match error {
        HideError::Pattern { pattern: Some(pattern), reason } => {
            match grants.hide.iter().find(|one| one.value == pattern && !one.from.is_flag()) {
                Some(one) => ResolveError::Pattern { from: one.from.clone(), pattern, reason },
                None => ResolveError::Hide(HideError::Pattern { pattern: Some(pattern), reason }),
            }
        }
        error => ResolveError::Hide(error),
    }
}

/// The host paths of a run.
struct HostPaths {
    binds: Vec<Bind>,
    sockets: Sockets,
    /// Sources of binds that the operator opened.
    opened: Vec<ByteText>,
    /// Paths that the caller's PATH or environment leads to.
    auto: Vec<AutoBind>,
    /// Caches of the caller's programs that the command may write to.
    caches: Vec<PathBuf>,
}

/// Finds the guarded paths of the machine, which costs some calls, where anything is to be compared with them.
pub fn guarded(shows: &Shows, grants: &Grants, tools: &Tools, host: &Host) -> Guarded {
    let is_bare = shows.binds.is_empty() && shows.sockets.is_empty() && tools.binds.is_empty();
    let files = grants.ro.is_empty() && grants.rw.is_empty() && grants.etc.is_empty();
    if is_bare && files { Guarded::default() } else { Guarded::here(host) }
}

/// Reads all binds of a run. Files that are made for the run are written.
fn shown(
    shows: &Shows,
    grants: &Grants,
    tools: &Tools,
    site: &Site,
    host: &Host,
    check: impl Fn(&shown::Shown) -> Result<(), HideError>,
) -> Result<HostPaths, ResolveError> {
    let guarded = guarded(shows, grants, tools, host);
    let place = Place { host, workspace: &site.workspace, state: &site.places.state, guarded: &guarded };
    let all = binds::read(shows, grants, tools, &place)?;
    all.iter().try_for_each(check)?;
    let sockets = sockets::find(&all, &shows.sockets, &guarded)?;
    let caches = binds::written_caches(&all, host);
    let opened = all.iter().filter(|shown| shown.by_operator).map(|shown| shown.bind.source.clone()).collect();
    let auto = all.iter().filter_map(auto_bind).collect();
    let mut binds = Vec::with_capacity(all.len());
    for shown in all {
        let mut bind = shown.bind;
        if let Some(content) = shown.made {
            bind.source = generated::write(&site.places.state, &content)?.into();
        }
        binds.push(bind);
    }
    Ok(HostPaths { binds, sockets, opened, auto, caches })
}

/// Reports whether a part of the cache would lie in or around what a person shows there, which counts.
fn meets(part: &Bind, shown: &[Bind]) -> bool {
    let place = part.target.as_path();
    shown.iter().map(|bind| bind.target.as_path()).any(|other| place.starts_with(other) || other.starts_with(place))
}

fn targets(binds: &[Bind]) -> Vec<&Path> {
    binds.iter().map(|bind| bind.target.as_path()).collect()
}

/// Describes a path that the caller's PATH or environment leads to.
fn auto_bind(shown: &shown::Shown) -> Option<AutoBind> {
    let because = shown.from.auto_reason()?;
    let reason = format!("{}: {because}", shown.why.unwrap_or_default());
    Some(AutoBind { path: shown.bind.target.clone(), reason })
}

fn limit(grants: &Grants, kind: LimitKind) -> Option<u64> {
    grants.limits.get(&kind).map(|limit| limit.value)
}

/// Returns the memory of the machine in bytes, and the limits of the run.
fn limits(grants: &Grants) -> (u64, Limits) {
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit.max(1));
    let disk_bytes = limit(grants, LimitKind::Disk);
    let mut scratch = (total / 4).clamp(16 << 20, 4 << 30);
    if let Some(disk) = disk_bytes {
        scratch = scratch.min(disk.max(1 << 20));
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let limits = Limits {
        memory_bytes: limit(grants, LimitKind::Memory),
        cpu_millis: limit(grants, LimitKind::Cpus).map(narrow),
        pids: limit(grants, LimitKind::Pids).map_or(DEFAULT_PIDS, narrow),
        disk_bytes,
        scratch_bytes: scratch,
    };
    (total, limits)
}
