#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Policies that allow reading only (vector I05).

use nexus_model::capability::NetMode;
use nexus_policy::net::vectors::{DEFAULT, Rules};
use nexus_policy::net::{
    Attempt, DenyCode, Groups, Host, Ingress, Methods, MonotonicMs, NetDocument, Next, Origin, Permit, Policy,
    PolicyBound, PolicyInput, Target, check_addrs, check_dns, check_method, check_name, recheck,
};

const NOW: MonotonicMs = MonotonicMs(1);
const ANY: Rules = Rules { allow: &["example.test:80,443,8080"], ..DEFAULT };
const READ: Rules = Rules { methods: Methods::ReadOnly, ..ANY };

fn decide(policy: &Policy, target: &str, way: Ingress) -> Result<Permit, DenyCode> {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way, program: None };
    match check_name(policy, &attempt, NOW).map_err(|denial| denial.code)? {
        Next::Dial(permit) => Ok(permit),
        Next::Resolve(query) => {
            check_addrs(policy, query, &["11.22.33.45".parse().unwrap()], NOW).map_err(|denial| denial.code)
        }
    }
}

fn post(policy: &Policy) -> DenyCode {
    let target = Target::parse("example.test:80").unwrap();
    check_method(policy, &target, "POST", false).map_or_else(|denial| denial.code, |()| DenyCode::Ok)
}

#[test]
fn what_cannot_be_seen_is_refused_before_a_resolution() {
    let (any, read) = (ANY.policy().unwrap(), READ.policy().unwrap());
    for way in [Ingress::Connect, Ingress::Socks5, Ingress::Transparent, Ingress::HttpAbsolute] {
        for port in [80, 443, 8080] {
            let target = format!("example.test:{port}");
            decide(&any, &target, way).unwrap();
            let seen = way == Ingress::HttpAbsolute || port == 80;
            let attempt = Attempt { target: Target::parse(&target).unwrap(), way, program: None };
            let said = check_name(&read, &attempt, NOW).map(|_| ()).map_err(|denial| denial.code);
            assert_eq!(said, if seen { Ok(()) } else { Err(DenyCode::MethodNotAllowed) }, "{way:?} {target}");
        }
    }
    // Port 80 with TLS is not plain HTTP.
    let mut input = READ.input().unwrap();
    input.allow[0].tls = Some(true);
    let tls = Policy::build(input).unwrap();
    assert_eq!(decide(&tls, "example.test:80", Ingress::Connect).unwrap_err(), DenyCode::MethodNotAllowed);
    assert_eq!(decide(&read, "other.test:443", Ingress::Connect).unwrap_err(), DenyCode::NotInAllowlist);
}

#[test]
fn no_user_is_asked_about_what_no_answer_could_open() {
    let policy = Policy::build(PolicyInput { ask: true, ..READ.input().unwrap() }).unwrap();
    assert_eq!(decide(&policy, "other.test:443", Ingress::Connect).unwrap_err(), DenyCode::MethodNotAllowed);
    assert_eq!(decide(&policy, "other.test:80", Ingress::Connect).unwrap_err(), DenyCode::ApprovalRequired);
}

#[test]
fn the_stricter_of_two_holds_and_nothing_takes_it_back() {
    let narrower = |methods| PolicyBound { methods, ..PolicyBound::default() };
    let (any, read) = (ANY.policy().unwrap(), READ.policy().unwrap());
    assert_eq!(post(&any), DenyCode::Ok);
    assert_eq!(post(&any.narrow(&narrower(Methods::ReadOnly))), DenyCode::MethodNotAllowed);
    assert_eq!(post(&read.narrow(&narrower(Methods::Any))), DenyCode::MethodNotAllowed);
    let (loose, strict) = (ANY.input().unwrap(), READ.input().unwrap());
    for both in [loose.clone().and(strict.clone()), strict.clone().and(loose.clone()), strict.clone().and(strict)] {
        assert_eq!(post(&Policy::build(both).unwrap()), DenyCode::MethodNotAllowed);
    }
    assert_eq!(post(&Policy::build(loose.clone().and(loose)).unwrap()), DenyCode::Ok);
    assert_eq!(post(&read.on_host(&[], &[])), DenyCode::MethodNotAllowed);
}

#[test]
fn a_connection_is_cut_when_its_methods_matter_and_cannot_be_seen() {
    let (any, read) = (ANY.policy().unwrap(), READ.policy().unwrap());
    let code = |target| {
        let permit = decide(&any, target, Ingress::Socks5).unwrap();
        recheck(&read, &permit, NOW).map_or_else(|denial| denial.code, |()| DenyCode::Ok)
    };
    assert_eq!(code("example.test:443"), DenyCode::MethodNotAllowed);
    assert_eq!(code("example.test:80"), DenyCode::Ok);
}

#[test]
fn documents_say_it_and_a_workspace_only_narrows() {
    let read = |text: &str| serde_json::from_str::<NetDocument>(text).unwrap();
    let document = read(r#"{"allow": ["a.test:80,443"], "methods": "read_only", "tests": {"not_match": ["a.test"]}}"#);
    let input = document.input("net.yaml", Origin::User, &Groups::new(), NOW).unwrap();
    assert_eq!(input.methods, Methods::ReadOnly);
    let by =
        read(r#"{"methods": "read_only"}"#).narrower("nexus.yaml", Origin::Workspace, &Groups::new(), NOW).unwrap();
    assert_eq!(post(&ANY.policy().unwrap().narrow(&by)), DenyCode::MethodNotAllowed);
    let by = read(r#"{"methods": "any"}"#).narrower("nexus.yaml", Origin::Workspace, &Groups::new(), NOW).unwrap();
    assert_eq!(post(&READ.policy().unwrap().narrow(&by)), DenyCode::MethodNotAllowed);
    assert_eq!(read("{}").methods, Methods::Any);
    serde_json::from_str::<NetDocument>(r#"{"methods": "read-only"}"#).unwrap_err();
}

#[test]
fn dns_answers_a_name_that_some_port_without_tls_could_reach() {
    let open = Rules { mode: NetMode::Unrestricted, allow: &[], methods: Methods::ReadOnly, ..DEFAULT };
    for (rules, wanted) in [
        (READ, DenyCode::Ok),
        (open, DenyCode::Ok),
        (Rules { allow: &["example.test:80"], ..READ }, DenyCode::Ok),
        (Rules { allow: &["example.test:400-500"], ..READ }, DenyCode::Ok),
        (Rules { allow: &["example.test:443-444"], ..READ }, DenyCode::Ok),
        (Rules { allow: &["example.test:443"], ..READ }, DenyCode::DnsDenied),
        (Rules { allow: &["example.test:443"], ..ANY }, DenyCode::Ok),
        (Rules { deny: &["example.test:80,8080"], ..READ }, DenyCode::DnsDenied),
    ] {
        let said = check_dns(&rules.policy().unwrap(), &Host::parse("example.test").unwrap(), NOW);
        assert_eq!(said.map_or_else(|denial| denial.code, |()| DenyCode::Ok), wanted, "{rules:?}");
    }
}
