//! Decisions about HTTP methods, also on connections whose methods the egress cannot see.

use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Ingress, Shows};
use crate::net::policy::Policy;
use crate::net::policy::methods::Methods;
use crate::net::rules::target::Target;

/// Decides whether one request may be made with `method`. An `upgrade` would end the requests, and with them the
/// egress's view of the methods. Methods are case-sensitive (RFC 9110, 9.1), so `get` is not GET.
pub fn check_method(policy: &Policy, target: &Target, method: &str, upgrade: bool) -> Result<(), Denial> {
    match policy.methods {
        Methods::Any => Ok(()),
        Methods::ReadOnly if upgrade => Err(unseen(target)),
        Methods::ReadOnly if matches!(method, "GET" | "HEAD" | "OPTIONS") => Ok(()),
        Methods::ReadOnly => {
            let method: String = method.chars().take(32).collect();
            let why = format!("the policy allows reading only (GET, HEAD, OPTIONS), so not {method} to {target}");
            Err(Denial::new(Cause::Method, why))
        }
    }
}

/// Denies `attempt` if the policy limits methods and the egress will not see them. `shows` is what the egress sees of
/// the connection.
pub(super) fn check_seen(policy: &Policy, attempt: &Attempt, shows: Shows) -> Result<(), Denial> {
    let seen = match attempt.way {
        Ingress::HttpAbsolute => true,
        Ingress::HostPort => false,
        Ingress::Connect | Ingress::Socks5 | Ingress::Transparent => shows == Shows::Requests,
    };
    if seen || policy.methods == Methods::Any { Ok(()) } else { Err(unseen(&attempt.target)) }
}

/// Returns the denial of a connection whose methods the egress cannot see.
pub(super) fn unseen(target: &Target) -> Denial {
    let why =
        format!("the policy allows reading only (GET, HEAD, OPTIONS), and inside of {target} no method can be seen");
    Denial::new(Cause::Method, why)
}
