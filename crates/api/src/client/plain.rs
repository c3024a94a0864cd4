//! Servers with which the client speaks without TLS.

use std::net::IpAddr;

/// Servers with which the client speaks without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// On loopback, when the process that accepted the connection is one of the own user, of root or of this user.
    Loopback {
        /// Another user whose server is trusted.
        also: Option<u32>,
    },
    /// Anywhere: others can read what is sent, and can be the server.
    Anywhere,
}

/// Returns whether an address leads to this machine alone.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
