//! Bounds of one sandbox beside the policy.

use std::time::Duration;

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
