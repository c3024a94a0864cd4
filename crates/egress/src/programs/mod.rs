//! Who connected: a question to whoever knows the sandbox's processes.
//!
//! ```text
//!  peer's address ─▶ socket's inode (table) ─▶ processes that hold it (processes) ─▶ their executable
//! ```

mod processes;
mod table;

pub use processes::Processes;

use nexus_policy::net::Program;
use std::net::SocketAddr;

/// Names the program behind a connection. The kernel must be asked, never the process: argv and names can be anything.
///
/// A rule for one program narrows and helps the audit; it is no boundary (`nexus_policy::net::Program`).
pub trait Programs: Send + Sync {
    /// The program whose socket inside has the address `peer`; `None` is not known. It may block for a moment, and is
    /// asked only where some rule is for one program.
    fn who(&self, peer: SocketAddr) -> Option<Program>;
}

/// Nobody knows. Rules for one program then allow nothing, and deny rules for one deny all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Programs for Unknown {
    fn who(&self, _peer: SocketAddr) -> Option<Program> {
        None
    }
}
