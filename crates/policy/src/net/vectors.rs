//! The attacks on names, addresses and agreement as two tables, so that every way in is tested with the same cases.
//!
//! The test of this crate asks the decision directly; the tests of the egress send each case through CONNECT,
//! absolute-form HTTP, SOCKS5, transparent TCP and DNS, with a resolver that answers [`Case::answers`]. [`CASES`] are
//! about where a connection goes, [`AGREE`] about what is said on it.

mod first_bytes;
mod rules;

pub use first_bytes::{AGREE, Agree, FirstBytes, HttpQuestion};
use rules::OPEN;
pub use rules::{DEFAULT, Rules};

use crate::net::cause::DenyCode;
use crate::net::decide::{check_addrs, check_name};
use crate::net::permit::{Attempt, Denial, Ingress, MonotonicMs, Next, Permit};
use crate::net::rules::target::Target;
use nexus_model::capability::NetMode;
use std::net::IpAddr;

/// Expected outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Exactly the answered addresses are dialled (or the literal).
    Allow,
    /// Denied without a question to a resolver.
    DenyUnasked(DenyCode),
    /// Denied after resolution.
    DenyResolved(DenyCode),
}

/// One case of the attack table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The id of the vector.
    pub id: &'static str,
    /// The rules of the case.
    pub rules: Rules,
    /// The host as a client writes it in an authority (an IPv6 literal in brackets).
    pub host: &'static str,
    /// The port as a client writes it.
    pub port: &'static str,
    /// The addresses that the resolver answers.
    pub answers: &'static [&'static str],
    /// The expected outcome.
    pub expect: Expect,
}

impl Case {
    /// Returns the target as `HOST:PORT`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the answers as addresses.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, std::net::AddrParseError> {
        self.answers.iter().map(|text| text.parse()).collect()
    }

    /// Returns the decision, after true if it asked for a resolution.
    pub fn decide(&self) -> Result<(bool, Result<Permit, Denial>), Box<dyn std::error::Error>> {
        let policy = self.rules.policy()?;
        let target = match Target::parse(&self.authority()) {
            Ok(target) => target,
            Err(why) => return Ok((false, Err(Denial::unreadable(&why)))),
        };
        let attempt = Attempt { target, way: Ingress::Connect, program: None };
        Ok(match check_name(&policy, &attempt, MonotonicMs(0)) {
            Err(denial) => (false, Err(denial)),
            Ok(Next::Dial(permit)) => (false, Ok(permit)),
            Ok(Next::Resolve(query)) => (true, check_addrs(&policy, query, &self.addresses()?, MonotonicMs(0))),
        })
    }
}

/// An address of the public internet in these tests.
pub const PUBLIC: &[&str] = &["11.22.33.44"];
/// Two public addresses, one of each family.
pub const PUBLIC_BOTH: &[&str] = &["11.22.33.44", "2a00:aaaa::5"];

const EMPTY: Rules = Rules { allow: &[], ..DEFAULT };
const NONE: Rules = Rules { mode: NetMode::None, allow: &[], ..DEFAULT };
const OPEN_DENY: Rules = Rules { deny: &["bad.test", "*.evil.test", "11.22.33.44", "2a00:bbbb::/32"], ..OPEN };
const DENY_CASES: Rules = Rules { allow: &["*.allowed.test"], deny: &["Bad.Allowed.Test."], ..DEFAULT };
const DENY_PORT: Rules = Rules { allow: &["example.test:80,443"], deny: &["example.test:80"], ..DEFAULT };
const CASED_PATTERN: Rules = Rules { allow: &["Example.TEST.", "*.Allowed.Test."], ..DEFAULT };
const IDN: Rules = Rules { allow: &["\u{e9}x\u{e4}mple.test"], ..DEFAULT };
const PRIVATE_NAME: Rules = Rules { allow_private: &["db.test:5432"], ..DEFAULT };
const PRIVATE_ADDR: Rules = Rules { allow_private: &["10.0.0.5:5432", "[fd12::5]:6379"], ..DEFAULT };
const PRIVATE_RANGE: Rules = Rules { allow_private: &["10.0.0.0/8:443", "169.254.0.0/16:80"], ..DEFAULT };
const METADATA: Rules = Rules { allow_private: &["169.254.169.254:80", "example.test:80"], ..DEFAULT };
const TRUSTED: Rules = Rules { trusted: &["10.1.0.0/16", "64:ff9b::/96", "169.254.0.0/16"], ..DEFAULT };

const NOT_LISTED: Expect = Expect::DenyUnasked(DenyCode::NotInAllowlist);
const BAD: Expect = Expect::DenyUnasked(DenyCode::InvalidDestination);
const SPECIAL_LITERAL: Expect = Expect::DenyUnasked(DenyCode::PrivateDestination);
const SPECIAL: Expect = Expect::DenyResolved(DenyCode::PrivateDestination);

const fn case(id: &'static str, rules: Rules, host: &'static str, expect: Expect) -> Case {
    Case { id, rules, host, port: "443", answers: PUBLIC, expect }
}

const fn port(id: &'static str, rules: Rules, host: &'static str, port: &'static str, expect: Expect) -> Case {
    Case { id, rules, host, port, answers: PUBLIC, expect }
}

const fn answer(
    id: &'static str,
    rules: Rules,
    host: &'static str,
    answers: &'static [&'static str],
    e: Expect,
) -> Case {
    Case { id, rules, host, port: "443", answers, expect: e }
}

const fn full(
    id: &'static str,
    rules: Rules,
    host: &'static str,
    port: &'static str,
    answers: &'static [&'static str],
    expect: Expect,
) -> Case {
    Case { id, rules, host, port, answers, expect }
}

/// All cases of the attack table.
pub const CASES: &[Case] = &[
    // H01: exact and wildcard.
    answer("H01", DEFAULT, "example.test", PUBLIC_BOTH, Expect::Allow),
    case("H01", DEFAULT, "a.example.test", NOT_LISTED),
    case("H01", DEFAULT, "test", NOT_LISTED),
    case("H01", DEFAULT, "a.allowed.test", Expect::Allow),
    case("H01", DEFAULT, "a.b.allowed.test", Expect::Allow),
    case("H01", DEFAULT, "allowed.test", NOT_LISTED),
    case("H01", DEFAULT, "evilallowed.test", NOT_LISTED),
    case("H01", DEFAULT, "allowed.test.evil.test", NOT_LISTED),
    case("H01", DEFAULT, "*.allowed.test", BAD),
    // H02: case and trailing dots.
    case("H02", DEFAULT, "EXAMPLE.TEST", Expect::Allow),
    case("H02", DEFAULT, "example.test.", Expect::Allow),
    case("H02", CASED_PATTERN, "example.test", Expect::Allow),
    case("H02", CASED_PATTERN, "a.allowed.test.", Expect::Allow),
    case("H02", DENY_CASES, "ok.allowed.test", Expect::Allow),
    case("H02", DENY_CASES, "bad.allowed.test", NOT_LISTED),
    case("H02", DENY_CASES, "BAD.allowed.TEST.", NOT_LISTED),
    case("H02", DEFAULT, "example.test..", BAD),
    case("H02", DEFAULT, ".example.test", BAD),
    // H03: brackets.
    case("H03", DEFAULT, "[example.test]", BAD),
    port("H03", DEFAULT, "[[x]]", "1", BAD),
    port("H03", DEFAULT, "[127.0.0.1]", "80", BAD),
    case("H03", DEFAULT, "[::1", BAD),
    case("H03", DEFAULT, "[fe80::1%25eth0]", BAD),
    case("H03", OPEN_DENY, "[2a00:aaaa::5]", Expect::Allow),
    case("H03", OPEN_DENY, "[2a00:bbbb::5]", NOT_LISTED),
    // H04 and more: what no host contains.
    case("H04", DEFAULT, "user@example.test", BAD),
    case("H04", DEFAULT, "example.test%00.evil.test", BAD),
    case("H04", DEFAULT, "example.test\0.evil.test", BAD),
    case("H04", DEFAULT, "example.test\t", BAD),
    case("H04", DEFAULT, " example.test", BAD),
    case("H04", DEFAULT, "example.test/x", BAD),
    case("H04", DEFAULT, "example\u{ff0e}test", Expect::Allow),
    case("H04", DEFAULT, "-a.allowed.test", BAD),
    case("H04", DEFAULT, "a_b.allowed.test", BAD),
    case("H04", DEFAULT, "", BAD),
    // H05: an empty list allows nothing.
    case("H05", EMPTY, "example.test", NOT_LISTED),
    case("H05", EMPTY, "11.22.33.44", NOT_LISTED),
    case("H05", NONE, "example.test", Expect::DenyUnasked(DenyCode::NetModeNone)),
    case("H05", NONE, "11.22.33.44", Expect::DenyUnasked(DenyCode::NetModeNone)),
    // H06: deny wins.
    answer("H06", OPEN_DENY, "good.test", &["11.22.33.45"], Expect::Allow),
    answer("H06", OPEN_DENY, "bad.test", &["11.22.33.45"], NOT_LISTED),
    answer("H06", OPEN_DENY, "x.evil.test", &["11.22.33.45"], NOT_LISTED),
    answer("H06", OPEN_DENY, "good.test", PUBLIC, Expect::DenyResolved(DenyCode::NotInAllowlist)),
    answer(
        "H06",
        OPEN_DENY,
        "good.test",
        &["11.22.33.45", "2a00:bbbb::9"],
        Expect::DenyResolved(DenyCode::NotInAllowlist),
    ),
    answer("H06", OPEN_DENY, "good.test", &["::ffff:11.22.33.44"], Expect::DenyResolved(DenyCode::NotInAllowlist)),
    case("H06", OPEN_DENY, "11.22.33.44", NOT_LISTED),
    case("H06", OPEN_DENY, "[::ffff:11.22.33.44]", NOT_LISTED),
    case("H06", OPEN_DENY, "185999660", NOT_LISTED),
    port("H06", DENY_PORT, "example.test", "80", NOT_LISTED),
    port("H06", DENY_PORT, "example.test", "443", Expect::Allow),
    // H07: special ranges, as literals, in the mode that allows the most.
    case("H07", OPEN, "11.22.33.44", Expect::Allow),
    case("H07", OPEN, "0.1.2.3", SPECIAL_LITERAL),
    case("H07", OPEN, "10.0.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "100.64.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "100.127.255.254", SPECIAL_LITERAL),
    case("H07", OPEN, "100.63.255.254", Expect::Allow),
    case("H07", OPEN, "100.128.0.1", Expect::Allow),
    case("H07", OPEN, "127.0.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "127.255.255.254", SPECIAL_LITERAL),
    case("H07", OPEN, "169.254.169.254", SPECIAL_LITERAL),
    case("H07", OPEN, "168.63.129.16", SPECIAL_LITERAL),
    case("H07", OPEN, "172.16.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "172.31.255.254", SPECIAL_LITERAL),
    case("H07", OPEN, "172.32.0.1", Expect::Allow),
    case("H07", OPEN, "192.0.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "192.0.2.1", SPECIAL_LITERAL),
    case("H07", OPEN, "192.88.99.1", SPECIAL_LITERAL),
    case("H07", OPEN, "192.168.1.1", SPECIAL_LITERAL),
    case("H07", OPEN, "198.18.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "198.19.255.254", SPECIAL_LITERAL),
    case("H07", OPEN, "198.51.100.1", SPECIAL_LITERAL),
    case("H07", OPEN, "203.0.113.1", SPECIAL_LITERAL),
    case("H07", OPEN, "224.0.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "240.0.0.1", SPECIAL_LITERAL),
    case("H07", OPEN, "255.255.255.255", SPECIAL_LITERAL),
    case("H07", OPEN, "9.8.7.6", SPECIAL_LITERAL),
    case("H07", OPEN, "[::]", SPECIAL_LITERAL),
    case("H07", OPEN, "[::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[fc00::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[fd00:ec2::254]", SPECIAL_LITERAL),
    case("H07", OPEN, "[fe80::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[fec0::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[ff02::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[100::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[2001:db8::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[2001:2::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[3fff::1]", SPECIAL_LITERAL),
    case("H07", OPEN, "[2a00:aaaa::5]", Expect::Allow),
    answer("H07", OPEN, "own.test", &["9.8.7.6"], SPECIAL),
    answer("H07", DEFAULT, "example.test", &["192.168.77.1"], SPECIAL),
    // H08: an IPv4 address inside an IPv6 one.
    case("H08", OPEN, "[::ffff:127.0.0.1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[::127.0.0.1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[::ffff:0:127.0.0.1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[64:ff9b::7f00:1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[64:ff9b:1::7f00:1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[2002:7f00:1::]", SPECIAL_LITERAL),
    case("H08", OPEN, "[2001:0:7f00:1::]", SPECIAL_LITERAL),
    case("H08", OPEN, "[2a00:aaaa::5efe:127.0.0.1]", SPECIAL_LITERAL),
    case("H08", OPEN, "[64:ff9c::1]", Expect::Allow),
    // NAT64 is what it carries.
    case("H08", OPEN, "[64:ff9b::5db8:d822]", Expect::Allow),
    case("H08", OPEN, "[64:ff9b::a00:5]", SPECIAL_LITERAL),
    case("H08", OPEN, "[64:ff9b::a9fe:a9fe]", SPECIAL_LITERAL),
    answer("H08", DEFAULT, "example.test", &["64:ff9b::5db8:d822"], Expect::Allow),
    answer("H08", DEFAULT, "example.test", &["93.184.216.34", "64:ff9b::5db8:d822"], Expect::Allow),
    answer("H08", DEFAULT, "example.test", &["93.184.216.34", "64:ff9b::a00:5"], SPECIAL),
    answer("H08", DEFAULT, "example.test", &["64:ff9b::a9fe:a9fe"], SPECIAL),
    answer("H08", DEFAULT, "example.test", &["::ffff:127.0.0.1"], SPECIAL),
    answer("H08", DEFAULT, "example.test", &["64:ff9b::7f00:1"], SPECIAL),
    answer("H08", DEFAULT, "example.test", &["2002:7f00:1::"], SPECIAL),
    // H09: other spellings of addresses.
    case("H09", OPEN, "2130706433", SPECIAL_LITERAL),
    case("H09", OPEN, "0x7f000001", SPECIAL_LITERAL),
    case("H09", OPEN, "0X7F.1", SPECIAL_LITERAL),
    case("H09", OPEN, "0177.0.0.1", SPECIAL_LITERAL),
    case("H09", OPEN, "127.1", SPECIAL_LITERAL),
    case("H09", OPEN, "127.0.0.1.", SPECIAL_LITERAL),
    case("H09", OPEN, "0", SPECIAL_LITERAL),
    case("H09", OPEN, "\u{ff11}\u{ff12}\u{ff17}.0.0.1", SPECIAL_LITERAL),
    case("H09", OPEN, "1.2.3.4.5", BAD),
    case("H09", OPEN, "256.1.1.1", BAD),
    case("H09", OPEN, "a.0x7f", BAD),
    case("H09", OPEN, "12.com", Expect::Allow),
    // H10: an allowed name that leads to a private place.
    answer("H10", DEFAULT, "example.test", &["127.0.0.1"], SPECIAL),
    answer("H10", DEFAULT, "example.test", &["::1"], SPECIAL),
    answer("H10", DEFAULT, "example.test", &["10.0.0.1"], SPECIAL),
    answer("H10", DEFAULT, "example.test", &["11.22.33.44", "10.0.0.1"], SPECIAL),
    answer("H10", DEFAULT, "example.test", &["fd00::1", "11.22.33.44"], SPECIAL),
    answer("H10", OPEN, "any.test", &["169.254.169.254"], SPECIAL),
    full("H10", PRIVATE_NAME, "db.test", "5432", &["10.0.0.9"], Expect::Allow),
    full("H10", PRIVATE_NAME, "db.test", "5432", &["::1", "127.0.0.1"], Expect::Allow),
    full("H10", PRIVATE_NAME, "db.test", "5432", &["169.254.169.254"], SPECIAL),
    full("H10", PRIVATE_NAME, "db.test", "5432", &["0.0.0.0"], SPECIAL),
    full("H10", PRIVATE_NAME, "db.test", "443", &["10.0.0.9"], Expect::DenyUnasked(DenyCode::PortNotAllowed)),
    answer("H10", PRIVATE_NAME, "example.test", &["10.0.0.9"], SPECIAL),
    full("H10", PRIVATE_ADDR, "10.0.0.5", "5432", &[], Expect::Allow),
    full("H10", PRIVATE_ADDR, "[fd12::5]", "6379", &[], Expect::Allow),
    full("H10", PRIVATE_ADDR, "[::ffff:10.0.0.5]", "5432", &[], Expect::Allow),
    full("H10", PRIVATE_ADDR, "10.0.0.5", "5433", &[], SPECIAL_LITERAL),
    full("H10", PRIVATE_ADDR, "10.0.0.6", "5432", &[], SPECIAL_LITERAL),
    full("H10", PRIVATE_RANGE, "10.200.0.6", "443", &[], Expect::Allow),
    full("H10", PRIVATE_RANGE, "example.test", "443", &["10.200.0.6"], Expect::Allow),
    full("H10", PRIVATE_RANGE, "169.254.9.9", "80", &[], Expect::Allow),
    full("H10", PRIVATE_RANGE, "169.254.169.254", "80", &[], SPECIAL_LITERAL),
    full("H10", METADATA, "169.254.169.254", "80", &[], Expect::Allow),
    full("H10", METADATA, "169.254.170.2", "80", &[], SPECIAL_LITERAL),
    answer("H10", TRUSTED, "example.test", &["10.1.2.3"], Expect::Allow),
    answer("H10", TRUSTED, "example.test", &["10.2.2.3"], SPECIAL),
    answer("H10", TRUSTED, "example.test", &["169.254.169.254"], SPECIAL),
    answer("H10", TRUSTED, "example.test", &["64:ff9b::b16:212c"], Expect::Allow),
    answer("H10", TRUSTED, "example.test", &["64:ff9b::7f00:1"], SPECIAL),
    case("H10", TRUSTED, "10.1.2.3", SPECIAL_LITERAL),
    // H11: a name without an address is not a denial by policy.
    answer("H11", DEFAULT, "example.test", &[], Expect::DenyResolved(DenyCode::NameNotResolved)),
    // H13: ports.
    port("H13", DEFAULT, "example.test", "443", Expect::Allow),
    port("H13", DEFAULT, "example.test", "22", Expect::DenyUnasked(DenyCode::PortNotAllowed)),
    port("H13", DEFAULT, "example.test", "80", Expect::DenyUnasked(DenyCode::PortNotAllowed)),
    port("H13", DEFAULT, "example.test", "0", BAD),
    port("H13", DEFAULT, "example.test", "65536", BAD),
    port("H13", DEFAULT, "example.test", "+443", BAD),
    port("H13", DEFAULT, "example.test", " 443", BAD),
    port("H13", DEFAULT, "example.test", "0443", BAD),
    port("H13", DEFAULT, "example.test", "", BAD),
    port("H13", DEFAULT, "example.test", "443:443", BAD),
    // H14: internationalised names.
    case("H14", IDN, "\u{e9}x\u{e4}mple.test", Expect::Allow),
    case("H14", IDN, "E\u{301}X\u{c4}MPLE.test", Expect::Allow),
    case("H14", IDN, "xn--xmple-gra7a.test", Expect::Allow),
    case("H14", IDN, "example.test", NOT_LISTED),
    case("H14", DEFAULT, "xn--.test", BAD),
    case("H14", DEFAULT, "exam\u{430}ple.test", NOT_LISTED),
];

/// Texts that `--allow` and `--deny` both refuse (H04).
pub const NO_RULE: &[&str] = &[
    "*",
    "[*]",
    "**.[*]",
    "*.",
    "*.*.com",
    "*.com",
    "*com",
    "a.*.com",
    "a*.example.com",
    "https://x",
    "x/",
    "",
    "[",
    "]",
    "user@example.test",
    "example.test:",
    "example.test:0",
    "example.test:443:1",
    "example.test:+1",
    "*.1.2.3.4",
    "*.0x7f",
    "[example.test]",
    "[127.0.0.1]:80",
    "example.test:90-80",
    "a b.test",
    "*..test.example",
    "example.test:*,80",
];

/// Texts that only `--deny` and `--allow-private` take: addresses.
pub const ADDRESS_RULE: &[&str] = &["10.0.0.1", "10.0.0.0/8", "0x7f000001", "[::1]:80", "fd00::/8", "2130706433:80"];
