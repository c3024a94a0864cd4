//! A ceiling takes away and leaves the policy's own demands as they are.

use super::*;
use crate::net::cause::DenyCode;
use crate::net::decide::agree::{Hello, check_not_http, check_sni};
use crate::net::decide::{check_addrs, check_name};
use crate::net::permit::{Attempt, Ingress, MonotonicMs, Next, Permit};
use crate::net::policy::PolicyInput;
use crate::net::policy::behind::Behind;
use crate::net::policy::bound::{MissingSni, PolicyBound};
use crate::net::policy::methods::Methods;
use crate::net::rules::rule::Rule;
use crate::net::rules::rule::{AnyRule, Source, parse_allow, parse_allow_private, parse_deny};
use crate::net::rules::target::{Host, Target};
use std::net::IpAddr;

const NOW: MonotonicMs = MonotonicMs(1);
const PUBLIC: &str = "93.184.216.35";

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| parse_allow(text, Source::flag(*text)).unwrap()).collect()
}

fn allowing_these(texts: &[&str]) -> Policy {
    Policy::build(PolicyInput { allow: rules(texts), ..PolicyInput::default() }).unwrap()
}

fn open(denied: &[&str]) -> Policy {
    let mut input = PolicyInput { mode: Some(NetMode::Unrestricted), ..PolicyInput::default() };
    for text in denied {
        input.deny_any(parse_deny(text, Source::flag(*text)).unwrap());
    }
    Policy::build(input).unwrap()
}

fn listing(texts: &[&str]) -> PolicyBound {
    PolicyBound {
        mode: Some(NetMode::Allowlist),
        allow: rules(texts),
        refuse_given_private: true,
        list_missing_sni: MissingSni::Refuse,
        asks: true,
        ..PolicyBound::default()
    }
}

fn permit(policy: &Policy, target: &str, address: &str) -> Result<Permit, Denial> {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program: None };
    match check_name(policy, &attempt, NOW)? {
        Next::Dial(permit) => Ok(permit),
        Next::Resolve(query) => check_addrs(policy, query, &[address.parse::<IpAddr>().unwrap()], NOW),
    }
}

#[test]
fn a_list_leaves_the_servers_of_denied_names_closed() {
    let policy = open(&["b.test"]).narrow(&listing(&["alias.test:22", "alias.test:443/tcp"]));
    let Host::Name(name) = Host::parse("b.test").unwrap() else { panic!("a name") };
    assert_eq!(policy.followed().collect::<Vec<_>>(), [&name]);
    let behind = policy.also_behind(&[Behind { name, address: Some(PUBLIC.parse().unwrap()) }]);
    assert_eq!(permit(&behind, "alias.test:22", PUBLIC).unwrap_err().code, DenyCode::NotInAllowlist);
    assert!(permit(&behind, "alias.test:22", "93.184.216.34").is_ok());
    // Nor does a demand for TLS of the list open what the open network refuses.
    let demanding = open(&["b.test"]).narrow(&listing(&["alias.test:22/tls"])).also_behind(&behind.behind).into_owned();
    assert!(permit(&demanding, "alias.test:22", PUBLIC).is_err());
    // The open network looks at TLS on port 443, whatever the list says.
    let tunnel = permit(&behind, "alias.test:443", PUBLIC).unwrap();
    assert!(check_sni(&behind, &tunnel, Hello::NotTls, NOW).is_err());
    assert!(check_sni(&behind, &tunnel, Hello::Sni(b"b.test"), NOW).is_err());
    assert!(check_sni(&behind, &tunnel, Hello::Sni(b"alias.test"), NOW).is_ok());
}

#[test]
fn a_list_takes_no_demand_for_tls_away() {
    for (base, file, target) in [
        (&["*.pub.test:993", "imap.pub.test:993/tls"][..], "*.pub.test:993", "imap.pub.test:993"),
        (&["*.pub.test:443/tcp", "a.pub.test:443"], "a.pub.test:443/tcp", "a.pub.test:443"),
        (&["*.pub.test:80/tcp", "a.pub.test:80/tls"], "a.pub.test:80/tcp", "a.pub.test:80"),
    ] {
        let policy = allowing_these(base).narrow(&listing(&[file]));
        let tunnel = permit(&policy, target, PUBLIC).unwrap();
        assert!(tunnel.expects_tls(), "{base:?} {file}");
        assert_eq!(check_sni(&policy, &tunnel, Hello::NotTls, NOW).unwrap_err().code, DenyCode::SniMismatch);
    }
    // A list that demands it counts too, and without either there is none.
    let policy = allowing_these(&["a.test:993"]).narrow(&listing(&["a.test:993/tls"]));
    assert!(permit(&policy, "a.test:993", PUBLIC).unwrap().expects_tls());
    let policy = allowing_these(&["*.pub.test:993"]).narrow(&listing(&["a.pub.test:993"]));
    assert!(!permit(&policy, "a.pub.test:993", PUBLIC).unwrap().expects_tls());
}

#[test]
fn a_list_takes_no_reading_of_requests_away() {
    let reading = |base: Policy| base.narrow(&PolicyBound { methods: Methods::ReadOnly, ..PolicyBound::default() });
    let lax = |base: &[&str]| {
        let mode = if base.is_empty() { NetMode::Unrestricted } else { NetMode::Allowlist };
        let missing_sni = Some(MissingSni::Allow);
        Policy::build(PolicyInput { mode: Some(mode), allow: rules(base), missing_sni, ..PolicyInput::default() })
            .unwrap()
    };
    for base in [open(&[]), lax(&[]), lax(&["a.test:80"]), allowing_these(&["a.test:80"])] {
        for policy in [base.clone(), reading(base)] {
            for file in ["a.test:80/tls", "a.test:1-100/tls"] {
                for list_missing_sni in [MissingSni::Allow, MissingSni::Refuse] {
                    let narrow = policy.narrow(&PolicyBound { list_missing_sni, ..listing(&[file]) });
                    let denial = permit(&narrow, "a.test:80", PUBLIC).unwrap_err();
                    assert_eq!(denial.code, DenyCode::NotInAllowlist, "{file}: {denial}");
                    assert!(denial.explanation.contains("is for TLS or for plain HTTP"), "{denial}");
                }
            }
            // A list that demands the same, or nothing, leaves the requests to be read.
            for file in ["a.test:80", "a.test:80/tcp"] {
                let permit = permit(&policy.narrow(&listing(&[file])), "a.test:80", PUBLIC).unwrap();
                assert!(permit.expects_http() && !permit.expects_tls(), "{file}");
            }
        }
    }
    // Nor does a list that reads requests take a demand for TLS away.
    let policy = allowing_these(&["a.test:80/tls"]);
    assert!(permit(&policy, "a.test:80", PUBLIC).unwrap().expects_tls());
    assert!(permit(&policy.narrow(&listing(&["a.test:80"])), "a.test:80", PUBLIC).is_err());
    assert!(permit(&policy.narrow(&listing(&["a.test:80/tls"])), "a.test:80", PUBLIC).unwrap().expects_tls());
}

#[test]
fn a_list_in_an_open_network_expects_what_a_list_expects() {
    let policy = open(&[]).narrow(&listing(&["a.test:80,443", "ssh.test:80,443/tcp"]));
    for port in [80, 443] {
        let said = |name: &str| {
            let permit = permit(&policy, &format!("{name}:{port}"), PUBLIC).unwrap();
            if permit.expects_http() {
                check_not_http(&policy, &permit)
            } else {
                check_sni(&policy, &permit, Hello::NotTls, NOW)
            }
        };
        assert!(said("a.test").is_err(), "{port}");
        assert!(said("ssh.test").is_ok(), "{port}");
    }
}

#[test]
fn a_list_closes_private_places_that_rules_open() {
    let mut input = PolicyInput { allow: rules(&["a.test"]), ..PolicyInput::default() };
    for text in ["a.test:443", "10.0.0.0/8:443"] {
        input.allow_any(parse_allow_private(text, Source::flag(text)).unwrap());
    }
    let wide = Policy::build(input.clone()).unwrap();
    assert!(permit(&wide, "a.test:443", "10.0.0.5").is_ok());
    let narrow = wide.narrow(&listing(&["a.test"]));
    assert_eq!(permit(&narrow, "a.test:443", "10.0.0.5").unwrap_err().code, DenyCode::PrivateDestination);
    assert!(permit(&narrow, "a.test:443", PUBLIC).is_ok());
    // The user cannot give, and the file cannot take away, the ranges that the operator trusts.
    input.trusted_ranges.push("10.0.0.0/8".parse().unwrap());
    let trusting = Policy::build(input).unwrap().narrow(&listing(&["a.test"]));
    assert!(permit(&trusting, "a.test:443", "10.0.0.5").is_ok());
}

#[test]
fn an_answer_adds_to_a_list_that_takes_it() {
    let input = PolicyInput { allow: rules(&["a.test", "b.test"]), ask: true, ..PolicyInput::default() };
    let policy = Policy::build(input).unwrap();
    for (name, asks) in [("b.test:443", true), ("c.test:443", true), ("b.test:443", false), ("c.test:443", false)] {
        let narrow = policy.narrow(&PolicyBound { asks, ..listing(&["a.test"]) });
        let denial = permit(&narrow, name, PUBLIC).unwrap_err();
        assert_eq!(denial.code == DenyCode::ApprovalRequired, asks, "{name}: {denial}");
        let answered = narrow.approve(AnyRule::Name(rules(&[name]).remove(0))).unwrap();
        assert_eq!(permit(&answered, name, PUBLIC).is_ok(), asks, "{name}");
        assert!(permit(&answered, "a.test:443", PUBLIC).is_ok());
    }
}

#[test]
fn the_mode_of_a_policy_is_the_narrowest_one() {
    let modes = [NetMode::None, NetMode::Allowlist, NetMode::Unrestricted];
    for (at, mode) in modes.into_iter().enumerate() {
        assert_eq!(open(&[]).narrow(&PolicyBound { mode: Some(mode), ..PolicyBound::default() }).mode(), mode);
        let listed = allowing_these(&["a.test"]).narrow(&PolicyBound { mode: Some(mode), ..PolicyBound::default() });
        assert_eq!(listed.mode(), modes[at.min(1)]);
    }
}
