//! The typed events of one directive, gathered while it runs and sent after its end was acknowledged: no event delays a report.

use nexus_api::events::{EventBody, ProofStep, TypedEvent};
use nexus_egress::Summary;
use nexus_model::ExitReason;
use nexus_runner::run::report::RunReport;
use std::time::Duration;

/// Destinations of one directive, at most: a batch of events is bounded by the control plane.
const MAX_DESTINATIONS: usize = 500;
/// Answers of one directive, at most.
const MAX_APPROVALS: usize = 100;

/// Gathers the typed events of one directive.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    events: Vec<TypedEvent>,
}

impl Tape {
    /// Adds an event that happens now.
    pub fn add(&mut self, body: EventBody) {
        self.events.push(TypedEvent { seq: self.events.len() as u64, at: crate::report::now(), body });
    }

    /// Adds what the report of a run says.
    pub fn add_run(&mut self, report: &RunReport, names: &[String]) {
        self.add(EventBody::Prepared { run_id: report.run_id.to_string(), ms: ms(report.prepared) });
        if !report.proof.is_empty() {
            self.add(EventBody::SandboxStarted {
                driver: report.driver.clone(),
                guarantees: report.guarantees.iter().map(ToString::to_string).collect(),
                proof: report
                    .proof
                    .iter()
                    .map(|item| ProofStep { check: item.check.clone(), seen: item.seen.clone() })
                    .collect(),
            });
        }
        if !names.is_empty() {
            self.add(EventBody::EnvironmentSet { names: names.to_vec() });
        }
        if let Some(spawned) = report.spawned {
            self.add(EventBody::CommandStarted { ms: ms(spawned) });
        }
        if let Some(network) = &report.network {
            for one in network.approved.iter().take(MAX_APPROVALS) {
                self.add(EventBody::Approval { question: format!("connect to {}", one.to), granted: true });
            }
            self.add_network(&network.summary);
        }
        if let Some(limit) = limit(report.reason) {
            self.add(EventBody::LimitHit { limit: limit.to_owned() });
        }
        let (added, modified, deleted) = report.settled.changes.counts();
        self.add(EventBody::ChangeSet {
            state: word(&report.settled.state),
            added: added as u64,
            modified: modified as u64,
            deleted: deleted as u64,
            parked: report.settled.parked.len() as u64,
            conflicts: report.settled.conflicts.len() as u64,
        });
    }

    /// Adds an event for each destination that was reached, and for each that was refused.
    fn add_network(&mut self, summary: &Summary) {
        let refused = summary.denied.iter().map(|one| (&one.host, one.port, word(&one.code), false));
        let reached = summary.allowed.iter().map(|one| (&one.host, one.port, "OK".to_owned(), true));
        // The refused ones first: they are what a reader looks for when there are too many.
        for (host, port, code, allowed) in refused.chain(reached).take(MAX_DESTINATIONS) {
            self.add(EventBody::EgressDecision { destination: format!("{host}:{port}"), code, allowed });
        }
    }

    /// Returns the events as the wire has them.
    #[must_use]
    pub fn values(&self) -> Vec<serde_json::Value> {
        self.events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect()
    }
}

/// Returns the limit that ended a command.
fn limit(reason: ExitReason) -> Option<&'static str> {
    match reason {
        ExitReason::Oom => Some("memory"),
        ExitReason::DiskQuota => Some("disk"),
        ExitReason::Timeout => Some("time"),
        _ => None,
    }
}

fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
