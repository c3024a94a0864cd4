//! Resolves the grants of a run, and what its tools need.

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::image::ImageOfRun;
use crate::net::network;
use crate::net::saved::NAME as ASKED;
use crate::profile::caller::caller;
use crate::profile::{auto, flags, policy};
use nexus_model::limits::{DEFAULT_GRACE_MS, DEFAULT_PIDS};
use nexus_policy::profile::{
    ChainError, Grants, LimitKind, Loaded, Origin, ProfileName, Sourced, Widening, format_limit, narrow, resolve,
};
use nexus_policy::settings::Settings;
use nexus_profiles::toolchains::Searches;
use nexus_profiles::{Found, ProfileStore, library, policies, settings, toolchains, workspace_file};
use nexus_runner::net::network::RunNetwork;
use nexus_runner::plan::workspace::WorkspaceError;
use nexus_runner::session::store::WorkspaceAtStart;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::searches;
use nexus_runner::state::trust;
use std::ffi::OsString;
use std::path::Path;

/// State of the workspace's `nexus.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// The workspace has no such file.
    Absent,
    /// The file takes rights away and grants none.
    Narrows,
    /// The user agreed to it with `nexus trust`.
    Trusted,
}

/// Everything that a run may do, with who said so.
pub struct Resolution {
    /// The rights that profiles, file and flags grant.
    pub grants: Grants,
    /// The binds and variables that the toolchains and clients need.
    pub found: Found,
    /// The image in place of the host's system.
    pub image: Option<ImageOfRun>,
    /// The operator's settings.
    pub settings: Settings,
    /// The workspace's file.
    pub file: FileState,
    /// The destinations that may be reached, where there is a network.
    pub network: Option<RunNetwork>,
    /// Every document that applied, the workspace's own last, as the receipt names it.
    pub documents: Vec<ProfileName>,
    /// The searches for logins, for the next run.
    pub searches: Searches,
    /// The workspace as it was when the policy documents were read.
    pub workspace_at_start: WorkspaceAtStart,
}

impl Resolution {
    /// Reads all documents and looks for the toolchains. Writes nothing.
    pub fn of(args: &RunArgs, workspace: &Path, places: &StateDir) -> Result<Self, Failure> {
        let caller = caller();
        library::check_directories(&caller, workspace)?;
        let held = policies::HeldWorkspace::open(workspace)
            .map_err(|error| WorkspaceError::Unusable { path: workspace.to_owned(), source: error })?;
        let policies = policies::load_held(&caller, &held)?;
        let has_document = policies::has_workspace_document(&policies);
        let workspace_at_start = WorkspaceAtStart { id: held.id, has_document };
        let mut settings = settings::load(&caller, Some(workspace))?;
        settings.obey(policies.effective());
        let settings = settings;
        let mut shelf = ProfileStore::new(&caller, Some(workspace));
        let asked = args.net.ask.is_some() && shelf.has(ASKED);
        let wanted = std::iter::once(("default".to_owned(), Origin::Standard))
            .chain(asked.then(|| (ASKED.to_owned(), Origin::Flag("--ask".to_owned()))))
            .chain(auto::of_environment(&caller)?)
            .chain(args.profile.iter().map(|name| (name.clone(), Origin::Flag(format!("--profile {name}")))));
        let mut wanted: Vec<(String, Origin)> = wanted.collect();
        let file = workspace_file::read(workspace)?;
        let trusted = match &file {
            Some(file) => trust::is_trusted(places, workspace, &file.hash)?,
            None => false,
        };
        if let Some(file) = file.as_ref().filter(|_| trusted) {
            let extends = &file.loaded.document.extends;
            wanted.extend(extends.iter().map(|(name, place)| (name.clone(), file.loaded.origin(*place))));
        }
        let mut grants = granted(&chain(&mut shelf, &wanted)?);
        let of_workspace = file.as_ref().map(|file| ProfileName::of(&file.loaded));
        let state = match file {
            None => {
                flags::add(&mut grants, args);
                FileState::Absent
            }
            Some(file) if trusted => {
                grants.add(&file.loaded);
                flags::add(&mut grants, args);
                FileState::Trusted
            }
            Some(file) => {
                flags::add(&mut grants, args);
                grants = narrow(&grants, &file.loaded).map_err(|wider| widens(&file.loaded, &wider))?;
                FileState::Narrows
            }
        };
        auto::obey(&mut grants, &settings)?;
        let image = crate::image::of_run(args, &places.state)?;
        if let Some(image) = &image {
            // Programs of the host need its libraries, which are not there.
            grants.auto = Some(Sourced::new(false, Origin::Flag(format!("--image {}", image.run.reference))));
        }
        ceilings(&mut grants, &settings)?;
        grace_within(&grants, &settings, args.grace)?;
        policy::obey(policies.effective(), &mut grants, args, &caller)?;
        lower_pids(&mut grants);
        grants.add_protected(settings.protect.iter().cloned());
        refuse_what_cannot_be_held(&grants, args)?;
        let command = args.command.first().map(OsString::as_os_str);
        let earlier = || Searches::read(&searches::read(&places.state));
        let (mut found, searches) = toolchains::find(&grants, &caller, workspace, command, earlier);
        policy::tools(policies.effective(), &mut found)?;
        // One that only took away granted nothing, and yet the run was another without it.
        let narrowing = of_workspace.filter(|_| state == FileState::Narrows);
        let of_policies = policies.documents().iter().map(|loaded| ProfileName {
            name: format!("policy {}/{}", loaded.document.level.word(), loaded.document.id),
            source: loaded.source.clone(),
            hash: loaded.hash,
        });
        let documents = grants.profiles.iter().cloned().chain(narrowing).chain(of_policies).collect();
        let network = network::of(&grants, &args.net, &settings.egress, workspace, &mut found)?;
        Ok(Self { grants, found, image, settings, file: state, network, documents, searches, workspace_at_start })
    }

    /// Returns the place where the workspace's own file says what becomes of the changes. A user who loses work by it
    /// must learn that a file did it that came with the directory.
    pub fn changes_by_file(&self, workspace: &Path) -> Option<&Origin> {
        let own = workspace.join(workspace_file::NAME).display().to_string();
        let from = &self.grants.changes.as_ref()?.from;
        matches!(from, Origin::File { name, .. } if *name == own).then_some(from)
    }
}

/// Returns the grants of some documents on top of what every run has.
pub fn granted(documents: &[Loaded]) -> Grants {
    let mut grants = Grants::default();
    grants.limits.insert(LimitKind::Pids, Sourced::new(DEFAULT_PIDS.into(), Origin::Standard));
    for loaded in documents {
        grants.add(loaded);
    }
    grants
}

/// Lowers the number of processes to what the caller may have, unless a flag chose it. The first process of a run counts, too.
fn lower_pids(grants: &mut Grants) {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
    let chosen = grants.limits.get_mut(&LimitKind::Pids).filter(|pids| !matches!(pids.from, Origin::Flag(_)));
    if let (Some(hard), Some(pids)) = (hard, chosen) {
        pids.value = pids.value.min(hard.saturating_sub(1).max(1));
    }
}

/// The code of a profile that is named and is not there.
pub const NO_SUCH_PROFILE: &str = "no_profile";

/// Reads the documents that are wanted, and those that they extend.
pub fn chain(shelf: &mut ProfileStore, wanted: &[(String, Origin)]) -> Result<Vec<Loaded>, Failure> {
    resolve(shelf, wanted).map_err(|error| match error {
        ChainError::Load(error) => error.into(),
        ChainError::Unknown { .. } => {
            Failure::refused(NO_SUCH_PROFILE, error.to_string(), "nexus profile list shows which there are")
        }
        ChainError::Cycle { .. } => {
            Failure::refused("profile", error.to_string(), "take one extends out of the circle")
        }
    })
}

/// Describes why a file is refused that wants more than the user's own profiles and flags allow.
fn widens(file: &Loaded, wider: &[Widening]) -> Failure {
    let lines: Vec<String> =
        wider.iter().map(|one| format!("{}:{} would {}", file.source, one.place, one.what)).collect();
    let message = format!("the workspace's own file wants more than you allowed: {}", lines.join("; "));
    let hint = "nexus trust --show prints it all and nexus trust allows exactly this content; or take the lines out";
    Failure::refused("not_trusted", message, hint)
}

/// Applies the operator's ceilings: the smaller one counts, but a flag that wants more is refused rather than quietly
/// cut.
fn ceilings(grants: &mut Grants, settings: &Settings) -> Result<(), Failure> {
    for (kind, most) in &settings.ceilings {
        match grants.limits.get(kind) {
            Some(has) if has.value <= most.value => {}
            Some(has) if has.from.is_flag() => {
                let message = format!(
                    "{} asks for more than {} that {} allows",
                    has.from,
                    format_limit(*kind, most.value),
                    most.from
                );
                return Err(Failure::refused(
                    "ceiling",
                    message,
                    format!("ask for less, or leave {} out", kind.flag()),
                ));
            }
            Some(_) | None => {
                grants.limits.insert(*kind, most.clone());
            }
        }
    }
    Ok(())
}

/// Refuses a grace that would pass the ceiling of the time: a run is over when that and the usual grace have passed.
fn grace_within(grants: &Grants, settings: &Settings, grace: Option<u64>) -> Result<(), Failure> {
    let (Some(most), Some(grace)) = (settings.ceilings.get(&LimitKind::Timeout), grace) else { return Ok(()) };
    let timeout = grants.limits.get(&LimitKind::Timeout).map_or(most.value, |timeout| timeout.value);
    let left = most.value.saturating_add(DEFAULT_GRACE_MS).saturating_sub(timeout);
    if grace <= left {
        return Ok(());
    }
    let message = format!(
        "--grace asks for more than {} beside a time limit of {}: {} allows {} in all",
        format_limit(LimitKind::Timeout, left),
        format_limit(LimitKind::Timeout, timeout),
        most.from,
        format_limit(LimitKind::Timeout, most.value)
    );
    Err(Failure::refused("ceiling", message, "ask for less, with --grace or with --timeout"))
}

fn refuse_what_cannot_be_held(grants: &Grants, args: &RunArgs) -> Result<(), Failure> {
    let flag = args.direct_flag();
    if !args.is_direct() {
        return Ok(());
    }
    if let Some(changes) = grants.changes.as_ref().filter(|changes| !changes.from.is_flag()) {
        let message =
            format!("{} wants changes: {}, and {flag} has no layer for that", changes.from, changes.value.word());
        return Err(Failure::refused("direct", message, format!("leave {flag} out")));
    }
    if let Some(disk) = grants.limits.get(&LimitKind::Disk) {
        let message = format!("{} limits the disk, which cannot be held with {flag}", disk.from);
        return Err(Failure::refused("direct", message, format!("leave {flag} out")));
    }
    Ok(())
}
