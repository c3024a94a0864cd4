//! Errors of a call.

use crate::error::ErrorBody;
use crate::retry::Outcome;
use std::time::Duration;

/// Reason why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address of the server cannot be used.
    #[error("the server address {address:?} cannot be used: {why}")]
    Address {
        /// Address as written.
        address: String,
        /// Cause of the failure, for people.
        why: &'static str,
    },
    /// The address leads to other machines without TLS.
    #[error("the server {server} has no TLS: other machines on the way can read what is sent")]
    InClear {
        /// Address of the server.
        server: String,
    },
    /// The other side may be another one than the server; nothing was sent.
    #[error("nothing was sent to {server}: {why}")]
    Stranger {
        /// Address of the server.
        server: String,
        /// Cause of the failure, for people.
        why: String,
    },
    /// No connection could be made.
    #[error("the server {server} cannot be reached: {why}")]
    Connect {
        /// Address of the server.
        server: String,
        /// Cause of the failure, for people.
        why: String,
    },
    /// The time was up before the answer was complete.
    #[error("the server {server} did not answer within {seconds} seconds")]
    Timeout {
        /// Address of the server.
        server: String,
        /// Time that the call had.
        seconds: u64,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to {server} broke: {why}")]
    Broken {
        /// Address of the server.
        server: String,
        /// Cause of the failure, for people.
        why: String,
    },
    /// The answer is not one of the contract.
    #[error("the answer of {server} cannot be read: {why}")]
    Answer {
        /// Address of the server.
        server: String,
        /// Cause of the failure, for people.
        why: String,
    },
    /// The server refused the call.
    #[error("the server answered {status}: {}", body.error)]
    Status {
        /// Status code of the answer.
        status: u16,
        /// Body of the answer.
        body: Box<ErrorBody>,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
}

impl ClientError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Address { .. } => "server_address",
            Self::InClear { .. } => "plain_http",
            Self::Stranger { .. } => "server_owner",
            Self::Connect { .. } => "server_unreachable",
            Self::Timeout { .. } => "server_timeout",
            Self::Broken { .. } => "connection_broken",
            Self::Answer { .. } => "answer_unreadable",
            Self::Status { body, .. } if !body.code.is_empty() => &body.code,
            Self::Status { .. } => "refused",
        }
    }

    /// Returns the status code of the answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the end of the call, for [`crate::retry::next`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Status { status, retry_after, .. } => Outcome::Status { status: *status, retry_after: *retry_after },
            // The address does not get better, but a caller that holds work must not give it up for a typing error either.
            _ => Outcome::NoAnswer,
        }
    }
}
