#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Each part of a narrower policy takes effect alone, and each allowance opens no more than its giver may open.

use nexus_model::capability::NetMode;
use nexus_policy::net::vectors::{DEFAULT, PUBLIC, Rules};
use nexus_policy::net::{
    AnyRule, Attempt, DenyCode, Hello, Ingress, MissingSni, MonotonicMs, Next, Origin, Permit, Policy, PolicyBound,
    PolicyError, Source, Target, check_addrs, check_name, check_sni, explain, parse_allow, parse_allow_private,
    parse_deny,
};

const NOW: MonotonicMs = MonotonicMs(1);

fn code(policy: &Policy, target: &str, address: &str) -> DenyCode {
    explain(policy, &Target::parse(target).unwrap(), &[address.parse().unwrap()], NOW).code
}

fn permit(policy: &Policy, target: &str) -> Permit {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program: None };
    match check_name(policy, &attempt, NOW).unwrap() {
        Next::Dial(permit) => permit,
        Next::Resolve(query) => {
            let addrs: Vec<_> = PUBLIC.iter().map(|text| text.parse().unwrap()).collect();
            check_addrs(policy, query, &addrs, NOW).unwrap()
        }
    }
}

fn sni_code(policy: &Policy, target: &str, hello: Hello<'_>) -> DenyCode {
    check_sni(policy, &permit(policy, target), hello, NOW).map_or_else(|denial| denial.code, |()| DenyCode::Ok)
}

#[test]
fn a_narrower_list_closes_addresses_and_an_open_one_does_not() {
    let private = Rules { allow_private: &["10.0.0.5:443"], ..DEFAULT }.policy().unwrap();
    let open = Rules { mode: NetMode::Unrestricted, allow: &[], ..DEFAULT }.policy().unwrap();
    for (policy, address) in [(&private, "10.0.0.5"), (&open, "11.22.33.44")] {
        let target = format!("{address}:443");
        let under = |mode| policy.narrow(&PolicyBound { mode, ..PolicyBound::default() });
        assert_eq!(code(policy, &target, address), DenyCode::Ok);
        assert_eq!(code(&under(None), &target, address), DenyCode::Ok);
        assert_eq!(code(&under(Some(NetMode::Unrestricted)), &target, address), DenyCode::Ok);
        assert_eq!(code(&under(Some(NetMode::Allowlist)), &target, address), DenyCode::NotInAllowlist, "{target}");
        assert_eq!(code(&under(Some(NetMode::None)), &target, address), DenyCode::NetModeNone, "{target}");
    }
}

#[test]
fn a_narrower_policy_denies_addresses_behind_allowed_names() {
    let policy = DEFAULT.policy().unwrap();
    let AnyRule::Address(denied) = parse_deny("11.22.33.0/24", Source::flag("denied")).unwrap() else {
        panic!("an address rule");
    };
    let narrow = policy.narrow(&PolicyBound { deny_addresses: vec![denied], ..PolicyBound::default() });
    assert_eq!(code(&policy, "example.test:443", "11.22.33.44"), DenyCode::Ok);
    assert_eq!(code(&narrow, "example.test:443", "11.22.33.44"), DenyCode::NotInAllowlist);
    assert_eq!(code(&narrow, "example.test:443", "11.22.34.44"), DenyCode::Ok);
}

#[test]
fn a_narrower_policy_makes_a_missing_tls_name_only_stricter() {
    let lax = Rules { missing_sni: Some(MissingSni::Allow), ..DEFAULT }.policy().unwrap();
    let strict = DEFAULT.policy().unwrap();
    for hello in [Hello::NoSni, Hello::NotTls] {
        for (policy, by, wanted) in [
            (&lax, None, DenyCode::Ok),
            (&lax, Some(MissingSni::Allow), DenyCode::Ok),
            (&lax, Some(MissingSni::Refuse), DenyCode::SniMismatch),
            (&strict, None, DenyCode::SniMismatch),
            (&strict, Some(MissingSni::Allow), DenyCode::SniMismatch),
        ] {
            let narrow = policy.narrow(&PolicyBound { missing_sni: by, ..PolicyBound::default() });
            assert_eq!(sni_code(&narrow, "example.test:443", hello), wanted, "{by:?} {hello:?}");
        }
    }
}

#[test]
fn an_approval_opens_private_places_only_for_who_may_open_them() {
    let policy = DEFAULT.policy().unwrap();
    for text in ["db.test:5432", "10.0.0.5:5432"] {
        for origin in [Origin::Directive, Origin::Workspace] {
            let rule = parse_allow_private(text, Source { origin, ..Source::flag(text) }).unwrap();
            let refused = policy.approve(rule);
            assert!(matches!(refused, Err(PolicyError::PrivateNotAllowed { .. })), "{text} by {origin:?}: {refused:?}");
        }
        for origin in [Origin::Operator, Origin::User, Origin::Flag] {
            let rule = parse_allow_private(text, Source { origin, ..Source::flag(text) }).unwrap();
            assert_eq!(code(&policy.approve(rule).unwrap(), text, "10.0.0.5"), DenyCode::Ok, "{text} by {origin:?}");
        }
    }
    // Every origin may ask for a public name.
    let rule = parse_allow("new.test", Source { origin: Origin::Directive, ..Source::flag("new.test") }).unwrap();
    let more = policy.approve(AnyRule::Name(rule)).unwrap();
    assert_eq!(code(&more, "new.test:443", "11.22.33.44"), DenyCode::Ok);
    assert_eq!(code(&more, "new.test:443", "10.0.0.5"), DenyCode::PrivateDestination);
}

#[test]
fn of_tls_rules_a_demand_counts_and_doing_without_for_the_nearest_name() {
    let source = |text: &'static str| Source::flag(text);
    let (ok, sni) = (DenyCode::Ok, DenyCode::SniMismatch);
    for (port, settings, wanted) in [
        (8443, [Some(true), Some(false)], [sni, sni]),
        (8443, [Some(true), None], [sni, sni]),
        (8443, [Some(false), None], [ok, ok]),
        (443, [Some(true), Some(false)], [sni, sni]),
        (443, [Some(false), None], [ok, sni]),
        (443, [Some(false), Some(false)], [ok, ok]),
    ] {
        for ([exact, wide], wanted) in [settings, [settings[1], settings[0]]].into_iter().zip(wanted) {
            let mut input = DEFAULT.input().unwrap();
            input.allow.clear();
            for (text, tls) in [(format!("a.two.test:{port}"), exact), (format!("*.two.test:{port}"), wide)] {
                let mut rule = parse_allow(&text, source("rule")).unwrap();
                rule.tls = tls;
                input.allow.push(rule);
            }
            let policy = Policy::build(input).unwrap();
            let found = sni_code(&policy, &format!("a.two.test:{port}"), Hello::NotTls);
            assert_eq!(found, wanted, "port {port}, exact {exact:?}, wide {wide:?}");
        }
    }
}
