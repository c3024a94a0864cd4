//! Buffers for tunnels, leased while a tunnel moves bytes.
//!
//! Thousands of idle tunnels must cost nothing; a busy one wants few system calls per gigabyte. So a tunnel leases a
//! small buffer when the kernel has bytes for it, and one of a bounded number of large ones while it keeps filling it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a small buffer in bytes.
pub(crate) const SMALL: usize = 16 * 1024;
/// Size of a large buffer in bytes.
pub(crate) const LARGE: usize = 256 * 1024;
/// Maximum number of leased large buffers: 8 MiB. Further busy tunnels use small ones.
const LARGE_LEASED: usize = 32;
/// Number of buffers of each size that are kept for reuse.
const KEPT: usize = 4;

#[derive(Debug, Default)]
struct BufferPool {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
    large_leased: usize,
}

/// Pool of buffers for all tunnels of a sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<BufferPool>>);

impl Buffers {
    /// Leases a large buffer if `busy` and one is left, otherwise a small one.
    pub(crate) fn lend(&self, busy: bool) -> LeasedBuffer {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let data = if busy && shelf.large_leased < LARGE_LEASED {
            shelf.large_leased += 1;
            shelf.large.pop().unwrap_or_else(|| vec![0; LARGE].into_boxed_slice())
        } else {
            shelf.small.pop().unwrap_or_else(|| vec![0; SMALL].into_boxed_slice())
        };
        LeasedBuffer { data, home: self.clone() }
    }
}

/// Leased buffer; it returns to its pool when it is dropped.
#[derive(Debug)]
pub(crate) struct LeasedBuffer {
    data: Box<[u8]>,
    home: Buffers,
}

impl Deref for LeasedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl DerefMut for LeasedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

impl Drop for LeasedBuffer {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let mut shelf = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if data.len() == LARGE {
            shelf.large_leased -= 1;
            &mut shelf.large
        } else {
            &mut shelf.small
        };
        if kept.len() < KEPT {
            kept.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_bounded_and_come_back() {
        let buffers = Buffers::default();
        let mut lent: Vec<LeasedBuffer> = (0..LARGE_LEASED).map(|_| buffers.lend(true)).collect();
        assert!(lent.iter().all(|one| one.len() == LARGE));
        assert_eq!(buffers.lend(true).len(), SMALL);
        lent.pop();
        assert_eq!(buffers.lend(true).len(), LARGE);
        drop(lent);
        assert_eq!(buffers.0.lock().unwrap().large.len(), KEPT);
    }
}
