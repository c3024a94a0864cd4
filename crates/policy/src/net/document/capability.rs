//! A directive's request (`capabilities.net`, frozen by the contract) as a ceiling: it can only narrow.

use crate::net::permit::MonotonicMs;
use crate::net::policy::bound::PolicyBound;
use crate::net::rules::rule::{Origin, Rule, RuleError, Source, parse_allow};
use crate::net::rules::target::{Port, TargetError};
use nexus_model::capability::{BadAsk, NetCapability, NetMode};

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// `allow` belongs to the mode allowlist, and that mode needs it.
    #[error("allow is required exactly when mode is allowlist")]
    AllowAndMode,
    /// An item of `allow` is not `host:port` with exactly one port.
    #[error("{text:?} is not host:port: {why}")]
    Port {
        /// The item as written.
        text: String,
        /// The reason, from the reader of targets.
        #[source]
        why: TargetError,
    },
    /// An item cannot be read as a rule.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// `ttl_seconds` is outside 1 to 86400.
    #[error("ttl_seconds is {seconds}; it is 1 to 86400")]
    Ttl {
        /// The value as written.
        seconds: u32,
    },
    /// The extension that asks a person cannot be read.
    #[error(transparent)]
    Ask(#[from] BadAsk),
    /// The key of an extension lacks the prefix `x_`.
    #[error("the extension {key:?} does not begin with x_")]
    Extension {
        /// The key as written.
        key: String,
    },
}

/// Reads a request that starts to hold at `now`.
pub fn from_capability(request: &NetCapability, now: MonotonicMs) -> Result<PolicyBound, CapabilityError> {
    if let Some(key) = request.x_ext.keys().find(|key| !key.starts_with("x_")) {
        return Err(CapabilityError::Extension { key: key.clone() });
    }
    request.ask_seconds()?;
    if let Some(seconds) = request.ttl_seconds.filter(|seconds| !(1..=86_400).contains(seconds)) {
        return Err(CapabilityError::Ttl { seconds });
    }
    if (request.mode == NetMode::Allowlist) != request.allow.is_some() {
        return Err(CapabilityError::AllowAndMode);
    }
    let allow = request.allow.iter().flatten().map(|text| item(text)).collect::<Result<Vec<_>, _>>()?;
    let expires = request.ttl_seconds.map(|seconds| now.plus_ms(u64::from(seconds) * 1000));
    Ok(PolicyBound { mode: Some(request.mode), allow, expires, ..PolicyBound::default() })
}

/// `parse_allow` reads lists and ranges of ports too, and takes 443 where none stands; the contract has exactly one
/// port.
fn item(text: &str) -> Result<Rule, CapabilityError> {
    let fault = |why| CapabilityError::Port { text: text.chars().take(200).collect(), why };
    let (_, port) = text.rsplit_once(':').ok_or_else(|| fault(TargetError::NoPort))?;
    Port::parse(port).map_err(fault)?;
    Ok(parse_allow(text, Source { origin: Origin::Directive, text: text.into(), file: None, line: None })?)
}
