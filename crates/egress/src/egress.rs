//! Starts, changes and ends an egress.
//!
//! ```text
//!  start ─▶ running ─(stop, or dropped)─▶ every listener and connection closed ─▶ the thread ends
//!             │ ▲
//!             └─┘ reload: atomic
//! ```
//!
//! An egress lives in a thread of the caller's process, so it ends with the process. When the thread ends, for any
//! reason, the listeners are closed with it: the sandbox's connections are refused then, and there is no other way out.

use crate::audit::record::Audit;
use crate::audit::summary::Summary;
use crate::config::{Config, Listeners};
use crate::decide::follow_denied::follow;
use crate::decide::own::kernel::KernelRoutes;
use crate::decide::own::watch::watch;
use crate::decide::registry::ReloadError;
use crate::decide::state::{Parts, Shared};
use crate::ingress::accept::{ListenerKind, accept};
use crate::ingress::dns::serve as dns;
use crate::limits::Limits;
use crate::memory::bounds::Heads;
use crate::seams::OwnAddresses;
use crate::upstream::dial::{Dialer, RESERVED_SOCKETS};
use nexus_policy::net::Policy;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

/// Number of descriptors that are left to the rest of the process.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Number of sockets of one look-up: two families, each asked of two name servers at once, up to three times while the
/// first question waits.
const SOCKETS_OF_A_LOOK_UP: u64 = 12;

/// Number of descriptors for each look-up that may be made at one time.
const LOOK_UPS_PART: u64 = 64;

/// Maximum time that the end waits for a blocked thread.
const HANGING: Duration = Duration::from_secs(1);

/// Error of an egress that does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The policy wants the operator's proxy, and there is none.
    #[error("the policy sends everything through an upstream proxy, and none is configured")]
    NoUpstream,
    /// The process may open too few descriptors for even a few connections.
    #[error("the process may open {limit} files, which is too few for an egress; raise it (ulimit -n)")]
    Descriptors {
        /// Soft limit of descriptors.
        limit: u64,
    },
    /// The kernel cannot be asked for this host's own addresses.
    #[error("the kernel cannot be asked which addresses are this host's own: {source}")]
    OwnAddresses {
        /// Error of the system.
        source: io::Error,
    },
    /// A listener cannot be used.
    #[error("the {what} listener cannot be used: {source}")]
    Listener {
        /// Name of the listener.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The runtime or its thread cannot be started.
    #[error("the egress thread cannot be started: {source}")]
    Thread {
        /// Error of the system.
        source: io::Error,
    },
}

/// Error of an egress that did not run until its stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// The thread of the egress panicked. Everything was closed then.
    #[error("the egress thread had ended by a panic; the sandbox had no network from then on")]
    Panicked,
}

/// Running egress. Dropping it stops it.
pub struct Egress {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Egress {
    /// Serves `listeners` in a thread of its own. Connections that queued up in their backlogs meanwhile are served.
    pub fn start(config: Config, listeners: Listeners) -> Result<Self, StartError> {
        let workers = config.workers;
        let (shared, changes) = shared(config)?;
        let shared = Arc::new(shared);
        let unasked = |source| StartError::OwnAddresses { source };
        let runtime = if workers > 1 {
            Builder::new_multi_thread().worker_threads(workers).enable_all().build()
        } else {
            Builder::new_current_thread().enable_all().build()
        };
        let runtime = runtime.map_err(|source| StartError::Thread { source })?;
        serve(&runtime, &shared, listeners)?;
        if let Some(changes) = changes {
            let inside = runtime.enter();
            #[allow(deprecated, reason = "an OwnedFd stays what it is; what is to replace it is unsafe")]
            let changes = AsyncFd::with_interest(changes, Interest::READABLE).map_err(unasked)?;
            runtime.spawn(watch(Arc::downgrade(&shared), changes));
            drop(inside);
        }
        runtime.spawn(follow(Arc::clone(&shared)));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("nexus-egress".into()).spawn(move || {
            // An error means that the sender was dropped: the end as well.
            match runtime.block_on(stopped) {
                Ok(()) | Err(_) => {}
            }
            // This drops every task, and with it every listener and connection. A look-up of a program may hang for
            // ever.
            runtime.shutdown_timeout(HANGING);
        });
        let thread = thread.map_err(|source| StartError::Thread { source })?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Puts another policy in force. Connections that it forbids are cut before this returns; new ones are decided by
    /// it. Returns the number of cut connections.
    pub fn reload(&self, policy: Arc<Policy>) -> Result<usize, ReloadError> {
        if policy.upstream_proxy() && !self.shared.has_upstream() {
            return Err(ReloadError::NoUpstream);
        }
        let cut = self.shared.registry.reload(policy, self.shared.clock.now())?;
        self.shared.followed.policy_changed();
        Ok(cut)
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.shared.registry.policy().policy)
    }

    /// Summarizes the attempts that were allowed and denied so far.
    pub fn summary(&self) -> Summary {
        self.shared.summary()
    }

    /// Reports whether the egress still serves.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Closes every listener and connection, and returns the summary.
    pub fn stop(mut self) -> Result<Summary, StopError> {
        self.end()?;
        Ok(self.shared.summary())
    }

    fn end(&mut self) -> Result<(), StopError> {
        drop(self.stop.take());
        match self.thread.take() {
            Some(thread) => {
                let ended = thread.join().map_err(|_| StopError::Panicked);
                self.shared.audit.flush();
                ended
            }
            None => Ok(()),
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        // A caller that wants the result calls `stop`; a drop closes everything and ignores it.
        match self.end() {
            Ok(()) | Err(StopError::Panicked) => {}
        }
    }
}

/// Returns the state of an egress that serves nothing yet, and the socket that tells when this host's addresses changed.
pub(crate) fn shared(config: Config) -> Result<(Shared, Option<OwnedFd>), StartError> {
    if config.policy.upstream_proxy() && config.upstream_proxy.is_none() {
        return Err(StartError::NoUpstream);
    }
    let unasked = |source| StartError::OwnAddresses { source };
    let own: Arc<dyn OwnAddresses> = match config.own_addresses {
        Some(own) => own,
        None => Arc::new(KernelRoutes::here().map_err(unasked)?),
    };
    let changes = own.changes().map_err(unasked)?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let (clients, look_ups) = affordable(limit)?;
    let Limits { clients: most, look_ups: at_once, .. } = config.limits;
    let limits = Limits { clients: most.min(clients), look_ups: at_once.min(look_ups), ..config.limits };
    let heads = Arc::new(Heads::new(limits.heads_bytes));
    let dialer = Dialer {
        heads: Arc::clone(&heads),
        connect_time: limits.connect_time,
        stagger: limits.connect_stagger,
        reserve: Arc::new(Semaphore::new(RESERVED_SOCKETS)),
        upstream: config.upstream_proxy,
        resolver: Arc::clone(&config.resolver),
    };
    let shared = Shared::new(Parts {
        policy: config.policy,
        audit: Audit::new(config.audit),
        clock: config.clock,
        limits,
        programs: config.programs,
        approver: config.approver,
        destinations: config.destinations,
        resolver: config.resolver,
        own,
        dialer,
        heads,
    });
    Ok((shared, changes))
}

/// Returns the number of clients for which `limit` descriptors suffice, with one for the client and one for its server,
/// and the number of look-ups, beside the sockets that are tried.
fn affordable(limit: u64) -> Result<(usize, usize), StartError> {
    let look_ups = (limit / LOOK_UPS_PART).clamp(4, 1024);
    let kept = RESERVED_DESCRIPTORS + RESERVED_SOCKETS as u64 + look_ups * SOCKETS_OF_A_LOOK_UP;
    match limit.saturating_sub(kept) / 2 {
        0..16 => Err(StartError::Descriptors { limit }),
        clients => {
            Ok((usize::try_from(clients).unwrap_or(usize::MAX), usize::try_from(look_ups).unwrap_or(usize::MAX)))
        }
    }
}

fn serve(runtime: &Runtime, shared: &Arc<Shared>, listeners: Listeners) -> Result<(), StartError> {
    let inside = runtime.enter();
    let doors = [
        ("HTTP", listeners.http, ListenerKind::Http),
        ("SOCKS", listeners.socks, ListenerKind::Socks),
        ("transparent IPv4", listeners.transparent_v4, ListenerKind::TransparentV4),
        ("transparent IPv6", listeners.transparent_v6, ListenerKind::TransparentV6),
        ("DNS TCP", listeners.dns_tcp, ListenerKind::Dns),
    ];
    let host_ports = listeners.host_ports.into_iter();
    let host_ports = host_ports.map(|(port, listener)| ("host port", Some(listener), ListenerKind::HostPort(port)));
    for (what, listener, door) in doors.into_iter().chain(host_ports) {
        let Some(listener) = listener else { continue };
        let wrong = |source| StartError::Listener { what, source };
        listener.set_nonblocking(true).map_err(wrong)?;
        // Every accepted connection inherits this from its listener, without a call of its own.
        rustix::net::sockopt::set_tcp_nodelay(&listener, true).map_err(|error| wrong(error.into()))?;
        let at = listener.local_addr().map_err(wrong)?;
        let listener = TcpListener::from_std(listener).map_err(wrong)?;
        runtime.spawn(accept(Arc::clone(shared), listener, at, door));
    }
    if let Some(socket) = listeners.dns_udp {
        let wrong = |source| StartError::Listener { what: "DNS UDP", source };
        socket.set_nonblocking(true).map_err(wrong)?;
        let socket = UdpSocket::from_std(socket).map_err(wrong)?;
        runtime.spawn(dns::serve_udp(Arc::clone(shared), socket));
    }
    drop(inside);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_look_ups_fit_into_the_descriptors() {
        for limit in [300, 1024, 4096, 65_536, 1 << 20] {
            let (clients, look_ups) = affordable(limit).unwrap();
            assert!(look_ups >= 4 && clients >= 16, "{limit}: {clients} {look_ups}");
            let taken = 2 * clients as u64 + SOCKETS_OF_A_LOOK_UP * look_ups as u64 + RESERVED_SOCKETS as u64;
            assert!(taken + RESERVED_DESCRIPTORS <= limit, "{limit}: {clients} {look_ups}");
        }
        affordable(256).unwrap_err();
    }
}
