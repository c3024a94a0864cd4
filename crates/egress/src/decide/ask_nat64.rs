//! Asks for the prefixes of NAT64 (`nat64`) when an attempt needs them, one question at a time.

use crate::decide::facts::nat64::{Latest, WAIT, lacks_ipv6, may_be_below, not_known};
use crate::decide::state::Shared;
use crate::seams::{ResolveError, Resolved};
use nexus_policy::net::{DISCOVERY_NAME, Denial, Host, nat64_prefixes};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Minimum time for which an answer holds, and maximum time, whatever the answer says.
const MIN_HOLD: Duration = Duration::from_secs(60);
const MAX_HOLD: Duration = Duration::from_secs(60 * 60);
/// Time after which a question without an answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
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
