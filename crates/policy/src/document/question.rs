//! Questions to a policy, in one form for cases of documents, `nexus policy explain`, runs and directives.

use super::budget::BudgetKind;
use super::path_pattern::{PathPattern, PathPatternError};
use crate::net::{Host, Port, RuleError, Source, Target, TargetError};
use crate::net::{Methods, Pattern, Ports, Rule, parse_allow};
use crate::profile::{LimitKind, NetMode, format_limit};
use nexus_model::spec::SandboxProfile;
use std::fmt;
use std::net::IpAddr;

/// A destination that a command wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Names, on ports.
    Names(Rule),
    /// An address, on a port.
    Address(IpAddr, Port),
}

impl Destination {
    /// Reads `HOST[:PORTS]`, `*.HOST[:PORTS]`, or an address with a port; without a port it is 443.
    pub fn parse(text: &str) -> Result<Self, QuestionError> {
        if let Ok(Target { host: Host::Address(address), port }) = Target::parse_or(text, Port::HTTPS) {
            return Ok(Self::Address(address, port));
        }
        Ok(Self::Names(parse_allow(text, Source::flag(text))?))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(rule) => write!(f, "{}:{}", rule.pattern, rule.ports),
            Self::Address(IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
            Self::Address(IpAddr::V4(address), port) => write!(f, "{address}:{port}"),
        }
    }
}

/// Something that a run may or may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Reach a destination.
    Reach(Destination),
    /// Have a network of this mode.
    Mode(NetMode),
    /// Use these HTTP methods.
    Methods(Methods),
    /// Read paths.
    Read(PathPattern),
    /// Write paths.
    Write(PathPattern),
    /// Have a limit of this value.
    Limit(LimitKind, u64),
    /// Have a budget of this value.
    Budget(BudgetKind, u64),
    /// Use a secret.
    Secret(String),
    /// Run with this isolation.
    Sandbox(SandboxProfile),
    /// Start a command line without a question to a person.
    Run(String),
}

/// Reason why a text is not a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// The first word is not known.
    #[error(
        "{text:?} is not a question: write net, mode, methods, read, write, limit, budget, secret, sandbox or run, and a value"
    )]
    Kind {
        /// The text as written, shortened.
        text: String,
    },
    /// The destination cannot be read as a rule.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The destination cannot be read as a target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The path cannot be read.
    #[error(transparent)]
    Path(#[from] PathPatternError),
    /// The value does not fit the question.
    #[error("{text:?} is not a value here: {why}")]
    Value {
        /// The value as written, shortened.
        text: String,
        /// Advice on the value to write.
        why: String,
    },
}

impl Question {
    /// Reads `KIND VALUE`, as in `net example.com:443`, `write workspace:/src/**` or `limit memory=4G`.
    pub fn parse(text: &str) -> Result<Self, QuestionError> {
        let shown = |text: &str| text.chars().take(200).collect::<String>();
        let wrong = |value: &str, why: &str| QuestionError::Value { text: shown(value), why: why.to_owned() };
        let (kind, value) = text.split_once(' ').ok_or_else(|| QuestionError::Kind { text: shown(text) })?;
        let value = value.trim();
        let pair = || value.split_once('=').ok_or_else(|| wrong(value, "write NAME=VALUE"));
        Ok(match kind {
            "net" => Self::Reach(Destination::parse(value)?),
            "mode" => Self::Mode(
                [NetMode::None, NetMode::Allowlist, NetMode::Unrestricted]
                    .into_iter()
                    .find(|mode| mode.word() == value)
                    .ok_or_else(|| wrong(value, "write none, allowlist or unrestricted"))?,
            ),
            "methods" => Self::Methods(
                [Methods::Any, Methods::ReadOnly]
                    .into_iter()
                    .find(|methods| methods.word() == value)
                    .ok_or_else(|| wrong(value, "write any or read_only"))?,
            ),
            "read" => Self::Read(PathPattern::parse(value)?),
            "write" => Self::Write(PathPattern::parse(value)?),
            "limit" => {
                let (name, number) = pair()?;
                let kind = LimitKind::by_key(name).ok_or_else(|| wrong(name, "there is no such limit"))?;
                Self::Limit(kind, kind.read(number).map_err(|why| wrong(number, &why))?)
            }
            "budget" => {
                let (name, number) = pair()?;
                let kind = BudgetKind::by_key(name).ok_or_else(|| wrong(name, "there is no such budget"))?;
                Self::Budget(kind, kind.read(number).map_err(|why| wrong(number, &why))?)
            }
            "secret" if !value.is_empty() => Self::Secret(value.to_owned()),
            "run" if !value.is_empty() => Self::Run(value.to_owned()),
            "sandbox" => Self::Sandbox(sandbox(value).ok_or_else(|| wrong(value, SANDBOXES))?),
            _ => return Err(QuestionError::Kind { text: shown(text) }),
        })
    }

    /// Returns the question about one name and port.
    #[must_use]
    pub fn reach(pattern: Pattern, port: Port) -> Self {
        let source = Source::flag(pattern.to_string());
        let ports = Ports::one(port);
        Self::Reach(Destination::Names(Rule { pattern, ports, private: false, tls: None, program: None, source }))
    }
}

/// Advice about the name of an isolation.
pub(super) const SANDBOXES: &str = "write untrusted, trusted or host";

/// Returns the isolation with this name.
pub(super) fn sandbox(name: &str) -> Option<SandboxProfile> {
    [SandboxProfile::Untrusted, SandboxProfile::Trusted, SandboxProfile::Host]
        .into_iter()
        .find(|one| one.name() == name)
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reach(destination) => write!(f, "net {destination}"),
            Self::Mode(mode) => write!(f, "mode {}", mode.word()),
            Self::Methods(methods) => write!(f, "methods {}", methods.word()),
            Self::Read(path) => write!(f, "read {path}"),
            Self::Write(path) => write!(f, "write {path}"),
            Self::Limit(kind, value) => write!(f, "limit {}={}", kind.key(), format_limit(*kind, *value)),
            Self::Budget(kind, value) => write!(f, "budget {}={value}", kind.key()),
            Self::Secret(name) => write!(f, "secret {name}"),
            Self::Sandbox(profile) => write!(f, "sandbox {}", profile.name()),
            Self::Run(line) => write!(f, "run {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_printed_as_it_reads() {
        for text in [
            "net example.com:443",
            "net *.example.com:80",
            "net 192.0.2.1:443",
            "mode unrestricted",
            "methods read_only",
            "read host:/opt/**",
            "write workspace:/src",
            "limit memory=4G",
            "budget connections=10",
            "budget egress_bytes=1024",
            "secret TOKEN",
            "sandbox host",
            "run git status | cat",
        ] {
            assert_eq!(Question::parse(text).unwrap().to_string(), text);
        }
        for bad in
            ["", "net", "net ", "go far", "limit memory", "limit memory=x", "sandbox vm", "secret  ", "read /etc"]
        {
            assert!(Question::parse(bad).is_err(), "{bad:?}");
        }
    }
}
