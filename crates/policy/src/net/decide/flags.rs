//! Flags that a denial offers.

use crate::net::policy::Policy;
use crate::net::rules::host_port::{is_loopback, private_flag};
use crate::net::rules::ranges::{Class, classify};
use crate::net::rules::target::{Host, Target};
use nexus_model::network::is_synthetic;
use std::net::IpAddr;

/// Returns the flag that would open a target whose addresses are not known yet.
pub(super) fn flag_for(policy: &Policy, target: &Target) -> Option<String> {
    match &target.host {
        Host::Name(_) if policy.serves_this_host() || !is_loopback(&target.host) => Some(format!("--allow {target}")),
        Host::Name(_) | Host::Address(_) => private_flag_for(policy, target),
    }
}

/// Returns the flag that would open a private target; none where that flag would not help. For a program of the host the
/// loopback is the host's own.
pub(super) fn private_flag_for(policy: &Policy, target: &Target) -> Option<String> {
    if matches!(target.host, Host::Address(address) if stays_closed(policy, address)) {
        return None;
    }
    if policy.serves_this_host() { Some(format!("--allow-private {target}")) } else { private_flag(target) }
}

/// Reports whether no flag for exactly this address is offered: none opens it, or none should be copied, or another
/// address decides, which it carries.
fn stays_closed(policy: &Policy, address: IpAddr) -> bool {
    let by_class = match classify(address) {
        Some(Class::Unspecified | Class::Multicast | Class::Broadcast | Class::Metadata | Class::Transition) => true,
        Some(
            Class::Loopback
            | Class::Private
            | Class::LinkLocal
            | Class::Cgnat
            | Class::Documentation
            | Class::Benchmarking
            | Class::Reserved
            | Class::OwnHost,
        )
        | None => false,
    };
    let carried = policy
        .embedded(address)
        .into_iter()
        .map(IpAddr::V4)
        .any(|inner| classify(inner).is_some() || policy.is_own(inner));
    by_class || carried || is_synthetic(address)
}

#[cfg(test)]
mod tests {
    use crate::net::permit::MonotonicMs;
    use crate::net::{Policy, PolicyInput, Source, Target, explain, parse_allow_private};
    use nexus_model::capability::NetMode;

    fn offered(policy: &Policy, target: &str) -> Option<String> {
        let told = explain(policy, &Target::parse(target).unwrap(), &[], MonotonicMs(0));
        assert_ne!(told.code, crate::net::DenyCode::Ok, "{target}");
        told.allow_with
    }

    #[test]
    fn no_flag_is_offered_that_would_not_help() {
        let none = Policy::default();
        let modes = [NetMode::Allowlist, NetMode::Unrestricted];
        let networks =
            modes.map(|mode| Policy::build(PolicyInput { mode: Some(mode), ..PolicyInput::default() }).unwrap());
        for target in [
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[64:ff9b::7f00:1]:7777",
            "[64:ff9b::a09:901]:80",
            "[2002:7f00:1::]:80",
            "198.18.0.1:80",
            "[fd6e:6578:7573::1]:80",
        ] {
            for policy in networks.iter().chain([&none]) {
                assert_eq!(offered(policy, target), None, "{target} {:?}", policy.mode());
            }
            // Nor is the flag that was given already.
            let mut input = PolicyInput::default();
            let Ok(rule) = parse_allow_private(target, Source::flag(target)) else { continue };
            input.allow_any(rule);
            let given = Policy::build(input).unwrap();
            if explain(&given, &Target::parse(target).unwrap(), &[], MonotonicMs(0)).code != crate::net::DenyCode::Ok {
                assert_eq!(offered(&given, target), None, "{target}");
            }
        }
        for target in ["10.9.9.1:80", "198.51.100.7:80", "[fd00::1]:80"] {
            for policy in networks.iter().chain([&none]) {
                assert_eq!(offered(policy, target), Some(format!("--allow-private {target}")), "{target}");
            }
        }
    }
}
