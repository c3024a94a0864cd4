#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! TLS names and Host headers against the host that was allowed (vectors I02, I03, I04, H12).

use nexus_model::capability::NetMode;
use nexus_policy::net::vectors::{AGREE, DEFAULT, PUBLIC, Rules};
use nexus_policy::net::{
    Attempt, DenyCode, Hello, Host, Ingress, MissingSni, MonotonicMs, Next, Permit, Policy, PolicyBound, Request,
    Source, Target, check_addrs, check_dns, check_http_host, check_name, check_not_http, check_second_sni, check_sni,
    parse_allow, recheck,
};

const NOW: MonotonicMs = MonotonicMs(1);

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
fn the_tls_name_must_be_the_allowed_host_in_any_case() {
    let policy = DEFAULT.policy().unwrap();
    for same in [&b"example.test"[..], b"EXAMPLE.test"] {
        assert_eq!(sni_code(&policy, "example.test:443", Hello::Sni(same)), DenyCode::Ok);
    }
    // `a.allowed.test` is allowed itself; the connection was not made for it.
    for other in [&b"evil.test"[..], b"a.allowed.test", b"", b"example.test\0.evil.test", b"11.22.33.44", b"\xff\xfe"] {
        assert_eq!(sni_code(&policy, "example.test:443", Hello::Sni(other)), DenyCode::SniMismatch, "{other:?}");
    }
}

#[test]
fn another_spelling_of_the_tls_name_is_refused() {
    let rules = Rules { allow: &["example.test", "xn--mnchen-3ya.test"], ..DEFAULT };
    let listed = rules.policy().unwrap();
    let open = Rules { mode: NetMode::Unrestricted, allow: &[], ..DEFAULT }.policy().unwrap();
    let lax = Rules { missing_sni: Some(MissingSni::Allow), ..rules }.policy().unwrap();
    for (host, other) in [
        ("example.test", "example.test."),
        ("example.test", "\u{ff45}xample.test"),
        ("example.test", "example\u{3002}test"),
        ("example.test", "example\u{ff0e}test"),
        ("example.test", "exam\u{ad}ple.test"),
        ("xn--mnchen-3ya.test", "m\u{fc}nchen.test"),
    ] {
        assert_eq!(Host::parse(other).unwrap(), Host::parse(host).unwrap(), "{other:?} is the same host");
        let target = format!("{host}:443");
        for policy in [&listed, &lax, &open] {
            let hello = Hello::Sni(other.as_bytes());
            let denial = check_sni(policy, &permit(policy, &target), hello, NOW).unwrap_err();
            assert_eq!((denial.code, denial.allow_with), (DenyCode::SniMismatch, None), "{other:?}");
            assert!(denial.explanation.contains(&format!("is another spelling of {host}")), "{}", denial.explanation);
            let permit = permit(policy, &target);
            check_second_sni(&permit, Hello::Sni(host.as_bytes()), Hello::Sni(host.as_bytes())).unwrap();
            for first in [Hello::Sni(host.as_bytes()), Hello::NoSni, hello] {
                check_second_sni(&permit, first, hello).unwrap_err();
                check_second_sni(&permit, first, Hello::Sni(b"\xff")).unwrap_err();
            }
        }
    }
    assert_eq!(sni_code(&listed, "xn--mnchen-3ya.test:443", Hello::Sni(b"XN--mnchen-3ya.test")), DenyCode::Ok);
    assert_eq!(sni_code(&open, "good.test:443", Hello::Sni(b"Other.test")), DenyCode::Ok);
}

#[test]
fn without_a_tls_name_the_setting_decides_and_refuses_by_itself() {
    let refusing = DEFAULT.policy().unwrap();
    let mut input = DEFAULT.input().unwrap();
    input.missing_sni = Some(MissingSni::Allow);
    let allowing = Policy::build(input).unwrap();
    for hello in [Hello::NoSni, Hello::NotTls] {
        assert_eq!(sni_code(&refusing, "example.test:443", hello), DenyCode::SniMismatch);
        assert_eq!(sni_code(&allowing, "example.test:443", hello), DenyCode::Ok);
    }
}

#[test]
fn other_ports_are_looked_at_only_where_a_rule_says_tls() {
    let policy = Rules { allow: &["example.test:22,443"], ..DEFAULT }.policy().unwrap();
    assert_eq!(sni_code(&policy, "example.test:22", Hello::NotTls), DenyCode::Ok);
    let mut input = DEFAULT.input().unwrap();
    let mut rule = nexus_policy::net::parse_allow("example.test:8443", nexus_policy::net::Source::flag("x")).unwrap();
    rule.tls = Some(true);
    input.allow.push(rule);
    let policy = Policy::build(input).unwrap();
    assert_eq!(sni_code(&policy, "example.test:8443", Hello::Sni(b"evil.test")), DenyCode::SniMismatch);
    assert_eq!(sni_code(&policy, "example.test:8443", Hello::Sni(b"example.test")), DenyCode::Ok);
}

#[test]
fn a_refusal_of_what_is_no_tls_names_the_flag_that_helps() {
    let offered = |allow: &[&'static str], target: &str| {
        let mut input = DEFAULT.input().unwrap();
        input.allow = allow.iter().map(|text| parse_allow(text, Source::flag(*text)).unwrap()).collect();
        let policy = Policy::build(input).unwrap();
        check_sni(&policy, &permit(&policy, target), Hello::NotTls, NOW).map_err(|denial| denial.allow_with)
    };
    let flag = Err(Some("--allow a.test:443/tcp".to_owned()));
    assert_eq!(offered(&["a.test"], "a.test:443"), flag);
    assert_eq!(offered(&["a.test", "a.test:443/tcp"], "a.test:443"), Ok(()));
    assert_eq!(offered(&["a.test", "*.test.example:443/tcp"], "a.test:443"), flag);
    assert_eq!(offered(&["a.b.test:443/tcp", "*.b.test"], "a.b.test:443"), Ok(()));
    assert_eq!(
        offered(&["a.b.test", "*.b.test:443/tcp"], "a.b.test:443"),
        Err(Some("--allow a.b.test:443/tcp".into()))
    );
    // Beside a rule that demands TLS the flag would change nothing.
    assert_eq!(offered(&["a.test:8443/tls"], "a.test:8443"), Err(None));
    assert_eq!(offered(&["a.test:8443/tls", "a.test:8443/tcp"], "a.test:8443"), Err(None));
    let mut input = DEFAULT.input().unwrap();
    input.allow = vec![parse_allow("a.test:443/tcp", Source::flag("x")).unwrap()];
    let listed = Policy::build(input).unwrap().listed();
    assert!(listed.contains(&"allow a.test:443/tcp".to_owned()), "{listed:?}");
}

#[test]
fn a_host_with_tcp_on_port_80_speaks_anything() {
    let said = |allow: &[&'static str], target: &str| {
        let mut input = DEFAULT.input().unwrap();
        input.allow = allow.iter().map(|text| parse_allow(text, Source::flag(*text)).unwrap()).collect();
        let policy = Policy::build(input).unwrap();
        let permit = permit(&policy, target);
        if permit.expects_http() {
            check_not_http(&policy, &permit).map_err(|denial| denial.allow_with)
        } else {
            check_sni(&policy, &permit, Hello::NotTls, NOW).map_err(|denial| denial.allow_with)
        }
    };
    let flag = |host: &str| Err(Some(format!("--allow {host}:80/tcp")));
    assert_eq!(said(&["a.test:80"], "a.test:80"), flag("a.test"));
    assert_eq!(said(&["a.test:80", "a.test:80/tcp"], "a.test:80"), Ok(()));
    assert_eq!(said(&["a.test:22-80/tcp"], "a.test:80"), Ok(()));
    // Neither a wildcard nor a rule that demands TLS makes room for it.
    assert_eq!(said(&["a.b.test:80", "*.b.test:80/tcp"], "a.b.test:80"), flag("a.b.test"));
    assert_eq!(said(&["a.test:80/tls", "a.test:80/tcp"], "a.test:80"), Err(None));
}

#[test]
fn a_narrower_policy_without_the_word_demands_tls_again() {
    let mut input = DEFAULT.input().unwrap();
    input.allow = vec![parse_allow("a.test:443/tcp", Source::flag("x")).unwrap()];
    let policy = Policy::build(input).unwrap();
    let under = |text: &str| {
        let allow = vec![parse_allow(text, Source::flag("x")).unwrap()];
        let by = PolicyBound { mode: Some(NetMode::Allowlist), allow, ..PolicyBound::default() };
        sni_code(&policy.narrow(&by), "a.test:443", Hello::NotTls)
    };
    assert_eq!(under("a.test:443"), DenyCode::SniMismatch);
    assert_eq!(under("a.test:443/tcp"), DenyCode::Ok);
}

#[test]
fn an_address_stands_for_no_name_and_an_open_mode_still_knows_its_denials() {
    let literal = Rules { allow_private: &["10.0.0.5:443"], ..DEFAULT }.policy().unwrap();
    assert_eq!(sni_code(&literal, "10.0.0.5:443", Hello::NoSni), DenyCode::Ok);
    assert_eq!(sni_code(&literal, "10.0.0.5:443", Hello::Sni(b"example.test")), DenyCode::SniMismatch);
    assert_eq!(sni_code(&literal, "10.0.0.5:443", Hello::NotTls), DenyCode::SniMismatch);
    let open = Rules { mode: NetMode::Unrestricted, allow: &[], deny: &["bad.test"], ..DEFAULT }.policy().unwrap();
    for target in ["11.22.33.44:443", "good.test:443"] {
        assert_eq!(sni_code(&open, target, Hello::Sni(b"other.test")), DenyCode::Ok);
        assert_eq!(sni_code(&open, target, Hello::Sni(b"BAD.test")), DenyCode::NotInAllowlist);
        assert_eq!(sni_code(&open, target, Hello::NotTls), DenyCode::Ok);
    }
}

#[test]
fn the_host_header_must_name_the_target() {
    let check = |target: &str, request, hosts: &[&str]| {
        let bytes: Vec<&[u8]> = hosts.iter().map(|host| host.as_bytes()).collect();
        check_http_host(&Target::parse(target).unwrap(), request, &bytes).map_err(|denial| denial.code)
    };
    let bad = Err(DenyCode::InvalidDestination);
    for (target, request, hosts, wanted) in [
        ("example.test:80", Request::Http11, &["example.test"][..], Ok(())),
        ("example.test:80", Request::Http11, &["EXAMPLE.test.:80"], Ok(())),
        ("example.test:8080", Request::Http11, &["example.test:8080"], Ok(())),
        ("[2a00:aaaa::5]:80", Request::Http11, &["[2a00:aaaa:0::5]"], Ok(())),
        ("example.test:8080", Request::Http11, &["example.test"], bad),
        ("example.test:80", Request::Http11, &["evil.test"], bad),
        ("example.test:80", Request::Http11, &["example.test:81"], bad),
        ("example.test:80", Request::Http11, &["example.test", "example.test"], bad),
        ("example.test:80", Request::Http11, &["example.test, evil.test"], bad),
        ("example.test:80", Request::Http11, &["evil.test@example.test"], bad),
        ("example.test:80", Request::Http11, &[""], bad),
        ("example.test:80", Request::Http11, &[], bad),
        ("example.test:80", Request::Http10, &[], Ok(())),
        ("example.test:443", Request::Connect, &[], Ok(())),
        ("example.test:443", Request::Connect, &["example.test"], Ok(())),
        ("example.test:443", Request::Connect, &["example.test:443"], Ok(())),
        ("example.test:443", Request::Connect, &["evil.test:443"], bad),
    ] {
        assert_eq!(check(target, request, hosts), wanted, "{target} {request:?} {hosts:?}");
    }
}

#[test]
fn dns_answers_only_what_some_port_could_reach() {
    let code = |rules: Rules, host: &str| {
        let policy = rules.policy().unwrap();
        check_dns(&policy, &Host::parse(host).unwrap(), NOW).map_or_else(|denial| denial.code, |()| DenyCode::Ok)
    };
    let ports = Rules { allow: &["example.test:5432,6000-6100"], ..DEFAULT };
    assert_eq!(code(ports, "example.test"), DenyCode::Ok);
    assert_eq!(code(ports, "other.test"), DenyCode::DnsDenied);
    assert_eq!(code(ports, "127.1"), DenyCode::DnsDenied);
    assert_eq!(code(Rules { deny: &["example.test:5432,6000-6099"], ..ports }, "example.test"), DenyCode::Ok);
    assert_eq!(code(Rules { deny: &["example.test:5000-7000"], ..ports }, "example.test"), DenyCode::DnsDenied);
    assert_eq!(code(Rules { deny: &["example.test"], ..ports }, "example.test"), DenyCode::DnsDenied);
    assert_eq!(code(Rules { mode: NetMode::None, allow: &[], ..DEFAULT }, "example.test"), DenyCode::NetModeNone);
    let open = Rules { mode: NetMode::Unrestricted, allow: &[], deny: &["x.test:443", "y.test:1-65535"], ..DEFAULT };
    assert_eq!(code(open, "x.test"), DenyCode::Ok);
    assert_eq!(code(open, "y.test"), DenyCode::DnsDenied);
}

#[test]
fn a_policy_ends_and_a_later_one_cuts_what_it_does_not_allow() {
    let mut input = DEFAULT.input().unwrap();
    input.expires = Some(MonotonicMs(10));
    let policy = Policy::build(input).unwrap();
    let permit = permit(&policy, "example.test:443");
    assert_eq!(permit.expires(), Some(MonotonicMs(10)));
    recheck(&policy, &permit, MonotonicMs(9)).unwrap();
    assert_eq!(recheck(&policy, &permit, MonotonicMs(10)).unwrap_err().code, DenyCode::PolicyExpired);
    let attempt = permit.attempt().clone();
    assert_eq!(check_name(&policy, &attempt, MonotonicMs(10)).unwrap_err().code, DenyCode::PolicyExpired);
    for denies in [&["example.test"][..], &["11.22.33.0/24"]] {
        let later = Rules { deny: denies, ..DEFAULT }.policy().unwrap();
        assert_eq!(recheck(&later, &permit, NOW).unwrap_err().code, DenyCode::NotInAllowlist);
    }
    recheck(&Rules { deny: &["11.22.34.0/24"], ..DEFAULT }.policy().unwrap(), &permit, NOW).unwrap();
}

#[test]
fn a_policy_that_changed_between_the_two_checks_decides_again() {
    let policy = DEFAULT.policy().unwrap();
    let attempt = Attempt { target: Target::parse("example.test:443").unwrap(), way: Ingress::Socks5, program: None };
    let Next::Resolve(query) = check_name(&policy, &attempt, NOW).unwrap() else { panic!("a name is resolved") };
    let later = Rules { deny: &["example.test"], ..DEFAULT }.policy().unwrap();
    let addrs = ["11.22.33.44".parse().unwrap()];
    assert_eq!(check_addrs(&later, query, &addrs, NOW).unwrap_err().code, DenyCode::NotInAllowlist);
}

#[test]
fn an_upstream_proxy_gets_the_name_and_the_permit_says_that_addresses_were_not_checked() {
    let mut input = DEFAULT.input().unwrap();
    input.upstream_proxy = true;
    let policy = Policy::build(input).unwrap();
    let permit = permit(&policy, "example.test:443");
    assert!(!permit.addresses_checked());
    assert_eq!(permit.route(), nexus_policy::net::Route::ViaProxy(&Target::parse("example.test:443").unwrap()));
    for denied in ["other.test:443", "10.0.0.1:443", "11.22.33.44:443"] {
        let attempt = Attempt { target: Target::parse(denied).unwrap(), ..attempt_of(&permit) };
        check_name(&policy, &attempt, NOW).unwrap_err();
    }
}

fn attempt_of(permit: &Permit) -> Attempt {
    permit.attempt().clone()
}

#[test]
fn the_egress_itself_is_no_destination_whatever_the_rules_say() {
    let mut input = Rules { allow_private: &["10.0.0.5:3128", "127.0.0.0/8:1-65535", "lo.test:1-65535"], ..DEFAULT }
        .input()
        .unwrap();
    input.own_listeners = vec!["0.0.0.0:3128".parse().unwrap(), "127.0.0.1:1080".parse().unwrap()];
    input.own_addresses.push("10.0.0.5".parse().unwrap());
    let policy = Policy::build(input).unwrap();
    let code = |target: &str, addr: &str| {
        nexus_policy::net::explain(&policy, &Target::parse(target).unwrap(), &[addr.parse().unwrap()], NOW).code
    };
    assert_eq!(code("10.0.0.5:3128", "10.0.0.5"), DenyCode::PrivateDestination);
    assert_eq!(code("127.0.0.9:3128", "127.0.0.9"), DenyCode::PrivateDestination);
    assert_eq!(code("127.0.0.1:1080", "127.0.0.1"), DenyCode::PrivateDestination);
    assert_eq!(code("lo.test:1080", "127.0.0.1"), DenyCode::PrivateDestination);
    assert_eq!(code("lo.test:1080", "::ffff:127.0.0.1"), DenyCode::PrivateDestination);
    assert_eq!(code("lo.test:1081", "127.0.0.1"), DenyCode::Ok);
    assert_eq!(code("127.0.0.9:1080", "127.0.0.9"), DenyCode::Ok);
}

#[test]
fn what_is_said_on_a_connection_agrees_as_the_table_says() {
    for case in AGREE {
        for way in [Ingress::Connect, Ingress::Socks5, Ingress::Transparent] {
            assert_eq!(case.decide(way).unwrap(), case.expect, "{case:?} by {way:?}");
        }
    }
    for code in [DenyCode::Ok, DenyCode::SniMismatch, DenyCode::InvalidDestination, DenyCode::MethodNotAllowed] {
        let told = AGREE.iter().filter(|case| case.expect == code).count();
        assert!(told > 5, "a table in which hardly anything is {code} proves little: {told}");
    }
}
