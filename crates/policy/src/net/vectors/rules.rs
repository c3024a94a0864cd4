//! The rules of a case, and those that most cases have.

use crate::net::policy::bound::MissingSni;
use crate::net::policy::methods::Methods;
use crate::net::policy::{Policy, PolicyInput};
use crate::net::rules::rule::{Origin, Source, parse_allow, parse_allow_private, parse_deny, parse_range};
use nexus_model::capability::NetMode;

/// Rules as a user writes them.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The mode of the network.
    pub mode: NetMode,
    /// The values of `--allow`.
    pub allow: &'static [&'static str],
    /// The values of `--deny`.
    pub deny: &'static [&'static str],
    /// The values of `--allow-private`.
    pub allow_private: &'static [&'static str],
    /// The operator's `trusted_ranges`.
    pub trusted: &'static [&'static str],
    /// Addresses of the host.
    pub own: &'static [&'static str],
    /// The operator's setting.
    pub missing_sni: Option<MissingSni>,
    /// The value of `--net-methods`.
    pub methods: Methods,
}

impl Rules {
    /// Returns the parts of a policy.
    pub fn input(&self) -> Result<PolicyInput, Box<dyn std::error::Error>> {
        let mut input = PolicyInput {
            mode: Some(self.mode),
            missing_sni: self.missing_sni,
            methods: self.methods,
            generation: 1,
            ..PolicyInput::default()
        };
        for text in self.allow {
            input.allow.push(parse_allow(text, Source::flag(*text))?);
        }
        for text in self.deny {
            input.deny_any(parse_deny(text, Source::flag(*text))?);
        }
        for text in self.allow_private {
            input.allow_any(parse_allow_private(text, Source { origin: Origin::Flag, ..Source::flag(*text) })?);
        }
        for text in self.trusted {
            input.trusted_ranges.push(parse_range(text)?);
        }
        for text in self.own {
            input.own_addresses.push(text.parse()?);
        }
        Ok(input)
    }

    /// Builds the policy of these rules.
    pub fn policy(&self) -> Result<Policy, Box<dyn std::error::Error>> {
        Ok(Policy::build(self.input()?)?)
    }
}

/// The default rules of section H.
pub const DEFAULT: Rules = Rules {
    mode: NetMode::Allowlist,
    allow: &["example.test", "*.allowed.test"],
    deny: &[],
    allow_private: &[],
    trusted: &[],
    own: &["9.8.7.6", "192.168.77.1"],
    missing_sni: None,
    methods: Methods::Any,
};

/// An open network without rules.
pub const OPEN: Rules = Rules { mode: NetMode::Unrestricted, allow: &[], ..DEFAULT };
