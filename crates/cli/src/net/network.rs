//! What a run may reach, decided before anything of it exists.

use super::args::NetFlags;
use super::{clients, environment, host, rules};
use crate::failure::Failure;
use crate::profile::Found;
use nexus_egress::UpstreamProxy;
use nexus_policy::net::{Policy, RuleError, builtin_groups};
use nexus_policy::profile::{Grants, NetMode, Origin};
use nexus_policy::settings::EgressSettings;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How long a question waits.
const ASK_TIME: Duration = Duration::from_secs(60);

/// The network of one run.
pub struct Network {
    /// What may be reached.
    pub policy: Policy,
    /// The operator's proxy.
    pub upstream: Option<UpstreamProxy>,
    /// How long a question waits, when questions are asked.
    pub ask: Option<Duration>,
}

impl Network {
    /// Reads what there is to read; `None` where the run has no network. What clients need inside goes to `found`.
    pub fn of(
        grants: &Grants,
        flags: &NetFlags,
        settings: &EgressSettings,
        workspace: &Path,
        found: &mut Found,
    ) -> Result<Option<Self>, Failure> {
        if grants.net.effective_mode() == NetMode::None {
            refuse_rules_without_network(flags)?;
            return Ok(None);
        }
        let from = grants.net.mode.as_ref().map_or(Origin::Standard, |mode| mode.from.clone());
        environment::add(&mut found.env, &from);
        let network = Self::read(grants, flags, settings, workspace, found, &[], 1)?;
        Ok(Some(network))
    }

    /// The same for an egress that listens on this host, under a number of its own.
    pub fn read(
        grants: &Grants,
        flags: &NetFlags,
        settings: &EgressSettings,
        workspace: &Path,
        found: &mut Found,
        listeners: &[SocketAddr],
        generation: u64,
    ) -> Result<Self, Failure> {
        let mut groups = builtin_groups().map_err(|error| own_fault(&error))?;
        clients::read(&grants.net.groups, workspace, &mut groups, found)?;
        let own_addresses = host::addresses().map_err(|error| {
            let message = format!("the addresses of this host cannot be read: {error}");
            Failure::refused("net", message, "without them the host could not be kept out of reach; mount /proc")
        })?;
        let policy = rules::policy(rules::Sources {
            grants: &grants.net,
            flags,
            settings,
            groups: &groups,
            own_addresses,
            own_listeners: listeners.to_vec(),
            generation,
        })?;
        let ask = flags.ask.then(|| flags.ask_timeout.map_or(ASK_TIME, Duration::from_millis));
        Ok(Self { policy, upstream: rules::upstream(settings)?, ask })
    }
}

/// A limit or rule that nobody will look at is a mistake that its author should hear of.
fn refuse_rules_without_network(flags: &NetFlags) -> Result<(), Failure> {
    let given = [
        ("--allow", !flags.allow.is_empty()),
        ("--allow-group", !flags.allow_group.is_empty()),
        ("--allow-private", !flags.allow_private.is_empty()),
        ("--ask", flags.ask),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => {
            let message = format!("{flag} opens something, and there is no network");
            Err(Failure::usage("net", message, "leave --net none out, or the file that closes the network"))
        }
    }
}

fn own_fault(error: &RuleError) -> Failure {
    Failure::refused("internal", format!("the built-in groups: {error}"), "this should not happen; reinstall nexus")
}
