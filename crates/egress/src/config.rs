//! Configuration with which an egress starts.

use crate::clock::Clock;
use crate::decide::programs::Unknown;
use crate::ingress::transparent::Kernel;
use crate::limits::Limits;
use crate::seams::{Approver, Destinations, OwnAddresses, Programs, Resolver, Sink};
use crate::upstream::proxy::UpstreamProxy;
use crate::upstream::system::System;
use nexus_policy::net::Policy;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

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
