//! Who connected: a question to whoever knows the sandbox's processes.
//!
//! ```text
//!  a connection's two ends ─diag─▶ the client's socket ─processes─▶ the processes that hold it ─▶ their executable
//! ```
//!
//! It is asked only for a destination that some rule for one program names, once for a connection, and for one connection
//! at a time: however many a sandbox makes, one processor of the host is busy with finding out whose they are.

mod caller;
mod diag;
mod processes;

pub(crate) use caller::Caller;
pub use processes::Processes;

use nexus_policy::net::Program;
use std::net::SocketAddr;

/// A connection as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The client's own end.
    pub local: SocketAddr,
    /// Where the client connected: a listener of the egress, or where a redirected connection was going.
    pub remote: SocketAddr,
}

/// Names the program behind a connection. The kernel must be asked, never the process: argv and names can be anything.
///
/// A rule for one program narrows and helps the audit; it is no boundary (`nexus_policy::net::Program`).
pub trait Programs: Send + Sync {
    /// The program that holds the client's socket; `None` is not known. It may block for a moment.
    fn who(&self, connection: Connection) -> Option<Program>;
}

/// Nobody knows. Rules for one program then allow nothing, and deny rules for one deny all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Programs for Unknown {
    fn who(&self, _connection: Connection) -> Option<Program> {
        None
    }
}
