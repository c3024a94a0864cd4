//! One rule of a document: a text, or a map where more is to be said.

use crate::net::document::error::{DocumentError, NO_PRIVATE};
use crate::net::rules::ports::Ports;
use crate::net::rules::rule::{
    AnyRule, Origin, Program, Rule, RuleError, RuleFault, Source, parse_allow, parse_allow_private, parse_deny,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// `example.com:443`, or `{host: example.com, ports: "443,8443", tls: true, binary: /usr/bin/curl}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Item {
    /// The text form, `HOST[:PORTS]`.
    Text(String),
    /// The map form.
    Full(FullItem),
}

/// The map form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullItem {
    /// `HOST`, or with `private` an address or range; in `deny` all of these.
    pub host: String,
    /// Ports as in the text form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortsItem>,
    /// True if the name may resolve to a private destination.
    #[serde(default)]
    pub private: bool,
    /// True if TLS for this name is required; the default is true on port 443 and false elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
    /// The only program that the rule is for, an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
}

/// `443`, or `"80,443"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortsItem {
    /// A single port.
    One(u16),
    /// A list of ports and ranges.
    List(String),
}

impl PortsItem {
    fn text(&self) -> String {
        match self {
            Self::One(port) => port.to_string(),
            Self::List(text) => text.clone(),
        }
    }
}

/// Written by hand instead of `untagged`, which would hide a misspelt key behind "did not match any variant".
impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("HOST[:PORTS] or a map with host, ports, private, tls, binary")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
                FullItem::deserialize(MapAccessDeserializer::new(map)).map(Item::Full)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Item {
    /// Reads the item as an allowance. An origin that may not open private destinations is refused with the item's
    /// text.
    pub(in crate::net) fn allowance(&self, file: &str, origin: Origin) -> Result<AnyRule, DocumentError> {
        let source = self.source(file, origin);
        let text = source.text.clone();
        match self {
            Self::Text(text) => Ok(AnyRule::Name(parse_allow(text, source)?)),
            Self::Full(full) => {
                if full.private && !origin.may_open_private() {
                    return Err(DocumentError::NotHere { text, why: NO_PRIVATE });
                }
                let rule = if full.private {
                    parse_allow_private(&full.host, source)?
                } else {
                    AnyRule::Name(parse_allow(&full.host, source)?)
                };
                full.complete(rule).map_err(|why| RuleError { text, why }.into())
            }
        }
    }

    /// Reads the item as a denial.
    pub(in crate::net) fn denial(&self, file: &str, origin: Origin) -> Result<AnyRule, DocumentError> {
        let source = self.source(file, origin);
        let text = source.text.clone();
        match self {
            Self::Text(text) => Ok(parse_deny(text, source)?),
            Self::Full(full) => {
                if full.private || full.tls.is_some() {
                    return Err(DocumentError::NotHere { text, why: "private and tls mean nothing in a denial" });
                }
                let rule = parse_deny(&full.host, source)?;
                full.complete(rule).map_err(|why| RuleError { text, why }.into())
            }
        }
    }

    fn source(&self, file: &str, origin: Origin) -> Source {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Full(full) => {
                let (place, program) = full.host.split_once("@/").unwrap_or((&full.host, ""));
                let ports = full.ports.as_ref().map(|ports| format!(":{}", ports.text())).unwrap_or_default();
                let only = full.binary.clone().or((!program.is_empty()).then(|| format!("/{program}")));
                let only = only.map(|program| format!("@{program}")).unwrap_or_default();
                format!("{place}{ports}{only}")
            }
        };
        Source { origin, text, file: Some(file.into()), line: None }
    }
}

impl FullItem {
    /// Adds the fields beside the host. An address rule has no program and no TLS name.
    fn complete(&self, rule: AnyRule) -> Result<AnyRule, RuleFault> {
        let ports =
            self.ports.as_ref().map(|ports| Ports::parse(&ports.text())).transpose().map_err(RuleFault::Ports)?;
        if ports.is_some() && has_ports(&self.host) {
            return Err(RuleFault::PortsTwice);
        }
        let beside = self.binary.as_deref().map(Program::parse).transpose()?;
        match rule {
            AnyRule::Name(Rule { program: Some(_), .. }) if beside.is_some() => Err(RuleFault::ProgramTwice),
            AnyRule::Name(Rule { tls: Some(_), .. }) if self.tls.is_some() => Err(RuleFault::TlsTwice),
            AnyRule::Name(rule) => {
                let program = beside.or(rule.program);
                let tls = self.tls.or(rule.tls);
                Ok(AnyRule::Name(Rule { ports: ports.unwrap_or(rule.ports), tls, program, ..rule }))
            }
            AnyRule::Address(_) if self.tls.is_some() || beside.is_some() => Err(RuleFault::OnlyForNames),
            AnyRule::Address(mut rule) => {
                rule.ports = ports.unwrap_or(rule.ports);
                Ok(AnyRule::Address(rule))
            }
        }
    }
}

/// Reports whether ports stand behind the host: the only colon, or one behind a bracket. A bare IPv6 address has
/// several.
fn has_ports(host: &str) -> bool {
    let host = host.split_once("@/").map_or(host, |(host, _)| host);
    match host.rsplit_once(']') {
        Some((_, after)) => after.contains(':'),
        None => host.matches(':').count() == 1,
    }
}
