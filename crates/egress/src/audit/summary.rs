//! Counts allowed and denied attempts, for the end of a run.

use nexus_policy::net::{Attempt, Denial, DenyCode};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of destinations that are kept apart; a sandbox that tries a million names must not fill the host's
/// memory.
const MAX: usize = 1000;

/// Destination that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// Host in canonical form.
    pub host: String,
    /// Port of the destination.
    pub port: u16,
    /// Number of connections that were allowed.
    pub connections: u64,
    /// Number of bytes to the destination.
    pub bytes_up: u64,
    /// Number of bytes from the destination.
    pub bytes_down: u64,
}

/// Destination that was refused, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// Host; empty if none could be read.
    pub host: String,
    /// Port; 0 for a DNS question, or if none could be read.
    pub port: u16,
    /// Reason as a stable code.
    pub code: DenyCode,
    /// Number of refusals.
    pub count: u64,
    /// Flag that would allow the attempt.
    pub allow_with: Option<String>,
    /// Reason as a sentence.
    pub explanation: String,
}

/// Counts of an egress so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Reached destinations, in order of host and port.
    pub allowed: Vec<Allowed>,
    /// Refused destinations, in order of host and port.
    pub denied: Vec<Denied>,
    /// Number of allowed connections, including those to destinations beyond the kept ones.
    pub allowed_count: u64,
    /// Number of attempts and questions that were denied.
    pub denied_count: u64,
    /// True if there were more destinations than are kept.
    pub truncated: bool,
    /// Number of bytes to the network.
    pub bytes_up: u64,
    /// Number of bytes to the sandbox.
    pub bytes_down: u64,
    /// Number of events that the audit log did not take. While it takes none, nothing is connected.
    pub audit_lost: u64,
    /// Number of connections that are open now.
    pub open: usize,
}

/// Said behind the first of several reasons of one destination.
const OTHER_REASONS: &str = ", and other reasons (nexus net log has each)";

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
        if self.allowed.len() >= MAX && !self.allowed.contains_key(&key) {
            self.truncated = true;
            return None;
        }
        let (host, port) = key.clone();
        Some(self.allowed.entry(key).or_insert(Allowed { host, port, connections: 0, bytes_up: 0, bytes_down: 0 }))
    }

    pub(crate) fn deny(&mut self, host: String, port: u16, denial: &Denial) {
        self.denied_count += 1;
        let key = (host, port, denial.code);
        if self.denied.len() >= MAX && !self.denied.contains_key(&key) {
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
        // The first reason is reported; it is not the only one.
        if !entry.explanation.ends_with(OTHER_REASONS) && entry.explanation != denial.explanation {
            entry.explanation.push_str(OTHER_REASONS);
        }
    }

    pub(crate) fn reported(&self, audit_lost: u64, open: usize) -> Summary {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::denials::malformed;

    #[test]
    fn several_reasons_of_one_destination_are_reported_as_several() {
        let mut tally = Tally::default();
        let explained = |tally: &Tally| tally.reported(0, 0).denied[0].explanation.clone();
        for _ in 0..2 {
            tally.deny("a.test".to_owned(), 80, &malformed("both lengths"));
            assert_eq!(explained(&tally), "both lengths");
        }
        for reason in ["no host", "both lengths", "no host"] {
            tally.deny("a.test".to_owned(), 80, &malformed(reason));
            assert_eq!(explained(&tally), "both lengths, and other reasons (nexus net log has each)");
        }
        assert_eq!(tally.reported(0, 0).denied[0].count, 5);
    }
}
