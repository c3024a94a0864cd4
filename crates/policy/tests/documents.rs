#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Network documents, presets, groups and directive requests (vectors K01, K02, K03, K06).

use nexus_model::capability::{NetCapability, NetMode, NetPreset};
use nexus_policy::net::{
    ApprovalReason, DocumentError, Groups, MissingSni, MonotonicMs, NetDocument, Origin, Policy, PolicyError,
    PolicyInput, Source, Target, approval_reasons, builtin_groups, explain, from_capability, parse_allow,
    parse_allow_private, read_groups,
};

const NOW: MonotonicMs = MonotonicMs(1000);

fn read(json: &str) -> Result<NetDocument, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn groups() -> Groups {
    read_groups("pkg:x index.test\ncode:y code.test:22,443\ncode:ssh code.test:22\n", "test").unwrap()
}

fn load(json: &str, origin: Origin) -> Result<PolicyInput, DocumentError> {
    read(json).unwrap().input("net.yaml", origin, &groups(), NOW)
}

fn code(policy: &Policy, target: &str, address: &str) -> &'static str {
    explain(policy, &Target::parse(target).unwrap(), &[address.parse().unwrap()], NOW).code.as_str()
}

#[test]
fn a_document_gives_what_it_says() {
    let text = r#"{"mode": "allowlist",
        "allow": ["a.test", "*.b.test:443,8443", {"host": "c.test", "ports": 8080, "binary": "/usr/bin/curl"},
                  {"host": "db.test", "ports": "5432-5433", "private": true}, {"host": "10.9.0.0/16", "private": true}],
        "deny": ["x.b.test", "11.0.0.0/8"], "groups": ["pkg:x"], "limits": {"connections": 5}, "ttl_seconds": 60,
        "missing_sni": "allow", "tests": {"match": ["a.test", "y.b.test:8443", "10.9.1.1:443"],
        "not_match": ["x.b.test", "a.test:80", "b.test", "c.test:8080"]}}"#;
    let input = load(text, Origin::User).unwrap();
    assert_eq!((input.budget.connections, input.expires), (Some(5), Some(MonotonicMs(61_000))));
    assert_eq!(input.missing_sni, Some(MissingSni::Allow));
    let policy = Policy::build(input).unwrap();
    for (target, address, wanted) in [
        ("index.test:443", "12.0.0.1", "OK"),
        ("db.test:5433", "10.0.0.1", "OK"),
        ("a.test:443", "10.0.0.1", "PRIVATE_DESTINATION"),
        ("a.test:443", "10.9.0.1", "OK"),
        ("a.test:443", "11.0.0.1", "NOT_IN_ALLOWLIST"),
        // The program is not known here, and the rule is for one program.
        ("c.test:8080", "12.0.0.1", "NOT_IN_ALLOWLIST"),
    ] {
        assert_eq!(code(&policy, target, address), wanted, "{target}");
    }
    let told = explain(&policy, &Target::parse("a.test:443").unwrap(), &["12.0.0.1".parse().unwrap()], NOW);
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["rule"]["source"]["file"], "net.yaml");
    assert_eq!((json["decision"].as_str(), json["code"].as_str()), (Some("allow"), Some("OK")));
}

#[test]
fn the_text_of_a_rule_reads_back_as_the_rule() {
    for (item, text) in [
        (r#"{"host": "a.test@/usr/bin/curl", "ports": 8443}"#, "a.test:8443@/usr/bin/curl"),
        (r#"{"host": "a.test", "ports": "80,443", "binary": "/bin/x"}"#, "a.test:80,443@/bin/x"),
        (r#"{"host": "a.test:80@/bin/x"}"#, "a.test:80@/bin/x"),
    ] {
        let rule = &load(&format!(r#"{{"allow": [{item}]}}"#), Origin::User).unwrap().allow[0];
        assert_eq!(rule.source.text, text);
        let again = parse_allow(text, rule.source.clone()).unwrap();
        assert_eq!(
            (&again.pattern, &again.ports, &again.program),
            (&rule.pattern, &rule.ports, &rule.program),
            "{text}"
        );
    }
}

#[test]
fn what_is_misspelt_doubled_or_of_another_type_is_refused_with_its_place() {
    for (text, part) in [
        (r#"{"mode": "allowlist", "alow": []}"#, "alow"),
        (r#"{"mode": "open"}"#, "open"),
        (r#"{"allow": ["a.test"], "allow": ["b.test"]}"#, "duplicate field `allow`"),
        (r#"{"allow": "a.test"}"#, "invalid type"),
        (r#"{"allow": [{"host": "a.test", "prots": 80}]}"#, "prots"),
        (r#"{"allow": [{"ports": 80}]}"#, "host"),
        (r#"{"allow": [{"host": "a.test", "host": "b.test"}]}"#, "duplicate field `host`"),
        (r#"{"limits": {"conections": 1}}"#, "conections"),
        (r#"{"tests": {"matches": []}}"#, "matches"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part) && error.contains("line 1 column"), "{text}: {error}");
    }
}

#[test]
fn items_that_are_no_rule_or_contradict_each_other_are_refused_by_name() {
    for (text, part) in [
        (r#"{"allow": ["*.com"]}"#, "*.com"),
        (r#"{"allow": ["10.0.0.1"]}"#, "--allow-private 10.0.0.1:443"),
        (r#"{"allow": [{"host": "a.test:80", "ports": 443}]}"#, "twice"),
        (r#"{"allow": [{"host": "a.test", "ports": 0}]}"#, "\"0\""),
        (r#"{"allow": [{"host": "a.test", "binary": "curl"}]}"#, "absolute path"),
        (r#"{"allow": [{"host": "a.test@/bin/x", "binary": "/bin/x"}]}"#, "stands twice"),
        (r#"{"allow": [{"host": "a.test:80@/bin/x", "ports": 80}]}"#, "ports stand twice"),
        (r#"{"allow": [{"host": "10.0.0.1", "private": true, "tls": true}]}"#, "not for addresses"),
        (r#"{"deny": [{"host": "a.test", "private": true}]}"#, "mean nothing"),
        (r#"{"allow": ["A.test."], "deny": ["a.test:443"]}"#, "contradict"),
        (r#"{"allow": ["a.test", {"host": "a.test", "private": true}]}"#, "contradict"),
        (r#"{"groups": ["pkg:z"]}"#, "pkg:x"),
        (r#"{"ttl_seconds": 0}"#, "ttl_seconds is 0"),
        (r#"{"ttl_seconds": 86401}"#, "86401"),
        (r#"{"mode": "none", "allow": ["a.test"]}"#, "mode none takes no allow rules"),
        (r#"{"mode": "unrestricted", "allow": ["a.test"]}"#, "mode unrestricted takes no allow rules"),
        (r#"{"preset": "strict", "mode": "unrestricted"}"#, "preset Strict"),
        (r#"{"preset": "strict", "allow": ["a.test:22"]}"#, "needs an approval"),
        (r#"{"preset": "strict", "allow": ["*.a.test"]}"#, "needs an approval"),
        (r#"{"trusted_ranges": ["10.0.0.0/8"]}"#, "only the operator"),
    ] {
        let error = load(text, Origin::User).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    load(
        r#"{"trusted_ranges": ["10.0.0.0/8"], "allow": ["a.test:80"], "deny": ["a.test:81", "b.test"]}"#,
        Origin::Operator,
    )
    .unwrap();
}

#[test]
fn a_document_whose_own_test_fails_is_refused() {
    for (tests, part) in [
        (r#"{"match": ["b.test"]}"#, "\"b.test\" should be allowed, but no rule allows b.test:443"),
        (r#"{"not_match": ["a.test:443"]}"#, "\"a.test:443\" should be denied"),
        (r#"{"match": ["a.test:0"]}"#, "not a destination"),
    ] {
        let error = load(&format!(r#"{{"allow": ["a.test"], "tests": {tests}}}"#), Origin::User).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    load(r#"{"allow": ["a.test"], "tests": {"match": ["A.test."], "not_match": ["b.test", "127.1"]}}"#, Origin::User)
        .unwrap();
}

#[test]
fn no_policy_an_empty_one_and_an_empty_document_allow_nothing() {
    let empty = Policy::build(load("{}", Origin::User).unwrap()).unwrap();
    let listless = Policy::build(load(r#"{"mode": "allowlist"}"#, Origin::User).unwrap()).unwrap();
    assert_eq!(code(&Policy::default(), "a.test:443", "12.0.0.1"), "NET_MODE_NONE");
    assert_eq!(code(&empty, "a.test:443", "12.0.0.1"), "NET_MODE_NONE");
    assert_eq!(code(&listless, "a.test:443", "12.0.0.1"), "NOT_IN_ALLOWLIST");
}

#[test]
fn a_workspace_or_directive_only_narrows_and_never_opens_private_destinations() {
    let mut input = PolicyInput::default();
    for text in ["a.test:443,80", "b.test"] {
        input.allow.push(parse_allow(text, Source::flag(text)).unwrap());
    }
    input.allow_any(parse_allow_private("db.test:5432", Source::flag("db")).unwrap());
    let policy = Policy::build(input).unwrap();
    let document = read(r#"{"allow": ["a.test", "c.test", "db.test:5432"], "limits": {"requests": 3}}"#).unwrap();
    let by = document.narrower("nexus.yaml", Origin::Workspace, &groups(), NOW).unwrap();
    let narrow = policy.narrow(&by);
    assert_eq!(narrow.budget().requests, Some(3));
    for (target, address, wanted) in [
        ("a.test:443", "12.0.0.1", "OK"),
        ("db.test:5432", "10.0.0.1", "OK"),
        ("a.test:80", "12.0.0.1", "NOT_IN_ALLOWLIST"),
        ("b.test:443", "12.0.0.1", "NOT_IN_ALLOWLIST"),
        ("c.test:443", "12.0.0.1", "NOT_IN_ALLOWLIST"),
    ] {
        assert_eq!(code(&narrow, target, address), wanted, "{target}");
    }
    for text in [r#"{"allow": [{"host": "a.test", "private": true}]}"#, r#"{"trusted_ranges": ["10.0.0.0/8"]}"#] {
        for origin in [Origin::Workspace, Origin::Directive] {
            let error = read(text).unwrap().narrower("nexus.yaml", origin, &groups(), NOW).unwrap_err();
            assert!(matches!(error, DocumentError::NotHere { .. }), "{error}");
        }
    }
    let forged = parse_allow_private("a.test", Source { origin: Origin::Directive, ..Source::flag("a.test") }).unwrap();
    let mut input = PolicyInput::default();
    input.allow_any(forged);
    assert!(matches!(Policy::build(input), Err(PolicyError::PrivateNotAllowed { .. })));
}

#[test]
fn a_narrower_policy_closes_private_places_ends_earlier_and_cannot_be_asked_away() {
    let mut input = PolicyInput { ask: true, expires: Some(MonotonicMs(9000)), ..PolicyInput::default() };
    input.allow_any(parse_allow_private("db.test:5432", Source::flag("db")).unwrap());
    let policy = Policy::build(input).unwrap();
    assert_eq!(code(&policy, "new.test:443", "12.0.0.1"), "APPROVAL_REQUIRED");
    assert_eq!(code(&policy, "10.0.0.1:443", "10.0.0.1"), "PRIVATE_DESTINATION");
    let by = nexus_policy::net::PolicyBound {
        mode: Some(NetMode::Allowlist),
        allow: vec![parse_allow("db.test:5432", Source::flag("db")).unwrap()],
        refuse_private: true,
        expires: Some(MonotonicMs(5000)),
        ..Default::default()
    };
    let narrow = policy.narrow(&by);
    assert_eq!(narrow.expires(), Some(MonotonicMs(5000)));
    assert_eq!(code(&narrow, "db.test:5432", "10.0.0.1"), "PRIVATE_DESTINATION");
    assert_eq!(code(&narrow, "new.test:443", "12.0.0.1"), "NOT_IN_ALLOWLIST");
    let rule = parse_allow("new.test", Source { origin: Origin::Approval, ..Source::flag("new.test") }).unwrap();
    let more = policy.approve(nexus_policy::net::AnyRule::Name(rule.clone())).unwrap();
    assert_eq!(code(&more, "new.test:443", "12.0.0.1"), "OK");
    assert_eq!(more.generation(), policy.generation() + 1);
    assert_eq!(
        code(&narrow.approve(nexus_policy::net::AnyRule::Name(rule)).unwrap(), "new.test:443", "12.0.0.1"),
        "NOT_IN_ALLOWLIST"
    );
}

#[test]
fn presets_expand_to_a_mode_and_groups() {
    let loose = Policy::build(load(r#"{"preset": "loose"}"#, Origin::User).unwrap()).unwrap();
    assert_eq!(code(&loose, "index.test:443", "12.0.0.1"), "OK");
    assert_eq!(code(&loose, "code.test:443", "12.0.0.1"), "OK");
    assert_eq!(code(&loose, "a.test:443", "12.0.0.1"), "NOT_IN_ALLOWLIST");
    for (preset, mode) in
        [("off", NetMode::Unrestricted), ("strict", NetMode::Allowlist), ("no_external", NetMode::None)]
    {
        let policy = Policy::build(load(&format!(r#"{{"preset": "{preset}"}}"#), Origin::User).unwrap()).unwrap();
        assert_eq!(policy.mode(), mode, "{preset}");
    }
    let strict = load(r#"{"preset": "strict", "allow": ["a.test"]}"#, Origin::User).unwrap();
    assert_eq!(code(&Policy::build(strict).unwrap(), "a.test:443", "12.0.0.1"), "OK");
}

#[test]
fn what_needs_an_approval_is_named() {
    use ApprovalReason::{
        NetCustomPolicyRequested, NetNonDefaultPortRequested, NetPrivateDestinationRequested, NetUnrestrictedRequested,
        NetWildcardDomainRequested,
    };
    for (preset, text, wanted) in [
        (None, r#"{"allow": ["a.test"]}"#, vec![]),
        (None, r#"{"allow": ["a.test:80"]}"#, vec![NetNonDefaultPortRequested]),
        (Some(NetPreset::Loose), r#"{"allow": ["a.test:80,443"]}"#, vec![]),
        (
            Some(NetPreset::Custom),
            r#"{"allow": ["*.a.test"]}"#,
            vec![NetWildcardDomainRequested, NetCustomPolicyRequested],
        ),
        (None, r#"{"allow": [{"host": "a.test", "private": true}]}"#, vec![NetPrivateDestinationRequested]),
        (None, r#"{"mode": "unrestricted"}"#, vec![NetUnrestrictedRequested]),
    ] {
        let found = approval_reasons(preset, &load(text, Origin::Operator).unwrap());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted, "{text}");
    }
}

#[test]
fn a_directives_request_is_read_as_the_contract_says() {
    let request = |json: &str| from_capability(&serde_json::from_str::<NetCapability>(json).unwrap(), NOW);
    let by =
        request(r#"{"mode": "allowlist", "allow": ["*.a.test:443"], "ttl_seconds": 2, "x_ext": {"x_y": 1}}"#).unwrap();
    assert_eq!((by.mode, by.expires, by.allow.len()), (Some(NetMode::Allowlist), Some(MonotonicMs(3000)), 1));
    request(r#"{"mode": "none"}"#).unwrap();
    for bad in [
        r#"{"mode": "allowlist"}"#,
        r#"{"mode": "none", "allow": ["a.test:443"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test:80,443"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test:80-443"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test:*"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test:0"]}"#,
        r#"{"mode": "allowlist", "allow": ["10.0.0.1:443"]}"#,
        r#"{"mode": "allowlist", "allow": ["[::1]:443"]}"#,
        r#"{"mode": "allowlist", "allow": ["a.test:80:443"]}"#,
        r#"{"mode": "none", "ttl_seconds": 0}"#,
        r#"{"mode": "none", "x_ext": {"y": 1}}"#,
    ] {
        request(bad).map(|by| panic!("{bad} was read as {by:?}")).unwrap_err();
    }
}

#[test]
fn the_built_in_groups_are_sound_and_reach_code_hosts_only_on_their_ports() {
    let groups = builtin_groups().unwrap();
    assert!(groups.len() > 3 && groups.values().all(|rules| !rules.is_empty()));
    for (name, rules) in groups {
        assert!(name.starts_with("code:"), "{name}");
        let port = if name == "code:ssh" { "22" } else { "443" };
        assert!(rules.iter().all(|rule| rule.ports.to_string() == port && !rule.private), "{name}");
    }
}
