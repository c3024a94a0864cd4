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

pub use answer::{Answer, Problem, bytes_answer};
pub use events::stream as event_stream;
pub use request::{Context, Peer, Principal};
pub use router::{CONSOLE_HOST, check_host, check_one_host, router};
pub use users::approvals::give_to as give_answer;
