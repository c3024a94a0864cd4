//! One rule: which names or addresses, on which ports, for which program, and who said so.

use crate::net::rules::name::HostError;
use crate::net::rules::pattern::{Pattern, PatternError};
use crate::net::rules::ports::{Ports, PortsError};
use crate::net::rules::target::{self, Host, Port, TargetError};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// An absolute path of an executable. The egress gets it from the kernel, never from the process itself.
///
/// A rule for one program narrows and helps an audit. It is not a boundary: a library that is loaded into the program
/// runs as that program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program(pub String);

impl Program {
    /// Reads a program as it stands in a rule: a path from the root in its shortest form, so that it can be compared.
    pub fn parse(path: &str) -> Result<Self, RuleFault> {
        let names = path.strip_prefix('/').ok_or(RuleFault::Program)?;
        let clean = names.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let printable = !path.chars().any(char::is_control);
        if clean && printable { Ok(Self(path.to_owned())) } else { Err(RuleFault::Program) }
    }

    /// Reports whether the path reads as one word to every shell and every person.
    fn is_plain(&self) -> bool {
        self.0.chars().all(|char| char.is_ascii_alphanumeric() || "/._+-".contains(char))
    }

    /// Returns the suffix of a rule for this program, for a flag that the user copies into a shell. `None` for a path
    /// that a shell could read as more than a word: its name may have been chosen inside.
    pub fn suffix(&self) -> Option<String> {
        self.is_plain().then(|| format!("@{}", self.0))
    }
}

/// The form for people. A path can be chosen inside, and must not read as a part of the sentence around it.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(&self.0) } else { write!(f, "{:?}", self.0) }
    }
}

/// Origin of a rule, which decides what the rule may open: a workspace file and a directive come from others than the
/// user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The operator's configuration.
    Operator,
    /// The user's own command line.
    Flag,
    /// The user's own configuration.
    User,
    /// An answer to a question.
    Approval,
    /// A group or preset that one of the above named.
    Group,
    /// A file of the workspace; it can only narrow.
    Workspace,
    /// A directive's request; it can only narrow.
    Directive,
}

impl Origin {
    /// Reports whether rules of this origin may open private destinations and addresses.
    pub fn may_open_private(self) -> bool {
        match self {
            Self::Operator | Self::Flag | Self::User | Self::Approval => true,
            Self::Group | Self::Workspace | Self::Directive => false,
        }
    }
}

/// Source of a rule, for every message about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The origin, which decides what the rule may open.
    pub origin: Origin,
    /// The rule as it was written.
    pub text: String,
    /// The file in which it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Source {
    /// Returns the source of a rule on the command line.
    pub fn flag(text: impl Into<String>) -> Self {
        Self { origin: Origin::Flag, text: text.into(), file: None, line: None }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            (None, _) => Ok(()),
        }
    }
}

/// A rule about names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// The names that the rule is for.
    pub pattern: Pattern,
    /// The ports that the rule is for.
    pub ports: Ports,
    /// True if the name may resolve to a private address.
    pub private: bool,
    /// True if the first bytes must be a ClientHello for this name (`/tls`), false if not (`/tcp`); `None` is true on
    /// port 443 and false elsewhere.
    pub tls: Option<bool>,
    /// The only program that the rule is for.
    pub program: Option<Program>,
    /// The source of the rule.
    pub source: Source,
}

impl Rule {
    /// Returns what the rule is for in canonical form: `PATTERN:PORTS[/tcp|/tls]`.
    pub(in crate::net) fn place(&self) -> String {
        let speech = match self.tls {
            None => "",
            Some(true) => TLS,
            Some(false) => TCP,
        };
        format!("{}:{}{speech}", self.pattern, self.ports)
    }
}

/// Behind the ports: TLS for this name is required.
const TLS: &str = "/tls";
/// Behind the ports: TLS is not required.
pub(in crate::net) const TCP: &str = "/tcp";

/// A rule about addresses. As an allowance it opens them as literals and, on its ports, as what an allowed name
/// resolves to; as a denial it closes them in both ways.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressRule {
    /// The addresses that the rule is for.
    pub net: IpNet,
    /// The ports that the rule is for.
    pub ports: Ports,
    /// The source of the rule.
    pub source: Source,
}

/// A rule of either kind, as one text may be either.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnyRule {
    /// A rule about names.
    Name(Rule),
    /// A rule about addresses.
    Address(AddressRule),
}

/// Reason why a text cannot be read as a rule; it always holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a rule: {why}")]
pub struct RuleError {
    /// The text as written, shortened.
    pub text: String,
    /// The fault in the text.
    #[source]
    pub why: RuleFault,
}

/// Fault in the text of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// The name cannot be read.
    #[error("{0}")]
    Pattern(PatternError),
    /// The ports cannot be read.
    #[error("{0}")]
    Ports(PortsError),
    /// Host and port are not put together correctly.
    #[error("{0}")]
    Target(TargetError),
    /// An address where only a name can be allowed.
    #[error("a name rule takes no address; use {with}")]
    Address {
        /// The flag that takes it.
        with: String,
    },
    /// A range with bits set behind its prefix, which people write by mistake.
    #[error("the range is not a network; write {with}")]
    HostBits {
        /// The range without the bits behind its prefix.
        with: String,
    },
    /// A range that holds the IPv4-mapped addresses and others.
    #[error("the range holds ::ffff:0:0/96, which is IPv4; write the IPv4 range and the IPv6 ranges beside it")]
    CutsMapped,
    /// The range cannot be read.
    #[error("the range after the slash is wrong")]
    Range,
    /// A program or a protocol, which have no meaning for addresses.
    #[error("a program and tls are for names, not for addresses")]
    OnlyForNames,
    /// A wildcard for names with many unrelated owners.
    #[error("{pattern} is everybody's names in a country; name the domain that is meant, as in *.example.co.uk")]
    Suffix {
        /// The pattern as it was read.
        pattern: Pattern,
    },
    /// `/tcp` or `/tls` behind a host without ports, where it reads like a path.
    #[error("{with} stands behind a port, as in example.com:443{with}")]
    SpeechWithoutPort {
        /// `/tcp` or `/tls`, as it was written.
        with: &'static str,
    },
    /// TLS is set behind the ports and beside the host.
    #[error("whether TLS is required stands twice")]
    TlsTwice,
    /// `/tcp` or `/tls` in a denial.
    #[error("/tcp and /tls mean nothing in a denial")]
    SpeechInDenial,
    /// The ports stand behind the host and beside it.
    #[error("the ports stand twice")]
    PortsTwice,
    /// The program stands behind the host and beside it.
    #[error("the program stands twice")]
    ProgramTwice,
    /// A path of a program in another form.
    #[error("a program is an absolute path without . and .., such as /usr/bin/curl")]
    Program,
}

/// Reads the value of `--allow`: `HOST[:PORTS[/tcp|/tls]][@PROGRAM]`, default port 443. Never an address.
pub fn parse_allow(text: &str, source: Source) -> Result<Rule, RuleError> {
    fail(text, || {
        let (place, program) = place_and_program(text)?;
        let (place, tls) = place_and_speech(place)?;
        let (host, ports) = host_and_ports(place, Ports::one(Port::HTTPS))?;
        let pattern = match pattern_or_address(host)? {
            Which::Pattern(pattern) => no_suffix(pattern)?,
            Which::Address(address) => return Err(RuleFault::Address { with: flag_for_address(address, &ports) }),
        };
        Ok(Rule { pattern, ports, private: false, tls, program, source })
    })
}

/// Reads the value of `--deny`: `HOST[:PORTS][@PROGRAM]`, an address or a range too; without ports every port, so that
/// a denial never falls short.
pub fn parse_deny(text: &str, source: Source) -> Result<AnyRule, RuleError> {
    fail(text, || match any(text, Ports::all(), false, source)? {
        AnyRule::Name(Rule { tls: Some(_), .. }) => Err(RuleFault::SpeechInDenial),
        rule => Ok(rule),
    })
}

/// Reads the value of `--allow-private`: `HOST[:PORTS[/tcp|/tls]][@PROGRAM]`, `ADDRESS[:PORTS]`, `CIDR[:PORTS]`;
/// default port 443.
pub fn parse_allow_private(text: &str, source: Source) -> Result<AnyRule, RuleError> {
    fail(text, || match any(text, Ports::one(Port::HTTPS), true, source)? {
        AnyRule::Name(rule) => Ok(AnyRule::Name(Rule { pattern: no_suffix(rule.pattern)?, ..rule })),
        rule @ AnyRule::Address(_) => Ok(rule),
    })
}

/// Labels under which countries give out names, as in `co.uk`.
const SUFFIXES: [&str; 8] = ["ac", "co", "com", "edu", "gov", "mil", "net", "org"];

/// Refuses a wildcard for all names below such a suffix of a country. A denial may be so wide.
fn no_suffix(pattern: Pattern) -> Result<Pattern, RuleFault> {
    let wide = match &pattern {
        Pattern::Exact(_) => false,
        Pattern::Below(base) => base
            .as_str()
            .split_once('.')
            .is_some_and(|(label, country)| country.len() == 2 && !country.contains('.') && SUFFIXES.contains(&label)),
    };
    if wide { Err(RuleFault::Suffix { pattern }) } else { Ok(pattern) }
}

/// Reads a network: an address, or `ADDRESS/BITS` with no bit set behind the prefix.
pub fn parse_range(text: &str) -> Result<IpNet, RuleError> {
    fail(text, || match text.split_once('/') {
        Some(_) => range(text),
        None => match Host::parse(text).map_err(|why| RuleFault::Target(why.into()))? {
            Host::Address(address) => Ok(IpNet::from(address)),
            Host::Name(_) => Err(RuleFault::Range),
        },
    })
}

fn fail<T>(text: &str, read: impl FnOnce() -> Result<T, RuleFault>) -> Result<T, RuleError> {
    read().map_err(|why| RuleError { text: text.chars().take(200).collect(), why })
}

fn any(text: &str, ports: Ports, private: bool, source: Source) -> Result<AnyRule, RuleFault> {
    let (text, program) = place_and_program(text)?;
    let (text, tls) = place_and_speech(text)?;
    match any_place(text, ports, private, source)? {
        AnyRule::Name(rule) => Ok(AnyRule::Name(Rule { tls, program, ..rule })),
        rule @ AnyRule::Address(_) if program.is_none() && tls.is_none() => Ok(rule),
        AnyRule::Address(_) => Err(RuleFault::OnlyForNames),
    }
}

/// Splits `/tcp` or `/tls` off the end. A range ends in digits or ports, so it never has one of them.
fn place_and_speech(text: &str) -> Result<(&str, Option<bool>), RuleFault> {
    let found =
        [(TCP, false), (TLS, true)].into_iter().find_map(|(with, tls)| Some((text.strip_suffix(with)?, with, tls)));
    match found {
        None => Ok((text, None)),
        Some((place, _, tls)) if place.contains(':') => Ok((place, Some(tls))),
        Some((_, with, _)) => Err(RuleFault::SpeechWithoutPort { with }),
    }
}

/// Splits a text at `@/` into the place and the program. No host, port or range has an `@`; one without a slash behind
/// it is left to the reader of hosts, which refuses it.
fn place_and_program(text: &str) -> Result<(&str, Option<Program>), RuleFault> {
    match text.split_once("@/") {
        None => Ok((text, None)),
        Some((place, _)) => Ok((place, Some(Program::parse(&text[place.len() + 1..])?))),
    }
}

fn any_place(text: &str, ports: Ports, private: bool, source: Source) -> Result<AnyRule, RuleFault> {
    if text.contains('/') && !text.contains("://") {
        let (net, ports) = range_and_ports(text, ports)?;
        return Ok(AnyRule::Address(AddressRule { net, ports, source }));
    }
    let (host, ports) = host_and_ports(text, ports)?;
    Ok(match pattern_or_address(host)? {
        Which::Address(address) => AnyRule::Address(AddressRule { net: IpNet::from(address), ports, source }),
        Which::Pattern(pattern) => AnyRule::Name(Rule { pattern, ports, private, tls: None, program: None, source }),
    })
}

/// Splits the host as written from the ports. A bare IPv6 address without brackets and port is taken as such.
fn host_and_ports(text: &str, default: Ports) -> Result<(&str, Ports), RuleFault> {
    if text.contains('/') {
        return Err(RuleFault::Pattern(PatternError::Url));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or(RuleFault::Target(TargetError::Brackets))?;
        if !inner.contains(':') {
            return Err(RuleFault::Target(TargetError::Brackets));
        }
        return match after.strip_prefix(':') {
            Some(ports) => Ok((inner, Ports::parse(ports).map_err(RuleFault::Ports)?)),
            None if after.is_empty() => Ok((inner, default)),
            None => Err(RuleFault::Target(TargetError::Brackets)),
        };
    }
    match text.split_once(':') {
        None => Ok((text, default)),
        Some((_, rest)) if rest.contains(':') => Ok((text, default)),
        Some((host, ports)) => Ok((host, Ports::parse(ports).map_err(RuleFault::Ports)?)),
    }
}

enum Which {
    Pattern(Pattern),
    Address(IpAddr),
}

fn pattern_or_address(host: &str) -> Result<Which, RuleFault> {
    if host.contains(':') {
        let parsed = target::Host::parse(host).map_err(|why| RuleFault::Target(why.into()))?;
        if let Host::Address(address) = parsed {
            return Ok(Which::Address(address));
        }
    }
    match Pattern::parse(host) {
        Ok(pattern) => Ok(Which::Pattern(pattern)),
        Err(PatternError::Host(HostError::Address)) => match Host::parse(host) {
            Ok(Host::Address(address)) => Ok(Which::Address(address)),
            // `*.127.0.0.1` and the like.
            Ok(Host::Name(_)) | Err(_) => Err(RuleFault::Pattern(PatternError::Star)),
        },
        Err(why) => Err(RuleFault::Pattern(why)),
    }
}

/// Reads `10.0.0.0/8`, `10.0.0.0/8:5432`, `fd00::/8`, `[fd00::/8]:5432`.
fn range_and_ports(text: &str, default: Ports) -> Result<(IpNet, Ports), RuleFault> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or(RuleFault::Target(TargetError::Brackets))?;
        let ports = match after.strip_prefix(':') {
            Some(ports) => Ports::parse(ports).map_err(RuleFault::Ports)?,
            None if after.is_empty() => default,
            None => return Err(RuleFault::Target(TargetError::Brackets)),
        };
        return Ok((range(inner)?, ports));
    }
    let (before, bits) = text.split_once('/').ok_or(RuleFault::Range)?;
    match bits.split_once(':') {
        Some((bits, ports)) if !before.contains(':') => {
            Ok((range(&format!("{before}/{bits}"))?, Ports::parse(ports).map_err(RuleFault::Ports)?))
        }
        Some(_) => Err(RuleFault::Target(TargetError::NeedsBrackets)),
        None => Ok((range(text)?, default)),
    }
}

fn range(text: &str) -> Result<IpNet, RuleFault> {
    let net: IpNet = text.parse().map_err(|_| RuleFault::Range)?;
    if net.trunc() != net {
        return Err(RuleFault::HostBits { with: net.trunc().to_string() });
    }
    unmapped(net)
}

/// Turns a range of IPv4-mapped addresses into the IPv4 range: attempts at such addresses are decided as IPv4. A wider
/// range would match its IPv6 part alone. `::/0` means every IPv6 address and no IPv4 address.
fn unmapped(net: IpNet) -> Result<IpNet, RuleFault> {
    let IpNet::V6(v6) = net else { return Ok(net) };
    let Some(v4) = v6.addr().to_ipv4_mapped().filter(|_| v6.prefix_len() >= MAPPED_BITS) else {
        let mapped = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
        return if v6.prefix_len() > 0 && v6.contains(&mapped) { Err(RuleFault::CutsMapped) } else { Ok(net) };
    };
    Ipv4Net::new(v4, v6.prefix_len() - MAPPED_BITS).map(IpNet::V4).map_err(|_| RuleFault::Range)
}

/// Bits of the prefix of IPv4-mapped addresses (RFC 4291 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// Returns the flag of `nexus run` that opens an address.
fn flag_for_address(address: IpAddr, ports: &Ports) -> String {
    if address.is_loopback() {
        format!("--allow-host-port {ports}")
    } else {
        format!("--allow-private {}", address_flag(address, ports))
    }
}

/// Returns the value of `--allow-private` for an address.
pub(in crate::net) fn address_flag(address: IpAddr, ports: &Ports) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{ports}"),
        IpAddr::V6(address) => format!("[{address}]:{ports}"),
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
