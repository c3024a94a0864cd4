//! Summarizes the network of a run that has ended.

use nexus_egress::Summary;
use nexus_model::Digest;
use nexus_receipt::{Approved, Bounded, Egress, StreamDigest};
use serde_json::{Value, json};

/// The network of a run that has ended.
#[derive(Debug, Default)]
pub struct NetworkEnd {
    /// The destinations that were reached and those that were denied.
    pub summary: Summary,
    /// A problem with the service or the record of the network; `None` if there was none.
    pub problem: Option<String>,
    /// Notes about the rules for the user.
    pub notes: Vec<String>,
    /// Destinations that a person let through.
    pub approved: Vec<Approved>,
    /// The closed record.
    pub record: Option<StreamDigest>,
}

impl NetworkEnd {
    /// Returns the part of `--json` about the network.
    pub fn json(&self) -> Value {
        let Summary { allowed, denied, bytes_up, bytes_down, truncated, audit_lost, .. } = &self.summary;
        let allowed: Vec<_> = allowed
            .iter()
            .map(|one| {
                json!({
                    "host": one.host, "port": one.port, "connections": one.connections,
                    "bytes_in": one.bytes_down, "bytes_out": one.bytes_up,
                })
            })
            .collect();
        let denied: Vec<_> = denied
            .iter()
            .map(|one| {
                json!({
                    "host": one.host, "port": one.port, "code": one.code, "allow_with": one.allow_with,
                    "count": one.count, "explanation": one.explanation,
                })
            })
            .collect();
        json!({
            "allowed": allowed, "denied": denied, "bytes_in": bytes_down, "bytes_out": bytes_up,
            "truncated": truncated, "unrecorded": audit_lost, "problem": self.problem,
            "notes": self.notes, "approved": self.approved,
        })
    }

    /// Returns the part of the receipt about the network; `None` when the summary has no hash.
    pub fn receipt(&self) -> Option<Egress> {
        Some(Egress {
            allowed: self.summary.allowed_count,
            denied: self.summary.denied_count,
            bytes_in: self.summary.bytes_down,
            bytes_out: self.summary.bytes_up,
            hash: Digest::of_json(&self.json())?,
            record: self.record,
            approved: (!self.approved.is_empty()).then(|| self.bounded()),
        })
    }

    /// Returns what a person let through, as far as a receipt holds it.
    fn bounded(&self) -> Bounded<Approved> {
        Bounded::whole(self.approved.clone()).cut(|one| one.to.len() + one.by.len())
    }
}
