//! State that a launcher keeps from one launch to the next, and the moves of a clone into it.
//!
//! ```text
//!  LauncherState::default()  nothing but id maps: each sandbox is built from the host's view by its own child (nexus run)
//!  LauncherState::launcher() a launcher process: the system view is a template, networks may be pooled
//!
//!  while idle: networks, warm sandboxes
//!  home ──enter──▶ template, pooled network ──clone3──▶ ──leave──▶ home      not back home: no launch ever again
//! ```

use crate::launcher::idmap::Maps;
use crate::launcher::netpool::{Network, Pool, PoolConfig};
use crate::launcher::prefork::WarmSandbox;
use crate::launcher::template::{self, EtcMounts, Template, places_of};
use crate::quotas::Quotas;
use crate::request::targets;
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::Plan;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// State that a launcher keeps from one launch to the next.
#[derive(Debug, Default)]
pub struct LauncherState {
    pub(crate) maps: Maps,
    pub(crate) has_keyring: bool,
    /// Addresses at which the kernel put the arguments and the environment of this program.
    strings: Option<[Range<usize>; 2]>,
    /// Limits on the resources that the kernel counts for the user of the sandboxes.
    quotas: Option<Arc<Quotas>>,
    /// Makes a launcher process watch the overlays of its sandboxes, as each other launcher does.
    watches_layers: bool,
    pub(super) mode: Option<LauncherMode>,
}

#[derive(Debug)]
pub(super) struct LauncherMode {
    home: OwnedFd,
    template: Option<Template>,
    /// EtcMounts below `/etc` that the template has.
    places: EtcMounts,
    /// Those of the last plan that was looked at.
    last_places: Option<EtcMounts>,
    /// A template is to be built while no request waits.
    wants_template: bool,
    pub(super) networks: Option<Pool>,
    /// Sandboxes that wait for their plan.
    pub(super) warm: Vec<WarmSandbox>,
    max_warm: usize,
    /// Size of the private directories of the last sandbox, which the next warm one will have too. `None` since a warm
    /// sandbox could not be made.
    pub(super) scratch_bytes: Option<u64>,
    /// This process could not go back: nothing may be launched from the place where it is.
    pub(super) is_lost: bool,
}

/// Place in which a clone begins.
pub(crate) struct CloneSite {
    /// The clone is on a template; otherwise the child builds its root.
    pub on_template: bool,
    /// The network it was cloned into.
    pub network: Option<Network>,
}

impl LauncherState {
    /// For a process that does nothing but launch: it changes namespaces while it does. An ordinary user's moves for good
    /// into a user namespace of its own, where it has the rights that this takes; its own network is then an empty one.
    pub fn launcher(pools: PoolConfig) -> Result<Self, StepError> {
        if !rustix::process::geteuid().is_root() {
            own_user_namespace().at(Step::Template, "a user namespace for the launcher")?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let home =
            rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty()).at(Step::Template, "/proc/self/ns/mnt")?;
        let networks = if pools.networks > 0 { Some(Pool::new(pools)?) } else { None };
        let mode = LauncherMode {
            home,
            template: None,
            places: EtcMounts::new(),
            last_places: None,
            wants_template: false,
            networks,
            warm: Vec::new(),
            max_warm: pools.sandboxes,
            scratch_bytes: None,
            is_lost: false,
        };
        Ok(Self { mode: Some(mode), ..Self::default() })
    }

    /// Makes a launcher process watch the overlays of its sandboxes. Its user then learns when one is gone, which takes as long
    /// as the process keeps the mounts of a dead sandbox.
    #[must_use]
    pub fn watch_layers(self) -> Self {
        Self { watches_layers: true, ..self }
    }

    /// Returns whether a launch of this plan finds a template, and would be as fast as a launcher process makes it. Otherwise one
    /// with the places that plans ask for below `/etc` is built while no request waits: those of the first plan, and then those
    /// of two in a row.
    pub fn is_ready_for(&mut self, plan: &Plan) -> Result<bool, StepError> {
        let Some(mode) = self.mode.as_mut().filter(|mode| !mode.is_lost && template::fits_plan(plan)) else {
            return Ok(false);
        };
        let places = places_of(plan);
        if mode.last_places.as_ref().is_none_or(|last| *last == places) {
            mode.places.clone_from(&places);
        }
        let is_ready = mode.places == places && mode.has_current_template()?;
        mode.last_places = Some(places);
        mode.scratch_bytes = Some(plan.limits.scratch_bytes);
        mode.wants_template = !is_ready;
        Ok(is_ready)
    }

    /// Returns whether the overlays of sandboxes are watched.
    pub(crate) fn watches_layers(&self) -> bool {
        self.mode.is_none() || self.watches_layers
    }

    /// Takes back the network of a sandbox whose first process was waited for.
    pub fn give_back(&mut self, network: Network) -> io::Result<()> {
        match self.mode.as_mut().and_then(|mode| mode.networks.as_mut()) {
            Some(pool) => pool.give_back(network),
            None => Ok(()),
        }
    }

    /// Returns whether idle time can be used for work that the next launch would otherwise wait for.
    pub fn has_work(&self) -> bool {
        let Some(mode) = &self.mode else { return false };
        mode.networks.as_ref().is_some_and(Pool::wants_more) || mode.wants_template || mode.wants_warm()
    }

    /// Returns a warm sandbox that fits this plan.
    pub(crate) fn take_warm(&mut self, plan: &Plan) -> Result<Option<WarmSandbox>, StepError> {
        let serves = self.serves(plan);
        let Some(mode) = &mut self.mode else { return Ok(None) };
        mode.scratch_bytes = Some(plan.limits.scratch_bytes);
        if mode.warm.is_empty() || mode.is_lost {
            return Ok(None);
        }
        if !mode.has_current_template()? {
            return Ok(None);
        }
        while serves && let Some(index) = mode.warm.iter().position(|warm| warm.fits(plan)) {
            let warm = mode.warm.swap_remove(index);
            if warm.is_waiting().at(Step::Clone, "a warm sandbox")? {
                self.ensure_tops(&targets(plan))?;
                return Ok(Some(warm));
            }
            WarmSandbox::end(&[warm]).at(Step::Clone, "ending a sandbox that did not wait")?;
        }
        Ok(None)
    }

    /// Makes the top directories of the targets in the template. A warm sandbox sees the directories of its template,
    /// and so those that are made in it later.
    fn ensure_tops(&mut self, targets: &[&Path]) -> Result<(), StepError> {
        let template = self.mode.as_mut().and_then(|mode| mode.template.as_mut());
        match template {
            Some(template) if template.lacks_top(targets) => {
                let entered = template.enter(targets);
                self.leave().and(entered)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether this launch is made on a template, so that the parent opens everything of the host.
    pub(crate) fn serves(&self, plan: &Plan) -> bool {
        let Some(mode) = &self.mode else { return false };
        template::fits_plan(plan) && mode.places == places_of(plan)
    }

    /// Returns the limits of sandboxes; read once, as long as this process has the host's view.
    pub(crate) fn quotas(&mut self) -> Result<Arc<Quotas>, StepError> {
        let quotas = match self.quotas.take() {
            Some(quotas) => quotas,
            None => Quotas::of_caller()?,
        };
        self.quotas = Some(Arc::clone(&quotas));
        Ok(quotas)
    }

    /// Returns the addresses of the strings that the child has to wipe; they lie at the same place in its copy of the
    /// memory.
    pub(crate) fn strings(&mut self) -> Result<[Range<usize>; 2], StepError> {
        if self.strings.is_none() {
            self.strings = Some(crate::creds::find_strings()?);
        }
        self.strings.clone().ok_or_else(|| StepError::new(Step::WipeEnvironment, "the strings were not found"))
    }

    /// Moves this process to where the clone shall begin. Whatever comes of it, `leave` must be called.
    pub(crate) fn enter(&mut self, plan: &Plan, faults: Faults) -> Result<CloneSite, StepError> {
        // The way to an egress is made by the sandbox itself, with rights that it has only in a network of its own.
        let pooled = match plan.network {
            nexus_model::network::Network::None => true,
            nexus_model::network::Network::Egress | nexus_model::network::Network::EgressByProgram => false,
        };
        let targets = if self.serves(plan) { Some(targets(plan)) } else { None };
        self.enter_at(pooled, targets.as_deref(), faults)
    }

    /// The same for a pooled network or none, and for these places on a template or not on one.
    pub(crate) fn enter_at(
        &mut self,
        pooled: bool,
        on_template: Option<&[&Path]>,
        faults: Faults,
    ) -> Result<CloneSite, StepError> {
        let Some(mode) = &mut self.mode else { return Ok(CloneSite { on_template: false, network: None }) };
        if mode.is_lost {
            return Err(StepError::new(Step::Template, "the launcher could not go back to the host's mounts"));
        }
        let pool = if pooled { mode.networks.as_mut() } else { None };
        let network = pool.map(|pool| pool.take(faults)).transpose()?;
        if let Some(network) = &network {
            Pool::enter(network)?;
        }
        if let Some(targets) = on_template {
            mode.template(faults)?.enter(targets)?;
        }
        Ok(CloneSite { on_template: on_template.is_some(), network })
    }

    /// Moves this process back.
    pub(crate) fn leave(&mut self) -> Result<(), StepError> {
        let Some(mode) = &mut self.mode else { return Ok(()) };
        let mounts = move_into_link_name_space(mode.home.as_fd(), Some(LinkNameSpaceType::Mount))
            .at(Step::Template, "leaving the template");
        let back = mounts.and_then(|()| mode.networks.as_ref().map_or(Ok(()), Pool::leave));
        mode.is_lost |= back.is_err();
        back
    }
}

impl LauncherMode {
    pub(super) fn wants_warm(&self) -> bool {
        self.warm.len() < self.max_warm && self.scratch_bytes.is_some()
    }

    /// Returns whether there is a template that shows the host as it is. One that does not is dropped, and the
    /// warm sandboxes on it: the kernel reports only once that mounts have changed.
    pub(super) fn has_current_template(&mut self) -> Result<bool, StepError> {
        let Some(template) = &self.template else { return Ok(false) };
        if *template.places() == self.places && template.is_current().at(Step::Template, "looking at the host")? {
            return Ok(true);
        }
        // Before the next one is built: it would hold mounts of the host.
        self.template = None;
        let old = std::mem::take(&mut self.warm);
        WarmSandbox::end(&old).at(Step::Template, "ending the warm sandboxes on an old template")?;
        Ok(false)
    }

    /// Builds a template that was wanted. One that cannot be built is wanted again by the next plan.
    pub(super) fn build_wanted(&mut self, faults: Faults) -> Option<Result<(), StepError>> {
        std::mem::take(&mut self.wants_template).then(|| self.template(faults).map(drop))
    }

    fn template(&mut self, faults: Faults) -> Result<&mut Template, StepError> {
        self.has_current_template()?;
        match &mut self.template {
            Some(template) => Ok(template),
            none => Ok(none.insert(Template::build(faults, &self.places)?)),
        }
    }
}

/// Maps this user to itself, so that files and sandboxes see no difference.
fn own_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET;
    // SAFETY: changes only namespaces of this process, which has one thread (a launch checks it).
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}
