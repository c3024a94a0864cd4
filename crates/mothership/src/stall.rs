//! Cuts a connection whose client takes nothing of what waits for it.
//!
//! The server holds a bounded number of bytes for a connection. Without this bound on time, a client that stops to read would
//! keep them, its slot and its event stream for as long as the kernel keeps the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when the other side has taken nothing for a time.
pub struct StallGuard<S> {
    stream: S,
    time: Duration,
    timer: Pin<Box<Sleep>>,
    /// A write waits, and the timer runs.
    waits: bool,
}

impl<S> StallGuard<S> {
    /// Guards a stream.
    pub fn new(stream: S, time: Duration) -> Self {
        Self { stream, time, timer: Box::pin(tokio::time::sleep(time)), waits: false }
    }

    /// Stops the timer when a write went on, and fails when it has waited for too long.
    fn evaluate<T>(&mut self, done: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waits = false;
            return done;
        }
        if !self.waits {
            self.waits = true;
            self.timer.as_mut().reset(Instant::now() + self.time);
        }
        ready!(self.timer.as_mut().poll(context));
        self.waits = false;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.evaluate(done, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.evaluate(done, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn a_write_fails_when_the_other_side_takes_nothing() {
        let (ours, mut theirs) = duplex(16);
        let time = Duration::from_millis(600);
        let mut guarded = StallGuard::new(ours, time);
        let began = Instant::now();
        let failed = guarded.write_all(&[1; 100]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= time);
        // A reader that takes a little, again and again, is slow and not gone.
        let (began, mut buffer) = (Instant::now(), [0; 16]);
        let (written, ()) = tokio::join!(guarded.write_all(&[2; 64]), async {
            for _ in 0..5 {
                tokio::time::sleep(time / 3).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        });
        written.unwrap();
        assert!(began.elapsed() >= time);
    }
}
