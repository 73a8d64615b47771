//! The body of an answer on its way back to the client: passed on piece by piece, never kept.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::access_log::AccessLogEntry;
use super::completion::RequestCompletion;
use super::idle_timeout::IdleTimeout;
use super::upstream_connection::Http1Connection;
use super::upstream_server::ServerLoadGuard;
use tidegate_net::listen::BoxError;
use tidegate_telemetry::trace::ServerSpan;

/// The body of an answer of the gateway.
pub enum GatewayBody {
    /// Its own.
    Local(Full<Bytes>),
    /// An upstream's.
    Proxied(Box<ProxiedBody>),
}

/// The body of an upstream's answer, with the connection that it comes over.
pub struct ProxiedBody {
    body: Incoming,
    connection: Option<Box<Http1Connection>>,
    in_flight: ServerLoadGuard,
    idle_timeout: IdleTimeout,
    /// What is left to do after it.
    pub(super) completion: Option<Box<RequestCompletion>>,
    access_entry: Option<Box<AccessLogEntry>>,
    /// Told when it has gone out.
    span: Option<Box<ServerSpan>>,
    /// Why it has broken off, until hyper asks once more.
    pending_error: Option<BoxError>,
}

impl ProxiedBody {
    pub(super) fn new(
        body: Incoming,
        link: Option<Box<Http1Connection>>,
        in_flight: ServerLoadGuard,
    ) -> Self {
        let patience = IdleTimeout::new(in_flight.server().timeouts().idle);
        let (aftermath, line, serving) = (None, None, None);
        let broken = None;
        let mut passed = Self {
            body,
            connection: link,
            in_flight,
            idle_timeout: patience,
            completion: aftermath,
            access_entry: line,
            span: serving,
            pending_error: broken,
        };
        if passed.body.is_end_stream() {
            passed.release_connection();
        }
        passed
    }

    fn count_bytes(&mut self, frame: &Frame<Bytes>) {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(aftermath) = &mut self.completion {
            aftermath.add_sent_bytes(bytes);
        }
        if let Some(line) = &mut self.access_entry {
            line.add_sent_bytes(bytes);
        }
    }

    /// Lets hyper write what it has of the answer before it learns that the rest will not come.
    /// Then it closes the connection at once, and the client would get nothing at all of a short
    /// answer.
    fn defer_error(&mut self, error: BoxError, cx: &Context<'_>) -> PolledFrame {
        self.pending_error = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The connection is free for another request.
    fn release_connection(&mut self) {
        if let Some(link) = self.connection.take() {
            self.in_flight.server().return_to_pool(link);
        }
    }
}

/// What a body says when it is asked for its next piece.
type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl Body for ProxiedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        if let Some(error) = this.pending_error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match &mut this.connection {
            Some(link) => link.poll_frame(&mut this.body, cx),
            None => Pin::new(&mut this.body).poll_frame(cx),
        };
        match frame {
            Poll::Ready(Some(Err(error))) => this.defer_error(error.into(), cx),
            Poll::Ready(Some(Ok(frame))) => {
                this.idle_timeout.record_progress();
                this.count_bytes(&frame);
                // Trailers are the last that comes, and nobody may ask for more after them.
                if frame.is_trailers() || this.body.is_end_stream() {
                    this.release_connection();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.release_connection();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let lost = this.idle_timeout.poll_elapsed(cx);
                lost.map(|()| Some(Err("the upstream's answer did not come in time".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl GatewayBody {
    /// Writes a line of the access log when it has gone out; its own is as good as gone.
    pub(super) fn attach_access_entry(&mut self, mut line: Box<AccessLogEntry>) {
        match self {
            Self::Local(own) => line.add_sent_bytes(own.size_hint().lower()),
            Self::Proxied(passed) => passed.access_entry = Some(line),
        }
    }

    /// Ends a span when it has gone out; its own is as good as gone.
    pub(super) fn attach_span(&mut self, serving: Box<ServerSpan>) {
        if let Self::Proxied(passed) = self {
            passed.span = Some(serving);
        }
    }

    /// The host and port that it comes from, if it is an upstream's.
    pub(super) fn server(&self) -> Option<(String, u16)> {
        let Self::Proxied(passed) = self else { return None };
        let address = &passed.in_flight.server().address;
        Some((address.host.clone(), address.port))
    }
}

impl From<Bytes> for GatewayBody {
    fn from(bytes: Bytes) -> Self {
        Self::Local(Full::new(bytes))
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Local(own) => Pin::new(own).poll_frame(cx).map_err(|never| match never {}),
            Self::Proxied(passed) => Pin::new(passed.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Local(own) => own.is_end_stream(),
            Self::Proxied(passed) => passed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Local(own) => own.size_hint(),
            Self::Proxied(passed) => passed.size_hint(),
        }
    }
}
