//! Holds bytes that were read and not used yet.

use crate::limits::Limits;
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::ReadHalf;

/// Number of bytes that are read at once. Idle connections hold no buffer: it is made when the kernel has bytes.
const CHUNK: usize = 4 * 1024;

/// Growing buffer with a consumed front.
#[derive(Debug, Default)]
pub(crate) struct InBuf {
    data: Vec<u8>,
    start: usize,
}

impl InBuf {
    #[cfg(test)]
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), start: 0 }
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.data.capacity()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.get(self.start..).unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.get_mut(self.start..).unwrap_or_default()
    }

    /// Reports whether parsing a head again can give a new result, after there were `before` bytes: a line ended, or it
    /// is the first time, or a bound was passed. A client that sends single bytes must not cause a new parse for each
    /// of them.
    pub(crate) fn worth_reading(&self, before: usize, limits: &Limits) -> bool {
        let bytes = self.bytes();
        let passed = |bound: usize| before <= bound && bytes.len() > bound;
        before == 0
            || bytes.get(before..).is_none_or(|new| new.contains(&b'\n'))
            || passed(limits.target_bytes + 64)
            || passed(limits.head_bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.data.len()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.data.len());
        if self.is_empty() {
            self.data.clear();
            self.start = 0;
        }
    }

    /// Gives back the memory of the consumed bytes.
    pub(crate) fn shrink(&mut self) {
        self.data.drain(..self.start.min(self.data.len()));
        self.start = 0;
        self.data.shrink_to_fit();
    }

    /// Takes all bytes that are left.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut data = std::mem::take(&mut self.data);
        data.drain(..self.start.min(data.len()));
        self.start = 0;
        data
    }

    /// Gives back the memory while the connection is idle.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Reads the bytes that the kernel has, and waits for the first; returns their number, 0 at the end of the stream.
    pub(crate) async fn fill(&mut self, from: &mut ReadHalf<'_>) -> io::Result<usize> {
        from.readable().await?;
        if self.start > 0 {
            self.data.drain(..self.start);
            self.start = 0;
        }
        self.data.reserve(CHUNK);
        from.read_buf(&mut self.data).await
    }
}
