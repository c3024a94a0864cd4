//! Bounds look-ups for connections in number and time, and decides about missing answers.
//!
//! ```text
//!  name ─┬─ known already (hosts file, kept answers) ──────────────┬─ addresses, or "there are none" ─▶ decided
//!        └─ a place among `Limits::look_ups` ─▶ the name servers ──┼─ a name server fails ─▶ unknown here
//!           none in time: an error of this host                    ├─ silence ─▶ unknown here, for a name of the user
//!                                                                  └─ an error of this host ─▶ refused
//! ```
//!
//! A name that an upstream proxy looks up too is looked up here first. The program inside can make this host slow, or
//! use up its descriptors. So such a name is not let through unchecked after silence or an error of this host, with one
//! exception: behind a company's proxy a host may have no name server that answers, and a name that a rule writes out
//! was chosen by the user.

use crate::audit::event::{Event, EventKind};
use crate::decide::charge::Charged;
use crate::decide::context::DecisionContext;
use crate::decide::denials;
use crate::decide::facts::look_up_pool::Found;
use crate::decide::state::Shared;
use crate::seams::{ResolveError, Resolved};
use nexus_policy::net::{Attempt, Charge, Denial, Name, NameQuery};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for a look-up here of a name that the proxy looks up too.
const LOOK_UP: Duration = Duration::from_secs(3);
impl Shared {
    /// Counts a look-up as a connection, and its name as bytes that leave; records the name if the program inside chose
    /// it.
    pub(crate) fn paid_look_up(
        self: &Arc<Self>,
        attempt: &Attempt,
        id: u64,
        query: &NameQuery,
        context: &DecisionContext,
    ) -> Result<Charged, Denial> {
        let charged = Charged::take(self)?;
        if !query.is_exact() {
            self.charge(Charge::Up(query.name().as_str().len() as u64))?;
            let context = DecisionContext { check: None, ..context.clone() };
            let recorded = context.must(&Event::of(EventKind::Resolve, id, attempt), &self.audit);
            recorded.map_err(|error| denials::internal(error.to_string()))?;
        }
        Ok(charged)
    }

    /// Looks up the name, together with all attempts that wait for it.
    pub(crate) async fn look_up(self: &Arc<Self>, query: &NameQuery, limit: Duration) -> Found {
        let name = query.name();
        if let Some(known) = self.resolver.known(name) {
            return known;
        }
        let alone = || Arc::clone(self).look_up_alone(name.clone(), query.is_exact(), limit);
        let found = self.look_ups.join(query, limit, alone).found().await;
        found.unwrap_or_else(|| {
            let why = "the look-up ended without a result".to_owned();
            Err(ResolveError::Local { name: name.to_string(), why })
        })
    }

    /// Looks up the name, in one of the places for look-ups. `is_exact` is true if a rule writes out the name.
    async fn look_up_alone(self: Arc<Self>, name: Name, is_exact: bool, limit: Duration) -> Found {
        let turn = async {
            if !is_exact {
                let longest = u64::try_from(self.limits.resolve_time.as_millis()).unwrap_or(u64::MAX);
                let wait = self.look_ups.pace.take_within(self.clock.now().0, longest)?;
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            self.look_ups.take(is_exact).await
        };
        let Ok(Some(place)) = timeout(self.limits.resolve_time, turn).await else {
            let why = "the sandbox looks up too many names at one time".to_owned();
            return Err(ResolveError::Local { name: name.to_string(), why });
        };
        let found = timeout(limit, self.resolver.lookup(&name)).await;
        drop(place);
        found.unwrap_or_else(|_| Err(silent(&name)))
    }

    /// Returns the addresses of a name that the proxy looks up too, as far as this host knows them.
    pub(crate) async fn known_here(self: &Arc<Self>, query: &NameQuery) -> Result<Vec<IpAddr>, Denial> {
        let most = self.limits.resolve_time.min(LOOK_UP);
        let limit = self.silence.limit(query.name(), most);
        let found = self.look_up(query, limit).await;
        self.silence.received(query.name(), !matches!(found, Err(ResolveError::Silent { .. })), limit, most);
        unknown_here(found, query.is_exact())
    }
}

fn silent(name: &Name) -> ResolveError {
    ResolveError::Silent { name: name.to_string(), why: "no answer in time".into() }
}

/// Returns the addresses of a look-up before an upstream proxy's, or refuses a name that could be known here and was
/// not asked. `is_exact` is true if a rule writes out the name.
pub(crate) fn unknown_here(found: Result<Resolved, ResolveError>, is_exact: bool) -> Result<Vec<IpAddr>, Denial> {
    let (addrs, missing) = match found {
        Ok(Resolved { addrs, partial, .. }) => (addrs, partial),
        Err(error) => (Vec::new(), Some(error)),
    };
    match missing {
        None | Some(ResolveError::Failed { .. }) => Ok(addrs),
        Some(ResolveError::Silent { .. }) if is_exact => Ok(addrs),
        Some(error @ ResolveError::Silent { .. }) => {
            let why = format!("{error}; the upstream proxy gets such a name only by a rule for exactly that name");
            Err(Denial { explanation: why, ..denials::not_resolved(&error) })
        }
        Some(
            error @ (ResolveError::Local { .. } | ResolveError::Configuration { .. } | ResolveError::TooMany { .. }),
        ) => Err(denials::not_resolved(&error)),
    }
}
