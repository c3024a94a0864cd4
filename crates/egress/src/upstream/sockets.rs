//! Makes the sockets of the resolver, and counts those that this host refused.
//!
//! The resolver's own error for a host without descriptors is the same as for one whose name servers are away.

use hickory_resolver::net::runtime::{RuntimeProvider, TokioRuntimeProvider};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Factory of sockets that counts the failures.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    inner: TokioRuntimeProvider,
    refused: Arc<AtomicU64>,
}

impl Sockets {
    /// Returns the number of sockets that this host has refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }
}

/// Reports whether the error comes from this host, and not from the network or the other end.
pub(crate) fn is_local(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    !matches!(
        error.kind(),
        Kind::TimedOut
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::NetworkUnreachable
            | Kind::HostUnreachable
            | Kind::NetworkDown
    )
}

type Made<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

fn counted<T: 'static>(made: Made<T>, refused: &Arc<AtomicU64>) -> Made<T> {
    let refused = Arc::clone(refused);
    Box::pin(async move {
        let made = made.await;
        // The resolver takes another port where another program has the one that it chose.
        let is_refused = |error: &io::Error| is_local(error) && error.kind() != io::ErrorKind::AddrInUse;
        if made.as_ref().is_err_and(is_refused) {
            refused.fetch_add(1, Ordering::AcqRel);
        }
        made
    })
}

impl RuntimeProvider for Sockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = <TokioRuntimeProvider as RuntimeProvider>::Udp;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.inner.create_handle()
    }

    fn connect_tcp(&self, to: SocketAddr, from: Option<SocketAddr>, wait: Option<Duration>) -> Made<Self::Tcp> {
        counted(self.inner.connect_tcp(to, from, wait), &self.refused)
    }

    fn bind_udp(&self, local: SocketAddr, to: SocketAddr) -> Made<Self::Udp> {
        counted(self.inner.bind_udp(local, to), &self.refused)
    }
}
