//! The driver itself: from a plan to a handle, to a sandbox, and to nothing.

use crate::core_pattern;
use crate::expectations;
use crate::guarantees;
use crate::inventory;
use crate::name::NAME;
use crate::probe;
use crate::process::NamespaceProcess;
use crate::state::{State, Unusable};
use nexus_channel::frames::GuestFrame;
use nexus_driver::{
    ChangeSource, Channel, DestroyError, Driver, Found, Handle, InventoryError, PrepareError, ProbeReport, Sandbox,
    SetupError, StartError,
};
use nexus_jail::cgroup::{Group, Hierarchies, OwnGroups, Wanted};
use nexus_jail::{
    DEFAULT_UID_BASE, Faults, Identity, Launched, LauncherState, MIN_UID_BASE, PoolConfig, Setup, Step, StepError,
};
use nexus_model::plan::Writes;
use nexus_model::proof::Expectation;
use nexus_model::spec::SandboxProfile;
use nexus_model::{Plan, RunId};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Draws a random number.
fn draw() -> Result<u32, StepError> {
    let mut bytes = [0; 4];
    // Four bytes come whole (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StepError::os(Step::Identity, error, "getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}

/// A sandbox that was killed and that the kernel has not taken apart.
#[derive(Debug)]
pub struct Lingering {
    /// Run of the sandbox.
    pub run: RunId,
    /// First process of the sandbox, as a pidfd.
    pub process: OwnedFd,
}

/// Isolation by the kernel's namespaces, Landlock and seccomp.
#[derive(Debug)]
pub struct Namespace {
    uid: u32,
    uid_base: u32,
    identity: Result<Identity, StepError>,
    /// Draws the ids of each sandbox afresh.
    draws_each: bool,
    /// Makes a launcher process report when the overlay of a sandbox is gone.
    watches_layers: bool,
    landlock_abi: i32,
    launcher: Mutex<LauncherState>,
    host_namespaces: OnceLock<Vec<(String, u64)>>,
    /// Step that a test makes fail.
    pub faults: Faults,
    /// File from which the kernel's pattern for core files is read; only tests set another one.
    pub core_pattern: PathBuf,
}

impl Namespace {
    /// A driver for sandboxes of this process's user, each driver for one. Root's sandbox gets a host id of its own, drawn
    /// from those that begin with `uid_base`.
    #[must_use]
    pub fn new(uid_base: u32) -> Self {
        Self::with_drawn(uid_base, draw())
    }

    /// As [`Namespace::new`], with a number that was drawn already.
    #[must_use]
    pub fn with_drawn(uid_base: u32, drawn: Result<u32, StepError>) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let identity = drawn.and_then(|drawn| Identity::choose(uid, gid, uid_base, drawn));
        Self {
            uid,
            uid_base,
            identity,
            draws_each: false,
            watches_layers: false,
            landlock_abi: nexus_jail::landlock_abi(),
            launcher: Mutex::default(),
            host_namespaces: OnceLock::new(),
            faults: Faults::default(),
            core_pattern: PathBuf::from(core_pattern::CORE_PATTERN),
        }
    }

    /// Draws the host ids of each sandbox afresh: for a launcher process, which starts the sandboxes of many runs. Sandboxes
    /// with one id share the kernel's quotas of a user.
    #[must_use]
    pub fn drawing_each(mut self) -> Self {
        self.draws_each = true;
        self
    }

    /// Lets the user of a launcher process learn when the overlay of a sandbox is gone, as of a sandbox that the user cloned.
    #[must_use]
    pub fn watching_layers(mut self) -> Self {
        self.watches_layers = true;
        self
    }

    /// Returns the ids for the next sandbox.
    fn next_identity(&self) -> Result<Identity, StepError> {
        let own = self.identity.clone()?;
        if !self.draws_each || !own.by_root {
            return Ok(own);
        }
        Identity::choose(self.uid, rustix::process::getegid().as_raw(), self.uid_base, draw()?)
    }

    /// With the first id of the default range: for tests and measurements, which compare sandboxes of several drivers.
    #[must_use]
    pub fn with_defaults() -> Self {
        Self::with_drawn(DEFAULT_UID_BASE, Ok(0))
    }

    /// Makes this process one that does nothing but launch (see [`LauncherState::launcher`]). `probe` and `prepare` belong to the
    /// user of the launcher: from here on this process may see other namespaces than its user.
    pub(crate) fn enter_launcher_mode(&self, pools: PoolConfig) -> Result<(), StepError> {
        // The proof compares with the host's, not with those that the launcher is about to have.
        self.host_namespaces()?;
        let state = LauncherState::launcher(pools)?;
        *self.launcher() = if self.watches_layers { state.watch_layers() } else { state };
        Ok(())
    }

    /// Returns the state that is kept from one launch to the next.
    pub(crate) fn launcher(&self) -> MutexGuard<'_, LauncherState> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_namespaces(&self) -> Result<&[(String, u64)], StepError> {
        if self.host_namespaces.get().is_none() {
            let found = nexus_jail::host_namespaces()
                .map_err(|error| StepError::os(Step::HostNamespaces, error, "/proc/self/ns"))?;
            return Ok(self.host_namespaces.get_or_init(|| found));
        }
        Ok(self.host_namespaces.get_or_init(Vec::new))
    }

    /// Clones a sandbox from this process, which must have one thread.
    pub(crate) fn launch(&self, plan: &Plan, handle: &Handle) -> Result<(Launched, Vec<Expectation>), StartError> {
        let state = State::read(handle)?;
        let identity = self.next_identity().map_err(not_started)?;
        self.faults.check(Step::HostNamespaces).map_err(not_started)?;
        let host_namespaces = self.host_namespaces().map_err(not_started)?.to_vec();
        let request = nexus_jail::Request { plan, setup: self.setup(identity), group: state.group.as_ref() };
        let launched = nexus_jail::launch(&request, &mut self.launcher()).map_err(|error| {
            tracing::debug!(run = %plan.run_id, step = error.step.name(), errno = error.errno, "no sandbox was made");
            not_started(error)
        })?;
        let pid = launched.child.pid.as_raw_nonzero().get();
        tracing::debug!(run = %plan.run_id, pid, "a sandbox was cloned");
        let expect = expectations::of(plan, &launched.identity.uid_map(), &host_namespaces);
        Ok((launched, expect))
    }

    fn setup(&self, identity: Identity) -> Setup {
        Setup {
            identity,
            landlock_abi: self.landlock_abi,
            faults: self.faults,
            guest: nexus_guest::run,
            report: report_frame,
        }
    }

    /// Does one thing that the next launch would else wait for. Who has no identity launches nothing, either.
    pub(crate) fn work_ahead(&self) {
        if let Ok(identity) = self.next_identity() {
            self.launcher().work(&self.setup(identity));
        }
    }

    fn owners(&self) -> inventory::Owners {
        inventory::Owners { uid: self.uid, first_inner: self.uid_base }
    }

    /// Kills the sandboxes of these runs and waits until all of them are gone, at most `within` for all of them together.
    /// Returns those that are not. A sandbox is found by the id of its run where its handle cannot be read; one of another
    /// driver is left alone.
    pub fn end(
        &self,
        sandboxes: &[(RunId, Option<&Handle>)],
        within: Duration,
    ) -> Result<Vec<Lingering>, InventoryError> {
        let own = self.owners();
        let mut runs = Vec::new();
        let mut targets = Vec::new();
        for (run, handle) in sandboxes {
            let first_inner = match handle.map(State::read) {
                Some(Ok(state)) => state.first_inner.unwrap_or(own.first_inner),
                Some(Err(Unusable::WrongDriver(_))) => continue,
                Some(Err(Unusable::State(_))) | None => MIN_UID_BASE,
            };
            runs.push(*run);
            let owners = inventory::Owners { first_inner, ..own };
            targets.push(inventory::Target { label: nexus_jail::label(*run), owners });
        }
        let left = inventory::end(&targets, within)?;
        Ok(left.into_iter().map(|(index, process)| Lingering { run: runs[index], process }).collect())
    }

    /// Removes what the handle of a sandbox names beside its processes, once these are gone.
    pub fn clear_away(&self, handle: &Handle) -> Result<(), DestroyError> {
        match &State::read(handle)?.group {
            None => Ok(()),
            Some(group) => group
                .remove()
                .map_err(|source| DestroyError::Left { what: "the run's control group".to_owned(), source }),
        }
    }

    fn group(&self, plan: &Plan) -> Result<Option<Group>, PrepareError> {
        if !plan.limits.needs_cgroup() {
            return Ok(None);
        }
        let wanted = Wanted { memory: plan.limits.memory_bytes.is_some(), cpu: plan.limits.cpu_millis.is_some() };
        let limit = if wanted.memory { "memory" } else { "cpu" };
        let refused = |reason: String| PrepareError::Limit { limit: limit.to_owned(), reason };
        let hierarchies = Hierarchies::read().map_err(|error| refused(format!("/proc/self/mountinfo: {error}")))?;
        let own = OwnGroups::read().map_err(|error| refused(format!("/proc/self/cgroup: {error}")))?;
        nexus_jail::cgroup::find(&hierarchies, &own, wanted, self.uid, &plan.run_id.to_string())
            .map(Some)
            .map_err(refused)
    }
}

impl Driver for Namespace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self) -> ProbeReport {
        probe::report(self.uid, self.landlock_abi, &self.core_pattern)
    }

    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError> {
        if plan.profile != SandboxProfile::Untrusted {
            return Err(PrepareError::Profile { driver: NAME.to_owned(), profile: plan.profile.name().to_owned() });
        }
        // For each run: an operator may have set another since the last one.
        core_pattern::check(&self.core_pattern, nexus_jail::core_limit())
            .map_err(|reason| PrepareError::CoreHandler { reason })?;
        if !plan.required.is_empty() {
            let report = self.probe();
            for guarantee in &plan.required {
                report.gives(*guarantee).map_err(|reason| PrepareError::Guarantee { guarantee: *guarantee, reason })?;
            }
        }
        self.faults.check(Step::Identity).map_err(set_up)?;
        self.identity.clone().map_err(set_up)?;
        let first_inner = (self.uid == 0).then_some(self.uid_base);
        let state = State { label: nexus_jail::label(plan.run_id), group: self.group(plan)?, first_inner };
        tracing::debug!(run = %plan.run_id, group = state.group.is_some(), "the sandbox has a handle");
        state.handle(plan.run_id).map_err(|error| set_up(StepError::new(Step::Identity, error.to_string())).into())
    }

    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError> {
        let (launched, expect) = self.launch(plan, handle)?;
        let Launched { child, channel, upper, watch, deferred, .. } = launched;
        Ok(Sandbox {
            channel: Channel::new(channel),
            guarantees: guarantees::of(plan),
            expect,
            changes: changes_of(plan, upper),
            process: Box::new(NamespaceProcess::new(child, State::read(handle)?.group, watch, deferred)),
        })
    }

    fn inventory(&self) -> Result<Vec<Found>, InventoryError> {
        inventory::list(self.owners())
    }

    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError> {
        let state = State::read(handle)?;
        let own = self.owners();
        let owners = inventory::Owners { first_inner: state.first_inner.unwrap_or(own.first_inner), ..own };
        inventory::kill_marked(owners, &state.label)?;
        self.clear_away(handle)
    }
}

/// Returns where the changes of a plan's command are. `upper` is a layer in memory that the launcher made.
pub(crate) fn changes_of(plan: &Plan, upper: Option<OwnedFd>) -> ChangeSource {
    match plan.workspace.writes {
        Writes::Direct { .. } => ChangeSource::None,
        Writes::Layer { .. } => ChangeSource::Directory,
        Writes::MemoryLayer { .. } => ChangeSource::Descriptor(upper),
    }
}

fn set_up(error: StepError) -> SetupError {
    SetupError { step: error.step.name().to_owned(), errno: error.errno, detail: error.detail }
}

fn not_started(error: StepError) -> StartError {
    if error.step == Step::JoinKeyring && error.errno == Errno::DQUOT.raw_os_error() {
        let reason = "This user has no kernel key left: the sandboxes of a user need one of kernel.keys.maxkeys";
        return StartError::Limit { limit: "keys".to_owned(), reason: reason.to_owned() };
    }
    set_up(error).into()
}

fn report_frame(socket: &OwnedFd, frame: &GuestFrame, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    nexus_channel::send(socket, frame, descriptors).map_err(io::Error::other)
}
