//! One line of the record of a network.

use nexus_model::Digest;
use nexus_policy::net::{
    AnyRule, Attempt, Behind, Check, Denial, DenyCode, Ingress, MonotonicMs, Permit, Route, RuleRef, Target,
};
use serde::Serialize;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A policy comes into force.
    Policy,
    /// A connection was allowed and is about to be made.
    Allow,
    /// An attempt was denied.
    Deny,
    /// A further request on an existing connection was allowed.
    Request,
    /// A program asked for a name.
    Dns,
    /// Nexus is about to look up a name outside that no rule has exactly.
    Resolve,
    /// An allowed connection could not be made.
    Fail,
    /// Nexus ended a connection; `code` is the reason.
    Cut,
    /// A connection ended.
    Close,
}

/// One line of the record.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Version of this form.
    pub v: u8,
    /// Milliseconds since 1970, by the wall clock.
    pub time_ms: u64,
    /// Kind of the event.
    pub event: EventKind,
    /// Id of the attempt; its later lines have the same.
    pub id: u64,
    /// Way by which the attempt came in; `null` for DNS.
    pub way: Option<Ingress>,
    /// Program that connected, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The host in canonical form; empty if it could not be read.
    pub host: String,
    /// The port; 0 if it could not be read, and for DNS.
    pub port: u16,
    /// `OK`, or the reason of the denial.
    pub code: DenyCode,
    /// Rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// Explanation in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// Addresses to dial.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Time to live of the addresses, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
    /// `false` if the operator's upstream proxy resolves the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses_checked: Option<bool>,
    /// Hash of the canonical form of the policy that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Digest>,
    /// Policy that comes into force. A very long one is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<serde_json::Value>,
    /// Question to the policy, if this line holds all of its inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Time of the decision, by the policy's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<MonotonicMs>,
    /// Addresses to which a name resolved that was then denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<IpAddr>>,
    /// Rule that a person gave for this connection alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<AnyRule>,
    /// Addresses of this attempt that the kernel reported as this host's own, beside those of the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<IpAddr>,
    /// Known facts about denied names behind the addresses, where everything else is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// Other hosts that the connection named, in TLS or in `Host`, and that the mode let through. The last line of a
    /// connection has the first of them, and each request its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
    /// Address that answered, once the connection has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialed: Option<IpAddr>,
    /// Number of bytes to the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<u64>,
    /// Number of bytes to the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<u64>,
    /// Milliseconds from the first line to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Number of identical refusals or look-ups that this line stands for, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
}

impl Event {
    /// Creates a line with only the fields that every line has.
    pub(crate) fn new(event: EventKind, id: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            v: 1,
            time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            event,
            id,
            way: None,
            program: None,
            host: String::new(),
            port: 0,
            code: DenyCode::Ok,
            rule: None,
            explanation: None,
            addresses: Vec::new(),
            ttl_s: None,
            addresses_checked: None,
            policy: None,
            in_force: None,
            check: None,
            at: None,
            resolved: None,
            once: None,
            own: Vec::new(),
            behind: Vec::new(),
            asked: Vec::new(),
            dialed: None,
            bytes_up: None,
            bytes_down: None,
            duration_ms: None,
            repeated: None,
        }
    }

    pub(crate) fn of(event: EventKind, id: u64, attempt: &Attempt) -> Self {
        Self {
            way: Some(attempt.way),
            program: attempt.program.as_ref().map(|program| program.0.clone()),
            ..Self::new(event, id).at(&attempt.target)
        }
    }

    pub(crate) fn at(self, target: &Target) -> Self {
        Self { host: target.host.to_string(), port: target.port.number(), ..self }
    }

    pub(crate) fn permitted(self, permit: &Permit, ttl_s: Option<u32>) -> Self {
        let addresses = match permit.route() {
            Route::Addrs(addrs) => addrs.iter().map(std::net::SocketAddr::ip).collect(),
            Route::ViaProxy(_) => Vec::new(),
        };
        Self {
            rule: permit.rule().cloned(),
            addresses,
            ttl_s,
            addresses_checked: (!permit.addresses_checked()).then_some(false),
            ..self
        }
    }

    pub(crate) fn denied(self, denial: &Denial) -> Self {
        Self {
            code: denial.code,
            rule: denial.rule.as_deref().cloned(),
            explanation: Some(denial.explanation.clone()),
            ..self
        }
    }

    /// Reports whether this is a refusal, of which identical ones may share one line.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code != DenyCode::Ok && matches!(self.event, EventKind::Deny | EventKind::Dns)
    }

    /// Reports whether this is a name that was answered, of which identical ones may share one line.
    pub(crate) fn is_look_up(&self) -> bool {
        self.code == DenyCode::Ok && self.event == EventKind::Dns
    }

    /// Returns the line in JSON, with its line feed.
    pub fn line(&self) -> Result<String, AuditError> {
        let mut line = serde_json::to_string(self).map_err(|source| AuditError::Form { source })?;
        line.push('\n');
        Ok(line)
    }
}

/// Error of an event that could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The event cannot be written as JSON.
    #[error("the audit event makes no JSON: {source}")]
    Form {
        /// Error of the serializer.
        source: serde_json::Error,
    },
    /// The line could not be written.
    #[error("the audit log cannot be written: {source}")]
    Write {
        /// Error of the system, such as a full disk.
        source: std::io::Error,
    },
    /// The log has reached its maximum length.
    #[error("the audit log has reached its {max_bytes} bytes")]
    Full {
        /// Maximum length of the log, in bytes.
        max_bytes: u64,
    },
    /// Another kind of sink failed.
    #[error("the audit log cannot be written: {0}")]
    Other(String),
}
