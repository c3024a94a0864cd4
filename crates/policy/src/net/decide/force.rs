//! The time and the mode of a policy, which hold for every attempt, and the permit that is given under it.

use super::flags::flag_for;
use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Grant, MonotonicMs, Permit};
use crate::net::policy::Policy;
use crate::net::rules::target::Target;
use nexus_model::capability::NetMode;
use std::net::SocketAddr;

/// Denies everything after the end of the policy.
pub(super) fn unexpired(policy: &Policy, now: MonotonicMs) -> Result<(), Denial> {
    if policy.expires.is_some_and(|end| now >= end) {
        return Err(Denial::new(Cause::Expired, "the time of the network policy is over"));
    }
    Ok(())
}

/// Checks mode and time, before everything else.
pub(super) fn in_force(policy: &Policy, now: MonotonicMs, target: &Target) -> Result<(), Denial> {
    unexpired(policy, now)?;
    if policy.mode == NetMode::None {
        let denial = Denial::new(Cause::NoNetwork, format!("there is no network, so not {target} either"));
        return Err(Denial { allow_with: flag_for(policy, target), ..denial });
    }
    if policy.ceilings.iter().any(|ceiling| ceiling.mode == NetMode::None) {
        return Err(Denial::new(Cause::NoNetwork, "a narrower policy on top has no network"));
    }
    Ok(())
}

pub(super) fn permit(policy: &Policy, attempt: &Attempt, addrs: Option<Vec<SocketAddr>>, grant: Grant) -> Permit {
    Permit { attempt: attempt.clone(), addrs, grant, generation: policy.generation, expires: policy.expires }
}
