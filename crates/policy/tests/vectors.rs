#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! The table of attacks on names and addresses, asked of the decision itself.

use nexus_model::capability::NetMode;
use nexus_policy::net::vectors::{ADDRESS_RULE, CASES, Case, DEFAULT, Expect, NO_RULE, Rules};
use nexus_policy::net::{
    DenyCode, Host, HostPort, MonotonicMs, Policy, PolicyInput, Port, Route, Source, Target, explain, parse_allow,
    parse_allow_private, parse_deny, parse_host_port,
};
use std::net::SocketAddr;

fn told(case: &Case) -> String {
    format!("{} {:?} answers {:?} under {:?}", case.id, case.authority(), case.answers, case.rules)
}

#[test]
fn every_case_of_names_and_addresses_is_decided_as_the_table_says() {
    for case in CASES {
        let (asked, outcome) = case.decide().unwrap();
        let seen = match (&outcome, asked) {
            (Ok(_), _) => Expect::Allow,
            (Err(denial), false) => Expect::DenyUnasked(denial.code),
            (Err(denial), true) => Expect::DenyResolved(denial.code),
        };
        assert_eq!(seen, case.expect, "{}: {outcome:?}", told(case));
    }
}

#[test]
fn what_is_allowed_is_dialled_at_exactly_the_answered_addresses() {
    let mut allowed = 0;
    for case in CASES {
        let Ok(permit) = case.decide().unwrap().1 else { continue };
        allowed += 1;
        let port = Port::parse(case.port).unwrap().number();
        let wanted: Vec<SocketAddr> = match permit.host() {
            Host::Address(address) => vec![SocketAddr::new(*address, port)],
            Host::Name(_) => case.addresses().unwrap().into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        };
        assert_eq!(permit.route(), Route::Addrs(&wanted), "{}", told(case));
        assert!(permit.addresses_checked());
    }
    assert!(allowed > 20, "a table in which hardly anything is allowed proves little: {allowed}");
}

fn host_port(text: &str) -> HostPort {
    HostPort { port: parse_host_port(text).unwrap(), source: Source::flag(text) }
}

/// Adds a rule as the flag does that a denial offers.
fn follow(input: &mut PolicyInput, flag: &str) {
    let (name, value) = flag.split_once(' ').unwrap();
    match name {
        "--allow" => input.allow.push(parse_allow(value, Source::flag(value)).unwrap()),
        "--allow-private" => input.allow_any(parse_allow_private(value, Source::flag(value)).unwrap()),
        "--allow-host-port" => input.host_ports.push(host_port(value)),
        other => panic!("no such flag {other}"),
    }
}

#[test]
fn every_denial_says_why_and_a_flag_that_is_offered_does_help() {
    let mut helped = 0;
    for case in CASES {
        let Err(denial) = case.decide().unwrap().1 else { continue };
        assert!(denial.explanation.len() > 10 && !denial.explanation.contains('\n'), "{}", told(case));
        assert!(denial.http_status() >= 400 && denial.socks_reply() != 0, "{}", told(case));
        let Some(mut flag) = denial.allow_with.clone() else { continue };
        // `--allow` implies an allowlist where there was none.
        let mode = if case.rules.mode == NetMode::None { NetMode::Allowlist } else { case.rules.mode };
        let target = Target::parse(&case.authority()).unwrap();
        let mut followed = Vec::new();
        loop {
            let mut input = Rules { mode, ..case.rules }.input().unwrap();
            assert!(!followed.contains(&flag), "{}: {flag} is offered again", told(case));
            followed.push(flag);
            for flag in &followed {
                follow(&mut input, flag);
            }
            let told_now = explain(&Policy::build(input).unwrap(), &target, &case.addresses().unwrap(), MonotonicMs(0));
            if told_now.code == DenyCode::Ok {
                break;
            }
            // A name may need a flag for its port and another for its private address: each denial offers the next one.
            flag = told_now.allow_with.clone().unwrap_or_else(|| panic!("{}: {followed:?}: {told_now:?}", told(case)));
        }
        assert!(followed.len() <= 2, "{}: {followed:?}", told(case));
        helped += 1;
    }
    assert!(helped > 30, "a table in which hardly any flag is offered proves little: {helped}");
}

#[test]
fn texts_that_are_no_rule_are_refused_by_every_flag_and_named() {
    for text in NO_RULE {
        let allow = parse_allow(text, Source::flag(*text)).unwrap_err();
        let deny = parse_deny(text, Source::flag(*text)).unwrap_err();
        parse_allow_private(text, Source::flag(*text)).unwrap_err();
        for error in [allow, deny] {
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
    assert!(DEFAULT.policy().is_ok());
}

#[test]
fn addresses_are_rules_for_deny_and_private_only_and_allow_says_what_to_write() {
    for text in ADDRESS_RULE {
        parse_deny(text, Source::flag(*text)).unwrap();
        parse_allow_private(text, Source::flag(*text)).unwrap();
        parse_allow(text, Source::flag(*text)).unwrap_err();
    }
    let error = parse_allow("0x7f000001:80", Source::flag("x")).unwrap_err();
    assert!(error.to_string().contains("--allow-host-port 80"), "{error}");
    let error = parse_deny("10.0.0.1/8", Source::flag("x")).unwrap_err();
    assert!(error.to_string().contains("10.0.0.0/8"), "{error}");
}

#[test]
fn every_form_that_carries_an_address_is_taken_apart() {
    let forms = |text: &str| -> Vec<String> {
        nexus_policy::net::forms(text.parse().unwrap()).iter().skip(1).map(ToString::to_string).collect()
    };
    for (address, carried) in [
        ("::ffff:10.0.0.1", &["10.0.0.1"][..]),
        ("::10.0.0.1", &["10.0.0.1"]),
        ("::ffff:0:10.0.0.1", &["10.0.0.1"]),
        ("64:ff9b::10.0.0.1", &["10.0.0.1"]),
        ("64:ff9b:1::10.0.0.1", &["10.0.0.1"]),
        // The 48-bit prefix: the address stands around the bits 64 to 71.
        ("64:ff9b:1:a00:0:100::", &["10.0.0.1"]),
        ("2002:a00:1::", &["10.0.0.1"]),
        // Teredo: the server as it is, the client with its bits flipped.
        ("2001:0:b16:212c::f5ff:fffe", &["11.22.33.44", "10.0.0.1"]),
        // ISATAP under any prefix, without and with the bit for a global address.
        ("2a00:aaaa::5efe:10.0.0.1", &["10.0.0.1"]),
        ("2a00:aaaa::200:5efe:10.0.0.1", &["10.0.0.1"]),
        ("fe80::200:5efe:10.0.0.1", &["10.0.0.1"]),
        // Neighbours of these.
        ("2a00:aaaa::300:5efe:10.0.0.1", &[]),
        ("2a00:aaaa::200:5eff:10.0.0.1", &[]),
        ("2001:1:b16:212c::f5ff:fffe", &[]),
        ("::1", &[]),
        ("11.22.33.44", &[]),
    ] {
        assert_eq!(forms(address), carried, "{address}");
    }
}

#[test]
fn an_admitted_form_leads_no_further_than_what_it_carries() {
    let rules = Rules { trusted: &["2001::/32", "2a00:aaaa::/32"], ..DEFAULT };
    let policy = rules.policy().unwrap();
    let target = Target::parse("example.test:443").unwrap();
    for (address, wanted) in [
        // To the client 11.22.33.45, by the server 11.22.33.44.
        ("2001:0:b16:212c::f4e9:ded2", DenyCode::Ok),
        ("2001:0:b16:212c::f5ff:fffe", DenyCode::PrivateDestination),
        ("2001:0:a00:1::f4e9:ded2", DenyCode::PrivateDestination),
        ("2a00:aaaa::200:5efe:11.22.33.44", DenyCode::Ok),
        ("2a00:aaaa::200:5efe:10.0.0.1", DenyCode::PrivateDestination),
        ("2a00:aaaa::5efe:10.0.0.1", DenyCode::PrivateDestination),
    ] {
        let found = explain(&policy, &target, &[address.parse().unwrap()], MonotonicMs(0));
        assert_eq!(found.code, wanted, "{address}: {}", found.explanation);
    }
    // Without that the form itself is closed.
    let plain = DEFAULT.policy().unwrap();
    let found = explain(&plain, &target, &["2a00:aaaa::200:5efe:11.22.33.44".parse().unwrap()], MonotonicMs(0));
    assert_eq!(found.code, DenyCode::PrivateDestination);
}
