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

mod kernel;
mod watch;

pub use kernel::KernelRoutes;
pub(crate) use watch::watch;

use crate::decide::denials;
use nexus_policy::net::{Denial, Policy};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Source of this host's own addresses.
pub trait OwnAddresses: Send + Sync {
    /// Reports whether a connection to `to` would end at this host. The thread that serves connections calls it, so it
    /// must not wait.
    fn is_own(&self, to: SocketAddr) -> io::Result<bool>;

    /// Returns a non-blocking socket that can be read when an answer may have changed; `None` if answers never change.
    fn changes(&self) -> io::Result<Option<OwnedFd>>;
}

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
