//! Who connected: a question to whoever knows the sandbox's processes.

use nexus_policy::net::Program;
use std::net::SocketAddr;

/// Names the program behind a connection. The kernel must be asked, never the process: argv and names can be anything.
///
/// A rule for one program narrows and helps the audit; it is no boundary (`nexus_policy::net::Program`).
pub trait Programs: Send + Sync {
    /// The program whose socket inside has the address `peer` and is connected to `local`. Must answer at once.
    fn who(&self, peer: SocketAddr, local: SocketAddr) -> Option<Program>;

    /// Whether it knows any. Where it does not, a connection's own address is not looked up, a system call for each.
    fn knows_any(&self) -> bool {
        true
    }
}

/// Nobody knows. Rules for one program then allow nothing, and deny rules for one deny all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Programs for Unknown {
    fn who(&self, _peer: SocketAddr, _local: SocketAddr) -> Option<Program> {
        None
    }

    fn knows_any(&self) -> bool {
        false
    }
}
