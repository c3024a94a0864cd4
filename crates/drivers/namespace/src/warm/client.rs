//! The namespace driver of a run that may have its sandbox started by a warm launcher.

use super::connection::{Connection, Failed, StartedSandbox};
use super::likeness::OwnFacts;
use super::place::Place;
use crate::driver::{Namespace, changes_of};
use crate::guarantees;
use crate::name::NAME;
use crate::process::NamespaceProcess;
use nexus_driver::{
    Channel, DestroyError, Driver, Found, Handle, InventoryError, PrepareError, ProbeReport, Sandbox, StartError,
};
use nexus_jail::clone::Child;
use nexus_model::Plan;
use nexus_model::plan::Writes;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The namespace driver of one run: with a launcher of the user's where there is one for it, and otherwise as ever.
#[derive(Debug)]
pub struct WarmDriver {
    local: Namespace,
    /// The connection, which one start uses up.
    connection: Mutex<Option<Connection>>,
    /// The reason why a launcher that was found did not start the sandbox.
    passed_over: Mutex<Option<String>>,
}

impl WarmDriver {
    /// Looks for a launcher for processes like this one in a directory, without waiting. `sandboxes` is what the caller's
    /// settings say about every sandbox. Where anything is not as it has to be, there is none.
    #[must_use]
    pub fn new(local: Namespace, directory: &Path, sandboxes: BTreeMap<&'static str, String>) -> Self {
        Self { local, connection: Mutex::new(found(directory, sandboxes)), passed_over: Mutex::default() }
    }

    /// The driver that clones from this process, without a launcher.
    #[must_use]
    pub fn cold(local: Namespace) -> Self {
        Self { local, connection: Mutex::new(None), passed_over: Mutex::default() }
    }

    /// Returns the driver of this process, for what needs no sandbox.
    #[must_use]
    pub fn local(&self) -> &Namespace {
        &self.local
    }

    /// Returns why a launcher was asked and did not start the sandbox, for a person who wonders.
    #[must_use]
    pub fn passed_over(&self) -> Option<String> {
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start_cold(&self, plan: &Plan, handle: &Handle, code: &str) -> Result<Sandbox, StartError> {
        tracing::debug!(run = %plan.run_id, code, "the sandbox is started without the warm launcher");
        self.local.start(plan, handle)
    }
}

fn found(directory: &Path, sandboxes: BTreeMap<&'static str, String>) -> Option<Connection> {
    let place = match Place::open(directory) {
        // The usual case: no launcher was ever started, and nothing more is read.
        Ok(None) => return None,
        Ok(Some(place)) => place,
        Err(_) => {
            tracing::debug!("the directory of the warm launchers cannot be used");
            return None;
        }
    };
    let own = OwnFacts::read(sandboxes).ok()?;
    // A process that gains no rights may be confined in a way that only it and its children have.
    if own.likeness.is_confined() {
        return None;
    }
    Connection::dial(&place, &own.name()?, &own.likeness).ok().flatten()
}

/// Returns the code of the reason for which a launcher cannot start the sandbox of this plan as a process of the caller would.
fn unfit(plan: &Plan) -> Option<&'static str> {
    if plan.limits.needs_cgroup() {
        // The command sees its own limits, and is in its group from its first instruction.
        return Some("control_group");
    }
    (!nexus_jail::fits_template(plan)).then_some("template")
}

impl Driver for WarmDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self) -> ProbeReport {
        self.local.probe()
    }

    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError> {
        self.local.prepare(plan)
    }

    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(connection) = connection else { return self.local.start(plan, handle) };
        if let Some(code) = unfit(plan) {
            return self.start_cold(plan, handle, code);
        }
        match connection.start(plan, handle) {
            Ok(made) => sandbox(plan, made),
            Err(Failed::NotAsked(reason)) => {
                *self.passed_over.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                self.start_cold(plan, handle, "not_asked")
            }
            Err(Failed::Declined) => self.start_cold(plan, handle, "declined"),
            Err(Failed::Refused(error)) => {
                // Its word is taken, and looked after: two sandboxes of one run would share a layer.
                self.local.destroy(handle).map_err(|left| StartError::Launcher {
                    reason: format!(
                        "the warm launcher started no sandbox ({error}), and something of one is left: {left}"
                    ),
                })?;
                self.start_cold(plan, handle, error.code())
            }
            // The caller destroys what there may be, and a sandbox without a host starts no command.
            Err(Failed::Unknown(reason)) => Err(StartError::Launcher { reason }),
        }
    }

    fn inventory(&self) -> Result<Vec<Found>, InventoryError> {
        self.local.inventory()
    }

    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError> {
        self.local.destroy(handle)
    }
}

fn sandbox(plan: &Plan, made: StartedSandbox) -> Result<Sandbox, StartError> {
    let StartedSandbox { started, channel, pidfd, upper, watch, link } = made;
    let odd = |reason: &str| StartError::Launcher { reason: format!("the warm launcher gave an odd answer: {reason}") };
    // What a receipt signs is what this program would have said itself.
    if started.guarantees != guarantees::of(plan) {
        return Err(odd("it holds other guarantees"));
    }
    if upper.is_some() != matches!(plan.workspace.writes, Writes::MemoryLayer { .. }) {
        return Err(odd("it made another layer"));
    }
    let pid = Pid::from_raw(started.pid).ok_or_else(|| odd("the sandbox has no process"))?;
    tracing::debug!(run = %plan.run_id, pid = started.pid, "the warm launcher started the sandbox");
    Ok(Sandbox {
        channel: Channel::new(channel),
        guarantees: started.guarantees,
        expect: started.expect,
        changes: changes_of(plan, upper),
        process: Box::new(NamespaceProcess::new(Child { pid, pidfd }, None, watch, Vec::new()).linked(link)),
    })
}
