//! Bounds on the network use of a directive, as plain numbers: the egress counts, this module decides.

use crate::net::cause::Cause;
use crate::net::permit::Denial;
use serde::{Deserialize, Serialize};

/// Upper bounds for a whole directive; `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Connections ever made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Connections at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_connections: Option<u64>,
    /// HTTP requests and DNS questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Bytes from the sandbox to the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<u64>,
    /// Bytes from the network to the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<u64>,
    /// Bytes in both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
}

/// Network use of a directive so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Connections ever made.
    pub connections: u64,
    /// Connections now open.
    pub open_connections: u64,
    /// Requests made: HTTP requests and DNS questions.
    pub requests: u64,
    /// Bytes sent to the outside.
    pub bytes_up: u64,
    /// Bytes received from the outside.
    pub bytes_down: u64,
}

/// Event that uses a part of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// A connection is about to be made.
    Connection,
    /// A connection ended; never refused.
    Closed,
    /// A request or DNS question.
    Request,
    /// Bytes to the network.
    Up(u64),
    /// Bytes to the sandbox.
    Down(u64),
}

impl Budget {
    /// Returns the use after `charge`, or a refusal that leaves `usage` as it was.
    pub fn charge(&self, usage: Usage, charge: Charge) -> Result<Usage, Denial> {
        let mut after = usage;
        match charge {
            Charge::Connection => {
                after.connections = bounded(usage.connections, 1, self.connections, "connections")?;
                after.open_connections =
                    bounded(usage.open_connections, 1, self.open_connections, "connections at one time")?;
            }
            Charge::Closed => after.open_connections = usage.open_connections.saturating_sub(1),
            Charge::Request => after.requests = bounded(usage.requests, 1, self.requests, "requests")?,
            Charge::Up(bytes) => {
                after.bytes_up = bounded(usage.bytes_up, bytes, self.bytes_up, "bytes sent")?;
                bounded(usage.total(), bytes, self.bytes_total, "bytes in both directions")?;
            }
            Charge::Down(bytes) => {
                after.bytes_down = bounded(usage.bytes_down, bytes, self.bytes_down, "bytes received")?;
                bounded(usage.total(), bytes, self.bytes_total, "bytes in both directions")?;
            }
        }
        Ok(after)
    }

    /// Returns the bytes that may still go up, so that a reader takes no more than it may pass on. `u64::MAX` without a
    /// bound.
    pub fn room_up(&self, usage: Usage) -> u64 {
        room(usage.bytes_up, self.bytes_up).min(room(usage.total(), self.bytes_total))
    }

    /// Returns the bytes that may still come down; `u64::MAX` without a bound.
    pub fn room_down(&self, usage: Usage) -> u64 {
        room(usage.bytes_down, self.bytes_down).min(room(usage.total(), self.bytes_total))
    }

    /// Returns the smaller of each bound.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            connections: least(self.connections, other.connections),
            open_connections: least(self.open_connections, other.open_connections),
            requests: least(self.requests, other.requests),
            bytes_up: least(self.bytes_up, other.bytes_up),
            bytes_down: least(self.bytes_down, other.bytes_down),
            bytes_total: least(self.bytes_total, other.bytes_total),
        }
    }

    /// Returns these bounds, with those of `other` where there is none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            connections: self.connections.or(other.connections),
            open_connections: self.open_connections.or(other.open_connections),
            requests: self.requests.or(other.requests),
            bytes_up: self.bytes_up.or(other.bytes_up),
            bytes_down: self.bytes_down.or(other.bytes_down),
            bytes_total: self.bytes_total.or(other.bytes_total),
        }
    }
}

impl Usage {
    /// Bytes in both directions.
    pub fn total(self) -> u64 {
        self.bytes_up.saturating_add(self.bytes_down)
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (Some(bound), None) | (None, Some(bound)) => Some(bound),
        (None, None) => None,
    }
}

fn room(used: u64, bound: Option<u64>) -> u64 {
    bound.map_or(u64::MAX, |bound| bound.saturating_sub(used))
}

/// Adds `more` to `used`. A sum that does not fit is over every bound: a counter must not wrap round to zero.
fn bounded(used: u64, more: u64, bound: Option<u64>, what: &str) -> Result<u64, Denial> {
    match used.checked_add(more) {
        Some(sum) if bound.is_none_or(|bound| sum <= bound) => Ok(sum),
        Some(_) | None => {
            let bound = bound.unwrap_or(u64::MAX);
            Err(Denial::new(Cause::Budget, format!("the budget of {bound} {what} is used up")))
        }
    }
}
