#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::net::decide::{check_addrs, check_name, recheck};
use crate::net::permit::{Attempt, Ingress, MonotonicMs, Next, Permit, Route};
use crate::net::policy::Policy;
use crate::net::policy::PolicyInput;
use crate::net::rules::rule::{parse_allow, parse_allow_private};
use nexus_model::capability::NetMode;
use std::net::IpAddr;

const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(11, 22, 33, 44));
const PRIVATE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 20, 0, 5));

fn behind(bypass: &[&str], private: &[&str]) -> Policy {
    let mut input = PolicyInput {
        mode: Some(NetMode::Allowlist),
        upstream_proxy: true,
        upstream_bypass: bypass.iter().map(|text| Bypass::parse(text).unwrap()).collect(),
        ..PolicyInput::default()
    };
    for name in ["a.test:1-65535", "*.corp.test:1-65535"] {
        input.allow.push(parse_allow(name, Source::flag(name)).unwrap());
    }
    for text in private {
        input.allow_any(parse_allow_private(text, Source::flag(*text)).unwrap());
    }
    Policy::build(input).unwrap()
}

/// Returns the route of an allowed destination, and whether its name was looked up here.
fn way(policy: &Policy, target: &str, found: &[IpAddr]) -> (&'static str, bool) {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program: None };
    let (permit, asked): (Permit, bool) = match check_name(policy, &attempt, MonotonicMs(0)).unwrap() {
        Next::Dial(permit) => (permit, false),
        Next::Resolve(query) => match check_addrs(policy, query, found, MonotonicMs(0)) {
            Ok(permit) => (permit, true),
            Err(_) => return ("denied", true),
        },
    };
    recheck(policy, &permit, MonotonicMs(0)).unwrap();
    match permit.route() {
        Route::Addrs(_) => ("direct", asked),
        Route::ViaProxy(_) => ("proxy", asked),
    }
}

#[test]
fn an_entry_means_what_it_means_in_no_proxy() {
    let meant = |entry: &str, target: &str| Bypass::parse(entry).unwrap().matches(&Target::parse(target).unwrap());
    for (entry, yes, no) in [
        ("corp.test", &["corp.test:1", "a.corp.test:1", "CORP.test.:80"][..], &["xcorp.test:1", "test:1"][..]),
        (".corp.test", &["a.corp.test:1", "b.a.corp.test:1"], &["corp.test:1"]),
        ("*.corp.test", &["a.corp.test:1"], &["corp.test:1"]),
        (".internal", &["db.internal:1"], &["internal:1", "db.internals:1"]),
        ("corp.test:8080", &["a.corp.test:8080"], &["corp.test:80"]),
        ("10.0.0.0/8", &["10.1.2.3:1"], &["11.1.2.3:1", "10.test:1"]),
        ("10.0.0.0/8:443", &["10.1.2.3:443"], &["10.1.2.3:80"]),
        ("192.0.2.1", &["192.0.2.1:1", "[::ffff:192.0.2.1]:1"], &["192.0.2.2:1"]),
        ("fd00::/8", &["[fd12::1]:1"], &["[fe80::1]:1"]),
        ("*", &["a.test:1", "192.0.2.1:1"], &[]),
    ] {
        assert!(yes.iter().all(|target| meant(entry, target)), "{entry}");
        assert!(!no.iter().any(|target| meant(entry, target)), "{entry}");
        let parsed = Bypass::parse(entry).unwrap();
        assert_eq!(Bypass::parse(&parsed.to_string()), Ok(parsed), "{entry}");
    }
    for text in
        ["", ".", "*.", "*.*.test", "http://a.test", "10.0.0.1/8", ".10.0.0.0/8", "a.test@/usr/bin/x", "a.test:0"]
    {
        assert!(Bypass::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn the_bypass_list_and_private_destinations_go_directly() {
    let plain = behind(&[], &[]);
    assert_eq!(way(&plain, "a.test:443", &[PUBLIC]), ("proxy", false));
    let listed = behind(&["corp.test:443", "192.0.2.0/24"], &["192.0.2.1:443", "11.22.33.44:443"]);
    assert_eq!(way(&listed, "db.corp.test:443", &[PUBLIC]), ("direct", true));
    assert_eq!(way(&listed, "db.corp.test:80", &[PUBLIC]), ("proxy", false));
    assert_eq!(way(&listed, "192.0.2.1:443", &[]), ("direct", false));
    assert_eq!(way(&listed, "11.22.33.44:443", &[]), ("proxy", false));
    // The list allows nothing: a private answer still needs its flag.
    assert_eq!(way(&listed, "db.corp.test:443", &[PRIVATE]), ("denied", true));
    let private = behind(&[], &["10.20.0.5:8080", "db.internal:5432", "[fd00::1]:443"]);
    assert_eq!(way(&private, "10.20.0.5:8080", &[]), ("direct", false));
    assert_eq!(way(&private, "[fd00::1]:443", &[]), ("direct", false));
    assert_eq!(way(&private, "db.internal:5432", &[PRIVATE]), ("direct", true));
    for found in [&[PUBLIC][..], &[]] {
        assert_eq!(way(&private, "db.internal:5432", found), ("proxy", true), "{found:?}");
    }
}

#[test]
fn a_list_without_a_proxy_changes_nothing() {
    let with = |bypass: &[&str]| Policy { upstream_proxy: false, ..behind(bypass, &[]) };
    for bypass in [&[][..], &["*"]] {
        assert_eq!(way(&with(bypass), "a.test:443", &[PUBLIC]), ("direct", true));
        assert_eq!(way(&with(bypass), "a.test:443", &[PRIVATE]), ("denied", true));
    }
}
