//! Byte stream of a connection. It records activity, and lingers on close so that the last response
//! reaches the client.

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

use super::connection_activity::ConnectionActivity;
use super::framing::Framing;
use super::parse_error_response::{ParseErrorResponse, RequestIdSource};
use super::socket::AcceptedSocket;
use super::tls::ServerTls;
use crate::coalesce_writes::CoalesceWrites;

/// How long, and for how many bytes, a closed connection is still read. Closing with unread bytes
/// would reset the connection, and the client could lose the response (RFC 9112 section 9.6).
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1024 * 1024;

/// An accepted connection, plain or TLS.
pub type MaybeTlsSocket = Either<AcceptedSocket, Box<TlsStream<AcceptedSocket>>>;

/// Does the TLS handshake if the listener has a certificate.
pub async fn accept_tls(
    socket: AcceptedSocket,
    tls: Option<&ServerTls>,
) -> io::Result<MaybeTlsSocket> {
    let Some(tls) = tls else { return Ok(Either::Left(socket)) };
    let tls = TlsAcceptor::from(tls.config()).accept(socket).await?;
    Ok(Either::Right(Box::new(tls)))
}

/// A connection whose activity is recorded.
pub(super) struct ConnectionStream {
    wire: CoalesceWrites<MaybeTlsSocket>,
    /// Bytes already read to detect the HTTP version.
    sniffed_bytes: Bytes,
    activity: Arc<ConnectionActivity>,
    /// `None` for HTTP/2, which has its own framing.
    framing: Option<Framing>,
    request_ids: Arc<dyn RequestIdSource>,
    /// Requests whose response has left hyper's buffer.
    responses_flushed: u64,
    parse_error: ParseErrorResponse,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl ConnectionStream {
    pub(super) fn new(
        wire: MaybeTlsSocket,
        sniffed_bytes: Bytes,
        activity: Arc<ConnectionActivity>,
        framing: Option<Framing>,
        request_ids: Arc<dyn RequestIdSource>,
    ) -> Self {
        Self {
            wire: CoalesceWrites(wire),
            sniffed_bytes,
            activity,
            framing,
            request_ids,
            responses_flushed: 0,
            parse_error: ParseErrorResponse::default(),
            linger: None,
        }
    }

    /// Whether what hyper writes now is its own response to a head that it could not parse: every
    /// request that it passed to the handler is answered, to the last byte.
    fn is_parse_error_response(&self) -> bool {
        self.framing.is_some() && self.activity.all_answered() == Some(self.responses_flushed)
    }

    /// Reads and discards bytes until the peer closes too, or a limit is reached.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let start = || (Box::pin(tokio::time::sleep(LINGER_TIMEOUT)), MAX_LINGER_BYTES);
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

    fn poll_read_buffered(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.sniffed_bytes.is_empty() {
            return Pin::new(&mut self.wire).poll_read(cx, buffer);
        }
        let length = self.sniffed_bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.sniffed_bytes[..length]);
        self.sniffed_bytes.advance(length);
        Poll::Ready(Ok(()))
    }

    fn record_write(&self, written: &Poll<io::Result<usize>>) {
        self.activity.record_write(match written {
            Poll::Ready(Ok(bytes)) => Some(*bytes),
            Poll::Ready(Err(_)) => Some(0),
            Poll::Pending => None,
        });
    }
}

impl AsyncRead for ConnectionStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_read_buffered(cx, buffer))?;
        let this = &mut *self;
        if let Some(framing) = &mut this.framing {
            framing.feed(&buffer.filled()[before..]);
            this.activity.record_framing(framing.is_inside_head(), framing.ambiguous_from());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = if this.is_parse_error_response() {
            this.parse_error.poll_write(cx, &mut this.wire, bytes, &*this.request_ids)
        } else {
            Pin::new(&mut this.wire).poll_write(cx, bytes)
        };
        self.record_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let ([whole], true) = (slices, self.is_parse_error_response()) {
            return self.poll_write(cx, whole);
        }
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, slices);
        self.record_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.wire).poll_flush(cx);
        if let (Poll::Ready(Ok(())), Some(answered)) = (&flushed, self.activity.all_answered()) {
            self.responses_flushed = answered;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.wire).poll_shutdown(cx))?;
        }
        self.poll_linger(cx).map(Ok)
    }
}
