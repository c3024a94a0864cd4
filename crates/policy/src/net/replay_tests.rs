//! A policy as a document and back.

use super::*;
use crate::net::policy::PolicyInput;
use crate::net::policy::bound::PolicyBound;
use crate::net::rules::rule::{Rule, Source, parse_allow, parse_allow_private, parse_deny, parse_range};
use crate::net::vectors::{AGREE, CASES, Rules};

fn rule(text: &str) -> Rule {
    parse_allow(text, Source::flag(text)).unwrap()
}

/// Returns an input with something in every part.
fn full() -> PolicyInput {
    let mut input = PolicyInput {
        mode: Some(NetMode::Allowlist),
        allow: vec![
            Rule { tls: Some(false), program: Some(Program("/usr/bin/curl".into())), ..rule("a.test:80,8000-8099") },
            rule("*.b.test:*"),
        ],
        trusted_ranges: vec![parse_range("10.0.0.0/8").unwrap()],
        budget: Budget { requests: Some(3), ..Budget::default() },
        expires: Some(MonotonicMs(u64::MAX)),
        own_addresses: vec!["9.8.7.6".parse().unwrap(), "fe80::1".parse().unwrap()],
        own_listeners: vec!["[::1]:80".parse().unwrap()],
        generation: 7,
        ..PolicyInput::default()
    };
    input.allow_any(parse_allow_private("[fd00::/8]:443", Source::flag("x")).unwrap());
    input.deny_any(parse_deny("c.b.test", Source::flag("y")).unwrap());
    input.deny_any(parse_deny("11.0.0.0/8:25", Source::flag("z")).unwrap());
    input
}

fn built(change: impl FnOnce(&mut PolicyInput)) -> Policy {
    let mut input = full();
    change(&mut input);
    Policy::build(input).unwrap()
}

#[test]
fn a_policy_is_the_same_after_it_was_recorded_and_its_hash_tells_it_from_every_other() {
    let by = PolicyBound {
        mode: Some(NetMode::Allowlist),
        allow: vec![rule("d.b.test")],
        refuse_private: true,
        ..PolicyBound::default()
    };
    let mut others = vec![
        Policy::default(),
        built(|_| {}),
        built(|_| {}).narrow(&by),
        built(|_| {}).narrow(&PolicyBound { refuse_private: true, ..PolicyBound::default() }),
        built(|input| input.allow[0].private = true),
        built(|input| input.allow[0].tls = None),
        built(|input| input.allow[0].program = None),
        built(|input| input.allow[0].source.line = Some(4)),
        built(|input| input.allow.truncate(1)),
        built(|input| input.deny.clear()),
        built(|input| input.allow_addresses.clear()),
        built(|input| input.deny_addresses.clear()),
        built(|input| input.trusted_ranges.clear()),
        built(|input| input.missing_sni = Some(MissingSni::Allow)),
        built(|input| input.methods = Methods::ReadOnly),
        built(|input| input.upstream_proxy = true),
        built(|input| input.budget.requests = Some(4)),
        built(|input| input.expires = Some(MonotonicMs(5))),
        built(|input| input.ask = true),
        built(|input| input.own_addresses.truncate(1)),
        built(|input| input.own_listeners.clear()),
        built(|input| input.generation = 8),
    ];
    let rules: BTreeSet<String> = CASES
        .iter()
        .map(|case| case.rules)
        .chain(AGREE.iter().map(|case| case.rules))
        .map(|rules: Rules| {
            let policy = rules.policy().unwrap();
            let told = format!("{policy:?}");
            others.push(policy);
            told
        })
        .collect();
    let mut seen: HashMap<Digest, Policy> = HashMap::new();
    for policy in others {
        let (digest, value) = policy.recorded().unwrap();
        let text = value.to_string();
        let back: Formed = serde_json::from_str(&text).unwrap();
        assert_eq!(back.0, policy, "{text}");
        assert_eq!(back.0.recorded().unwrap().0, digest, "{text}");
        if let Some(known) = seen.insert(digest, policy.clone()) {
            assert_eq!(known, policy, "two policies with one hash");
        }
    }
    assert_eq!(seen.len(), 22 + rules.len());
    // The order in which rules were written is not part of it.
    let turned = built(|input| {
        input.allow.reverse();
        input.own_addresses.reverse();
    });
    assert!(seen.contains_key(&turned.recorded().unwrap().0));
}
