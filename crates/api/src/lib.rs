//! The contract of the fleet, for both of its sides and for every client.
//!
//! ```text
//!  docs/protocol/*.yaml ◀─ held together by tests ─▶ routes, conduits, mothership ─▶ client ─▶ a server
//! ```
//! * [`audit`] – events of the audit chain of an account, and the check of a chain.
//! * [`conduits`] – requests and answers between a daemon and the control plane, with their frozen names.
//! * [`mothership`] – requests and answers between users and the control plane.
//! * [`routes`] – every route with its method, its path and the rights that it needs.
//! * [`events`] – the typed events of a run.
//! * [`documents`] – the documents of `docs/protocol`, as a server gives them out.
//! * [`error`] – the body of every answer that is not a success.
//! * [`payload`] – the hash that tells one report of an end from another.
//! * [`retry`] – the rules by which a daemon repeats a call, as a pure function.
//! * [`base64`], [`time`], [`labels`] – bytes, times and labels as the contract writes them.
//! * [`tls`] – certificates and keys as PEM text, for the client and for the server.
//! * [`client`] – an asynchronous HTTP client of both APIs.
//!
//! Receivers ignore fields that they do not know, and `null` means absent.

#![forbid(unsafe_code)]

pub mod audit;
pub mod audit_head;
pub mod base64;
pub mod client;
pub mod conduits;
pub mod documents;
pub mod error;
pub mod events;
pub mod labels;
pub mod lenient;
pub mod mothership;
pub mod payload;
pub mod retry;
pub mod routes;
pub mod time;
pub mod tls;

pub use error::ErrorBody;
pub use labels::Labels;
pub use time::Timestamp;
