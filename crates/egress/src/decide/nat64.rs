//! Finds the prefixes of NAT64 of this host's network (RFC 7050) when the first IPv6 address is to be decided.
//!
//! ```text
//!  IPv6 address ─▶ is the answer fresh? ─yes─▶ decided by the policy in force
//!                    └─no─▶ look-up of ipv4only.arpa ─┬─ an answer ─▶ its prefixes join the policy, open connections too
//!                                                     ├─ a name server fails ─▶ no prefix is shown
//!                                                     └─ silence, or an error of this host ─▶ refused, unless the user
//!                                                                                             wrote the destination out
//! ```
//!
//! The name is the same for all programs, so that the question carries nothing out. A prefix that was found stays as
//! long as the egress lives, and it only takes away: an address below it leads no further than the IPv4 address inside.
//! A program inside can cause silence and errors of this host, and must not gain by that.

use crate::decide::denials;
use crate::decide::shared::Shared;
use crate::upstream::resolve::{ResolveError, Resolved, Resolver};
use nexus_policy::net::{Class, DISCOVERY_NAME, Denial, Host, Policy, classify, nat64_prefixes};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Minimum time for which an answer holds, and maximum time, whatever the answer says.
const MIN_HOLD: Duration = Duration::from_secs(60);
const MAX_HOLD: Duration = Duration::from_secs(60 * 60);
/// Time after which a question without an answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum time for which an attempt waits for the answer. A later answer counts for the attempts after it.
const WAIT: Duration = Duration::from_secs(3);

/// Latest answer; `None` before the first one.
#[derive(Debug, Default)]
pub(crate) struct Nat64(Mutex<Option<Latest>>);

/// Answer about the prefixes of this host's network.
#[derive(Debug, Clone, Copy)]
struct Latest {
    until: Instant,
    /// Number of changes of the host's addresses and routes before the question: another network has other prefixes.
    changes: u64,
    is_known: bool,
}

/// Reports whether an address may lie below such a prefix.
fn may_be_below(address: &IpAddr) -> bool {
    address.is_ipv6() && matches!(classify(*address), None | Some(Class::Private))
}

impl Shared {
    /// Makes the prefixes of NAT64 known to the policy in force, if one of the addresses `to` may lie below one.
    /// Without an answer the attempt is refused, unless the user wrote out the destination.
    pub(crate) async fn know_nat64(self: &Arc<Self>, to: &[IpAddr], is_written: bool) -> Result<(), Denial> {
        if !to.iter().any(may_be_below) {
            return Ok(());
        }
        // A task of its own: an attempt that leaves takes nothing from those that go on waiting.
        let asked = timeout(WAIT, tokio::spawn(Arc::clone(self).ask_nat64())).await;
        if is_written || matches!(asked, Ok(Ok(true))) {
            return Ok(());
        }
        Err(not_known())
    }

    /// Looks up the prefixes if the latest answer is too old, one question at a time; returns false without an answer.
    async fn ask_nat64(self: Arc<Self>) -> bool {
        let mut latest = self.nat64.0.lock().await;
        let changes = self.host_changes.load(Ordering::Acquire);
        if let Some(latest) = latest.filter(|latest| latest.until > Instant::now() && latest.changes == changes) {
            return latest.is_known;
        }
        let Ok(Host::Name(name)) = Host::parse(DISCOVERY_NAME) else { return false };
        let hold = match timeout(self.limits.resolve_time, self.resolver.lookup(&name)).await {
            Ok(Ok(found)) => self.learn_nat64(&found),
            Ok(Err(ResolveError::Failed { .. } | ResolveError::Configuration { .. })) => Some(MIN_HOLD),
            Ok(Err(ResolveError::Local { .. } | ResolveError::Silent { .. } | ResolveError::TooMany { .. }))
            | Err(_) => None,
        };
        let until = Instant::now() + hold.unwrap_or(RETRY);
        *latest = Some(Latest { until, changes, is_known: hold.is_some() });
        hold.is_some()
    }

    /// Takes the prefixes of an answer; returns the time for which it holds, or `None` if its IPv6 half is missing.
    fn learn_nat64(&self, found: &Resolved) -> Option<Duration> {
        self.registry.learn_nat64(&nat64_prefixes(&found.addrs), self.clock.now());
        let ttl = found.ttl_s.map_or(MAX_HOLD, |ttl_s| Duration::from_secs(ttl_s.into()));
        (!lacks_ipv6(found)).then(|| ttl.clamp(MIN_HOLD, MAX_HOLD))
    }
}

/// Reports whether the half of an answer is missing that shows prefixes.
fn lacks_ipv6(found: &Resolved) -> bool {
    !found.addrs.iter().any(IpAddr::is_ipv6)
        && matches!(found.partial, Some(ResolveError::Silent { .. } | ResolveError::Local { .. }))
}

fn not_known() -> Denial {
    let why =
        "the name servers of this machine do not answer in time whether IPv6 addresses lead to IPv4 ones here (NAT64)";
    denials::not_resolved(&ResolveError::Silent { name: DISCOVERY_NAME.to_owned(), why: why.to_owned() })
}

/// Returns the policy with the prefixes that `resolver` shows now, as a connection to one of the addresses `to` would find
/// it, or the denial of a connection whose question has no answer. Asks only where an address may lie below a prefix.
pub async fn nat64_now(
    policy: &Policy,
    resolver: &dyn Resolver,
    to: &[IpAddr],
    is_written: bool,
) -> Result<Policy, Denial> {
    let Ok(Host::Name(name)) = Host::parse(DISCOVERY_NAME) else { return Err(not_known()) };
    if !to.iter().any(may_be_below) {
        return Ok(policy.clone());
    }
    match timeout(WAIT, resolver.lookup(&name)).await {
        Ok(Ok(found)) if is_written || !lacks_ipv6(&found) => Ok(policy.with_nat64(nat64_prefixes(&found.addrs))),
        Ok(Err(ResolveError::Failed { .. } | ResolveError::Configuration { .. })) => Ok(policy.clone()),
        _ if is_written => Ok(policy.clone()),
        _ => Err(not_known()),
    }
}
