#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::net::cause::DenyCode;
use crate::net::decide::{check_name, recheck};
use crate::net::permit::{Next, Route};
use crate::net::policy::bound::PolicyBound;
use crate::net::policy::methods::Methods;
use crate::net::policy::{PolicyError, PolicyInput};
use crate::net::rules::host_port::{HostPortError, parse_host_port};
use crate::net::rules::rule::Source;
use crate::net::rules::rule::{Origin, parse_deny};
use nexus_model::capability::NetMode;

const WAYS: [Ingress; 4] = [Ingress::HostPort, Ingress::Connect, Ingress::Socks5, Ingress::HttpAbsolute];

fn open(port: &str) -> HostPort {
    HostPort { port: parse_host_port(port).unwrap(), source: Source::flag(port) }
}

fn input() -> PolicyInput {
    PolicyInput { host_ports: vec![open("5432")], ..PolicyInput::default() }
}

fn attempt(target: &str, way: Ingress) -> Attempt {
    Attempt { target: Target::parse(target).unwrap(), way, program: None }
}

fn asked(policy: &Policy, target: &str, way: Ingress) -> Result<Permit, Denial> {
    match check_name(policy, &attempt(target, way), MonotonicMs(0))? {
        Next::Dial(permit) => Ok(permit),
        Next::Resolve(query) => panic!("{} would be looked up", query.name()),
    }
}

#[test]
fn an_open_port_leads_to_the_loopback_in_every_mode() {
    for mode in [None, Some(NetMode::None), Some(NetMode::Allowlist), Some(NetMode::Unrestricted)] {
        let policy = Policy::build(PolicyInput { mode, ..input() }).unwrap();
        for (target, way) in
            ["127.0.0.1:5432", "[::1]:5432", "localhost:5432"].into_iter().flat_map(|to| WAYS.map(|way| (to, way)))
        {
            let permit = asked(&policy, target, way).unwrap();
            let wanted = LOOPBACK.map(|address| SocketAddr::new(address, 5432));
            assert_eq!(permit.route(), Route::Addrs(&wanted), "{target} {way:?}");
            assert!(!permit.expects_tls() && (way != Ingress::HostPort || !permit.expects_http()), "{target} {way:?}");
            assert_eq!(permit.rule().unwrap().text, "allow-host-port 5432");
            recheck(&policy, &permit, MonotonicMs(0)).unwrap();
            let closed = Policy::build(PolicyInput { mode, ..PolicyInput::default() }).unwrap();
            assert!(recheck(&closed, &permit, MonotonicMs(0)).is_err(), "{target} {way:?}");
        }
    }
}

#[test]
fn an_open_port_opens_nothing_beside_itself() {
    for mode in [None, Some(NetMode::Allowlist), Some(NetMode::Unrestricted)] {
        let policy = Policy::build(PolicyInput { mode, ..input() }).unwrap();
        for target in
            ["127.0.0.1:5433", "127.0.0.2:5432", "10.0.0.1:5432", "0.0.0.0:5432", "[::1]:5433", "[fd00::1]:5432"]
        {
            for way in WAYS {
                let denial = asked(&policy, target, way).unwrap_err();
                assert_ne!(denial.code, DenyCode::Ok, "{target} {way:?}");
            }
        }
    }
    let policy = Policy::build(input()).unwrap();
    assert_eq!(policy.mode(), NetMode::None, "the port opens no network");
    let elsewhere = check_name(&policy, &attempt("a.test:5432", Ingress::Connect), MonotonicMs(0));
    assert_eq!(elsewhere.unwrap_err().code, DenyCode::NetModeNone);
    assert_eq!(policy.listed(), ["allow-host-port 5432"]);
    assert_ne!(policy.recorded().unwrap().0, Policy::default().recorded().unwrap().0);
}

#[test]
fn denials_ceilings_and_the_end_of_the_policy_hold() {
    let refused = |policy: &Policy| WAYS.map(|way| asked(policy, "127.0.0.1:5432", way).is_err());
    for deny in ["127.0.0.1", "127.0.0.0/8:5432", "::1", "localhost", "localhost:5432"] {
        let mut denied = input();
        denied.deny_any(parse_deny(deny, Source::flag(deny)).unwrap());
        assert_eq!(refused(&Policy::build(denied).unwrap()), [true; 4], "{deny}");
    }
    let policy = Policy::build(input()).unwrap();
    for by in [
        PolicyBound { mode: Some(NetMode::None), ..PolicyBound::default() },
        PolicyBound { mode: Some(NetMode::Allowlist), ..PolicyBound::default() },
        PolicyBound { refuse_private: true, ..PolicyBound::default() },
        PolicyBound { expires: Some(MonotonicMs(0)), ..PolicyBound::default() },
    ] {
        assert_eq!(refused(&policy.narrow(&by)), [true; 4], "{by:?}");
    }
    let own = policy.on_host(&[], &["127.0.0.1:5432".parse().unwrap()]);
    assert_eq!(refused(&own), [true; 4], "the egress itself");
    let reading = Policy::build(PolicyInput { methods: Methods::ReadOnly, ..input() }).unwrap();
    assert_eq!(refused(&reading), [true, true, true, false], "only requests whose methods are seen");
}

#[test]
fn only_a_flag_of_the_user_opens_a_port() {
    for origin in
        [Origin::Operator, Origin::User, Origin::Approval, Origin::Group, Origin::Workspace, Origin::Directive]
    {
        let port = HostPort { source: Source { origin, ..Source::flag("5432") }, ..open("5432") };
        let built = Policy::build(PolicyInput { host_ports: vec![port], ..PolicyInput::default() });
        assert!(matches!(built, Err(PolicyError::HostPortNotAllowed { .. })), "{origin:?}");
    }
}

#[test]
fn the_value_is_one_port_that_nexus_has_not_inside() {
    assert_eq!(parse_host_port("11434").unwrap().number(), 11434);
    for text in ["", "0", "65536", "+1", "80,443", "80-90", "*", "127.0.0.1:80", "localhost:80", " 80", "080"] {
        assert!(matches!(parse_host_port(text), Err(HostPortError::Port(_))), "{text:?}");
    }
    for text in ["53", "1080", "3128", "15001"] {
        assert!(matches!(parse_host_port(text), Err(HostPortError::SandboxPort { .. })), "{text}");
    }
}

#[test]
fn a_denied_loopback_names_the_flag_that_opens_its_port() {
    let policy = Policy::build(PolicyInput { mode: Some(NetMode::Allowlist), ..PolicyInput::default() }).unwrap();
    for target in ["127.0.0.1:5432", "[::1]:5432", "localhost:5432"] {
        let denial = asked(&policy, target, Ingress::Connect).unwrap_err();
        assert_eq!(denial.allow_with.as_deref(), Some("--allow-host-port 5432"), "{target}");
    }
    assert_eq!(asked(&policy, "127.0.0.2:5432", Ingress::Connect).unwrap_err().allow_with, None);
    let proxy = policy.on_host(&[], &["127.0.0.1:8080".parse().unwrap()]);
    let denial = asked(&proxy, "127.0.0.1:5432", Ingress::Connect).unwrap_err();
    assert_eq!(denial.allow_with.as_deref(), Some("--allow-private 127.0.0.1:5432"), "for a program of the host");
}
