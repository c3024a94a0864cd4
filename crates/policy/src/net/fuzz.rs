//! Properties of the parsers over arbitrary bytes, as plain functions: any fuzzer can drive them, and the tests of this
//! crate do so with random bytes and with mutated cases of the attack table. Each panics where a property fails.

use crate::net::decide::{check_addrs, check_name};
use crate::net::packages::{self, Client, Needs};
use crate::net::permit::{Attempt, Ingress, MonotonicMs, Next, Route, RuleRef};
use crate::net::policy::{Policy, PolicyInput};
use crate::net::rules::pattern::Pattern;
use crate::net::rules::rule::{AnyRule, Source, parse_allow, parse_allow_private, parse_deny, parse_range};
use crate::net::rules::target::{Host, Target};
use crate::net::vectors;
use nexus_model::capability::NetMode;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Checks that a host that is read has one spelling, which reads as itself, and contains no separator.
pub fn fuzz_host(data: &[u8]) {
    let Ok(host) = Host::parse_bytes(data) else { return };
    let text = host.to_string();
    assert_eq!(Host::parse(&text).as_ref(), Ok(&host), "canonical text reads as another host");
    if let Host::Name(name) = &host {
        assert!(
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'),
            "{text:?}"
        );
        assert!(text.len() <= 253 && text.split('.').all(|label| (1..=63).contains(&label.len())), "{text:?}");
        assert!(text.parse::<IpAddr>().is_err(), "{text:?} is an address for others");
        assert_eq!(Host::parse(&name.fqdn()).as_ref(), Ok(&host));
    }
}

/// Checks the same for targets and rules, and that an allowed target is dialled as it was read.
pub fn fuzz_target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(target) = Target::parse(text) else { return };
    assert_eq!(Target::parse(&target.to_string()).as_ref(), Ok(&target));
    let open = PolicyInput { mode: Some(NetMode::Unrestricted), ..PolicyInput::default() };
    let Ok(policy) = Policy::build(open) else { return };
    let attempt = Attempt { target: target.clone(), way: Ingress::Connect, program: None };
    let answer = IpAddr::from([11, 22, 33, 44]);
    let permit = match check_name(&policy, &attempt, MonotonicMs(0)) {
        Ok(Next::Dial(permit)) => permit,
        Ok(Next::Resolve(query)) => {
            assert_eq!(Some(query.name()), target.host.name());
            match check_addrs(&policy, query, &[answer], MonotonicMs(0)) {
                Ok(permit) => permit,
                Err(denial) => panic!("{text:?}: {denial:?}"),
            }
        }
        Err(_) => return,
    };
    let wanted = match target.host {
        Host::Address(address) => address,
        Host::Name(_) => answer,
    };
    assert_eq!(permit.route(), Route::Addrs(&[SocketAddr::new(wanted, target.port.number())]));
}

/// Checks that no text makes a rule parser panic, and no allowance is an address or reaches a bare top-level domain.
pub fn fuzz_rule(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(rule) = parse_allow(text, Source::flag(text)) {
        let again = RuleRef::of(&rule).text;
        assert_eq!(parse_allow(&again, Source::flag(text)), Ok(rule), "{again:?}");
        assert!(!text.starts_with("*.") || text.matches('.').count() >= 2 || !text.is_ascii(), "{text:?}");
    }
    // Both read the same text, but for what only one of them means.
    match (parse_deny(text, Source::flag(text)), parse_allow_private(text, Source::flag(text))) {
        (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
        (Err(_), Ok(AnyRule::Name(rule))) => assert!(rule.tls.is_some(), "only /tcp and /tls are refused: {text:?}"),
        (Ok(AnyRule::Name(rule)), Err(_)) => {
            assert!(matches!(rule.pattern, Pattern::Below(_)), "only wide patterns are refused: {text:?}");
        }
        (_, Ok(AnyRule::Address(_))) | (Ok(AnyRule::Address(_)), _) => panic!("one takes the address: {text:?}"),
    }
    if let Ok(net) = parse_range(text) {
        assert_eq!(net.trunc(), net);
    }
}

/// Checks that the rules of the attack table let no target reach a special address.
pub fn fuzz_decision(data: &[u8]) {
    let Ok(policy) = vectors::DEFAULT.policy() else { return };
    let Some((address, text)) = data.split_first_chunk::<4>() else { return };
    let Ok(Ok(target)) = std::str::from_utf8(text).map(Target::parse) else { return };
    let attempt = Attempt { target, way: Ingress::Transparent, program: None };
    let Ok(next) = check_name(&policy, &attempt, MonotonicMs(0)) else { return };
    let permit = match next {
        Next::Dial(permit) => permit,
        Next::Resolve(query) => match check_addrs(&policy, query, &[IpAddr::from(*address)], MonotonicMs(0)) {
            Ok(permit) => permit,
            Err(_) => return,
        },
    };
    match permit.route() {
        Route::Addrs(addrs) => {
            assert!(addrs.iter().all(|address| super::classify(address.ip()).is_none()), "{permit:?}");
        }
        Route::ViaProxy(_) => panic!("no proxy was configured"),
    }
}

/// Checks that no text of a client's configuration makes a reader panic, and only names become rules.
pub fn fuzz_packages(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let none = BTreeMap::new();
    let mut apt = Needs::default();
    let apt_read = [
        packages::read_apt_sources(&mut apt, text),
        packages::read_deb822(&mut apt, text),
        packages::read_apt_conf(&mut apt, text),
    ];
    packages::read_apt_auth(&mut apt, text);
    let read = [
        packages::read_pip(&[text], &none),
        packages::read_npm(&[text], &none),
        packages::read_cargo_config(&[text], &none),
        apt_read.into_iter().collect::<Result<(), _>>().map(|()| apt),
    ];
    for needs in read.into_iter().flatten() {
        let (rules, left) = needs.rules(Client::Pip);
        assert!(rules.iter().all(|rule| !rule.private));
        assert_eq!(rules.len() + left.len(), needs.endpoints.len());
    }
}
