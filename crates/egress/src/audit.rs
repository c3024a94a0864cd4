//! What is recorded: one line of JSON per attempt, and one more when its connection ends.
//!
//! A decision has the hash of the policy that made it and all that went into it; the policy itself stands before its
//! first decision ([`grounds`](crate::grounds)). So a reader can make each decision once more
//! (`nexus_policy::net::Replay`).
//!
//! The first line is written before anything is dialled. If it cannot be written the attempt is denied: a connection
//! that nobody can find in the record must not exist. Lines hold hosts and ports, never paths, queries, headers or user
//! information, which is where secrets travel.

use crate::repeats::Repeats;
use nexus_model::Digest;
use nexus_policy::net::{
    AnyRule, Attempt, Behind, Check, Denial, DenyCode, Moment, Permit, Route, RuleRef, Target, Way,
};
use serde::Serialize;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A policy decides from here on.
    Policy,
    /// A connection was allowed and is about to be made.
    Allow,
    /// An attempt was denied.
    Deny,
    /// One more request on a connection that exists was allowed.
    Request,
    /// A name was asked for.
    Dns,
    /// A name that no rule has exactly is about to be looked up outside.
    Resolve,
    /// An allowed connection could not be made.
    Fail,
    /// A connection was ended by Nexus; `code` says why.
    Cut,
    /// A connection ended.
    Close,
}

/// One line.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The version of this form.
    pub v: u8,
    /// Milliseconds since 1970, by the wall clock.
    pub time_ms: u64,
    /// What happened.
    pub event: EventKind,
    /// The attempt; its later lines have the same.
    pub id: u64,
    /// How it came in; `null` for DNS.
    pub way: Option<Way>,
    /// The program, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The host in canonical form; empty if it could not be read.
    pub host: String,
    /// The port; 0 if it could not be read, and for DNS.
    pub port: u16,
    /// `OK` or why not.
    pub code: DenyCode,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// One sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// The addresses that are dialled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// How long they hold, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
    /// `false` where the operator's upstream proxy resolves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses_checked: Option<bool>,
    /// The policy that decided, by the hash of its canonical form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Digest>,
    /// The policy itself, where it comes into force. One that is very long is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<serde_json::Value>,
    /// What was asked of the policy, where this line holds all that it was asked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// When, by the policy's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// What a name resolved to that was denied then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<IpAddr>>,
    /// A rule that somebody gave for this connection alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<AnyRule>,
    /// The addresses among them that the kernel said are this host's own, beside those of the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<IpAddr>,
    /// What is known of denied names behind the addresses, where everything else is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// The one of the addresses that answered, where the connection has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialed: Option<IpAddr>,
    /// Bytes to the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<u64>,
    /// Bytes to the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<u64>,
    /// From the first line to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How many identical refusals this line stands for, where it is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
}

impl Event {
    /// A line with the least that every line has.
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

    /// Whether identical lines of this kind, as refusals, may share one.
    pub(crate) fn kind_may_repeat(&self) -> bool {
        matches!(self.event, EventKind::Deny | EventKind::Dns)
    }

    /// The line, with its end.
    pub fn line(&self) -> Result<String, AuditError> {
        let mut line = serde_json::to_string(self).map_err(|source| AuditError::Form { source })?;
        line.push('\n');
        Ok(line)
    }
}

/// Why an event could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// It makes no JSON.
    #[error("the audit event makes no JSON: {source}")]
    Form {
        /// Why.
        source: serde_json::Error,
    },
    /// It could not be written.
    #[error("the audit log cannot be written: {source}")]
    Write {
        /// Why, such as a full disk.
        source: std::io::Error,
    },
    /// It is as long as it may be.
    #[error("the audit log has reached its {max_bytes} bytes")]
    Full {
        /// Its bound.
        max_bytes: u64,
    },
    /// Another kind of sink failed.
    #[error("the audit log cannot be written: {0}")]
    Other(String),
}

/// Where events go. It is called on the thread that serves connections, so it must not wait for long.
pub trait Sink: Send + Sync {
    /// Records one event, or says that it did not.
    fn record(&self, event: &Event) -> Result<(), AuditError>;
}

/// The sink with the count of what it could not take.
pub(crate) struct Audit {
    sink: Arc<dyn Sink>,
    lost: AtomicU64,
    repeats: Mutex<Repeats>,
}

impl Audit {
    pub(crate) fn new(sink: Arc<dyn Sink>) -> Self {
        Self { sink, lost: AtomicU64::new(0), repeats: Mutex::default() }
    }

    /// For what must not happen unrecorded.
    pub(crate) fn must(&self, event: &Event) -> Result<(), AuditError> {
        self.sink.record(event).inspect_err(|_| {
            self.lost.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// For what has happened already, or is a refusal: a failure changes nothing but is counted and told at the end.
    /// Refusals that are repeated share lines.
    pub(crate) fn note(&self, event: &Event) {
        let lines = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).take(event);
        self.put(&lines);
    }

    /// Writes what waits for more of its kind.
    pub(crate) fn flush(&self) {
        let lines = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).drain();
        self.put(&lines);
    }

    fn put(&self, lines: &[Event]) {
        for line in lines {
            if self.sink.record(line).is_err() {
                self.lost.fetch_add(line.repeated.unwrap_or(1), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
