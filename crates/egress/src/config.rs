//! Configuration with which an egress starts.

use crate::approve::Approver;
use crate::audit::record::Sink;
use crate::clock::Clock;
use crate::decide::own::OwnAddresses;
use crate::decide::programs::{Programs, Unknown};
use crate::ingress::transparent::{Destinations, Kernel};
use crate::upstream::proxy::UpstreamProxy;
use crate::upstream::resolve::Resolver;
use crate::upstream::system::System;
use nexus_policy::net::Policy;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Configuration of an egress, without its listeners.
pub struct Config {
    /// Policy of the targets that may be reached.
    pub policy: Arc<Policy>,
    /// The clock of `policy`'s end.
    pub clock: Clock,
    /// Resolver of names to addresses.
    pub resolver: Arc<dyn Resolver>,
    /// The operator's proxy, which a policy with `upstream_proxy` needs.
    pub upstream_proxy: Option<UpstreamProxy>,
    /// Receiver of a record of every attempt before it is made.
    pub audit: Arc<dyn Sink>,
    /// Bounds beside the policy: they keep one sandbox from using up the host.
    pub limits: Limits,
    /// Finder of the program that connected.
    pub programs: Arc<dyn Programs>,
    /// Approver for attempts that a policy with `ask` does not list; without one they are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Finder of the original destination of a redirected connection.
    pub destinations: Arc<dyn Destinations>,
    /// Source of this host's own addresses; `None` asks the kernel about the network of this process.
    pub own_addresses: Option<Arc<dyn OwnAddresses>>,
    /// Number of threads. One serves thousands of tunnels; more help when one sandbox moves gigabytes.
    pub workers: usize,
}

impl Config {
    /// Creates the usual configuration: the system's resolver, no upstream proxy, no questions, one thread.
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

/// Sockets in the sandbox's namespace, already bound and listening; a protocol with `None` is not served.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Listener for HTTP: CONNECT and absolute-form requests.
    pub http: Option<TcpListener>,
    /// Listener for SOCKS5.
    pub socks: Option<TcpListener>,
    /// Listener for redirected IPv4 connections.
    pub transparent_v4: Option<TcpListener>,
    /// Listener for redirected IPv6 connections.
    pub transparent_v6: Option<TcpListener>,
    /// Socket for DNS over UDP.
    pub dns_udp: Option<UdpSocket>,
    /// Listener for DNS over TCP.
    pub dns_tcp: Option<TcpListener>,
    /// Listeners that stand for ports of the host's loopback, each with that port.
    pub host_ports: Vec<(u16, TcpListener)>,
}

/// Bounds of one sandbox.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections from the sandbox at one time, for any purpose. Fewer where descriptors are scarce.
    pub clients: usize,
    /// Bytes of all unfinished heads and ClientHellos together.
    pub heads_bytes: usize,
    /// Bytes of the kernel's buffers for all connections together, in each direction, as far as the egress sets them.
    pub buffer_bytes: usize,
    /// Bytes of one HTTP head.
    pub head_bytes: usize,
    /// Bytes of one request target.
    pub target_bytes: usize,
    /// Number of fields of one HTTP head.
    pub fields: usize,
    /// Time from the first byte of a request, greeting, question or head of an answer to its last.
    pub head_time: Duration,
    /// Idle time of a kept HTTP connection between two requests.
    pub keep_alive: Duration,
    /// Time until a ClientHello is complete.
    pub hello_time: Duration,
    /// Time of one look-up.
    pub resolve_time: Duration,
    /// Look-ups for connections at one time. Fewer where descriptors are scarce.
    pub look_ups: usize,
    /// Minimum time between two look-ups of one denied name in an open network. Answers that hold for less are kept so
    /// long.
    pub follow_every: Duration,
    /// Time of a connection attempt to one address.
    pub connect_time: Duration,
    /// Time until the next address is tried beside a silent one (RFC 8305).
    pub connect_stagger: Duration,
    /// Time of a tunnel or exchange without a byte in either direction. A lost peer is noticed sooner, by keepalives.
    pub idle: Duration,
    /// The same time after one direction has ended. A lost client looks like one that only has nothing more to send.
    pub half_closed: Duration,
}

impl Limits {
    /// Returns the limits of a sandbox that may use so much memory itself.
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
