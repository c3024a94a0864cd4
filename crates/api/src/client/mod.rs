//! An asynchronous HTTP client of both APIs.
//!
//! ```text
//!  ConduitsClient, MothershipClient ─▶ Http (one server, connections that are kept) ─▶ connect (TCP, TLS, owner of the peer)
//! ```
//! The client installs nothing process-wide and reads no environment. A call is sent again only while no byte of it has left;
//! every other repetition is the caller's decision by [`crate::retry`].

mod conduits;
mod connect;
mod diagnosis;
mod error;
mod http;
mod mothership;
mod origin;
mod peer;
mod plain;
mod sse;
mod tls;

pub use self::conduits::{ConduitsClient, TerritoryIdentity};
pub use self::error::ClientError;
pub use self::http::{ClientConfig, Http, Reply};
pub use self::mothership::{ListQuery, LogQuery, MothershipClient};
pub use self::plain::PlainHttp;
pub use self::sse::{EventStream, SseEvent, SseParser};
pub use self::tls::{TlsFiles, tls_config};
pub use crate::tls::TlsError;
