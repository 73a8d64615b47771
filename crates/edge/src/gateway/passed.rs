//! The body of an answer on its way back to the client: passed on piece by piece, never kept.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::access::Line;
use super::aftermath::Aftermath;
use super::link::Http1;
use super::patience::Patience;
use super::server::InFlight;
use crate::listen::BoxError;
use crate::trace::Serving;

/// The body of an answer of the gateway.
pub enum GatewayBody {
    /// Its own.
    Own(Full<Bytes>),
    /// An upstream's.
    Passed(Box<Passed>),
}

/// The body of an upstream's answer, with the connection that it comes over.
pub struct Passed {
    body: Incoming,
    link: Option<Box<Http1>>,
    in_flight: InFlight,
    patience: Patience,
    /// What is left to do after it.
    pub(super) aftermath: Option<Box<Aftermath>>,
    line: Option<Box<Line>>,
    /// Told when it has gone out.
    serving: Option<Box<Serving>>,
    /// Why it has broken off, until hyper asks once more.
    broken: Option<BoxError>,
}

impl Passed {
    pub(super) fn new(body: Incoming, link: Option<Box<Http1>>, in_flight: InFlight) -> Self {
        let patience = Patience::new(in_flight.server().timeouts().idle);
        let (aftermath, line, serving) = (None, None, None);
        let broken = None;
        let mut passed = Self { body, link, in_flight, patience, aftermath, line, serving, broken };
        if passed.body.is_end_stream() {
            passed.end();
        }
        passed
    }

    fn count(&mut self, frame: &Frame<Bytes>) {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(aftermath) = &mut self.aftermath {
            aftermath.sent(bytes);
        }
        if let Some(line) = &mut self.line {
            line.sent(bytes);
        }
    }

    /// Lets hyper write what it has of the answer before it learns that the rest will not come.
    /// Then it closes the connection at once, and the client would get nothing at all of a short
    /// answer.
    fn break_off(&mut self, error: BoxError, cx: &Context<'_>) -> Polled {
        self.broken = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The connection is free for another request.
    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            self.in_flight.server().keep(link);
        }
    }
}

/// What a body says when it is asked for its next piece.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl Body for Passed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match &mut this.link {
            Some(link) => link.poll_frame(&mut this.body, cx),
            None => Pin::new(&mut this.body).poll_frame(cx),
        };
        match frame {
            Poll::Ready(Some(Err(error))) => this.break_off(error.into(), cx),
            Poll::Ready(Some(Ok(frame))) => {
                this.patience.progressed();
                this.count(&frame);
                // Trailers are the last that comes, and nobody may ask for more after them.
                if frame.is_trailers() || this.body.is_end_stream() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let lost = this.patience.poll_lost(cx);
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
    pub(super) fn tell(&mut self, mut line: Box<Line>) {
        match self {
            Self::Own(own) => line.sent(own.size_hint().lower()),
            Self::Passed(passed) => passed.line = Some(line),
        }
    }

    /// Ends a span when it has gone out; its own is as good as gone.
    pub(super) fn end(&mut self, serving: Box<Serving>) {
        if let Self::Passed(passed) = self {
            passed.serving = Some(serving);
        }
    }

    /// The host and port that it comes from, if it is an upstream's.
    pub(super) fn server(&self) -> Option<(String, u16)> {
        let Self::Passed(passed) = self else { return None };
        let address = &passed.in_flight.server().address;
        Some((address.host.clone(), address.port))
    }
}

impl From<Bytes> for GatewayBody {
    fn from(bytes: Bytes) -> Self {
        Self::Own(Full::new(bytes))
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
            Self::Own(own) => Pin::new(own).poll_frame(cx).map_err(|never| match never {}),
            Self::Passed(passed) => Pin::new(passed.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(own) => own.is_end_stream(),
            Self::Passed(passed) => passed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(own) => own.size_hint(),
            Self::Passed(passed) => passed.size_hint(),
        }
    }
}
