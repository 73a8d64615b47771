//! Identifies the responses that hyper itself sends to request heads that it cannot parse (400 and
//! 431). No handler sees such a request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue};
use tokio::io::AsyncWrite;

use super::HttpHandler;

/// [`HttpHandler::new_request_id`] of any handler.
pub(super) trait RequestIdSource: Send + Sync {
    fn new_request_id(&self) -> Option<(HeaderName, HeaderValue)>;
}

impl<D: HttpHandler> RequestIdSource for D {
    fn new_request_id(&self) -> Option<(HeaderName, HeaderValue)> {
        HttpHandler::new_request_id(self)
    }
}

/// A response to an unparsable head, while it is written.
#[derive(Debug, Default)]
pub(super) struct ParseErrorResponse {
    /// What is left to write. `None` before the first and after the last byte.
    rest: Option<Bytes>,
}

impl ParseErrorResponse {
    /// Writes hyper's response with the header added. Reports hyper's bytes as written once all is.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut (impl AsyncWrite + Unpin),
        response: &[u8],
        ids: &dyn RequestIdSource,
    ) -> Poll<io::Result<usize>> {
        let rest = self.rest.get_or_insert_with(|| add_request_id(response, ids));
        while rest.has_remaining() {
            match ready!(Pin::new(&mut *wire).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => rest.advance(written),
            }
        }
        self.rest = None;
        Poll::Ready(Ok(response.len()))
    }
}

/// Inserts the header after the status line.
fn add_request_id(response: &[u8], ids: &dyn RequestIdSource) -> Bytes {
    let end = memchr::memchr(b'\n', response).map(|newline| newline + 1);
    let (Some(end), Some((name, id))) = (end, ids.new_request_id()) else {
        return Bytes::copy_from_slice(response);
    };
    let (status_line, rest) = response.split_at(end);
    tracing::debug!(
        response = %status_line.trim_ascii().escape_ascii(),
        request_id = %id.as_bytes().escape_ascii(),
        "could not parse a request head"
    );
    [status_line, name.as_str().as_bytes(), b": ", id.as_bytes(), b"\r\n", rest].concat().into()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    struct FixedId;

    impl RequestIdSource for FixedId {
        fn new_request_id(&self) -> Option<(HeaderName, HeaderValue)> {
            Some((HeaderName::from_static("x-request-id"), HeaderValue::from_static("7")))
        }
    }

    /// Accepts at most `most` bytes in every other call, and is not ready in between.
    struct SlowWriter {
        most: usize,
        ready: bool,
        written: Vec<u8>,
    }

    impl AsyncWrite for SlowWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.ready = !self.ready;
            if !self.ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let length = bytes.len().min(self.most);
            self.written.extend_from_slice(&bytes[..length]);
            assert!(self.written.len() < 1_000, "the response begins again");
            Poll::Ready(Ok(length))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn partial_writes_insert_the_header_once() {
        let response = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let expected = "HTTP/1.1 400 Bad Request\r\nx-request-id: 7\r\ncontent-length: 0\r\n\r\n";
        for most in 1..=expected.len() {
            let mut wire = SlowWriter { most, ready: true, written: Vec::new() };
            let mut state = ParseErrorResponse::default();
            let written = poll_fn(|cx| state.poll_write(cx, &mut wire, response, &FixedId)).await;
            assert_eq!(written.unwrap(), response.len(), "all of hyper's bytes");
            assert_eq!(str::from_utf8(&wire.written).unwrap(), expected, "{most}");
        }
    }
}
