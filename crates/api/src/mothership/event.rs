//! Events of a directive, as server-sent events carry them.

use crate::time::Timestamp;
use nexus_model::directive::State;
use nexus_model::ids::DirectiveId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Kind of an event; it is the `event` field of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The state changed, or a user asked for the end.
    State,
    /// Output is there to be read.
    Log,
    /// The id of the client is not known: the client reads everything again.
    Reset,
}

impl EventKind {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Log => "log",
            Self::Reset => "reset",
        }
    }
}

/// The data of one event: the directive as it is now, and the ends of its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveEvent {
    pub directive_id: DirectiveId,
    pub state: State,
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    pub attempt: u32,
    pub cancel_requested: bool,
    /// Number of the first chunk of stdout that is not there yet.
    pub stdout_next_seq: i64,
    /// Number of the first chunk of stderr that is not there yet.
    pub stderr_next_seq: i64,
    pub at: Timestamp,
}

/// Id of an event: the version of the directive within an attempt, written `attempt-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Number of the claim.
    pub attempt: u32,
    /// Number of changes of the directive so far.
    pub version: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.attempt, self.version)
    }
}

/// Some text was not the id of an event.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the id of an event has the form attempt-version")]
pub struct ParseEventIdError;

impl FromStr for EventId {
    type Err = ParseEventIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (attempt, version) = text.split_once('-').ok_or(ParseEventIdError)?;
        let id = Self {
            attempt: attempt.parse().map_err(|_| ParseEventIdError)?,
            version: version.parse().map_err(|_| ParseEventIdError)?,
        };
        if id.to_string() == text { Ok(id) } else { Err(ParseEventIdError) }
    }
}
