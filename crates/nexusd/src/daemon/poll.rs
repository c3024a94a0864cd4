//! The thread that claims directives.

use super::context::Shared;
use super::{beat, replay, worker};
use crate::lease;
use crate::report::jitter;
use crate::source::SourceError;
use nexus_api::conduits::{MAX_CLAIMS, MAX_WAIT_SECONDS, PollRequest};
use nexus_api::retry::{self, Next};
use nexus_model::RunId;
use nexus_model::spec::SandboxProfile;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks at something that keeps the daemon from claiming.
const BLOCKED_FOR: Duration = Duration::from_secs(5);
/// Time after a refusal that an operator has to look at.
const ALARM_FOR: Duration = Duration::from_secs(60);
/// An empty answer that came sooner was no long poll.
const SHORT: Duration = Duration::from_secs(1);

/// Claims until the daemon takes no more work.
pub fn run(shared: &Arc<Shared>) {
    replay::run(shared);
    beat::once(shared).ok();
    let (mut tries, mut poll_id) = (0u32, None::<String>);
    let mut blocked = None::<String>;
    while !shared.takes_no_work() && !shared.stop.is_set() {
        let most = shared.settings().max_concurrent as usize;
        if !shared.table.wait_below(most, SHORT) {
            continue;
        }
        if let Err(why) = may_claim(shared) {
            if blocked.as_ref() != Some(&why) {
                shared.tell(&format!("no work is claimed: {why}"));
            }
            blocked = Some(why);
            shared.stop.wait(BLOCKED_FOR);
            continue;
        }
        blocked = None;
        let free = most.saturating_sub(shared.table.len());
        let wait =
            u32::try_from(shared.settings().poll_wait.as_secs()).unwrap_or(MAX_WAIT_SECONDS).min(MAX_WAIT_SECONDS);
        // A repetition of a poll without an answer has the name of the first one, and gets what that one claimed.
        let name = poll_id.get_or_insert_with(|| RunId::new().to_string()).clone();
        let request = PollRequest {
            supported_sandbox_profiles: vec![SandboxProfile::Untrusted.name().to_owned()],
            max_directives_to_claim: u32::try_from(free).unwrap_or(MAX_CLAIMS).clamp(1, MAX_CLAIMS),
            wait_seconds: Some(wait),
            guarantees: Some(shared.health.guarantees(&*shared.engine.driver)),
            poll_id: Some(name),
        };
        let (sent, clock) = (lease::boot_time(), Instant::now());
        match shared.source.poll(&request) {
            Ok(answer) => {
                (tries, poll_id) = (0, None);
                let is_empty = answer.directives.is_empty();
                for claimed in answer.directives {
                    let ttl = claimed.lease_ttl_seconds.unwrap_or(answer.lease_ttl_seconds);
                    worker::spawn(shared, claimed, sent, ttl);
                }
                if is_empty && clock.elapsed() < SHORT {
                    shared.stop.wait(Duration::from_secs(u64::from(answer.retry_after_seconds.clamp(1, 300))));
                }
            }
            Err(_) if shared.takes_no_work() => {}
            Err(error) => {
                tries += 1;
                shared.stop.wait(pause(shared, &error, tries));
            }
        }
    }
}

fn pause(shared: &Shared, error: &SourceError, tries: u32) -> Duration {
    match retry::next(error.outcome(), tries, jitter()) {
        Next::Again(pause) => {
            if tries == 1 {
                shared.tell(&format!("the control plane gives no work: {error}"));
            }
            pause
        }
        Next::Done => Duration::ZERO,
        Next::Alarm | Next::Abandon | Next::Final => {
            shared.tell(&format!("the control plane refuses this territory: {error}"));
            ALARM_FOR
        }
    }
}

/// Checks what has to be true before work is claimed.
fn may_claim(shared: &Shared) -> Result<(), String> {
    shared.engine.claims.reserve().map_err(|error| format!("there is no room for results on the disk: {error}"))?;
    shared.uploads.check()?;
    match shared.engine.driver.revive() {
        Ok(true) => shared.tell("the launcher process had died and was started again"),
        Ok(false) => {}
        Err(why) => return Err(why),
    }
    shared.health.check(&*shared.engine.driver).map_err(|why| format!("the trial sandbox failed: {why}"))
}
