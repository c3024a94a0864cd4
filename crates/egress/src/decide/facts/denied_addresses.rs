//! Follows the addresses of denied names where everything else is open.
//!
//! ```text
//!  denied names of the policy ─look-up, at the start and again─▶ addresses, each kept while the egress lives
//!       a decision ◀── those that it is about ──┘        └─ a new one ─▶ every open connection is decided again
//! ```
//!
//! Each name has its own interval: an answer is kept until it ends, within bounds, and a name that fails is asked ever
//! less often. So neither a short time to live nor a dead name server causes look-ups of the other names.
//!
//! The names come from the user's rules, so a look-up carries nothing out of the sandbox. Addresses of an earlier
//! answer are kept: names with many servers answer with a few at a time. A name whose addresses are not known, or too
//! many, closes every connection that could lead there unseen.

use crate::seams::{ResolveError, Resolved, Resolver};
use nexus_policy::net::{Attempt, Behind, Name, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Maximum number of denied names that are followed.
const MAX_NAMES: usize = 256;
/// Maximum number of addresses of one name. A name with more counts as not known.
const MAX_ADDRESSES: usize = 1024;
/// Maximum number of look-ups at one time.
const PARALLEL: usize = 16;
/// Longest interval between two look-ups of a name with a long-lived answer, in units of `Limits::follow_every`.
const LONGEST: u32 = 2;
/// The first look-up after a failure comes within this part of `Limits::follow_every`, each further one after twice the
/// time.
const FIRST_RETRY: u32 = 6;
/// Longest interval between two look-ups of a name that fails, in units of `Limits::follow_every`.
const LONGEST_RETRY: u32 = 10;

/// State of one denied name.
#[derive(Debug, Default)]
struct Known {
    /// True if a look-up was answered.
    answered: bool,
    /// True if an answer had too many addresses to be used.
    too_many: bool,
    addresses: BTreeSet<IpAddr>,
    /// Number of look-ups that failed since the last answer.
    failures: u32,
    /// Time of the next look-up.
    due: Option<Instant>,
}

impl Known {
    fn is_whole(&self) -> bool {
        self.answered && !self.too_many && self.addresses.len() <= MAX_ADDRESSES
    }

    /// Takes the result of a look-up, `None` if it took too long. Reports whether the state changed.
    fn take(&mut self, found: Option<&Result<Resolved, ResolveError>>, every: Duration) -> bool {
        let now = Instant::now();
        let (before, whole) = (self.addresses.len(), self.is_whole());
        let Some(Ok(found)) = found else {
            self.too_many |= matches!(found, Some(Err(ResolveError::TooMany { .. })));
            self.failures = self.failures.saturating_add(1);
            self.due = Some(now + retry_in(self.failures, every));
            return self.is_whole() != whole;
        };
        if matches!(found.partial, Some(ResolveError::Local { .. })) {
            // The family that was not asked may be asked soon.
            self.failures = self.failures.saturating_add(1);
            self.due = Some(now + retry_in(self.failures, every));
        } else {
            (self.answered, self.failures) = (true, 0);
            self.due = Some(now + again_in(found.ttl_s, every));
        }
        let room = (MAX_ADDRESSES + 1).saturating_sub(before);
        let fresh: Vec<IpAddr> = found.addrs.iter().map(IpAddr::to_canonical).collect();
        self.addresses.extend(fresh.into_iter().take(room));
        self.addresses.len() != before || self.is_whole() != whole
    }
}

/// Returns the interval after an answer.
fn again_in(ttl_s: Option<u32>, every: Duration) -> Duration {
    let most = every * LONGEST;
    ttl_s.map_or(most, |ttl_s| Duration::from_secs(ttl_s.into()).clamp(every, most))
}

/// Returns the interval after so many failures in a row.
fn retry_in(failures: u32, every: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    (every / FIRST_RETRY).saturating_mul(doubled).min(every * LONGEST_RETRY)
}

/// State of all denied names.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    known: Mutex<BTreeMap<Name, Known>>,
    /// Wakes the task for a new policy.
    changed: Notify,
    /// Wakes the decisions that wait for a first answer.
    asked: Notify,
}

/// Returns the denied names behind these addresses, and a name whose addresses are not known, where they concern
/// `attempt`.
fn among(
    policy: &Policy,
    known: &BTreeMap<Name, Known>,
    attempt: &Attempt,
    to: impl IntoIterator<Item = IpAddr>,
) -> Vec<Behind> {
    let forms: Vec<IpAddr> = to.into_iter().flat_map(|address| policy.forms(address)).collect();
    let mut found = Vec::new();
    let mut unknown = None;
    for name in policy.followed().filter(|name| policy.denies(name, attempt).is_some()) {
        let known = known.get(name);
        for address in known.iter().flat_map(|known| &known.addresses).filter(|address| forms.contains(address)) {
            found.push(Behind { name: name.clone(), address: Some(*address) });
        }
        if unknown.is_none() && !known.is_some_and(Known::is_whole) {
            unknown = Some(Behind { name: name.clone(), address: None });
        }
    }
    // One name is enough to decide.
    if found.is_empty() {
        found.extend(unknown);
    }
    found
}

impl Followed {
    fn known(&self) -> MutexGuard<'_, BTreeMap<Name, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the denied names behind these addresses, where they concern `attempt`.
    pub(crate) fn among(
        &self,
        policy: &Policy,
        attempt: &Attempt,
        to: impl IntoIterator<Item = IpAddr>,
    ) -> Vec<Behind> {
        if policy.followed().next().is_none() {
            return Vec::new();
        }
        among(policy, &self.known(), attempt, to)
    }

    /// Reports a new policy, whose names must be looked up.
    pub(crate) fn policy_changed(&self) {
        self.changed.notify_one();
    }

    fn all_asked(&self, policy: &Policy) -> bool {
        let mut names = policy.followed().take(MAX_NAMES).peekable();
        names.peek().is_none() || {
            let known = self.known();
            names.all(|name| known.contains_key(name))
        }
    }

    /// Waits until each denied name was looked up once, at most for `limit`.
    pub(crate) async fn until_asked(&self, policy: &Policy, limit: Duration) {
        let asked = async {
            loop {
                let woken = self.asked.notified();
                tokio::pin!(woken);
                woken.as_mut().enable();
                if self.all_asked(policy) {
                    return;
                }
                woken.await;
            }
        };
        // Too late is "not known", which the decision takes into account.
        timeout(limit, asked).await.unwrap_or_default();
    }

    /// Waits for a new policy.
    pub(crate) async fn until_policy_changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the time of the next look-up among these names; `None` if one was never looked up.
    pub(crate) fn next_due(&self, policy: &Policy) -> Option<Instant> {
        let known = self.known();
        let due = |name: &Name| known.get(name).and_then(|known| known.due);
        policy.followed().take(MAX_NAMES).map(due).min().flatten()
    }

    /// Looks up every name whose time has come; reports whether a state changed.
    pub(crate) async fn look_up(
        &self,
        policy: &Policy,
        resolver: &Arc<dyn Resolver>,
        limit: Duration,
        every: Duration,
    ) -> bool {
        let now = Instant::now();
        let is_due = |name: &&Name| self.known().get(*name).and_then(|known| known.due).is_none_or(|due| due <= now);
        let due: Vec<Name> = policy.followed().take(MAX_NAMES).filter(is_due).cloned().collect();
        let mut names = due.into_iter();
        let mut looking = JoinSet::new();
        let mut is_new = false;
        loop {
            while looking.len() < PARALLEL
                && let Some(name) = names.next()
            {
                let resolver = Arc::clone(resolver);
                looking.spawn(async move {
                    let found = timeout(limit, resolver.lookup(&name)).await;
                    (name, found.ok())
                });
            }
            let Some(done) = looking.join_next().await else { break };
            // A look-up that ended by a panic stays unanswered.
            let Ok((name, found)) = done else { continue };
            is_new |= self.known().entry(name).or_default().take(found.as_ref(), every);
        }
        self.asked.notify_waiters();
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(30);

    #[test]
    fn a_short_time_to_live_is_not_followed_at_once() {
        for (ttl_s, seconds) in [(None, 60), (Some(0), 30), (Some(5), 30), (Some(45), 45), (Some(u32::MAX), 60)] {
            assert_eq!(again_in(ttl_s, EVERY), Duration::from_secs(seconds), "{ttl_s:?}");
        }
    }

    #[test]
    fn a_name_that_fails_is_asked_for_ever_more_seldom() {
        let pauses: Vec<u64> = (1..=8).map(|failures| retry_in(failures, EVERY).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(retry_in(u32::MAX, EVERY), Duration::from_secs(300));
    }
}
