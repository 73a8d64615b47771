//! A connection's bytes, noted as they pass, and closed so that the last answer arrives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::framing::Framing;
use super::socket::Socket;
use super::tls::Tls;
use super::traffic::Traffic;
use crate::brief::Brief;

/// A closed connection is read for so long, or for so many bytes: to close with bytes unread would
/// reset it, and the caller could lose the answer (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// What the bytes come over.
pub(crate) type Wire = Either<Socket, Box<TlsStream<Socket>>>;

/// Shakes hands where the listener has a certificate.
pub(crate) async fn secured(socket: Socket, tls: Option<&Tls>) -> io::Result<Wire> {
    let Some(tls) = tls else { return Ok(Either::Left(socket)) };
    let tls = TlsAcceptor::from(tls.config()).accept(socket).await?;
    Ok(Either::Right(Box::new(tls)))
}

/// A connection whose traffic is noted.
pub(super) struct Stream {
    wire: Brief<Wire>,
    /// What was read to see what it is.
    first: Bytes,
    traffic: Arc<Traffic>,
    /// None where the protocol has frames of its own.
    framing: Option<Framing>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl Stream {
    pub(super) fn new(
        wire: Wire,
        first: Bytes,
        traffic: Arc<Traffic>,
        framing: Option<Framing>,
    ) -> Self {
        Self { wire: Brief(wire), first, traffic, framing, linger: None }
    }

    /// Reads and forgets until the other side closes too, or patience ends.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let start = || (Box::pin(tokio::time::sleep(LINGER)), LINGER_BYTES);
        let (timer, left) = self.linger.get_or_insert_with(start);
        let mut space = [0; 4096];
        while *left > 0 && timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.wire).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }

    fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.wire).poll_read(cx, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..length]);
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        self.traffic.written(match written {
            Poll::Ready(Ok(bytes)) => Some(*bytes),
            Poll::Ready(Err(_)) => Some(0),
            Poll::Pending => None,
        });
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_bytes(cx, buffer))?;
        let this = &mut *self;
        if let Some(framing) = &mut this.framing {
            framing.feed(&buffer.filled()[before..]);
            this.traffic.heads(framing.is_inside_head(), framing.ambiguous_from());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.wire).poll_shutdown(cx))?;
        }
        self.poll_linger(cx).map(Ok)
    }
}
