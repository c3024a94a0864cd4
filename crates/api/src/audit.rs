//! The audit chain of an account: events whose hashes name one another. Pure.
//!
//! ```text
//!  origin of the account ◀─ prev ─ event 1 ◀─ prev ─ event 2 ◀─ … ◀─ head (number and hash of the last event)
//! ```
//! A chain proves that its events are those that were written, in their order, up to a head that the reader kept elsewhere. Who
//! can write to the database can write the whole chain again, with another head; a head that was kept before shows it
//! ([`crate::audit_head`]).

use crate::audit_head::{HEAD_ACTION, KeptHeads, Link, SignedHead};
use crate::mothership::Role;
use crate::time::Timestamp;
use nexus_model::canonical;
use nexus_model::digest::Digest;
use nexus_model::ids::AccountId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

pub use crate::audit_head::{AuditHead, HeadFault};

/// Name of the form of an event.
pub const SCHEMA: &str = "nexus.audit/1";
/// Act of the event of the end of a directive. Its detail names the receipt by the hash of its canonical JSON.
pub const END_ACTION: &str = "directive.end";
/// Largest number of faults that a check names.
pub const MAX_FAULTS: usize = 100;

/// The one who acted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// `api_key`, `territory` or `server`.
    pub kind: String,
    /// Id of the key or of the territory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Role of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// One event, as exports have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// Name of the form, [`SCHEMA`].
    pub schema: String,
    /// Account of the chain.
    pub account: AccountId,
    /// Number in the chain, from 1.
    pub seq: u64,
    /// Time of the act.
    pub at: Timestamp,
    /// The one who acted.
    pub actor: Actor,
    /// The act, such as `directive.create`.
    pub action: String,
    /// The object, such as `directive/ID`.
    pub object: String,
    /// More about the act. It never holds a secret, a command or output.
    pub detail: Value,
    /// Hash of the event before; of the first one, the origin of the account.
    pub prev: Digest,
    /// Hash of all other members, as canonical JSON.
    pub hash: Digest,
}

/// Returns the hash that the first event of an account names as the one before.
#[must_use]
pub fn origin(account: AccountId) -> Digest {
    Digest::of(format!("{SCHEMA} {account}").as_bytes())
}

impl AuditEvent {
    /// Returns the hash that the event must have.
    #[must_use]
    pub fn expected_hash(&self) -> Digest {
        let body = json!({
            "schema": self.schema, "account": self.account, "seq": self.seq, "at": self.at, "actor": self.actor,
            "action": self.action, "object": self.object, "detail": self.detail, "prev": self.prev,
        });
        Digest::of(&canonical::bytes(&body))
    }

    /// Sets the hash.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.hash = self.expected_hash();
        self
    }
}

/// Answer to `GET /mothership/api/v1/audit_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEventList {
    /// Events, the latest first.
    pub events: Vec<AuditEvent>,
    /// The end of the chain.
    pub head: AuditHead,
    /// The same, signed by the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_head: Option<SignedHead>,
    /// Number of the first event that retention has left.
    pub first_seq: u64,
    /// Number to pass as `before` for the next page.
    pub next_before: Option<u64>,
}

/// Returns the signed head that an event holds.
#[must_use]
pub fn signed_head(event: &AuditEvent) -> Option<SignedHead> {
    (event.action == HEAD_ACTION).then(|| serde_json::from_value(event.detail.clone()).ok()).flatten()
}

/// A place where a chain is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are numbers of events")]
pub enum Fault {
    /// The content of the event does not have its hash.
    Edited { seq: u64 },
    /// Events are missing.
    Removed { first: u64, last: u64 },
    /// The event stands behind a later one, or stands there twice: it was moved or inserted.
    Misplaced { expected: u64, found: u64 },
    /// The event has its number, and names another event before it than the one that stands there.
    Unlinked { seq: u64 },
    /// The event belongs to another account.
    Foreign { seq: u64 },
    /// The chain ends before its head, or goes on behind it.
    Head { expected: u64, found: u64 },
    /// The last event is not the one of the head.
    OtherHead { seq: u64 },
    /// The chain is not the one of a head that was kept, or that stands in it.
    OfHead(HeadFault),
    /// No event of an end names the receipt.
    NoReceipt { receipt: Digest },
}

impl Fault {
    /// The stable code of the fault.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Edited { .. } => "edited",
            Self::Removed { .. } => "removed",
            Self::Misplaced { .. } => "misplaced",
            Self::Unlinked { .. } => "unlinked",
            Self::Foreign { .. } => "foreign",
            Self::Head { .. } | Self::OtherHead { .. } => "head",
            Self::OfHead(fault) => fault.code(),
            Self::NoReceipt { .. } => "no_receipt",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edited { seq } => write!(f, "event {seq} was edited: its content does not have its hash"),
            Self::Removed { first, last } if first == last => write!(f, "event {first} is missing"),
            Self::Removed { first, last } => write!(f, "events {first} to {last} are missing"),
            Self::Misplaced { expected, found } => {
                write!(f, "event {found} stands where event {expected} belongs: it was moved or inserted")
            }
            Self::Unlinked { seq } => {
                write!(f, "event {seq} names another event before it: event {} or event {seq} was replaced", seq - 1)
            }
            Self::Foreign { seq } => write!(f, "event {seq} belongs to another account"),
            Self::Head { expected, found } => {
                write!(f, "the chain ends with event {found}, and its head is {expected}")
            }
            Self::OtherHead { seq } => write!(f, "event {seq} is not the event that the head names"),
            Self::OfHead(fault) => fault.fmt(f),
            Self::NoReceipt { receipt } => write!(f, "no event of an end names the receipt {receipt}"),
        }
    }
}

/// Checks a chain, event after event in the order in which they stand.
#[derive(Debug)]
pub struct Check {
    account: AccountId,
    /// Number and hash that the next event must follow.
    last: Option<(u64, Digest)>,
    /// Number of events.
    count: u64,
    faults: Vec<Fault>,
    kept: KeptHeads,
    /// Receipts that events of ends must name, with the numbers of those that do.
    receipts: Vec<(Digest, Option<u64>)>,
}

impl Check {
    /// Begins with the event that must come first: `first` and what it must name as the one before. Without it the first event
    /// that is there begins the chain, unless it is number 1.
    #[must_use]
    pub fn new(account: AccountId, first: Option<(u64, Digest)>) -> Self {
        let last = first.map(|(seq, prev)| (seq.saturating_sub(1), prev));
        Self { account, last, count: 0, faults: Vec::new(), kept: KeptHeads::default(), receipts: Vec::new() }
    }

    /// Demands that the chain contains this head and goes on from it.
    pub fn contains(&mut self, head: &AuditHead) {
        if head.account == self.account {
            self.kept.want(head);
        } else {
            self.fault(Fault::Foreign { seq: head.seq });
        }
    }

    /// Demands that an event of an end names a receipt by this hash.
    pub fn names_receipt(&mut self, receipt: Digest) {
        self.receipts.push((receipt, None));
    }

    /// Returns the events that name the demanded receipts, in the order of the demands.
    #[must_use]
    pub fn receipts(&self) -> Vec<Option<u64>> {
        self.receipts.iter().map(|(_, seq)| *seq).collect()
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &AuditEvent) {
        self.count += 1;
        if event.expected_hash() != event.hash || event.schema != SCHEMA {
            self.fault(Fault::Edited { seq: event.seq });
        }
        if event.account != self.account {
            self.fault(Fault::Foreign { seq: event.seq });
        }
        let begin = if event.seq == 1 { origin(self.account) } else { event.prev };
        let is_first = self.count == 1 && self.last.is_none();
        let (last, hash) = self.last.unwrap_or((event.seq.saturating_sub(1), begin));
        let expected = last + 1;
        if event.seq < expected {
            // What follows is compared with what stood before the stray event.
            self.fault(Fault::Misplaced { expected, found: event.seq });
            return;
        }
        if event.seq > expected {
            self.fault(Fault::Removed { first: expected, last: event.seq - 1 });
        } else if event.prev != hash {
            self.fault(Fault::Unlinked { seq: event.seq });
        }
        self.last = Some((event.seq, event.hash));
        let inside = signed_head(event);
        let link = Link { seq: event.seq, prev: event.prev, hash: event.hash, inside: inside.as_ref() };
        let mut found = Vec::new();
        self.kept.pass(&link, is_first, &mut found);
        for fault in found {
            self.fault(Fault::OfHead(fault));
        }
        if event.action == END_ACTION {
            let named = event.detail.get("receipt").and_then(Value::as_str).unwrap_or_default();
            let is_this = |(receipt, _): &&mut (Digest, Option<u64>)| receipt.to_string() == named;
            self.receipts.iter_mut().filter(is_this).for_each(|(_, seq)| *seq = Some(event.seq));
        }
    }

    /// Adds a fault that the caller found.
    pub fn fault(&mut self, fault: Fault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    /// Ends the chain and returns the number of its events and its faults. `head` is the end that it must have.
    #[must_use]
    pub fn end(mut self, head: Option<AuditHead>) -> (u64, Vec<Fault>) {
        let (found, hash) = self.last.unwrap_or((0, origin(self.account)));
        if let Some(head) = head {
            if head.seq > found {
                self.fault(Fault::Removed { first: found + 1, last: head.seq });
            } else if head.seq < found {
                self.fault(Fault::Head { expected: head.seq, found });
            } else if head.hash != hash {
                self.fault(Fault::OtherHead { seq: found });
            }
        }
        let mut missed = Vec::new();
        self.kept.end(found, origin(self.account), &mut missed);
        let absent = self.receipts.iter().filter(|(_, seq)| seq.is_none());
        let absent = absent.map(|(receipt, _)| Fault::NoReceipt { receipt: *receipt });
        let missed: Vec<Fault> = missed.into_iter().map(Fault::OfHead).chain(absent).collect();
        for fault in missed {
            self.fault(fault);
        }
        (self.count, self.faults)
    }
}

/// Returns the event in the form of the Open Cybersecurity Schema Framework 1.3, class 6003 (API activity).
#[must_use]
pub fn ocsf(event: &AuditEvent, product_version: &str) -> Value {
    let verb = event.action.rsplit('.').next().unwrap_or_default();
    let (activity_id, activity) = match verb {
        "create" | "begin" | "enroll" | "enrolled" => (1, "Create"),
        "delete" | "revoke" | "revoked" | "end" => (4, "Delete"),
        _ => (3, "Update"),
    };
    let kind = event.object.split('/').next().unwrap_or_default();
    let uid = event.object.split_once('/').map(|(_, id)| id);
    json!({
        "class_uid": 6003, "class_name": "API Activity", "category_uid": 6, "category_name": "Application Activity",
        "activity_id": activity_id, "activity_name": activity, "type_uid": 600_300 + activity_id, "severity_id": 1,
        "severity": "Informational", "status_id": 1, "status": "Success", "time": event.at.0,
        "api": { "operation": event.action, "service": { "name": "nexus" } },
        "actor": {
            "user": { "uid": event.actor.id, "type": event.actor.kind, "type_id": 99,
                      "groups": event.actor.role.map(|role| json!([{ "name": role.name() }])) },
        },
        "resources": [{ "type": kind, "uid": uid }],
        "metadata": {
            "version": "1.3.0", "uid": event.hash, "sequence": event.seq, "tenant_uid": event.account,
            "product": { "name": "Nexus", "vendor_name": "Nexus", "version": product_version },
        },
        "unmapped": { "detail": event.detail, "prev": event.prev },
    })
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
