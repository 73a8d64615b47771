//! The body of a request on its way to an upstream, passed on piece by piece.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::claims;
use super::forwarded_bytes::{Closed, ForwardedBytes};
use super::patience::Patience;
use super::progress::Progress;
use super::rereadable::{Piece, Reading, Rereadable};
use crate::extract::ReadHeaders;
use crate::problem::Problem;

/// The body of a request. Most have none, and a request is moved often: what a body needs lies elsewhere.
#[derive(Debug)]
pub(super) struct Outgoing(Option<Box<Sending>>);

/// A body on its way.
#[derive(Debug)]
struct Sending {
    body: Source,
    left: u64,
    patience: Patience,
    /// Where its bytes are counted, if a rule charges for them.
    counted: Option<ForwardedBytes>,
    /// The headers that the rules read.
    read: Arc<ReadHeaders>,
    progress: Progress,
}

/// Where it comes from.
#[derive(Debug)]
enum Source {
    Once(Incoming),
    Again(Reading),
}

/// A body that may be sent once more; none where there is no body at all.
#[derive(Debug)]
pub(super) struct Again(Option<Kept>);

#[derive(Debug)]
struct Kept {
    body: Rereadable,
    left: u64,
    patience: Duration,
    counted: Option<ForwardedBytes>,
    read: Arc<ReadHeaders>,
    progress: Progress,
}

/// What went wrong with the body of a request; it is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFault {
    TooLarge,
    TooSlow,
    BrokenOff,
}

impl Outgoing {
    /// A body of at most `max_bytes`, which are counted as they pass if a rule charges for them.
    pub(super) fn new(
        body: Incoming,
        max_bytes: u64,
        patience: Duration,
        read: Arc<ReadHeaders>,
        counted: impl FnOnce() -> Option<ForwardedBytes>,
    ) -> Self {
        if body.is_end_stream() {
            return Self::none();
        }
        let (left, patience) = (max_bytes, Patience::new(patience));
        let (counted, progress) = (counted(), Progress::default());
        let body = Source::Once(body);
        Self(Some(Box::new(Sending { body, left, patience, counted, read, progress })))
    }

    /// No body at all.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Makes it one that can be sent again, as long as it is short.
    pub(super) fn rereadable(&mut self) -> Again {
        let kept = self.0.take().map(|sending| sending.keep());
        self.0 = kept.as_ref().and_then(Kept::send);
        Again(kept)
    }

    /// How it gets on; none where there is nothing to send.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.0.as_ref().map(|sending| sending.progress.clone())
    }
}

impl Sending {
    fn keep(self) -> Kept {
        let Self { body, left, patience, counted, read, progress } = self;
        let body = match body {
            Source::Once(body) => Rereadable::new(body),
            Source::Again(reading) => reading.into_rereadable(),
        };
        Kept { body, left, patience: patience.span(), counted, read, progress }
    }

    /// What goes on of a piece: all of it but some trailers, once it is counted.
    fn pass(&mut self, piece: Piece) -> Result<Option<Frame<Bytes>>, BodyFault> {
        let frame = piece.frame.map_err(|()| BodyFault::BrokenOff)?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.left = self.left.checked_sub(length).ok_or(BodyFault::TooLarge)?;
        if let Some(counted) = self.counted.as_ref().filter(|_| piece.fresh) {
            counted.add(length).map_err(|Closed| BodyFault::BrokenOff)?;
        }
        Ok(match frame.into_trailers() {
            Ok(mut trailers) => {
                claims::strip_trailers(&mut trailers, &self.read);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
            Err(data) => Some(data),
        })
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        match &mut self.body {
            Source::Once(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| Some(Piece { frame: frame?.map_err(|_| ()), fresh: true })),
            Source::Again(reading) => reading.poll_piece(cx),
        }
    }
}

impl Again {
    /// The same body from its beginning; none if it was too long to be kept.
    pub(super) fn body(&self) -> Option<Outgoing> {
        match &self.0 {
            Some(kept) => Some(Outgoing(Some(kept.send()?))),
            None => Some(Outgoing::none()),
        }
    }
}

impl Kept {
    fn send(&self) -> Option<Box<Sending>> {
        let (left, patience) = (self.left, Patience::new(self.patience));
        let (counted, progress) = (self.counted.clone(), self.progress.clone());
        let (body, read) = (Source::Again(self.body.read()?), Arc::clone(&self.read));
        Some(Box::new(Sending { body, left, patience, counted, read, progress }))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let Some(this) = &mut self.get_mut().0 else { return Poll::Ready(None) };
        let piece = match this.poll_piece(cx) {
            Poll::Ready(piece) => piece,
            Poll::Pending => {
                let lost = this.patience.poll_lost(cx);
                return lost.map(|()| Some(Err(BodyFault::TooSlow)));
            }
        };
        this.patience.progressed();
        this.progress.made();
        Poll::Ready(piece.and_then(|piece| this.pass(piece).transpose()))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| match &sending.body {
            Source::Once(body) => body.is_end_stream(),
            Source::Again(reading) => reading.is_end_stream(),
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.as_ref().map(|sending| &sending.body) {
            None => SizeHint::with_exact(0),
            Some(Source::Once(body)) => body.size_hint(),
            Some(Source::Again(reading)) => reading.size_hint(),
        }
    }
}

impl BodyFault {
    pub(super) fn problem(self) -> Problem {
        let (status, detail) = match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
            Self::BrokenOff => (StatusCode::BAD_REQUEST, "the body broke off"),
        };
        Problem::new(status, detail)
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the client's body is too large",
            Self::TooSlow => "the client's body did not come in time",
            Self::BrokenOff => "the client's body broke off",
        })
    }
}

impl std::error::Error for BodyFault {}
