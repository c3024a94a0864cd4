//! The thread that renews leases: one request for the territory and all of its claims, at intervals and when a commit begins.

use super::context::Shared;
use crate::lease;
use crate::reported::Reported;
use crate::source::SourceError;
use nexus_api::conduits::{
    Capacity, DirectiveVerdict, PROTOCOL_VERSION, SandboxHealth, TerritoryHeartbeatRequest, Verdict,
};
use nexus_api::retry::{self, Next};
use nexus_model::spec::SandboxProfile;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Beats until the daemon stops.
pub fn run(shared: &Arc<Shared>) {
    let mut interval = shared.settings().heartbeat;
    let (mut reported, mut calls) = (Reported::default(), 0);
    while !shared.stop.wait_for_call(interval, &mut calls) {
        match once(shared) {
            Ok(wanted) => {
                interval = shared.settings().heartbeat.min(wanted);
                reported.clear();
            }
            Err(error) => {
                // Another cause may need another answer of the operator.
                let line = format!("the control plane takes no heartbeat: {error}");
                if reported.is_new(&line) {
                    shared.tell(&line);
                }
                if let Next::Alarm = retry::next(error.outcome(), 1, 0.5) {
                    // Revoked: no control plane remains to which this daemon may report what runs.
                    shared.table.all().iter().for_each(|live| live.lose());
                }
            }
        }
        fence_off(shared);
    }
}

/// Gives up the claims whose lease is over. Their sandboxes were killed by the launcher. A claim whose command has ended has only
/// its report left, which the control plane may still take.
fn fence_off(shared: &Shared) {
    for live in shared.table.all() {
        if live.is_over() && !live.is_lost() {
            shared.tell(&format!("directive {}: its lease is over, and its work ends", live.directive));
            live.lose();
        }
    }
}

/// Sends one heartbeat and does what its answer says. Returns the time until the next one.
pub fn once(shared: &Shared) -> Result<Duration, SourceError> {
    let beats = shared.table.beats();
    let request = TerritoryHeartbeatRequest {
        nexus_version: Some(shared.settings().version.clone()),
        protocol_version: Some(PROTOCOL_VERSION.into()),
        labels: Some(shared.settings().labels.clone()),
        capacity: Some(capacity(shared)),
        running_directives_count: u32::try_from(shared.table.len()).ok(),
        directives: Some(beats),
        ..TerritoryHeartbeatRequest::default()
    };
    let sent = lease::boot_time();
    let answer = shared.source.beat(&request)?;
    for verdict in answer.directives.into_iter().flatten() {
        apply(shared, verdict, sent);
    }
    Ok(Duration::from_secs(u64::from(answer.next_heartbeat_interval_seconds.clamp(1, 60))))
}

fn apply(shared: &Shared, verdict: DirectiveVerdict, sent: Duration) {
    let Some(live) = shared.table.get(verdict.directive_id) else { return };
    match verdict.verdict {
        Verdict::Extend | Verdict::Cancel => {
            let (run, until) = live.renew(sent, verdict.directive_token);
            if let Some(run) = run
                && let Err(why) = shared.engine.driver.keep_until(run, until)
            {
                shared.tell(&format!("directive {}: {why}", live.directive));
            }
            if verdict.verdict == Verdict::Cancel {
                live.is_canceled.store(true, Ordering::SeqCst);
                live.control.cancel();
            }
        }
        // The answer to its report decides: the directive may be over because of a report whose answer was lost.
        Verdict::Abort | Verdict::Lost if live.is_reporting() => {}
        Verdict::Abort | Verdict::Lost => live.lose(),
    }
}

fn capacity(shared: &Shared) -> Capacity {
    let fault = shared.health.fault();
    let health = SandboxHealth { healthy: fault.is_none(), ..SandboxHealth::default() };
    let driver = shared.engine.driver.name().to_owned();
    Capacity {
        max_concurrent: Some(shared.settings().max_concurrent),
        sandbox_health: Some(BTreeMap::from([(driver.clone(), health)])),
        untrusted_driver: Some(driver),
        supported_profiles: Some(vec![SandboxProfile::Untrusted.name().to_owned()]),
        ..Capacity::default()
    }
}
