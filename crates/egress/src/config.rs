//! What an egress is started with.

use crate::approve::Approver;
use crate::audit::Sink;
use crate::clock::Clock;
use crate::own::OwnAddresses;
use crate::programs::{Programs, Unknown};
use crate::resolve::Resolver;
use crate::system::System;
use crate::transparent::{Destinations, Kernel};
use crate::upstream::UpstreamProxy;
use nexus_policy::net::Policy;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Everything but the listeners.
pub struct Config {
    /// What may be reached.
    pub policy: Arc<Policy>,
    /// The clock of `policy`'s end.
    pub clock: Clock,
    /// Who turns names into addresses.
    pub resolver: Arc<dyn Resolver>,
    /// The operator's proxy, which a policy with `upstream_proxy` needs.
    pub upstream_proxy: Option<UpstreamProxy>,
    /// Where every attempt is recorded before it is made.
    pub audit: Arc<dyn Sink>,
    /// Bounds that are no part of the policy: they keep one sandbox from using up the host.
    pub limits: Limits,
    /// Who says which program connected.
    pub programs: Arc<dyn Programs>,
    /// Who is asked about what a policy with `ask` does not list; without one it is denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Who says where a redirected connection was going.
    pub destinations: Arc<dyn Destinations>,
    /// Says which addresses are this host's own; `None` asks the kernel about the network of this process.
    pub own_addresses: Option<Arc<dyn OwnAddresses>>,
    /// Threads. One serves thousands of tunnels; more help when one sandbox moves gigabytes.
    pub workers: usize,
}

impl Config {
    /// The usual: the system's resolver, no upstream proxy, no questions, one thread.
    pub fn new(policy: Arc<Policy>, clock: Clock, audit: Arc<dyn Sink>) -> Self {
        Self {
            policy,
            clock,
            resolver: Arc::new(System::default()),
            upstream_proxy: None,
            audit,
            limits: Limits::default(),
            programs: Arc::new(Unknown),
            approver: None,
            destinations: Arc::new(Kernel),
            own_addresses: None,
            workers: 1,
        }
    }
}

/// The sockets inside of the sandbox's namespace, already bound and listening; what is `None` is not served.
#[derive(Debug, Default)]
pub struct Listeners {
    /// HTTP: CONNECT and absolute-form requests.
    pub http: Option<TcpListener>,
    /// SOCKS5.
    pub socks: Option<TcpListener>,
    /// Redirected IPv4 connections.
    pub transparent_v4: Option<TcpListener>,
    /// Redirected IPv6 connections.
    pub transparent_v6: Option<TcpListener>,
    /// DNS over UDP.
    pub dns_udp: Option<UdpSocket>,
    /// DNS over TCP.
    pub dns_tcp: Option<TcpListener>,
    /// Listeners that stand for ports of the host's loopback, each with that port.
    pub host_ports: Vec<(u16, TcpListener)>,
}

/// Bounds per sandbox.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections from the sandbox at one time, whatever they are for. Less where descriptors are scarce.
    pub clients: usize,
    /// Bytes of all heads and ClientHellos together that are not whole yet.
    pub heads_bytes: usize,
    /// Bytes of the kernel's buffers for all connections together, in each direction, as far as the egress sets them.
    pub buffer_bytes: usize,
    /// Bytes of an HTTP head.
    pub head_bytes: usize,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Fields of an HTTP head.
    pub fields: usize,
    /// From the first byte of a request, greeting, question or head of an answer to its last.
    pub head_time: Duration,
    /// A kept HTTP connection between two requests.
    pub keep_alive: Duration,
    /// Until a ClientHello is complete.
    pub hello_time: Duration,
    /// A look-up.
    pub resolve_time: Duration,
    /// Look-ups for connections at one time. Less where descriptors are scarce.
    pub look_ups: usize,
    /// The least time between two look-ups of one denied name in an open network. Answers that hold for less are kept so long.
    pub follow_every: Duration,
    /// One address that does not answer.
    pub connect_time: Duration,
    /// Until the next address is tried beside a silent one (RFC 8305).
    pub connect_stagger: Duration,
    /// A tunnel or exchange without a byte in either direction. A peer that is gone is noticed sooner, by keepalives.
    pub idle: Duration,
    /// The same after one direction has ended. A client that is gone looks like one that only has nothing more to say.
    pub half_closed: Duration,
}

impl Limits {
    /// The limits of a sandbox that may use so much memory itself.
    pub fn within(memory_bytes: u64) -> Self {
        let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let most = Self::default();
        Self {
            clients: (memory / (128 << 10)).clamp(64, most.clients),
            heads_bytes: (memory / 16).clamp(1 << 20, most.heads_bytes),
            buffer_bytes: (memory / 4).clamp(4 << 20, most.buffer_bytes),
            ..most
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 8192,
            heads_bytes: 16 << 20,
            buffer_bytes: 128 << 20,
            head_bytes: 64 * 1024,
            target_bytes: 8 * 1024,
            fields: 128,
            head_time: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            hello_time: Duration::from_secs(10),
            resolve_time: Duration::from_secs(10),
            look_ups: 64,
            follow_every: Duration::from_secs(30),
            connect_time: Duration::from_secs(20),
            connect_stagger: Duration::from_millis(250),
            idle: Duration::from_secs(24 * 60 * 60),
            half_closed: Duration::from_secs(5 * 60),
        }
    }
}
