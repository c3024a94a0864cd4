//! One launch, seen by the parent: everything before the clone, and what only a parent may do after it.
//!
//! ```text
//!  check one thread ─▶ own keyring ─▶ (a warm sandbox that fits) ─▶ (root or launcher process: workspace, binds) ─▶ cgroup
//!      ─▶ the warm sandbox gets the plan
//!      └▶ channel ─▶ (launcher process: into the template) ─▶ clone3 ─▶ (back home) ─▶ (id maps; v1: enter) ─▶ go
//! ```
//! Mounts made here are never attached to the host: they are descriptors, and vanish with this process.

use crate::clone::Child;
use crate::identity::Identity;
use crate::inside::setup;
use crate::launcher::netpool::Network;
use crate::launcher::prefork::WarmSandbox;
use crate::launcher::state::{CloneSite, LauncherState};
use crate::launcher::{keyring, prepare, start};
use crate::leave_out::{Wall, stands};
use crate::overlay_watch;
use crate::request::{Here, Request, Setup, Start};
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::plan::Writes;
use rustix::fd::OwnedFd;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A sandbox that is coming up. What comes next on the channel says whether it did.
#[derive(Debug)]
pub struct Launched {
    /// PID 1 as the host sees it.
    pub child: Child,
    /// The host's end of the guest channel.
    pub channel: OwnedFd,
    /// The upper directory of a layer in memory, when the launcher made it.
    pub upper: Option<OwnedFd>,
    /// Its ids: those of the request, or those of the warm sandbox that took the plan.
    pub identity: Identity,
    /// The pooled network that it has; for [`LauncherState::give_back`] once its first process was waited for.
    pub network: Option<Network>,
    /// Reports when the workspace's overlay is gone for good; for [`crate::overlay_watch::overlay_is_gone`]. A launcher process, which
    /// keeps mounts of dead sandboxes for a while, has one where it was asked to ([`LauncherState::watch_layers`]).
    pub watch: Option<OwnedFd>,
    /// Mounts to close when no request waits: the kernel waits for all processors when their last descriptor is closed.
    pub deferred: Vec<OwnedFd>,
}

/// Starts a sandbox. On an error nothing of it is left but the control group, which the caller removes by its name.
pub fn launch(request: &Request<'_>, kept: &mut LauncherState) -> Result<Launched, StepError> {
    let setup = &request.setup;
    let faults = setup.faults;
    start::check_single_thread(faults)?;
    join_keyring(faults, kept)?;
    let is_layered = !matches!(request.plan.workspace.writes, Writes::Direct { .. });
    let watch = (is_layered && kept.watches_layers()).then(overlay_watch::instance).flatten();
    // One that needs a group has to be in it from its beginning: that becomes what it sees of the hierarchy.
    let warm = if request.group.is_none() { kept.take_warm(request.plan)? } else { None };
    // Root maps the owners of files to the ids of the sandbox, which a warm one has had since it was made.
    let identity = warm.as_ref().map_or(setup.identity, |warm| warm.identity);
    let request = &Request { setup: Setup { identity, ..*setup }, ..*request };
    let setup = &request.setup;
    let mut prepared = prepare::prepare(request, kept, watch.as_ref())?;
    // The child has the same instance by the clone, and watches what it mounts itself.
    let mounts_inside = prepared.workspace.is_none();
    let watch_inside = watch.as_ref().filter(|_| mounts_inside).and_then(|watch| watch.try_clone().ok());
    let (upper, deferred) = (prepared.upper.take(), std::mem::take(&mut prepared.deferred));
    let mut target = None;
    if let Some(group) = request.group {
        group.make(&request.plan.limits, faults)?;
        target = group.clone_target(faults)?;
    }
    faults.check(Step::Clone)?;
    if let Some(warm) = warm {
        match warm.send_plan(request.plan, &prepared) {
            Ok(()) => {
                let WarmSandbox { child, channel, network, .. } = warm;
                return Ok(Launched { child, channel, upper, identity, network, watch, deferred });
            }
            // It has just died. Nothing was lost: the mounts are still here.
            Err(_) => WarmSandbox::end(&[warm]).at(Step::Clone, "ending a sandbox that took no order")?,
        }
    }
    let (ours, theirs) = start::channel(faults)?;
    let (strings, quotas) = (kept.strings()?, kept.quotas()?);
    let maps = prepared.workspace.is_some();
    let parent_acts = maps || request.group.is_some();
    let cloned = kept.enter(request.plan, faults).and_then(|inside| {
        let CloneSite { on_template, network } = inside;
        let own_network = network.is_none();
        let here = Here { on_template, own_network, strings, parent_acts, quotas: Arc::clone(&quotas) };
        let begin = Start { here, prepared, watch: watch_inside, channel: theirs };
        let run = move || setup::run(request, begin);
        start::clone_inside(&setup.identity, own_network, &ours, target.as_ref(), run).map(|child| (child, network))
    });
    let (child, network) = match cloned {
        Ok(cloned) => cloned,
        Err(error) => return kept.leave().and(Err(error)),
    };
    let back = kept.leave();
    let maps = maps.then_some(&*quotas);
    let finished = back.and_then(|()| {
        if parent_acts { start::finish_as_parent(setup, request.group, &child, &ours, maps) } else { Ok(()) }
    });
    if let Err(error) = finished {
        return Err(start::end_after(&child, error));
    }
    Ok(Launched { child, channel: ours, upper, identity, network, watch, deferred })
}

/// Leaves the caller's session keyring, once in the life of a launcher.
fn join_keyring(faults: Faults, kept: &mut LauncherState) -> Result<(), StepError> {
    if !kept.has_keyring && stands(Wall::Keyring) {
        keyring::join(faults)?;
        kept.has_keyring = true;
    }
    faults.check(Step::JoinKeyring)
}

/// Inode numbers of this process's namespaces, by name.
pub fn host_namespaces() -> io::Result<Vec<(String, u64)>> {
    ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]
        .iter()
        .map(|name| Ok(((*name).to_owned(), std::fs::metadata(Path::new("/proc/self/ns").join(name))?.ino())))
        .collect()
}
