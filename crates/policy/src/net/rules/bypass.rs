//! Destinations that go around an upstream proxy: those of a list, as in `NO_PROXY`, and private ones.
//!
//! ```text
//!  in the list ────────────────────────────▶ direct: looked up and checked as without a proxy
//!  a special address, named itself ────────▶ direct
//!  a name with --allow-private ─looked up─┬─▶ some address is special: direct
//!                                         └─▶ public, or not known here: by the proxy
//!  all else ───────────────────────────────▶ by the proxy, which looks names up
//! ```
//! Going around the proxy allows nothing: the rules decide before, and addresses are checked where there is no proxy.

use crate::net::rules::name::Name;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::ports::Ports;
use crate::net::rules::rule::{AnyRule, RuleError, RuleFault, Source, parse_deny};
use crate::net::rules::target::{Host, Target};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// One entry of a bypass list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bypass {
    hosts: Hosts,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Hosts {
    /// `*`: every host.
    All,
    /// `NAME`: this name and the names under it.
    NameAndBelow(Name),
    /// `.NAME` or `*.NAME`: the names under it alone.
    Below(Name),
    /// An address or a range. It holds for addresses that are named themselves.
    Net(IpNet),
}

impl Bypass {
    /// Reads `NAME`, `.NAME`, `*.NAME`, `ADDRESS`, `ADDRESS/BITS` or `*`, the last alone, the others with `:PORTS` or
    /// without.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        if text == "*" {
            return Ok(Self { hosts: Hosts::All, ports: Ports::all() });
        }
        let rest = text.strip_prefix("*.").or_else(|| text.strip_prefix('.'));
        match (parse_deny(rest.unwrap_or(text), Source::flag(text))?, rest) {
            (AnyRule::Name(rule), rest) if rule.program.is_none() => match (rule.pattern, rest) {
                (Pattern::Exact(name), None) => Ok(Self { hosts: Hosts::NameAndBelow(name), ports: rule.ports }),
                (Pattern::Exact(name), Some(_)) => Ok(Self { hosts: Hosts::Below(name), ports: rule.ports }),
                (Pattern::Below(_), _) => Err(no_entry(text)),
            },
            (AnyRule::Address(rule), None) => Ok(Self { hosts: Hosts::Net(rule.net), ports: rule.ports }),
            (AnyRule::Name(_) | AnyRule::Address(_), _) => Err(no_entry(text)),
        }
    }

    /// Reports whether the entry is about `target`.
    pub(in crate::net) fn matches(&self, target: &Target) -> bool {
        let named = match (&self.hosts, &target.host) {
            (Hosts::All, _) => true,
            (Hosts::NameAndBelow(base), Host::Name(name)) => name == base || is_below(base, name),
            (Hosts::Below(base), Host::Name(name)) => is_below(base, name),
            (Hosts::Net(net), Host::Address(address)) => net.contains(address),
            (Hosts::NameAndBelow(_) | Hosts::Below(_), Host::Address(_)) | (Hosts::Net(_), Host::Name(_)) => false,
        };
        named && self.ports.contains(target.port)
    }
}

fn no_entry(text: &str) -> RuleError {
    RuleError { text: text.chars().take(200).collect(), why: RuleFault::Range }
}

fn is_below(base: &Name, name: &Name) -> bool {
    name.parents().any(|parent| parent == base.as_str())
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::All => return f.write_str("*"),
            Hosts::NameAndBelow(name) => name.fmt(f)?,
            Hosts::Below(name) => write!(f, ".{name}")?,
            Hosts::Net(IpNet::V6(net)) => write!(f, "[{net}]")?,
            Hosts::Net(net) => net.fmt(f)?,
        }
        if self.ports == Ports::all() { Ok(()) } else { write!(f, ":{}", self.ports) }
    }
}

impl Serialize for Bypass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bypass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[path = "bypass_tests.rs"]
mod tests;
