//! The traits behind which an egress meets the rest of the world: its caller implements them, or takes the usual one.
//!
//! | trait | usual implementation |
//! |---|---|
//! | [`Resolver`] | the system's name servers (`upstream::system`) |
//! | [`Destinations`] | the kernel's connection tracking (`ingress::transparent`) |
//! | [`OwnAddresses`] | the kernel's routes (`decide::own::kernel`) |
//! | [`Programs`] | the processes of the sandbox (`decide::programs`), or none |
//! | [`Approver`] | none: what a policy does not list is denied |
//! | [`Sink`] | a file (`audit::file_sink`) |

use crate::audit::event::{AuditError, Event};
use nexus_policy::net::{AnyRule, Attempt, Denial, Name, Program};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::pin::Pin;

/// Answer of a person or of the time limit.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Denies the attempt: the person refused, or did not answer in time.
    Deny,
    /// Allows this one attempt by this rule; its connection ends when the policy without the rule would end it
    /// otherwise.
    Once(AnyRule),
    /// Asks for a new decision, since the policy was replaced meanwhile (`Egress::reload`).
    Again,
}

/// Future of an answer.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Asks a person. One attempt waits for its answer while others go on; each attempt is asked once.
pub trait Approver: Send + Sync {
    /// Asks about `attempt`. Must end on its own: no answer within the approver's own time is [`Answer::Deny`].
    fn ask<'a>(&'a self, attempt: &'a Attempt, denial: &'a Denial) -> Asked<'a>;
}

/// Receiver of events. It is called on the thread that serves connections, so it must not wait for long.
pub trait Sink: Send + Sync {
    /// Records one event, or returns the reason of the failure.
    fn record(&self, event: &Event) -> Result<(), AuditError>;
}

/// Finder of the original destination of a redirected connection.
pub trait Destinations: Send + Sync {
    /// Returns the original destination of an accepted connection. `v6` is true if it came by the IPv6 listener.
    fn of(&self, connection: BorrowedFd<'_>, v6: bool) -> io::Result<SocketAddr>;
}

/// Source of this host's own addresses.
pub trait OwnAddresses: Send + Sync {
    /// Reports whether a connection to `to` would end at this host. The thread that serves connections calls it, so it
    /// must not wait.
    fn is_own(&self, to: SocketAddr) -> io::Result<bool>;

    /// Returns a non-blocking socket that can be read when an answer may have changed; `None` if answers never change.
    fn changes(&self) -> io::Result<Option<OwnedFd>>;
}

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

/// Maximum number of addresses of one family that a name may have. A program inside may choose the name, and each of
/// its addresses is decided about, kept with the connection and recorded.
pub const MAX_ADDRESSES: usize = 64;

/// Addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Addresses in order of preference; empty if the name has none.
    pub addrs: Vec<IpAddr>,
    /// Time to live of the addresses, in seconds.
    pub ttl_s: Option<u32>,
    /// Error of the other family, if its addresses are not known. A dialler does not need them; a decision about a name
    /// that a proxy resolves does.
    pub partial: Option<ResolveError>,
}

/// Error of a name that could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The system's configuration cannot be used.
    #[error("the system's resolver configuration cannot be used: {why}")]
    Configuration {
        /// Description of the mistake in the configuration.
        why: String,
    },
    /// A name server refused or failed, or no server answers at its address.
    #[error("{name} cannot be resolved: {why}")]
    Failed {
        /// Name in canonical form.
        name: String,
        /// Error of the name server.
        why: String,
    },
    /// This host could not ask: it has no descriptor left, for example. A program inside may be the cause.
    #[error("{name} cannot be resolved: {why}")]
    Local {
        /// Name in canonical form.
        name: String,
        /// Error of this host.
        why: String,
    },
    /// No answer came in time.
    #[error("{name} cannot be resolved: {why}")]
    Silent {
        /// Name in canonical form.
        name: String,
        /// Description of the silence.
        why: String,
    },
    /// The answer is too large to be used.
    #[error("{name} has more than {MAX_ADDRESSES} addresses of one family, which is too many")]
    TooMany {
        /// Name in canonical form.
        name: String,
    },
}

impl Resolved {
    /// Refuses an answer with more than [`MAX_ADDRESSES`] of one family. It is not cut: omitted addresses would not be
    /// decided about.
    pub(crate) fn bounded(self, name: &Name) -> Result<Self, ResolveError> {
        let v4 = self.addrs.iter().filter(|address| address.is_ipv4()).count();
        if v4.max(self.addrs.len() - v4) > MAX_ADDRESSES {
            return Err(ResolveError::TooMany { name: name.to_string() });
        }
        Ok(self)
    }
}

/// Future of a resolver's answer.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Resolved, ResolveError>> + Send + 'a>>;

/// Resolver of names. The egress asks it, never the sandbox, and only for names that were allowed before. The egress
/// sets the time limit.
pub trait Resolver: Send + Sync {
    /// Returns all addresses of `name`, of both families.
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a>;

    /// Returns the answer for `name` if it is known without a name server.
    fn known(&self, _name: &Name) -> Option<Result<Resolved, ResolveError>> {
        None
    }
}
