//! Decides about one attempt as a run would now, and connects to nothing.
//!
//! ```text
//!  Config ─▶ the state of an egress without listeners ─▶ the decision of a connection ─▶ Preview
//! ```
//!
//! The names are looked up as for a connection: that of the attempt where the rules let it through, the denied names and
//! the prefixes of NAT64 where they could decide.

use crate::audit::event::{AuditError, Event};
use crate::config::Config;
use crate::decide::state::Shared;
use crate::egress::{StartError, shared};
use crate::ingress::stub_addresses::meant;
use crate::seams::Sink;
use nexus_policy::net::{Attempt, Denial, Hello, Ingress, Permit, Policy, check_name, check_sni};
use std::net::IpAddr;
use std::sync::Arc;

/// A decision that no connection follows.
#[derive(Debug)]
pub struct Preview {
    /// Policy that decided, with the prefixes of NAT64 that were found.
    pub policy: Arc<Policy>,
    /// The permit of a connection, or its denial.
    pub outcome: Result<Permit, Denial>,
    /// Addresses to which the name of the attempt resolved, where they were asked for.
    pub resolved: Vec<IpAddr>,
}

/// Sink of a preview, which leaves no record.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unrecorded;

impl Sink for Unrecorded {
    fn record(&self, _event: &Event) -> Result<(), AuditError> {
        Ok(())
    }
}

/// Decides about `attempt` as an egress with `config` would. Must be called in a runtime of tokio.
pub async fn preview(config: Config, attempt: &Attempt) -> Result<Preview, StartError> {
    let (shared, _changes) = shared(config)?;
    let shared = Arc::new(shared);
    let (outcome, resolved) = decided(&shared, attempt).await;
    Ok(Preview { policy: Arc::clone(&shared.registry.policy().policy), outcome, resolved })
}

async fn decided(shared: &Arc<Shared>, attempt: &Attempt) -> (Result<Permit, Denial>, Vec<IpAddr>) {
    let attempt = match meant(shared, attempt.target.clone()) {
        Ok(target) => Attempt { target, ..attempt.clone() },
        Err(denial) => return (Err(denial), Vec::new()),
    };
    let policy = shared.registry.policy();
    if policy.followed().next().is_some() && check_name(&policy, &attempt, shared.clock.now()).is_ok() {
        let (limit, every) = (shared.limits.resolve_time, shared.limits.follow_every);
        shared.followed.look_up(&policy, &shared.resolver, limit, every).await;
    }
    let (outcome, context) = match shared.decide_with(&attempt, shared.next_id(), None).await {
        Ok(decided) => (Ok(decided.permit), decided.context),
        Err((denial, context)) => (Err(denial), context),
    };
    let outcome = outcome.and_then(|permit| match attempt.way {
        // A request to the proxy is plain HTTP, also where TLS is expected.
        Ingress::HttpAbsolute => {
            let policy = shared.registry.policy();
            check_sni(&policy, &permit, Hello::NotTls, shared.clock.now()).map(|()| permit)
        }
        Ingress::Connect | Ingress::Socks5 | Ingress::Transparent | Ingress::HostPort => Ok(permit),
    });
    (outcome, context.resolved.unwrap_or_default())
}
