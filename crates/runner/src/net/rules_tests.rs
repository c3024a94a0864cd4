//! A workspace's file under random grants: what is permitted with it is permitted without it.

use super::*;
use nexus_model::Digest;
use nexus_policy::net::{
    Attempt, Behind, Hello, Host, Ingress, MonotonicMs, Next, Permit, Request, Target, check_addrs, check_inner_host,
    check_method, check_name, check_not_http, check_sni,
};
use nexus_policy::profile::{Grants, Loaded, narrow, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::IpAddr;

const NOW: MonotonicMs = MonotonicMs(1);
const HOSTS: &[&str] = &["*.pub.test", "a.pub.test", "b.pub.test", "c.other.test"];
const PORTS: &[&str] =
    &["", ":80", ":443", ":993", ":80,443,993", ":443/tcp", ":80/tcp", ":80/tls", ":993/tls", ":443/tls"];
const PROGRAMS: &[&str] = &["", "", "", "@/usr/bin/curl"];
const TARGETS: &[&str] = &["a.pub.test", "b.pub.test", "c.other.test", "93.184.216.35", "10.0.0.5"];
const ADDRESSES: &[&str] = &["93.184.216.34", "93.184.216.35", "10.0.0.5"];
/// An address of `b.pub.test`, where a policy follows its denial.
const OF_B: &str = "93.184.216.35";

fn cases() -> u32 {
    std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn rules_of(most: usize) -> impl Strategy<Value = Vec<String>> {
    vec((select(HOSTS), select(PORTS), select(PROGRAMS)), 0..most)
        .prop_map(|rules| rules.iter().map(|(host, ports, program)| format!("{host}{ports}{program}")).collect())
}

fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Generates the rest of a file beside its list of destinations.
fn rest() -> impl Strategy<Value = String> {
    let modes = select(&["", ", mode: allowlist", ", methods: read_only"][..]);
    (modes, any::<bool>())
        .prop_map(|(mode, deny)| format!("{mode}{}", if deny { ", deny: [c.other.test]" } else { "" }))
}

#[derive(Debug, Clone)]
struct Base {
    open: bool,
    allow: Vec<String>,
    deny: Vec<String>,
    private: Vec<String>,
    read_only: bool,
    lax: Option<bool>,
}

fn bases() -> impl Strategy<Value = Base> {
    let deny = subsequence(vec!["b.pub.test", "*.pub.test:993", "93.184.216.34"], 0..=2);
    let private =
        subsequence(vec!["a.pub.test:80,443,993", "b.pub.test:993/tls", "10.0.0.0/8:443", "10.0.0.5:80"], 0..=2);
    let owned = |texts: Vec<&str>| texts.iter().map(|text| (*text).to_owned()).collect();
    let settings = (any::<bool>(), proptest::option::of(any::<bool>()));
    (any::<bool>(), rules_of(5), deny, private, settings).prop_map(
        move |(open, allow, deny, private, (read_only, lax))| {
            let (deny, private) = (owned(deny), owned(private));
            Base { open, allow, deny, private, read_only, lax }
        },
    )
}

fn grants(base: &Base) -> Grants {
    let mode = if base.open { "unrestricted" } else { "allowlist" };
    let methods = if base.read_only { ", methods: read_only" } else { "" };
    let text = format!("net: {{mode: {mode}{methods}, allow: {}, deny: {}}}", list(&base.allow), list(&base.deny));
    let mut grants = Grants::default();
    grants.add(&loaded("profile", &text));
    let flag = |text: &String| Sourced::new(text.clone(), Origin::Flag("--allow-private".to_owned()));
    grants.net.allow_private = base.private.iter().map(flag).collect();
    grants
}

fn loaded(name: &str, text: &str) -> Loaded {
    let document = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Loaded { name: name.to_owned(), source: format!("{name}.yaml"), hash: Digest::of(text.as_bytes()), document }
}

fn policy_of(grants: &Grants, lax: Option<bool>) -> Policy {
    let allow_missing_sni = lax.map(|lax| Sourced::new(lax, Origin::Standard));
    let settings = EgressSettings { allow_missing_sni, ..EgressSettings::default() };
    let groups = Groups::default();
    let own_addresses = Vec::new();
    let (grants, budget) = (&grants.net, Budget::default());
    policy(Sources { grants, budget, asks: false, settings: &settings, groups: &groups, own_addresses })
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy)]
enum Opening<'a> {
    /// TLS with or without a name, or neither TLS nor HTTP.
    Hello(Hello<'a>),
    /// A request with this method and `Host`.
    Request(&'a str, &'a str),
}

/// Reports whether a connection is made and may begin with these bytes, on a host that follows `b.pub.test`.
fn is_permitted(policy: &Policy, attempt: &Attempt, address: IpAddr, opening: Opening<'_>) -> bool {
    let Ok(Host::Name(denied)) = Host::parse("b.pub.test") else { panic!("a name") };
    let behind = Behind { name: denied.clone(), address: Some(OF_B.parse().unwrap()) };
    let follows = policy.followed().any(|name| *name == denied);
    let policy = if follows { policy.also_behind(&[behind]).into_owned() } else { policy.clone() };
    let permit = match check_name(&policy, attempt, NOW) {
        Ok(Next::Dial(permit)) => Ok(permit),
        Ok(Next::Resolve(query)) => check_addrs(&policy, query, &[address], NOW),
        Err(denial) => Err(denial),
    };
    permit.is_ok_and(|permit| may_begin(&policy, &permit, opening))
}

/// Reports whether the egress lets these bytes through: by which permit it reads requests, and which it does not look
/// into.
fn may_begin(policy: &Policy, permit: &Permit, opening: Opening<'_>) -> bool {
    let attempt = permit.attempt();
    let absolute = attempt.way == Ingress::HttpAbsolute;
    match opening {
        Opening::Request(method, host) if absolute || permit.expects_http() => {
            let hosts = [host.as_bytes()];
            let named = check_inner_host(policy, attempt, permit.must_name(), Request::Http11, &hosts, NOW);
            let expected = !absolute || check_sni(policy, permit, Hello::NotTls, NOW).is_ok();
            expected && named.is_ok() && check_method(policy, permit.target(), method, false).is_ok()
        }
        // There is no such thing: the way in is a request.
        Opening::Hello(_) if absolute => false,
        Opening::Hello(_) if permit.expects_http() => check_not_http(policy, permit).is_ok(),
        Opening::Hello(hello) => check_sni(policy, permit, hello, NOW).is_ok(),
        Opening::Request(..) => check_sni(policy, permit, Hello::NotTls, NOW).is_ok(),
    }
}

/// Lists every target with every address and every way to begin, and whether the policy permits it.
fn all_permitted(policy: &Policy) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    for (host, port) in TARGETS.iter().flat_map(|host| [22, 80, 443, 993].map(|port| (host, port))) {
        let target = Target::parse(&format!("{host}:{port}")).unwrap();
        for way in [Ingress::Connect, Ingress::HttpAbsolute, Ingress::Transparent] {
            for path in [None, Some("/usr/bin/curl")] {
                let program = path.map(|path| Program::parse(path).unwrap());
                let attempt = Attempt { target: target.clone(), way, program };
                for address in ADDRESSES {
                    let own = if port == 80 { (*host).to_owned() } else { format!("{host}:{port}") };
                    let other = own.replace(host, "b.pub.test");
                    let names = [host.as_bytes(), b"b.pub.test"].map(Hello::Sni);
                    let hellos = [Hello::NoSni, Hello::NotTls].into_iter().chain(names).map(Opening::Hello);
                    let requests = [("GET", &own), ("POST", &own), ("GET", &other)];
                    let requests = requests.map(|(method, host)| Opening::Request(method, host));
                    for opening in hellos.chain(requests) {
                        let what = format!("{target} {way:?} {path:?} {address} {opening:?}");
                        all.push((what, is_permitted(policy, &attempt, address.parse().unwrap(), opening)));
                    }
                }
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_permits_nothing_that_is_refused_without_it(base in bases(), list_of_file in rules_of(4), rest in rest()) {
        let outer = grants(&base);
        let file = format!("net: {{allow: {}{rest}}}", list(&list_of_file));
        let Ok(inner) = narrow(&outer, &loaded("nexus", &file)) else { return Ok(()) };
        let (before, after) = (policy_of(&outer, base.lax), policy_of(&inner, base.lax));
        for ((what, with), (_, without)) in all_permitted(&after).into_iter().zip(all_permitted(&before)) {
            prop_assert!(!with || without, "{what}\n{base:?}\n{file}");
        }
    }
}

#[test]
fn random_files_are_taken_and_leave_something_often_enough() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut taken, mut leaves, mut takes) = (0, 0, 0);
    for _ in 0..100 {
        let base = bases().new_tree(&mut runner).unwrap().current();
        let file = format!("net: {{allow: {}}}", list(&rules_of(4).new_tree(&mut runner).unwrap().current()));
        let outer = grants(&base);
        let Ok(inner) = narrow(&outer, &loaded("nexus", &file)) else { continue };
        let count = |grants: &Grants| {
            all_permitted(&policy_of(grants, base.lax)).iter().filter(|(_, permitted)| *permitted).count()
        };
        let (before, after) = (count(&outer), count(&inner));
        taken += 1;
        leaves += u32::from(after > 0);
        takes += u32::from(after < before);
    }
    assert!(taken > 20 && leaves > 10 && takes > 10, "{taken} {leaves} {takes}");
}
