//! Ends of claims by time alone.

use nexus_model::directive::{Event, Fence};

/// Time after `lease_until` at which the server counts a lease as over. The daemon counts it as over 5 s before (`nexusd::lease::MARGIN`),
/// and its launcher kills the sandbox then.
const GRACE_MS: i64 = 5_000;
/// Time that a daemon has to confirm a request to end.
const CONFIRM_MS: i64 = 60_000;
/// Time after the end of all limits until a directive that still beats is ended.
pub const OVERRUN_MS: i64 = 60_000;

/// The latest claim of a directive, as far as time can end it.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTimes {
    /// Number of the claim.
    pub fence: Fence,
    /// The daemon reported the start.
    pub has_started: bool,
    /// End of the lease; `None` for one that is over.
    pub lease_until: Option<i64>,
    /// Time at which a claim without a reported start is given back.
    pub visible_at: Option<i64>,
    /// Time of the request to end.
    pub cancel_at: Option<i64>,
    /// Time after which the daemon is asked to abort.
    pub deadline: Option<i64>,
}

/// Returns the event that time has brought about. `epoch` is that of the server's fences.
pub fn ended_by_time(claim: &ClaimTimes, epoch: u64, now: i64) -> Option<Event> {
    let fence = claim.fence;
    let next = fence.next(epoch)?;
    if !claim.has_started && claim.visible_at.is_some_and(|at| now >= at) {
        return Some(Event::Returned { fence });
    }
    let ended = claim.lease_until.is_none_or(|until| now >= until + GRACE_MS);
    let unconfirmed = claim.cancel_at.is_some_and(|at| now >= at + CONFIRM_MS);
    match (ended, unconfirmed && claim.has_started) {
        (true, true) => Some(Event::CancelUnconfirmed { fence }),
        (true, false) => Some(Event::LeaseLost { fence, may_restart: true, commits: true }),
        // A claim that still beats. While no server or no network was there, no daemon could report: then its lease decides.
        (false, _) if claim.deadline.is_some_and(|deadline| now >= deadline + OVERRUN_MS) => {
            Some(Event::Overrun { fence, next })
        }
        (false, _) => None,
    }
}
