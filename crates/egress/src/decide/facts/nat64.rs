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
use crate::seams::{ResolveError, Resolved};
use nexus_policy::net::{Class, DISCOVERY_NAME, Denial, classify};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum time for which an attempt waits for the answer. A later answer counts for the attempts after it.
pub(crate) const WAIT: Duration = Duration::from_secs(3);

/// Latest answer; `None` before the first one.
#[derive(Debug, Default)]
pub(crate) struct Nat64(pub(crate) Mutex<Option<Latest>>);

/// Answer about the prefixes of this host's network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) until: Instant,
    /// Number of changes of the host's addresses and routes before the question: another network has other prefixes.
    pub(crate) changes: u64,
    pub(crate) is_known: bool,
}

/// Reports whether an address may lie below such a prefix.
pub(crate) fn may_be_below(address: &IpAddr) -> bool {
    address.is_ipv6() && matches!(classify(*address), None | Some(Class::Private))
}

/// Reports whether the half of an answer is missing that shows prefixes.
pub(crate) fn lacks_ipv6(found: &Resolved) -> bool {
    !found.addrs.iter().any(IpAddr::is_ipv6)
        && matches!(found.partial, Some(ResolveError::Silent { .. } | ResolveError::Local { .. }))
}

pub(crate) fn not_known() -> Denial {
    let why =
        "the name servers of this machine do not answer in time whether IPv6 addresses lead to IPv4 ones here (NAT64)";
    denials::not_resolved(&ResolveError::Silent { name: DISCOVERY_NAME.to_owned(), why: why.to_owned() })
}
