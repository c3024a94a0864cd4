//! Flags that a denial offers.

use crate::net::policy::Policy;
use crate::net::rules::host_port::{is_loopback, private_flag};
use crate::net::rules::target::{Host, Target};

/// Returns the flag that would open a target whose addresses are not known yet.
pub(super) fn flag_for(policy: &Policy, target: &Target) -> Option<String> {
    match &target.host {
        Host::Name(_) if policy.serves_this_host() || !is_loopback(&target.host) => Some(format!("--allow {target}")),
        Host::Name(_) | Host::Address(_) => private_flag_for(policy, target),
    }
}

/// Returns the flag that would open a private target. For a program of the host the loopback is the host's own.
pub(super) fn private_flag_for(policy: &Policy, target: &Target) -> Option<String> {
    if policy.serves_this_host() { Some(format!("--allow-private {target}")) } else { private_flag(target) }
}
