//! Copies the bytes of a body from one side to the other.

use super::framing::{Body, ChunkEvent, Chunks};
use super::head::HeadError;
use crate::decide::client_gone;
use crate::decide::guard::{ConnectionGuard, Flow};
use crate::ingress::tunnel::ready_bytes;
use crate::memory::buffers::SMALL;
use crate::memory::inbuf::InBuf;
use nexus_policy::net::Denial;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Error of a body that did not go through.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The sender broke off.
    From,
    /// The receiver does not take the body.
    To,
    /// The body breaks its coding.
    Malformed(HeadError),
    /// The budget is used up.
    Denied(Denial),
}

impl From<HeadError> for CopyError {
    fn from(error: HeadError) -> Self {
        Self::Malformed(error)
    }
}

impl From<Denial> for CopyError {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

/// One direction of an exchange.
pub(crate) struct Direction<'a, 'b> {
    pub(crate) from: &'a mut ReadHalf<'b>,
    pub(crate) held: &'a mut InBuf,
    pub(crate) to: &'a mut WriteHalf<'b>,
    pub(crate) guard: &'a ConnectionGuard,
    pub(crate) flow: Flow,
}

impl Direction<'_, '_> {
    /// Writes bytes that the proxy made, or bytes of a leased buffer.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.count_up(bytes.len())?;
        write(self.flow, self.guard, self.from.as_ref(), self.to, bytes).await
    }

    /// Counts bytes to the network, where they are written.
    fn count_up(&self, bytes: usize) -> Result<(), CopyError> {
        if self.flow == Flow::Up { Ok(self.guard.count(Flow::Up, bytes)?) } else { Ok(()) }
    }

    /// Counts bytes from the network, where they are read: not all of them are passed on.
    fn count_down(&self, bytes: usize) -> Result<(), CopyError> {
        if self.flow == Flow::Down { Ok(self.guard.count(Flow::Down, bytes)?) } else { Ok(()) }
    }

    /// Reads more into the held bytes; the end of the stream is an error here.
    pub(crate) async fn more(&mut self) -> Result<(), CopyError> {
        match self.held.fill(self.from).await {
            Ok(0) | Err(_) => Err(CopyError::From),
            Ok(count) => self.count_down(count),
        }
    }

    /// Copies one body. `plain` writes the content of chunks without the coding.
    pub(crate) async fn copy(&mut self, body: Body, plain: bool) -> Result<(), CopyError> {
        match body {
            Body::None => Ok(()),
            Body::Length(length) => self.bytes(Some(length)).await,
            Body::UntilClose => self.bytes(None).await,
            Body::Chunked => self.chunks(plain).await,
        }
    }

    async fn bytes(&mut self, mut left: Option<u64>) -> Result<(), CopyError> {
        let mut full = 0;
        while left != Some(0) {
            let most = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let count = if self.held.is_empty() {
                let ready: io::Result<()> = self.from.readable().await;
                ready.map_err(|_| CopyError::From)?;
                let mut buffer = self.guard.shared.buffers.lend(full > 4);
                let size = most.min(buffer.len());
                let read = ready_bytes(self.from, &mut buffer[..size]).await.map_err(|_| CopyError::From)?;
                let Some(count) = read else { continue };
                if count == 0 {
                    return if left.is_none() { Ok(()) } else { Err(CopyError::From) };
                }
                self.count_down(count)?;
                full = if count >= SMALL { full + 1 } else { 0 };
                self.write(&buffer[..count]).await?;
                count
            } else {
                let count = most.min(self.held.bytes().len());
                self.pass(count).await?;
                count
            };
            left = left.map(|left| left.saturating_sub(count as u64));
        }
        Ok(())
    }

    /// Writes the first `count` held bytes and consumes them.
    async fn pass(&mut self, count: usize) -> Result<(), CopyError> {
        self.count_up(count)?;
        let bytes = self.held.bytes().get(..count).unwrap_or_default();
        write(self.flow, self.guard, self.from.as_ref(), self.to, bytes).await?;
        self.held.consume(count);
        Ok(())
    }

    async fn chunks(&mut self, plain: bool) -> Result<(), CopyError> {
        let mut chunks = Chunks::default();
        loop {
            match chunks.next(self.held.bytes())? {
                ChunkEvent::More => self.more().await?,
                ChunkEvent::Skip(count) => self.held.consume(count),
                ChunkEvent::Data(count) => {
                    if plain {
                        self.pass(count).await?;
                    } else {
                        self.write(format!("{count:x}\r\n").as_bytes()).await?;
                        self.pass(count).await?;
                        self.write(b"\r\n").await?;
                    }
                }
                ChunkEvent::End(count) => {
                    self.held.consume(count);
                    return if plain { Ok(()) } else { self.write(b"0\r\n\r\n").await };
                }
            }
        }
    }
}

/// Writes `bytes`. If the server takes nothing more, a client that has gone is noticed all the same.
async fn write(
    flow: Flow,
    guard: &ConnectionGuard,
    from: &TcpStream,
    to: &mut WriteHalf<'_>,
    bytes: &[u8],
) -> Result<(), CopyError> {
    tokio::select! {
        biased;
        written = to.write_all(bytes) => written.map_err(|_| CopyError::To),
        () = client_gone::watch(from, || guard.client_ended()), if flow == Flow::Up => Err(CopyError::From),
    }
}
