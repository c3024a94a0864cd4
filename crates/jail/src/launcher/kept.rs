//! What a launcher keeps from one launch to the next, and how it moves a clone into it.
//!
//! ```text
//!  Kept::default()  nothing but id maps: each sandbox is built from the host's view by its own child (nexus run)
//!  Kept::workshop() a launcher process: the system view is a template, networks may be pooled
//!
//!  while idle: networks, sandboxes begun in advance
//!  home ──enter──▶ template, pooled network ──clone3──▶ ──leave──▶ home      not back home: no launch ever again
//! ```

use crate::launcher::begun::Begun;
use crate::launcher::idmap::Maps;
use crate::launcher::netpool::{Keep, Network, Pool};
use crate::launcher::template::{self, Template};
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
use std::rc::Rc;

/// What a launcher keeps.
#[derive(Debug, Default)]
pub struct Kept {
    pub(crate) maps: Maps,
    pub(crate) has_keyring: bool,
    /// Where the kernel put the arguments and the environment of this program.
    strings: Option<[Range<usize>; 2]>,
    /// What sandboxes may take of what the kernel counts for their user.
    quotas: Option<Rc<Quotas>>,
    pub(super) workshop: Option<Workshop>,
}

#[derive(Debug)]
pub(super) struct Workshop {
    home: OwnedFd,
    template: Option<Template>,
    pub(super) networks: Option<Pool>,
    /// Sandboxes that wait for their order, and how many there may be.
    pub(super) begun: Vec<Begun>,
    most_begun: usize,
    /// The size of the last one's private folders, which the next one will have, too. `None` when one could not be begun
    /// since.
    pub(super) scratch_bytes: Option<u64>,
    /// Could not go back: nothing may be launched from wherever this process is.
    pub(super) is_lost: bool,
}

/// What a clone comes from.
pub(crate) struct Inside {
    /// On a template; else the child builds its root.
    pub on_template: bool,
    /// The network it was cloned into.
    pub network: Option<Network>,
}

impl Kept {
    /// For a process that does nothing but launch: it changes namespaces while it does. An ordinary user's moves for good
    /// into a user namespace of its own, where it has the rights that this takes; its own network is then an empty one.
    pub fn workshop(keep: Keep) -> Result<Self, StepError> {
        if !rustix::process::geteuid().is_root() {
            own_user_namespace().at(Step::Template, "a user namespace for the launcher")?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let home =
            rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty()).at(Step::Template, "/proc/self/ns/mnt")?;
        let networks = if keep.networks > 0 { Some(Pool::new(keep)?) } else { None };
        let workshop = Workshop {
            home,
            template: None,
            networks,
            begun: Vec::new(),
            most_begun: keep.sandboxes,
            scratch_bytes: None,
            is_lost: false,
        };
        Ok(Self { workshop: Some(workshop), ..Self::default() })
    }

    /// Whether this process does nothing but launch.
    pub(crate) fn is_workshop(&self) -> bool {
        self.workshop.is_some()
    }

    /// Takes back the network of a sandbox whose first process was waited for.
    pub fn give_back(&mut self, network: Network) -> io::Result<()> {
        match self.workshop.as_mut().and_then(|workshop| workshop.networks.as_mut()) {
            Some(pool) => pool.give_back(network),
            None => Ok(()),
        }
    }

    /// Whether something can be made now that the next launch would else wait for.
    pub fn has_work(&self) -> bool {
        let Some(workshop) = &self.workshop else { return false };
        workshop.networks.as_ref().is_some_and(Pool::wants_more) || workshop.wants_begun()
    }

    /// One that was begun and is what this plan needs.
    pub(crate) fn take_begun(&mut self, plan: &Plan) -> Result<Option<Begun>, StepError> {
        let serves = self.serves(plan);
        let Some(workshop) = &mut self.workshop else { return Ok(None) };
        workshop.scratch_bytes = Some(plan.limits.scratch_bytes);
        if workshop.begun.is_empty() || workshop.is_lost {
            return Ok(None);
        }
        if !workshop.has_current_template()? {
            return Ok(None);
        }
        while serves && let Some(index) = workshop.begun.iter().position(|begun| begun.fits(plan)) {
            let begun = workshop.begun.swap_remove(index);
            if begun.is_waiting().at(Step::Clone, "a sandbox begun in advance")? {
                self.ensure_tops(&targets(plan))?;
                return Ok(Some(begun));
            }
            begun.end().at(Step::Clone, "ending a sandbox that did not wait")?;
        }
        Ok(None)
    }

    /// A sandbox that was begun sees the folders of its template, and so those that are made in it later.
    fn ensure_tops(&mut self, targets: &[&Path]) -> Result<(), StepError> {
        let template = self.workshop.as_mut().and_then(|workshop| workshop.template.as_mut());
        match template {
            Some(template) if template.lacks_top(targets) => {
                let entered = template.enter(targets);
                self.leave().and(entered)
            }
            _ => Ok(()),
        }
    }

    /// Whether this launch is made on a template, and so everything of the host is opened by the parent.
    pub(crate) fn serves(&self, plan: &Plan) -> bool {
        self.workshop.is_some() && targets(plan).iter().all(|target| template::fits(target))
    }

    /// What sandboxes may take; read once, as long as this process has the host's view.
    pub(crate) fn quotas(&mut self) -> Result<Rc<Quotas>, StepError> {
        let quotas = match self.quotas.take() {
            Some(quotas) => quotas,
            None => Quotas::of_caller()?,
        };
        self.quotas = Some(Rc::clone(&quotas));
        Ok(quotas)
    }

    /// Where the child finds the strings that it has to wipe; they lie at the same place in its copy of the memory.
    pub(crate) fn strings(&mut self) -> Result<[Range<usize>; 2], StepError> {
        if self.strings.is_none() {
            self.strings = Some(crate::creds::find_strings()?);
        }
        self.strings.clone().ok_or_else(|| StepError::new(Step::WipeEnvironment, "the strings were not found"))
    }

    /// Moves this process to where the clone shall begin. Whatever comes of it, `leave` must be called.
    pub(crate) fn enter(&mut self, plan: &Plan, faults: Faults) -> Result<Inside, StepError> {
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
    ) -> Result<Inside, StepError> {
        let Some(workshop) = &mut self.workshop else { return Ok(Inside { on_template: false, network: None }) };
        if workshop.is_lost {
            return Err(StepError::new(Step::Template, "the launcher could not go back to the host's mounts"));
        }
        let pool = if pooled { workshop.networks.as_mut() } else { None };
        let network = pool.map(|pool| pool.take(faults)).transpose()?;
        if let Some(network) = &network {
            Pool::enter(network)?;
        }
        if let Some(targets) = on_template {
            workshop.template(faults)?.enter(targets)?;
        }
        Ok(Inside { on_template: on_template.is_some(), network })
    }

    /// Moves this process back.
    pub(crate) fn leave(&mut self) -> Result<(), StepError> {
        let Some(workshop) = &mut self.workshop else { return Ok(()) };
        let mounts = move_into_link_name_space(workshop.home.as_fd(), Some(LinkNameSpaceType::Mount))
            .at(Step::Template, "leaving the template");
        let back = mounts.and_then(|()| workshop.networks.as_ref().map_or(Ok(()), Pool::leave));
        workshop.is_lost |= back.is_err();
        back
    }
}

impl Workshop {
    pub(super) fn wants_begun(&self) -> bool {
        self.begun.len() < self.most_begun && self.scratch_bytes.is_some()
    }

    /// Whether there is a template that shows the host as it is. One that does not goes, and with it what was begun on it:
    /// the kernel tells only once that mounts have changed.
    pub(super) fn has_current_template(&mut self) -> Result<bool, StepError> {
        let Some(template) = &self.template else { return Ok(false) };
        if template.is_current().at(Step::Template, "looking at the host")? {
            return Ok(true);
        }
        // Before the next one is built: it would hold mounts of the host.
        self.template = None;
        for begun in std::mem::take(&mut self.begun) {
            begun.end().at(Step::Template, "ending what was begun on an old template")?;
        }
        Ok(false)
    }

    fn template(&mut self, faults: Faults) -> Result<&mut Template, StepError> {
        self.has_current_template()?;
        match &mut self.template {
            Some(template) => Ok(template),
            none => Ok(none.insert(Template::build(faults)?)),
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
