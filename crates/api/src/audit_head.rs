//! Heads of audit chains, signed ones, and the comparison of a chain with heads that were kept. Pure.
//!
//! ```text
//!  head kept elsewhere:  event 40, hash H, signature ─┐
//!  chain today:  1 ◀ … ◀ 40 ◀ … ◀ 90                  └─▶ event 40 has the hash H: the chain goes on from the head
//!                                                         it has another one: the chain was written again (forked)
//! ```

use crate::time::Timestamp;
use nexus_model::canonical;
use nexus_model::digest::Digest;
use nexus_model::ids::AccountId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Name of the form of a signed head.
pub const HEAD_SCHEMA: &str = "nexus.audit-head/1";
/// Act of the event in which a control plane writes a signed head into the chain itself.
pub const HEAD_ACTION: &str = "audit.head";
/// Number of the latest events whose hashes a check remembers for the heads that stand in the chain.
const REMEMBERED: usize = 100_000;

/// The end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Account of the chain.
    pub account: AccountId,
    /// Number of the last event; 0 for a chain without events.
    pub seq: u64,
    /// Hash of the last event, or the origin.
    pub hash: Digest,
}

/// The end of an audit chain at a time, signed by the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// Name of the form, [`HEAD_SCHEMA`].
    pub schema: String,
    /// Account of the chain.
    pub account: AccountId,
    /// Number of the last event; 0 for a chain without events.
    pub seq: u64,
    /// Hash of the last event, or the origin.
    pub hash: Digest,
    /// Time of the signature.
    pub at: Timestamp,
    /// Ed25519 key that made the signature, as SPKI in PEM.
    pub key: String,
    /// Signature of [`SignedHead::signed_bytes`], in Base64.
    pub signature: String,
}

impl SignedHead {
    /// Returns the bytes under the signature. They begin with the name of the form, so that the signature says nothing for
    /// another purpose.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        let body = json!({
            "schema": self.schema, "account": self.account, "seq": self.seq, "hash": self.hash, "at": self.at, "key": self.key,
        });
        [HEAD_SCHEMA.as_bytes(), b"\n", &canonical::bytes(&body)].concat()
    }

    /// Returns the head without its signature.
    #[must_use]
    pub fn head(&self) -> AuditHead {
        AuditHead { account: self.account, seq: self.seq, hash: self.hash }
    }
}

/// Reason why a signed head does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadProblem {
    /// The text is not a signed head of a form that this version reads.
    Unreadable,
    /// The signature is good, and its key is not the expected one.
    WrongKey,
    /// The signature is not of this content.
    BadSignature,
}

impl HeadProblem {
    /// The stable code of the problem.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::WrongKey => "wrong_key",
            Self::BadSignature => "bad_signature",
        }
    }
}

impl fmt::Display for HeadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "it is not a signed head that this version reads",
            Self::WrongKey => "another key signed it",
            Self::BadSignature => "its signature is not of this content: it was edited or forged",
        })
    }
}

/// A way in which a chain is not the one of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are numbers of events")]
pub enum HeadFault {
    /// The chain ends before the head.
    Cut { head: u64, found: u64 },
    /// The event has another hash than the head says: the chain was written again.
    Forked { seq: u64 },
    /// The chain begins so late that nothing shows whether it goes on from the head.
    Before { head: u64, first: u64 },
    /// The event holds a signed head that names an event of another chain.
    Contradicts { seq: u64, head: u64 },
    /// The event holds a signed head that does not count.
    Unsigned { seq: u64, problem: HeadProblem },
}

impl HeadFault {
    /// The stable code of the fault.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Cut { .. } => "truncated",
            Self::Forked { .. } | Self::Contradicts { .. } => "forked",
            Self::Before { .. } => "begins_later",
            Self::Unsigned { problem, .. } => problem.code(),
        }
    }
}

impl fmt::Display for HeadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { head, found } => {
                write!(f, "the chain ends with event {found}, and a head that was kept is event {head}: it was cut")
            }
            Self::Forked { seq } => write!(
                f,
                "event {seq} is not the one of the head that was kept: it or an earlier event was changed, and the chain \
                 was written again from there (forked)"
            ),
            Self::Before { head, first } => write!(
                f,
                "the chain begins with event {first}, and a head that was kept is event {head}: nothing shows that it goes \
                 on from there"
            ),
            Self::Contradicts { seq, head } => {
                write!(f, "event {seq} holds a signed head, and event {head} is not the one that it names (forked)")
            }
            Self::Unsigned { seq, problem } => {
                write!(f, "event {seq} holds a signed head that does not count: {problem}")
            }
        }
    }
}

/// Event of a chain, as far as heads are about it.
pub(crate) struct Link<'a> {
    pub seq: u64,
    pub prev: Digest,
    pub hash: Digest,
    /// Signed head that the event holds.
    pub inside: Option<&'a SignedHead>,
}

/// Heads that were kept, while the events of a chain pass by.
#[derive(Debug, Default)]
pub(crate) struct KeptHeads {
    /// Hashes that events must have, by their numbers.
    wanted: BTreeMap<u64, Vec<Digest>>,
    /// Hashes of the latest events, and the number of the first of them.
    latest: VecDeque<Digest>,
    first: u64,
}

impl KeptHeads {
    /// Adds a head that the chain must contain.
    pub(crate) fn want(&mut self, head: &AuditHead) {
        self.wanted.entry(head.seq).or_default().push(head.hash);
    }

    /// Compares an event that stands in its place with the heads. `begins` means that the chain begins with it here.
    pub(crate) fn pass(&mut self, event: &Link<'_>, begins: bool, faults: &mut Vec<HeadFault>) {
        if begins {
            let later = self.wanted.split_off(&event.seq);
            for (seq, hashes) in std::mem::replace(&mut self.wanted, later) {
                // The event names the one before it, which is the one of this head.
                if seq + 1 == event.seq {
                    compare(seq, &hashes, event.prev, faults);
                } else {
                    faults.push(HeadFault::Before { head: seq, first: event.seq });
                }
            }
        }
        if let Some(hashes) = self.wanted.remove(&event.seq) {
            compare(event.seq, &hashes, event.hash, faults);
        }
        if let Some(signed) = event.inside
            && self.known(signed.seq).is_some_and(|hash| hash != signed.hash)
        {
            faults.push(HeadFault::Contradicts { seq: event.seq, head: signed.seq });
        }
        // A gap is named elsewhere; what stands before it is not compared any more.
        if event.seq != self.first + self.latest.len() as u64 {
            self.latest.clear();
            self.first = event.seq;
        }
        self.latest.push_back(event.hash);
        if self.latest.len() > REMEMBERED {
            self.latest.pop_front();
            self.first += 1;
        }
    }

    fn known(&self, seq: u64) -> Option<Digest> {
        self.latest.get(usize::try_from(seq.checked_sub(self.first)?).ok()?).copied()
    }

    /// Names the heads that the chain did not reach. `end` is its last event, `origin` what its first one names.
    pub(crate) fn end(&mut self, end: u64, origin: Digest, faults: &mut Vec<HeadFault>) {
        for (seq, hashes) in std::mem::take(&mut self.wanted) {
            match seq {
                0 => compare(0, &hashes, origin, faults),
                _ if seq > end => faults.push(HeadFault::Cut { head: seq, found: end }),
                // The event itself is missing.
                _ => faults.push(HeadFault::Forked { seq }),
            }
        }
    }
}

fn compare(seq: u64, hashes: &[Digest], found: Digest, faults: &mut Vec<HeadFault>) {
    if hashes.iter().any(|hash| *hash != found) {
        faults.push(HeadFault::Forked { seq });
    }
}
