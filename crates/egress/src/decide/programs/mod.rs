//! Finds the program that connected, by its socket.
//!
//! ```text
//!  a connection's two ends ─diag─▶ the client's socket ─processes─▶ the processes that hold it ─▶ their executable
//! ```
//!
//! The program is looked up only for a destination that some rule for one program names, once for a connection, and for
//! one connection at a time: however many a sandbox makes, one processor of the host is busy with the search.

pub(crate) mod caller;
mod diag;
pub(crate) mod processes;

use crate::seams::{Connection, Programs};
use nexus_policy::net::Program;

/// Finder that knows no program. Rules for one program then allow nothing, and deny rules for one deny all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Programs for Unknown {
    fn who(&self, _connection: Connection) -> Option<Program> {
        None
    }
}
