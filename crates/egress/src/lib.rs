//! Connects to the network for a sandbox, as the only code that does.
//!
//! ```text
//!  HTTP proxy ──┐                 ┌─ check_name ─ resolve ─ check_addrs ─┐
//!  SOCKS5 ──────┤                 │        (nexus_policy::net)           │
//!  redirected ──┼─▶ attempt ─▶ Shared::open ─▶ audit ─▶ enter ─▶ dial(Permit) ─▶ tunnel or exchange
//!  DNS stub ────┘     │                                     │                          │
//!   (names only)      └─▶ denied: answered at once          └─ reload and expiry cut ──┘
//! ```
//!
//! The listeners are made inside the sandbox's network namespace and handed out, so nothing stands between the sandbox
//! and this code, and no listener is left when it ends. [`Egress::start`] takes them; its [`Egress`] reloads, sums up
//! and stops.
//!
//! Every attempt is decided by `nexus_policy::net`, is written to the audit before it is dialled, and is dialled by
//! `dial` alone, which takes nothing except a `Permit`.

#![forbid(unsafe_code)]

mod audit;
mod clock;
mod config;
mod decide;
mod egress;
mod ingress;
mod limits;
mod memory;
mod preview;
mod seams;
mod upstream;

pub use audit::event::{AuditError, Event, EventKind};
pub use audit::file_sink::FileSink;
pub use audit::summary::{Allowed, Denied, Summary};
pub use clock::Clock;
pub use config::{Config, Listeners};
pub use decide::own::kernel::KernelRoutes;
pub use decide::programs::Unknown;
pub use decide::programs::processes::Processes;
pub use decide::registry::ReloadError;
pub use egress::{Egress, StartError, StopError};
pub use ingress::dns::answer::without_network;
pub use ingress::transparent::Kernel;
pub use limits::Limits;
pub use preview::{Preview, Unrecorded, preview};
pub use seams::{
    Answer, Approver, Asked, Connection, Destinations, Lookup, OwnAddresses, Programs, ResolveError, Resolved,
    Resolver, Sink,
};
pub use upstream::proxy::{UpstreamError, UpstreamProxy};
pub use upstream::scripted::Scripted;
pub use upstream::system::System;

#[doc(hidden)]
pub mod pure {
    //! Parsers of hostile bytes, open to the tests of this crate.
    pub use crate::decide::facts::synthetic::Synthetic;
    pub use crate::ingress::dns::answer::{Question, answer, question};
    pub use crate::ingress::http::fields::{Forwarded, request_fields, response_fields};
    pub use crate::ingress::http::framing::{Body, ChunkEvent, Chunks, request_body, response_body};
    pub use crate::ingress::http::head::{Field, HeadError, Request, Response, parse_request, parse_response};
    pub use crate::ingress::socks::frame::{Command, Greeting, Step, greeting, request};
    pub use crate::ingress::tls::hello::{
        Seen, ServerAnswer, begins_as_tls, read as read_hello, read_answer, read_measured,
    };
}
