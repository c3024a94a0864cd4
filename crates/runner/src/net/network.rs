//! The network of a run: the destinations that it may reach, decided before anything of the run exists.

use nexus_egress::UpstreamProxy;
use nexus_policy::net::{Groups, Policy, mode_name};
use nexus_receipt::{Bounded, Network as InForce};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The network of one run.
#[derive(Clone)]
pub struct RunNetwork {
    /// The destinations that may be reached.
    pub policy: Policy,
    /// The proxy of the operator.
    pub upstream: Option<UpstreamProxy>,
    /// The time for which a question waits, when questions are asked.
    pub ask: Option<Duration>,
    /// Notes for the user, shown at the end of the run.
    pub notes: Vec<String>,
    /// The groups that are in use, with their rules.
    pub groups: Groups,
}

impl RunNetwork {
    /// Returns this network for an egress that listens on the host which has these addresses, with a generation of its own.
    #[must_use]
    pub fn on_host(self, addresses: &[IpAddr], listeners: &[SocketAddr], generation: u64) -> Self {
        let policy = self.policy.on_host(addresses, listeners).numbered(generation);
        Self { policy, ..self }
    }

    /// Returns the network in the form of a receipt.
    pub fn for_receipt(&self) -> InForce {
        InForce {
            mode: mode_name(self.policy.mode()).to_owned(),
            rules: Bounded::whole(self.policy.listed()),
            policy: self.policy.recorded().map(|(hash, _)| hash),
            upstream: self.upstream.is_some(),
            ask: self.ask.is_some(),
        }
    }
}
