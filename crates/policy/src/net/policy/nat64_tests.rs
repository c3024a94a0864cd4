use super::*;
use crate::net::{
    Attempt, Ingress, MonotonicMs, Next, Permit, PolicyInput, Source, Target, check_addrs, check_name, parse_allow,
    parse_deny,
};
use nexus_model::capability::NetMode;

/// Examples of RFC 6052, 2.4, for 192.0.2.33, in a network outside of the documentation ranges.
const EXAMPLES: [(&str, &str); 6] = [
    ("2a01:db8::/32", "2a01:db8:c000:221::"),
    ("2a01:db8:100::/40", "2a01:db8:1c0:2:21::"),
    ("2a01:db8:122::/48", "2a01:db8:122:c000:2:2100::"),
    ("2a01:db8:122:300::/56", "2a01:db8:122:3c0:0:221::"),
    ("2a01:db8:122:344::/64", "2a01:db8:122:344:c0:2:2100::"),
    ("2a01:db8:122:344::/96", "2a01:db8:122:344::192.0.2.33"),
];

/// Returns the address below `prefix` that carries `inner`.
fn below(prefix: Ipv6Net, inner: Ipv4Addr) -> Ipv6Addr {
    let mut octets = prefix.network().octets();
    let (_, places) = PLACES.into_iter().find(|(bits, _)| *bits == prefix.prefix_len()).unwrap();
    for (place, octet) in places.into_iter().zip(inner.octets()) {
        octets[place] = octet;
    }
    octets.into()
}

fn open() -> Policy {
    let deny = parse_deny("93.184.216.36", Source::flag("deny")).unwrap();
    let mut input = PolicyInput { mode: Some(NetMode::Unrestricted), ..PolicyInput::default() };
    input.deny_any(deny);
    Policy::build(input).unwrap()
}

fn list() -> Policy {
    let allow = vec![parse_allow("a.test", Source::flag("allow")).unwrap()];
    Policy::build(PolicyInput { allow, ..PolicyInput::default() }).unwrap()
}

fn attempt(host: &str) -> Attempt {
    Attempt { target: Target::parse(&format!("{host}:443")).unwrap(), way: Ingress::Connect, program: None }
}

fn decided(policy: &Policy, host: &str, to: Ipv6Addr) -> Option<Permit> {
    match check_name(policy, &attempt(host), MonotonicMs(0)).ok()? {
        Next::Dial(permit) => Some(permit),
        Next::Resolve(query) => check_addrs(policy, query, &[to.into()], MonotonicMs(0)).ok(),
    }
}

#[test]
fn the_examples_of_the_rfc_carry_their_address() {
    for (prefix, address) in EXAMPLES {
        let (prefix, address): (Ipv6Net, Ipv6Addr) = (prefix.parse().unwrap(), address.parse().unwrap());
        assert_eq!(carried(prefix, address), Some(Ipv4Addr::new(192, 0, 2, 33)), "{prefix}");
        assert_eq!(below(prefix, Ipv4Addr::new(192, 0, 2, 33)), address);
        assert_eq!(carried(prefix, "2a02::1".parse().unwrap()), None);
    }
}

#[test]
fn a_prefix_of_each_length_is_found() {
    for (text, _) in EXAMPLES {
        let prefix: Ipv6Net = text.parse().unwrap();
        let answer = KNOWN.map(|known| IpAddr::V6(below(prefix, known)));
        assert_eq!(nat64_prefixes(&answer), BTreeSet::from([prefix]), "{text}");
        assert_eq!(nat64_prefixes(&answer[..1]), BTreeSet::from([prefix]), "{text}");
    }
    let native: [IpAddr; 3] =
        ["2a01:db8::a00:1".parse().unwrap(), "::1".parse().unwrap(), "192.0.0.170".parse().unwrap()];
    assert_eq!(nat64_prefixes(&native), BTreeSet::new());
    let many: Vec<IpAddr> =
        (0..1000_u16).map(|part| Ipv6Addr::new(0x2a01, part, 0, 0, 0, 0, 0xc000, 0xaa).into()).collect();
    assert!(nat64_prefixes(&many).len() <= MAX_PREFIXES);
}

#[test]
fn an_address_below_a_known_prefix_is_what_it_carries() {
    for (text, _) in EXAMPLES {
        let prefix: Ipv6Net = text.parse().unwrap();
        for (inner, allowed) in [
            ([93, 184, 216, 34], true),
            ([10, 0, 0, 1], false),
            ([127, 0, 0, 1], false),
            ([169, 254, 169, 254], false),
            ([0, 0, 0, 0], false),
        ] {
            let to = below(prefix, inner.into());
            for (policy, host) in [(open(), format!("[{to}]")), (open(), "a.test".into()), (list(), "a.test".into())] {
                // Without a known prefix it is an ordinary address.
                assert!(decided(&policy, &host, to).is_some(), "{to}");
                let known = policy.with_nat64(BTreeSet::from([prefix]));
                assert_eq!(decided(&known, &host, to).is_some(), allowed, "{text} {host} {to}");
            }
        }
        let denied = below(prefix, Ipv4Addr::new(93, 184, 216, 36));
        let known = open().with_nat64(BTreeSet::from([prefix]));
        assert!(decided(&known, &format!("[{denied}]"), denied).is_none());
        // What lies beside the prefix stays as it was, whatever its last bits are.
        let beside: Ipv6Addr = "2a02:db8::a00:1".parse().unwrap();
        assert!(decided(&known, &format!("[{beside}]"), beside).is_some());
    }
}

#[test]
fn the_record_holds_the_known_prefixes() {
    let known = open().with_nat64(BTreeSet::from(["2a01:db8::/96".parse().unwrap()]));
    let (digest, value) = known.recorded().unwrap();
    assert_eq!(value["nat64"], serde_json::json!(["2a01:db8::/96"]));
    assert_ne!(Some(digest), open().recorded().map(|(digest, _)| digest));
    assert!(open().recorded().unwrap().1.get("nat64").is_none());
}

#[test]
fn a_wrong_prefix_opens_nothing() {
    let hosts = [
        "10.0.0.1",
        "93.184.216.34",
        "[::1]",
        "[fd00::5]",
        "[64:ff9b::a00:1]",
        "[64:ff9b::5db8:d822]",
        "[::ffff:10.0.0.1]",
        "[2001:db8::1]",
        "[2606:2800:220::10]",
        "[2a01:db8:122:344::10.0.0.1]",
        "[2a01:db8:122:344::93.184.216.36]",
    ];
    let wrong = ["::/96", "::ffff:0:0/96", "64:ff9b::/96", "2606:2800::/32", "2a01:db8:122:344::/64", "fd00::/32"];
    let wrong: BTreeSet<Ipv6Net> = wrong.iter().map(|text| text.parse().unwrap()).collect();
    for policy in [open(), list()] {
        let known = policy.with_nat64(wrong.clone());
        for host in hosts {
            let is_open = |policy| matches!(check_name(policy, &attempt(host), MonotonicMs(0)), Ok(Next::Dial(_)));
            assert!(is_open(&policy) || !is_open(&known), "{host} by its address");
            let to: IpAddr = host.trim_matches(['[', ']']).parse().unwrap();
            let by_name = |policy: &Policy| match check_name(policy, &attempt("a.test"), MonotonicMs(0)) {
                Ok(Next::Resolve(query)) => check_addrs(policy, query, &[to], MonotonicMs(0)).is_ok(),
                Ok(Next::Dial(_)) | Err(_) => false,
            };
            assert!(by_name(&policy) || !by_name(&known), "{host} by a name");
        }
    }
}
