//! Finds the program that connected, by its socket.
//!
//! ```text
//!  a connection's two ends ─diag─▶ the client's socket ─processes─▶ the processes that hold it ─▶ their executable
//! ```
//!
//! The program is looked up only for a destination that some rule for one program names, once for a connection, and for
//! one connection at a time: however many a sandbox makes, one processor of the host is busy with the search.

mod caller;
mod diag;
mod processes;

pub(crate) use caller::Caller;
pub use processes::Processes;

use nexus_policy::net::Program;
use std::net::SocketAddr;

/// Ends of a connection as its client sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Address of the client's own end.
    pub local: SocketAddr,
    /// Address to which the client connected: a listener of the egress, or the destination of a redirected connection.
    pub remote: SocketAddr,
}

/// Finder of the program behind a connection. It must ask the kernel, never the process: argv and names can be
/// anything.
///
/// A rule for one program narrows and helps the audit; it is not a boundary (`nexus_policy::net::Program`).
pub trait Programs: Send + Sync {
    /// Returns the program that holds the client's socket; `None` if it is not known. It may block for a moment.
    fn who(&self, connection: Connection) -> Option<Program>;
}

/// Finder that knows no program. Rules for one program then allow nothing, and deny rules for one deny all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Programs for Unknown {
    fn who(&self, _connection: Connection) -> Option<Program> {
        None
    }
}
