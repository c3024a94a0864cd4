//! What was allowed and denied, for the end of a run.

use nexus_policy::net::{Attempt, Denial, DenyCode};
use serde::Serialize;
use std::collections::BTreeMap;

/// Destinations that are kept apart; a sandbox that tries a million names must not fill the host's memory.
const MOST: usize = 1000;

/// One destination that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Connections that were allowed.
    pub connections: u64,
    /// Bytes to it.
    pub bytes_up: u64,
    /// Bytes from it.
    pub bytes_down: u64,
}

/// One destination that was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// The host; empty where none could be read.
    pub host: String,
    /// The port; 0 for a DNS question, or where none could be read.
    pub port: u16,
    /// Why.
    pub code: DenyCode,
    /// How often.
    pub count: u64,
    /// The flag that would allow it.
    pub allow_with: Option<String>,
    /// Why, as a sentence.
    pub explanation: String,
}

/// Everything so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Reached destinations, in order of host and port.
    pub allowed: Vec<Allowed>,
    /// Refused ones, in order of host and port.
    pub denied: Vec<Denied>,
    /// Connections that were allowed, those to destinations beyond the kept ones too.
    pub allowed_count: u64,
    /// Attempts and questions that were denied.
    pub denied_count: u64,
    /// Whether there were more destinations than are kept.
    pub truncated: bool,
    /// Bytes to the network.
    pub bytes_up: u64,
    /// Bytes to the sandbox.
    pub bytes_down: u64,
    /// Events that the audit log did not take. While it takes none, nothing is connected.
    pub audit_lost: u64,
    /// Connections that are open now.
    pub open: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    allowed: BTreeMap<(String, u16), Allowed>,
    denied: BTreeMap<(String, u16, DenyCode), Denied>,
    allowed_count: u64,
    denied_count: u64,
    truncated: bool,
    bytes_up: u64,
    bytes_down: u64,
}

impl Tally {
    pub(crate) fn allow(&mut self, attempt: &Attempt) {
        self.allowed_count += 1;
        if let Some(entry) = self.allowed_entry(attempt) {
            entry.connections += 1;
        }
    }

    pub(crate) fn bytes(&mut self, attempt: &Attempt, up: u64, down: u64) {
        self.bytes_up += up;
        self.bytes_down += down;
        if let Some(entry) = self.allowed_entry(attempt) {
            entry.bytes_up += up;
            entry.bytes_down += down;
        }
    }

    fn allowed_entry(&mut self, attempt: &Attempt) -> Option<&mut Allowed> {
        let key = (attempt.target.host.to_string(), attempt.target.port.number());
        if self.allowed.len() >= MOST && !self.allowed.contains_key(&key) {
            self.truncated = true;
            return None;
        }
        let (host, port) = key.clone();
        Some(self.allowed.entry(key).or_insert(Allowed { host, port, connections: 0, bytes_up: 0, bytes_down: 0 }))
    }

    pub(crate) fn deny(&mut self, host: String, port: u16, denial: &Denial) {
        self.denied_count += 1;
        let key = (host, port, denial.code);
        if self.denied.len() >= MOST && !self.denied.contains_key(&key) {
            self.truncated = true;
            return;
        }
        let (host, port, code) = key.clone();
        let entry = self.denied.entry(key).or_insert_with(|| Denied {
            host,
            port,
            code,
            count: 0,
            allow_with: denial.allow_with.clone(),
            explanation: denial.explanation.clone(),
        });
        entry.count += 1;
    }

    pub(crate) fn told(&self, audit_lost: u64, open: usize) -> Summary {
        Summary {
            allowed: self.allowed.values().cloned().collect(),
            denied: self.denied.values().cloned().collect(),
            allowed_count: self.allowed_count,
            denied_count: self.denied_count,
            truncated: self.truncated,
            bytes_up: self.bytes_up,
            bytes_down: self.bytes_down,
            audit_lost,
            open,
        }
    }
}
