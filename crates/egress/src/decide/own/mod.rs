//! Finds this host's own addresses at the moment of a decision.
//!
//! ```text
//!  address to dial ─▶ its forms (canonical, carried IPv4) ─is_own─▶ own ─▶ the policy decides (`Class::OwnHost`)
//!                                                              └─▶ no answer ─▶ denied
//!  the kernel's notice of a change ─▶ every open connection is decided again
//! ```
//!
//! A list that was read when the run began misses later addresses: a lease, a VPN, an IPv6 privacy address. It also
//! misses whole prefixes that are routed to the host itself (AnyIP).

pub(crate) mod kernel;
pub(crate) mod watch;

use crate::decide::denials;
use crate::seams::OwnAddresses;
use nexus_policy::net::{Denial, Policy};
use std::net::{IpAddr, SocketAddr};

/// Returns the addresses behind `to` that are this host's own and that `policy` does not know as such.
///
/// Without an answer the attempt is denied: the address could be the host's.
pub fn own_among(policy: &Policy, own: &dyn OwnAddresses, to: &[SocketAddr]) -> Result<Vec<IpAddr>, Denial> {
    let mut found = Vec::new();
    for address in to {
        for form in policy.forms(address.ip()) {
            if policy.is_own(form) || found.contains(&form) {
                continue;
            }
            let is_own = own.is_own(SocketAddr::new(form, address.port())).map_err(|error| {
                denials::internal(format!("the kernel does not say whether {form} is this host: {error}"))
            })?;
            if is_own {
                found.push(form);
            }
        }
    }
    Ok(found)
}
