#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Properties of every policy: the order of rules, more denials, narrowing, empty lists, and a second opinion.

mod naive;

use naive::{Naive, Only};
use nexus_model::capability::NetMode;
use nexus_policy::net::{
    AnyRule, Attempt, Decision, DenyCode, Explanation, Ingress, MonotonicMs, Policy, PolicyBound, PolicyInput, Program,
    Rule, Source, Target, explain, explain_attempt, fuzz, parse_allow, parse_allow_private, parse_deny, parse_range,
    vectors,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::IpAddr;

const NAMES: &[&str] = &[
    "a.test",
    "b.a.test",
    "c.b.a.test",
    "ba.test",
    "A.Test.",
    "B.a.TEST",
    "x.test",
    "a.test.x.test",
    "test",
    "a-b.a.test",
    "xa.test",
];
const PATTERNS: &[&str] = &["a.test", "*.a.test", "b.a.test", "*.B.A.test.", "x.test", "*.x.test", "A.TEST", "test"];
const PORTS: &[u16] = &[22, 80, 443];
const ADDRS: &[&str] = &[
    "11.22.33.44",
    "11.22.33.45",
    "9.8.7.6",
    "10.0.0.1",
    "10.1.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "0.0.0.0",
    "224.0.0.1",
    "192.168.1.1",
    "2a00:aaaa::5",
    "::1",
    "fd00::1",
    "fd00:ec2::254",
    "64:ff9b::a00:1",
    "64:ff9b::b16:212c",
    "2002:a00:1::",
    "2002:b16:212c::",
    "::ffff:10.0.0.1",
    "::ffff:11.22.33.44",
    "ff02::1",
    "2001:db8::1",
    "2001:0:b16:212c::f5ff:fffe",
    "2001:0:b16:212c::f4e9:ded3",
    "2a00:aaaa::200:5efe:a00:1",
    "2a00:aaaa::200:5efe:b16:212c",
    "2a00:aaaa::5efe:a00:1",
];
const NETS: &[(&str, u8)] = &[
    ("10.0.0.0", 8),
    ("10.1.0.0", 16),
    ("11.22.33.44", 32),
    ("64:ff9b::", 96),
    ("2002::", 16),
    ("2001::", 32),
    ("2a00:aaaa::", 32),
    ("11.22.0.0", 16),
    ("127.0.0.1", 32),
    ("169.254.0.0", 16),
    ("169.254.169.254", 32),
    ("fd00::", 8),
    ("9.8.7.0", 24),
    ("::", 0),
];

const PROGRAMS: &[&str] = &["/usr/bin/curl", "/usr/bin/git", "/work/curl"];

const CONFIGURATION: &[&str] = &[
    "[global]\n",
    "index-url = ",
    "extra-index-url=",
    "https://a.test/x ",
    "http://u:p@10.0.0.1:81/",
    "\n",
    " ",
    "registry=",
    "@s:registry=",
    "//a.test/:_authToken=",
    "${X}",
    "[source.crates-io]\n",
    "replace-with = ",
    "'a'",
    "[source.a]\n",
    "deb ",
    "deb-src [x] ",
    "URIs: ",
    "Enabled: no",
    "Acquire::http::Proxy ",
    "\"p.test:1\"",
    ";",
    "{",
    "}",
    "/*",
    "*/",
    "//",
    "#",
    "machine ",
    "login ",
    "password ",
    "sparse+",
    "mirror+",
    "\"",
    "[",
    "]",
    "=",
    ":",
    "cert = /c\n",
    "\u{e9}",
    "[registries.m]\n",
    "index=",
];

fn cases() -> u32 {
    std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn some_policy() -> impl Strategy<Value = Naive> {
    let ports = || vec(select(PORTS), 1..3);
    let pattern = || select(PATTERNS).prop_map(String::from);
    let net = || select(NETS).prop_map(|(net, prefix)| (net.to_string(), prefix));
    (
        any::<bool>(),
        vec((pattern(), ports(), prop::bool::weighted(0.3), some_program()), 0..5),
        vec((pattern(), vec(select(PORTS), 0..3), some_program()), 0..3),
        vec(net(), 0..2),
        vec((net(), select(PORTS)), 0..3),
        vec(net(), 0..3),
    )
        .prop_map(|(open, allow, deny, deny_nets, allow_nets, trusted)| Naive {
            open,
            // In the open mode only private allowances mean anything, and others are refused.
            allow: allow
                .into_iter()
                .map(|(pattern, ports, private, only)| (pattern, ports, private || open, only))
                .collect(),
            deny,
            deny_nets,
            allow_nets: allow_nets.into_iter().map(|((net, prefix), port)| (net, prefix, port)).collect(),
            trusted,
            own: vec!["9.8.7.6".into()],
        })
}

fn some_program() -> impl Strategy<Value = Only> {
    prop_oneof![2 => Just(None), 1 => select(PROGRAMS).prop_map(Some)]
}

fn at(only: Only) -> String {
    only.map(|program| format!("@{program}")).unwrap_or_default()
}

fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

fn input(naive: &Naive) -> PolicyInput {
    let mode = if naive.open { NetMode::Unrestricted } else { NetMode::Allowlist };
    let mut input = PolicyInput { mode: Some(mode), ..PolicyInput::default() };
    for (pattern, ports, private, only) in &naive.allow {
        let rule = parse_allow(&format!("{pattern}:{}{}", list(ports), at(*only)), Source::flag(pattern)).unwrap();
        input.allow.push(Rule { private: *private, ..rule });
    }
    for (pattern, ports, only) in &naive.deny {
        let text = if ports.is_empty() { pattern.clone() } else { format!("{pattern}:{}", list(ports)) };
        input.deny_any(parse_deny(&format!("{text}{}", at(*only)), Source::flag(pattern)).unwrap());
    }
    for (net, prefix) in &naive.deny_nets {
        input.deny_any(parse_deny(&format!("{net}/{prefix}"), Source::flag(net)).unwrap());
    }
    for (net, prefix, port) in &naive.allow_nets {
        let text =
            if net.contains(':') { format!("[{net}/{prefix}]:{port}") } else { format!("{net}/{prefix}:{port}") };
        input.allow_any(parse_allow_private(&text, Source::flag(net)).unwrap());
    }
    input.trusted_ranges =
        naive.trusted.iter().map(|(net, prefix)| parse_range(&format!("{net}/{prefix}")).unwrap()).collect();
    input.own_addresses = naive.own.iter().map(|own| own.parse().unwrap()).collect();
    input
}

#[derive(Debug, Clone)]
struct Ask {
    host: &'static str,
    port: u16,
    answers: Vec<&'static str>,
    program: Only,
}

fn some_ask() -> impl Strategy<Value = Ask> {
    (
        prop_oneof![5 => select(NAMES), 1 => select(ADDRS)],
        select(PORTS),
        vec(prop_oneof![1 => select(&ADDRS[..2]), 2 => select(ADDRS)], 0..3),
        some_program(),
    )
        .prop_map(|(host, port, answers, program)| Ask { host, port, answers, program })
}

fn asked(policy: &Policy, ask: &Ask) -> Explanation {
    let host = if ask.host.contains(':') { format!("[{}]", ask.host) } else { ask.host.to_string() };
    let target = Target::parse(&format!("{host}:{}", ask.port)).unwrap();
    let answers: Vec<IpAddr> = ask.answers.iter().map(|text| text.parse().unwrap()).collect();
    let program = ask.program.map(|path| Program::parse(path).unwrap());
    explain_attempt(policy, &Attempt { target, way: Ingress::Connect, program }, &answers, MonotonicMs(0))
}

fn allowed(policy: &Policy, ask: &Ask) -> bool {
    asked(policy, ask).decision == Decision::Allow
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_opinion_decides_the_same(naive in some_policy(), asks in vec(some_ask(), 1..20)) {
        let policy = Policy::build(input(&naive)).unwrap();
        for ask in asks {
            // A mapped address written as a destination is the IPv4 address; the other opinion reads no spellings.
            let host = ask.host.strip_prefix("::ffff:").unwrap_or(ask.host);
            let found = asked(&policy, &ask);
            prop_assert_eq!(found.decision == Decision::Allow, naive.allows(host, ask.port, &ask.answers, ask.program), "{:?} {:?}", ask, found);
        }
    }

    #[test]
    fn the_order_of_rules_and_answers_never_matters(naive in some_policy(), asks in vec(some_ask(), 1..5), seed in any::<u64>()) {
        let first = input(&naive);
        let mut second = first.clone();
        let turn = |length: usize| if length == 0 { 0 } else { (seed as usize) % length };
        second.allow.reverse();
        second.deny.reverse();
        second.deny_addresses.reverse();
        second.allow_addresses.reverse();
        second.trusted_ranges.reverse();
        let (a, d) = (turn(second.allow.len()), turn(second.deny.len()));
        second.allow.rotate_left(a);
        second.deny.rotate_left(d);
        let (one, other) = (Policy::build(first).unwrap(), Policy::build(second).unwrap());
        prop_assert_eq!(&one, &other);
        for ask in asks {
            let reversed = Ask { answers: ask.answers.iter().rev().copied().collect(), ..ask.clone() };
            let (found, again) = (asked(&one, &ask), asked(&other, &reversed));
            prop_assert_eq!((found.decision, found.code, found.rule, found.explanation), (again.decision, again.code, again.rule, again.explanation));
        }
    }

    #[test]
    fn one_more_denial_never_allows_more(
        naive in some_policy(), asks in vec(some_ask(), 1..20), pattern in select(PATTERNS), net in select(NETS), as_net in any::<bool>(), only in some_program()
    ) {
        let before = Policy::build(input(&naive)).unwrap();
        let mut more = input(&naive);
        let text = if as_net { format!("{}/{}", net.0, net.1) } else { format!("{pattern}{}", at(only)) };
        more.deny_any(parse_deny(&text, Source::flag(pattern)).unwrap());
        let after = Policy::build(more).unwrap();
        for ask in asks {
            prop_assert!(!allowed(&after, &ask) || allowed(&before, &ask), "{:?}", ask);
        }
    }

    #[test]
    fn a_rule_for_one_program_never_allows_more_than_one_for_all(
        naive in some_policy(), asks in vec(some_ask(), 1..20), place in any::<prop::sample::Index>(), program in select(PROGRAMS)
    ) {
        let before = input(&naive);
        let mut after = before.clone();
        if !after.allow.is_empty() {
            let place = place.index(after.allow.len());
            after.allow[place].program.get_or_insert(Program::parse(program).unwrap());
        }
        let (before, after) = (Policy::build(before).unwrap(), Policy::build(after).unwrap());
        for ask in asks {
            prop_assert!(!allowed(&after, &ask) || allowed(&before, &ask), "{:?}", ask);
            // A program that is not known is allowed only what every program is.
            let unknown = Ask { program: None, ..ask.clone() };
            let anybody = PROGRAMS.iter().all(|program| allowed(&after, &Ask { program: Some(program), ..ask.clone() }));
            let stranger = allowed(&after, &Ask { program: Some("/usr/bin/stranger"), ..ask.clone() });
            prop_assert!(!allowed(&after, &unknown) || (anybody && stranger), "{:?}", ask);
        }
    }

    #[test]
    fn narrowing_only_narrows(naive in some_policy(), by in some_policy(), asks in vec(some_ask(), 1..20), none in prop::bool::weighted(0.1), public_only in any::<bool>()) {
        let before = Policy::build(input(&naive)).unwrap();
        let ceiling = input(&by);
        let narrower = PolicyBound {
            mode: if none { Some(NetMode::None) } else { ceiling.mode },
            allow: ceiling.allow,
            deny: ceiling.deny,
            deny_addresses: ceiling.deny_addresses,
            refuse_private: public_only,
            ..PolicyBound::default()
        };
        let after = before.narrow(&narrower);
        for ask in &asks {
            prop_assert!(!allowed(&after, ask) || allowed(&before, ask), "{:?}", ask);
            // And a second ceiling does not lift the first.
            let twice = after.narrow(&PolicyBound { mode: Some(NetMode::Unrestricted), ..PolicyBound::default() });
            prop_assert_eq!(allowed(&twice, ask), allowed(&after, ask));
        }
    }

    #[test]
    fn what_a_ceiling_denies_is_denied_under_it(
        naive in some_policy(), by in some_policy(), asks in vec(some_ask(), 1..20), public_only in any::<bool>()
    ) {
        let ceiling = input(&by);
        let itself = Policy::build(ceiling.clone()).unwrap();
        let narrower = PolicyBound {
            mode: ceiling.mode,
            allow: ceiling.allow,
            deny: ceiling.deny,
            deny_addresses: ceiling.deny_addresses,
            refuse_private: public_only,
            ..PolicyBound::default()
        };
        let after = Policy::build(input(&naive)).unwrap().narrow(&narrower);
        for ask in &asks {
            let literal = ask.host.parse::<IpAddr>().is_ok();
            let special = ask.answers.iter().any(|answer| nexus_policy::net::classify(answer.parse().unwrap()).is_some());
            // Of what it closes, a ceiling leaves the private places to the policy under it, unless it closes them all.
            let closed = (literal && !by.open)
                || (!literal && public_only && special)
                || matches!(asked(&itself, ask).code, DenyCode::NotInAllowlist | DenyCode::PortNotAllowed);
            prop_assert!(!(closed && allowed(&after, ask)), "{:?}", ask);
        }
    }

    #[test]
    fn a_ceiling_keeps_what_both_allow(naive in some_policy(), asks in vec(some_ask(), 1..20)) {
        let before = Policy::build(input(&naive)).unwrap();
        let same = PolicyBound { mode: Some(before.mode()), allow: input(&naive).allow, ..PolicyBound::default() };
        let after = before.narrow(&same);
        for ask in asks.iter().filter(|ask| ask.host.parse::<IpAddr>().is_err()) {
            prop_assert_eq!(allowed(&after, ask), allowed(&before, ask), "{:?}", ask);
        }
    }

    #[test]
    fn an_empty_list_allows_nothing(host in "\\PC{0,20}|[a-z0-9.:\\[\\]x-]{1,20}", answer in select(ADDRS)) {
        let policies = [Policy::default(), Policy::build(PolicyInput { mode: Some(NetMode::Allowlist), ..PolicyInput::default() }).unwrap()];
        if let Ok(target) = Target::parse(&format!("{host}:443")) {
            for policy in policies {
                let found = explain(&policy, &target, &[answer.parse().unwrap()], MonotonicMs(0));
                prop_assert_eq!(found.decision, Decision::Deny);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_hold_the_properties_of_the_parsers(data in vec(any::<u8>(), 0..60), text in "[a-zA-Z0-9.:*/\\[\\]xX%@ \u{e9}\u{ff11}\u{3002}-]{0,40}") {
        for bytes in [data.as_slice(), text.as_bytes()] {
            fuzz::fuzz_host(bytes);
            fuzz::fuzz_target(bytes);
            fuzz::fuzz_rule(bytes);
            fuzz::fuzz_decision(bytes);
        }
    }

    #[test]
    fn no_configuration_text_breaks_the_readers_of_package_managers(
        words in vec(select(CONFIGURATION), 0..30), noise in "\\PC{0,10}"
    ) {
        fuzz::fuzz_packages(words.concat().as_bytes());
        fuzz::fuzz_packages(format!("{}{noise}{}", words.concat(), words.join(&noise)).as_bytes());
    }

    #[test]
    fn mutated_attacks_hold_the_properties_of_the_parsers(
        place in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), with in any::<u8>(), how in 0..3, address in any::<[u8; 4]>()
    ) {
        let case = vectors::CASES[place.index(vectors::CASES.len())];
        let mut bytes = case.authority().into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = with,
            1 => bytes.insert(at, with),
            _ => { bytes.remove(at); }
        }
        fuzz::fuzz_host(&bytes);
        fuzz::fuzz_target(&bytes);
        fuzz::fuzz_rule(&bytes);
        fuzz::fuzz_decision(&[&address[..], &bytes].concat());
    }
}

#[test]
fn the_random_policies_allow_and_deny_often_enough_to_prove_something() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = [0_u32; 2];
    for _ in 0..500 {
        let naive = some_policy().new_tree(&mut runner).unwrap().current();
        let ask = some_ask().new_tree(&mut runner).unwrap().current();
        counts[usize::from(allowed(&Policy::build(input(&naive)).unwrap(), &ask))] += 1;
    }
    assert!(counts.iter().all(|count| *count > 50), "denied and allowed: {counts:?}");
}

#[test]
fn an_allowance_text_is_one_kind_of_rule() {
    assert!(matches!(parse_deny("a.test", Source::flag("x")).unwrap(), AnyRule::Name(_)));
    assert!(matches!(parse_deny("10.0.0.0/8", Source::flag("x")).unwrap(), AnyRule::Address(_)));
}
