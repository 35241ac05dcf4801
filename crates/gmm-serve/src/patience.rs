//! A stream that gives up on a client which does not read: a write that cannot go on for too long is an error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

pub(crate) struct Patient<S> {
    stream: S,
    time: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// `time` is how long a write may wait.
    pub(crate) const fn new(stream: S, time: Duration) -> Self {
        Self { stream, time, waiting: None }
    }

    /// The result of a write, or an error if it has waited for too long.
    fn limited<T>(&mut self, cx: &mut Context<'_>, found: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if found.is_ready() {
            self.waiting = None;
            return found;
        }
        let time = self.time;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(time))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let found = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, found)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let found = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.limited(cx, found)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let found = Pin::new(&mut self.stream).poll_flush(cx);
        self.limited(cx, found)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let found = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limited(cx, found)
    }
}
