//! Capabilities that a directive may ask for: network, files, environment, secrets. Field names are frozen by the
//! contract.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Network access of a directive, from none to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum NetMode {
    /// Only the sandbox's own loopback.
    #[default]
    None,
    /// Only the destinations in `allow`.
    Allowlist,
    /// Any public destination.
    Unrestricted,
}

/// Named starting points for a network policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetPreset {
    /// No restriction; only for `trusted` and `host`.
    Off,
    /// Code hosts and package groups on 443 and 80.
    Loose,
    /// Allows port 443 only.
    Strict,
    /// Allows no destination outside the sandbox.
    NoExternal,
    /// Uses the rules exactly as the directive states them.
    Custom,
}

/// `capabilities.net`. Unknown fields are refused: a misspelt rule must not be a rule that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct NetCapability {
    /// Network access that the directive asks for.
    pub mode: NetMode,
    /// Set of rules that the directive's own rules are added to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<NetPreset>,
    /// `host:port`, host a DNS name with an optional leading `*.`; present exactly when the mode is `allowlist`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Time that the policy holds, in seconds (1 to 86400).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
    /// Extensions; keys start with `x_`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub x_ext: BTreeMap<String, serde_json::Value>,
}

/// Extension of [`NetCapability`]: seconds for which a connection that no rule allows waits for a person.
pub const ASK: &str = "x_ask_seconds";
/// Longest time that a connection waits for a person, in seconds.
pub const MAX_ASK_SECONDS: u32 = 3600;

/// The extension [`ASK`] cannot be read, or has nothing to ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{ASK} is a whole number from 1 to {MAX_ASK_SECONDS}, with the mode allowlist")]
pub struct BadAsk;

impl NetCapability {
    /// Returns the seconds for which a connection that no rule allows waits for a person; `None` where no user is asked.
    pub fn ask_seconds(&self) -> Result<Option<u32>, BadAsk> {
        let Some(value) = self.x_ext.get(ASK) else { return Ok(None) };
        let seconds = value.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
        let seconds = seconds.filter(|seconds| (1..=MAX_ASK_SECONDS).contains(seconds)).ok_or(BadAsk)?;
        if self.mode == NetMode::Allowlist { Ok(Some(seconds)) } else { Err(BadAsk) }
    }
}

/// `capabilities.fs`: `workspace:**`, `workspace:/path` or `host:/path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct FsCapability {
    /// Paths that the command may read.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub read: Vec<String>,
    /// Paths that the command may write.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub write: Vec<String>,
    /// Absolute host paths that may be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::absent::or_default")]
    pub writable_roots: Vec<String>,
    /// Absolute host paths below them that may not.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::absent::or_default")]
    pub read_only_subpaths: Vec<String>,
}

/// Everything that a directive asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Network capability of the directive.
    pub net: NetCapability,
    /// File capability of the directive.
    pub fs: FsCapability,
    /// Environment variables to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::absent::or_default")]
    pub env: BTreeMap<String, String>,
    /// Names of secrets, never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::absent::or_default")]
    pub secrets: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_refused_and_the_right_one_is_read() {
        let good = r#"{"mode":"allowlist","allow":["example.test:443"]}"#;
        let net: NetCapability = serde_json::from_str(good).unwrap();
        assert_eq!(net.mode, NetMode::Allowlist);
        assert!(serde_json::from_str::<NetCapability>(r#"{"mode":"none","alow":[]}"#).is_err());
        assert!(serde_json::from_str::<NetCapability>(r#"{"mode":"open"}"#).is_err());
        assert!(serde_json::from_str::<NetCapability>("{}").is_err());
    }

    #[test]
    fn a_directive_asks_a_person_for_a_bounded_time_and_about_a_list_alone() {
        let net = |mode: &str, value: serde_json::Value| -> NetCapability {
            serde_json::from_value(serde_json::json!({"mode": mode, "x_ext": {ASK: value}})).unwrap()
        };
        assert_eq!(net("allowlist", 120.into()).ask_seconds(), Ok(Some(120)));
        for bad in [serde_json::json!(0), 3601.into(), (-1).into(), 1.5.into(), "60".into(), true.into(), ().into()] {
            assert_eq!(net("allowlist", bad.clone()).ask_seconds(), Err(BadAsk), "{bad}");
        }
        for mode in ["none", "unrestricted"] {
            assert_eq!(net(mode, 60.into()).ask_seconds(), Err(BadAsk));
        }
        assert_eq!(NetCapability::default().ask_seconds(), Ok(None));
    }
}
