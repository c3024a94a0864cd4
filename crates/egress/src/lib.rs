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

mod accept;
mod answers;
mod approve;
mod audit;
mod audit_event;
mod behind;
mod bounds;
mod buffers;
mod clock;
mod config;
mod denials;
mod dial;
mod dns;
mod egress;
mod file_sink;
mod gone;
mod grounds;
mod handshake;
mod hello;
mod host_port;
mod http;
mod inbuf;
mod look_up_pool;
mod look_ups;
mod nat64;
mod own;
mod pace;
mod programs;
mod proxied;
mod registry;
mod repeats;
mod resolve;
mod shared;
mod sockets;
mod socks;
mod summary;
mod synthetic;
mod system;
mod ticket;
mod transparent;
mod tunnel;
mod upstream;

pub use approve::{Answer, Approver, Asked};
pub use audit::Sink;
pub use audit_event::{AuditError, Event, EventKind};
pub use behind::behind_now;
pub use clock::Clock;
pub use config::{Config, Limits, Listeners};
pub use dns::answer::without_network;
pub use egress::{Egress, ReloadError, StartError, StopError};
pub use file_sink::FileSink;
pub use nat64::nat64_now;
pub use own::{KernelRoutes, OwnAddresses, own_among};
pub use programs::{Connection, Processes, Programs, Unknown};
pub use resolve::{Lookup, ResolveError, Resolved, Resolver, Scripted};
pub use summary::{Allowed, Denied, Summary};
pub use synthetic::{SYNTHETIC_V4, SYNTHETIC_V6};
pub use system::System;
pub use transparent::{Destinations, Kernel};
pub use upstream::{UpstreamError, UpstreamProxy};

#[doc(hidden)]
pub mod pure {
    //! Parsers of hostile bytes, open to the tests of this crate.
    pub use crate::dns::answer::{Question, answer, question};
    pub use crate::hello::{Seen, ServerAnswer, begins_as_tls, read as read_hello, read_answer, read_measured};
    pub use crate::http::fields::{Forwarded, request_fields, response_fields};
    pub use crate::http::framing::{Body, ChunkEvent, Chunks, request_body, response_body};
    pub use crate::http::head::{Field, HeadError, Request, Response, parse_request, parse_response};
    pub use crate::socks::frame::{Command, Greeting, Step, greeting, request};
    pub use crate::synthetic::Synthetic;
}
