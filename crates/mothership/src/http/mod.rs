//! The HTTP side: the table of routes, rights, requests, answers.
//!
//! ```text
//!  connection ─▶ router (from the table of nexus_api::routes) ─▶ rights ─▶ body ─▶ handler ─▶ answer
//! ```

mod answer;
mod auth;
mod conduits;
mod cursor;
mod events;
mod request;
mod router;
mod users;

pub use request::Peer;
pub use router::router;
