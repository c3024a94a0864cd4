//! Typed events of a directive: what happened in its run, in order. `docs/protocol/events.schema.v1.json` is the list; logs, tapes
//! and progress are views of it.

#![allow(missing_docs, reason = "the fields are the names of the list; its schema describes each")]

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the list and its version.
pub const SCHEMA: &str = "nexus.events/1";

/// An event of a run with its number and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedEvent {
    /// Number within the attempt, from 0.
    pub seq: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub body: EventBody,
}

/// The kinds of events. An event has names of variables and never their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// The workspace, the layer and the network of the run are made.
    Prepared { run_id: String, ms: u64 },
    /// The sandbox proved its confinement.
    SandboxStarted { driver: String, guarantees: Vec<String>, proof: Vec<ProofStep> },
    /// Variables were set for the command.
    EnvironmentSet { names: Vec<String> },
    /// The command runs.
    CommandStarted { ms: u64 },
    /// Output is stored; the bytes are read as log chunks.
    Output { stream: String, chunk: i64, bytes: u64 },
    /// The network of the run decided about a destination.
    EgressDecision { destination: String, code: String, allowed: bool },
    /// A person answered a question about the run.
    Approval { question: String, granted: bool },
    /// The daemon sent a signal to the command.
    Signal { number: u8, cause: String },
    /// A limit ended the command.
    LimitHit { limit: String },
    /// The changes of the workspace were settled.
    ChangeSet { state: String, added: u64, modified: u64, deleted: u64, parked: u64, conflicts: u64 },
    /// The directive is over.
    Finished { status: String, exit_code: Option<i64>, reason: Option<String>, ms: u64 },
}

/// One attempt of the proof that the confinement of a sandbox holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofStep {
    pub check: String,
    pub seen: String,
}

/// Answer to `GET /mothership/api/v1/directives/{id}/events?format=list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventList {
    pub schema: String,
    /// The events as the territory reported them; a program passes over types that it does not know.
    pub events: Vec<serde_json::Value>,
}
