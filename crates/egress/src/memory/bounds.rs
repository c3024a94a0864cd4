//! Bounds that all connections of one sandbox share: memory of unfinished heads, and the kernel's buffers.
//!
//! The egress works outside the sandbox's own limits, so this module bounds the memory and work that a sandbox can
//! cause.

use crate::limits::Limits;
use crate::memory::inbuf::InBuf;
use rustix::fd::AsFd;
use rustix::net::sockopt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each connection may hold uncounted: one read.
const FREE: usize = 8 * 1024;
/// Bytes that the kernel gives a busy socket at most (tcp_rmem[2], tcp_wmem[2]) when no program sets its buffers.
const TUNED: usize = 8 * 1024 * 1024;
/// Maximum number of connections whose buffers the kernel tunes.
const MAX_TUNED: usize = 16;
/// Bounds of a buffer that the egress sets, in bytes.
const SMALLEST: usize = 16 * 1024;
const LARGEST: usize = 256 * 1024;

/// Count of the bytes of unfinished heads and ClientHellos, of both sides.
#[derive(Debug)]
pub(crate) struct Heads {
    held: AtomicUsize,
    most: usize,
}

impl Heads {
    pub(crate) fn new(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most }
    }

    /// Returns a share that holds nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { heads: Arc::clone(self), counted: 0 }
    }
}

/// Share of one connection; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    heads: Arc<Heads>,
    counted: usize,
}

impl Share {
    /// Counts the memory of `held`; reports whether it still fits.
    pub(crate) fn covers(&mut self, held: &InBuf) -> bool {
        self.covers_bytes(held.capacity())
    }

    /// Counts so many bytes of memory, and reports whether they still fit.
    pub(crate) fn covers_bytes(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(FREE);
        if wanted > self.counted {
            let more = wanted - self.counted;
            let fits = |held: usize| held.checked_add(more).filter(|sum| *sum <= self.heads.most);
            if self.heads.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_err() {
                return false;
            }
            self.counted = wanted;
        }
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.heads.held.fetch_sub(self.counted, Ordering::AcqRel);
    }
}

/// Returns the buffer size of a further socket beside `open` connections; `None` leaves it to the kernel.
fn buffer(limits: &Limits, open: usize) -> Option<usize> {
    let tuned = (limits.buffer_bytes / TUNED).min(MAX_TUNED);
    (open > tuned).then(|| (limits.buffer_bytes / open).clamp(SMALLEST, LARGEST))
}

/// Bounds the kernel's memory for `socket` beside `open` connections.
pub(crate) fn set_buffers(limits: &Limits, open: usize, socket: &impl AsFd) {
    let Some(size) = buffer(limits, open) else { return };
    // Setting a size fails only on a socket that is gone already.
    for set in [sockopt::set_socket_recv_buffer_size(socket, size), sockopt::set_socket_send_buffer_size(socket, size)]
    {
        match set {
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_get_smaller_with_more_connections() {
        let limits = Limits::default();
        assert_eq!(buffer(&limits, 16), None);
        assert_eq!(buffer(&limits, 17), Some(LARGEST));
        for open in [17, 100, 512, 8192] {
            assert!(buffer(&limits, open).unwrap() * open <= limits.buffer_bytes.max(SMALLEST * open), "{open}");
        }
        let small = Limits::within(64 * 1024 * 1024);
        assert_eq!((small.clients, buffer(&small, 2), buffer(&small, 3)), (512, None, Some(LARGEST)));
        assert!(buffer(&small, 512).unwrap() * 512 <= 64 * 1024 * 1024);
    }

    #[test]
    fn limits_follow_the_memory_of_the_sandbox() {
        let (default, small, tiny) = (Limits::default(), Limits::within(64 << 20), Limits::within(1));
        assert_eq!((small.clients, small.heads_bytes, small.buffer_bytes), (512, 4 << 20, 16 << 20));
        assert_eq!((tiny.clients, tiny.heads_bytes, tiny.buffer_bytes), (64, 1 << 20, 4 << 20));
        let large = Limits::within(u64::MAX);
        assert_eq!((large.clients, large.heads_bytes), (default.clients, default.heads_bytes));
        assert_eq!(large.buffer_bytes, default.buffer_bytes);
    }

    #[test]
    fn heads_share_one_budget_and_give_it_back() {
        let heads = Arc::new(Heads::new(1000));
        let held = |bytes: usize| InBuf::with_capacity(FREE + bytes);
        let (mut one, mut other) = (heads.share(), heads.share());
        assert!(one.covers(&held(600)) && one.covers(&held(100)));
        assert!(!other.covers(&held(600)) && other.covers(&held(0)));
        drop(one);
        assert!(other.covers(&held(600)));
    }
}
