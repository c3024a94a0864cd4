//! Follows the addresses of denied names where everything else is open.
//!
//! ```text
//!  denied names of the policy ─look-up, at the start and again─▶ addresses, each kept while the egress lives
//!       a decision ◀── those that it is about ──┘        └─ a new one ─▶ every open connection is decided again
//! ```
//!
//! The names come from the user's rules, so a look-up carries nothing out of the sandbox. Addresses of an earlier answer are kept:
//! names with many servers answer with a few at a time. A name whose addresses are not known, or too many, closes every
//! connection that could lead there unseen.

use crate::resolve::Resolver;
use crate::shared::Shared;
use nexus_policy::net::{Attempt, Behind, Name, Policy, forms};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Denied names that are followed.
const MAX_NAMES: usize = 256;
/// Addresses of one name. With more it counts as not known.
const MAX_ADDRESSES: usize = 1024;
/// Look-ups at one time.
const PARALLEL: usize = 16;
/// The least and the most time between two look-ups of all names. Answers that hold for less are asked for at the least.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// What is known of one name.
#[derive(Debug, Default)]
struct Known {
    /// Whether a look-up was answered.
    answered: bool,
    addresses: BTreeSet<IpAddr>,
}

impl Known {
    fn is_whole(&self) -> bool {
        self.answered && self.addresses.len() <= MAX_ADDRESSES
    }
}

/// The addresses of denied names.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    known: Mutex<BTreeMap<Name, Known>>,
    /// Wakes the task: there is another policy.
    changed: Notify,
    /// Wakes who waits for a first answer.
    asked: Notify,
}

/// Returns what is known of denied names behind these addresses, as far as it concerns `attempt`.
fn among(
    policy: &Policy,
    known: &BTreeMap<Name, Known>,
    attempt: &Attempt,
    to: impl IntoIterator<Item = IpAddr>,
) -> Vec<Behind> {
    let forms: Vec<IpAddr> = to.into_iter().flat_map(forms).collect();
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
    // One is enough to decide.
    if found.is_empty() {
        found.extend(unknown);
    }
    found
}

/// Returns what is known of denied names behind these addresses after one look-up of each, for a decision without an egress.
pub async fn behind_now(
    policy: &Policy,
    resolver: Arc<dyn Resolver>,
    limit: Duration,
    attempt: &Attempt,
    to: &[IpAddr],
) -> Vec<Behind> {
    let followed = Followed::default();
    followed.look_up(policy, &resolver, limit).await;
    let known = followed.known();
    among(policy, &known, attempt, to.iter().copied())
}

impl Followed {
    fn known(&self) -> MutexGuard<'_, BTreeMap<Name, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of denied names behind these addresses, as far as it concerns `attempt`.
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

    /// Says that there is another policy, whose names are to be looked up.
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

    /// Waits until each denied name was looked up once, or for so long.
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

    /// Looks up every name; returns whether there is something new, and when to look again.
    async fn look_up(&self, policy: &Policy, resolver: &Arc<dyn Resolver>, limit: Duration) -> (bool, Duration) {
        let mut names = policy.followed().take(MAX_NAMES).cloned().collect::<Vec<_>>().into_iter();
        let mut looking = JoinSet::new();
        let (mut is_new, mut again) = (false, AGAIN.1);
        loop {
            while looking.len() < PARALLEL
                && let Some(name) = names.next()
            {
                let resolver = Arc::clone(resolver);
                looking.spawn(async move {
                    let found = timeout(limit, resolver.lookup(&name)).await;
                    (name, found.ok().and_then(Result::ok))
                });
            }
            let Some(done) = looking.join_next().await else { break };
            // A look-up that ended by a panic stays unanswered.
            let Ok((name, found)) = done else { continue };
            let mut all = self.known();
            let known = all.entry(name).or_default();
            let Some(found) = found else {
                again = AGAIN.0;
                continue;
            };
            let (before, whole) = (known.addresses.len(), known.is_whole());
            known.answered = true;
            let room = (MAX_ADDRESSES + 1).saturating_sub(before);
            let fresh: Vec<IpAddr> = found.addrs.iter().map(IpAddr::to_canonical).collect();
            known.addresses.extend(fresh.into_iter().take(room));
            is_new |= known.addresses.len() != before || known.is_whole() != whole;
            again = again.min(Duration::from_secs(found.ttl_s.map_or(u64::MAX, u64::from))).max(AGAIN.0);
        }
        self.asked.notify_waiters();
        (is_new, again)
    }
}

/// Looks the denied names up as long as the egress lives.
pub(crate) async fn follow(shared: Arc<Shared>) {
    loop {
        let policy = shared.registry.policy();
        if policy.followed().next().is_none() {
            shared.followed.changed.notified().await;
            continue;
        }
        let (is_new, again) = shared.followed.look_up(&policy, &shared.resolver, shared.limits.resolve_time).await;
        if is_new {
            shared.host_changed();
        }
        tokio::select! {
            () = tokio::time::sleep(again) => {}
            () = shared.followed.changed.notified() => {}
        }
    }
}
