#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::net::decide::check_name;
use crate::net::permit::{Attempt, Ingress, MonotonicMs, Next};
use crate::net::policy::PolicyInput;
use crate::net::rules::ranges::Class;
use crate::net::rules::rule::{Source, parse_allow, parse_deny, parse_range};
use nexus_model::capability::NetMode;

/// Returns an open network behind a proxy.
fn open() -> Policy {
    let mut input = PolicyInput {
        mode: Some(NetMode::Unrestricted),
        upstream_proxy: true,
        trusted_ranges: vec![parse_range("10.9.0.0/16").unwrap()],
        own_addresses: vec!["93.184.216.99".parse().unwrap()],
        ..PolicyInput::default()
    };
    input.deny_any(parse_deny("93.184.216.35", Source::flag("93.184.216.35")).unwrap());
    Policy::build(input).unwrap()
}

fn decided(policy: &Policy, target: &str, addrs: &[&str], here: bool) -> Result<(), Cause> {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program: None };
    let Next::Dial(permit) = check_name(policy, &attempt, MonotonicMs(0)).map_err(|denial| denial.cause)? else {
        panic!("{target} is not the proxy's")
    };
    let addrs: Vec<IpAddr> = addrs.iter().map(|address| address.parse().unwrap()).collect();
    check_proxied(policy, &permit, &addrs, here).map_err(|denial| denial.cause)
}

#[test]
fn a_name_for_the_proxy_is_refused_by_what_it_is_here() {
    let policy = open();
    for here in [false, true] {
        for name in ["localhost:6000", "LOCALHOST.:1", "a.b.localhost:1"] {
            assert_eq!(decided(&policy, name, &[], here), Err(Cause::Special(Class::Loopback)), "{name}");
        }
        assert_eq!(decided(&policy, "a.test:1", &["93.184.216.34"], here), Ok(()));
        assert_eq!(decided(&policy, "a.test:1", &["10.9.0.1"], here), Ok(()), "the operator trusts it");
        for (address, cause) in [
            ("127.0.0.1", Cause::Special(Class::Loopback)),
            ("10.77.0.5", Cause::Special(Class::Private)),
            ("::ffff:127.0.0.1", Cause::Special(Class::Transition)),
            ("64:ff9b::7f00:1", Cause::Special(Class::Loopback)),
            ("93.184.216.99", Cause::Special(Class::OwnHost)),
            ("93.184.216.35", Cause::DeniedByRule),
        ] {
            for addrs in [&[address][..], &["93.184.216.34", address]] {
                assert_eq!(decided(&policy, "a.test:1", addrs, here), Err(cause), "{addrs:?}");
            }
        }
    }
}

#[test]
fn a_name_unknown_here_needs_a_rule_only_for_a_proxy_here() {
    let policy = open();
    assert_eq!(decided(&policy, "a.test:1", &[], false), Ok(()));
    assert_eq!(decided(&policy, "a.test:1", &[], true), Err(Cause::NotResolved));
    let allow = vec![parse_allow("listed.test:1", Source::flag("listed.test:1")).unwrap()];
    let input = PolicyInput { mode: Some(NetMode::Allowlist), upstream_proxy: true, allow, ..PolicyInput::default() };
    let listed = Policy::build(input).unwrap();
    assert_eq!(decided(&listed, "listed.test:1", &[], true), Ok(()));
}
