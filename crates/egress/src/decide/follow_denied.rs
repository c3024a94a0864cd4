//! Runs the look-ups of denied names (`facts::denied_addresses`).

use crate::decide::state::Shared;
use std::sync::Arc;
use tokio::time::Instant;

/// Looks up the denied names as long as the egress lives.
pub(crate) async fn follow(shared: Arc<Shared>) {
    loop {
        let policy = shared.registry.policy();
        if policy.followed().next().is_none() {
            shared.followed.until_policy_changed().await;
            continue;
        }
        let (limit, every) = (shared.limits.resolve_time, shared.limits.follow_every);
        if shared.followed.look_up(&policy, &shared.resolver, limit, every).await {
            shared.host_changed();
        }
        // A look-up that ended by a panic has no time of its own.
        let again = shared.followed.next_due(&policy).unwrap_or_else(|| Instant::now() + every);
        tokio::select! {
            () = tokio::time::sleep_until(again) => {}
            () = shared.followed.until_policy_changed() => {}
        }
    }
}
