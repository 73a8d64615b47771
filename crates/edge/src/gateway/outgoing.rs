//! The body of a request on its way to an upstream, passed on piece by piece.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::patience::Patience;
use super::progress::Progress;
use super::rereadable::{Piece, Reading, Rereadable};
use crate::problem::Problem;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Outgoing {
    body: Source,
    left: u64,
    patience: Patience,
    /// Where its bytes are counted, if somebody wants to know.
    counted: Option<Arc<AtomicU64>>,
    /// None where there is nothing to send.
    progress: Option<Progress>,
}

/// Where it comes from.
#[derive(Debug)]
enum Source {
    Nothing,
    Once(Incoming),
    Again(Reading),
}

/// A body that may be sent once more.
#[derive(Debug)]
pub(super) struct Again {
    /// None where there is no body at all.
    body: Option<Rereadable>,
    left: u64,
    patience: Patience,
    counted: Option<Arc<AtomicU64>>,
    progress: Option<Progress>,
}

/// What went wrong with the body of a request; it is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFault {
    TooLarge,
    TooSlow,
    BrokenOff,
}

impl Outgoing {
    pub(super) fn new(body: Incoming, max_bytes: u64, patience: Duration) -> Self {
        let patience = Patience::new(patience);
        let (body, progress) = match body.is_end_stream() {
            true => (Source::Nothing, None),
            false => (Source::Once(body), Some(Progress::default())),
        };
        Self { body, left: max_bytes, patience, counted: None, progress }
    }

    /// The same, with its bytes counted as they pass.
    pub(super) fn counted(self, counted: Option<Arc<AtomicU64>>) -> Self {
        Self { counted, ..self }
    }

    /// Makes it one that can be sent again, as long as it is short.
    pub(super) fn rereadable(&mut self) -> Again {
        let body = match std::mem::replace(&mut self.body, Source::Nothing) {
            Source::Nothing => None,
            Source::Once(body) => Some(Rereadable::new(body)),
            Source::Again(reading) => Some(reading.into_rereadable()),
        };
        if let Some(reading) = body.as_ref().and_then(Rereadable::read) {
            self.body = Source::Again(reading);
        }
        let patience = Patience::new(self.patience.span());
        let (counted, progress) = (self.counted.clone(), self.progress.clone());
        Again { body, left: self.left, patience, counted, progress }
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        self.progress.clone()
    }

    /// No body at all.
    pub(super) const fn none() -> Self {
        let patience = Patience::new(Duration::ZERO);
        Self { body: Source::Nothing, left: 0, patience, counted: None, progress: None }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        match &mut self.body {
            Source::Nothing => Poll::Ready(None),
            Source::Once(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| Some(Piece { frame: frame?.map_err(|_| ()), fresh: true })),
            Source::Again(reading) => reading.poll_piece(cx),
        }
    }
}

impl Again {
    /// The same body from its beginning; none if it was too long to be kept.
    pub(super) fn body(self) -> Option<Outgoing> {
        let Self { body, left, patience, counted, progress } = self;
        let body = match body {
            Some(body) => Source::Again(body.read()?),
            None => Source::Nothing,
        };
        Some(Outgoing { body, left, patience, counted, progress })
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        let piece = match this.poll_piece(cx) {
            Poll::Ready(piece) => piece,
            Poll::Pending => {
                let lost = this.patience.poll_lost(cx);
                return lost.map(|()| Some(Err(BodyFault::TooSlow)));
            }
        };
        this.patience.progressed();
        if let Some(progress) = &this.progress {
            progress.made();
        }
        Poll::Ready(piece.map(|Piece { frame, fresh }| {
            let frame = frame.map_err(|()| BodyFault::BrokenOff)?;
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            this.left = this.left.checked_sub(length).ok_or(BodyFault::TooLarge)?;
            if let Some(counted) = this.counted.as_ref().filter(|_| fresh) {
                counted.fetch_add(length, Relaxed);
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Nothing => true,
            Source::Once(body) => body.is_end_stream(),
            Source::Again(reading) => reading.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Nothing => SizeHint::with_exact(0),
            Source::Once(body) => body.size_hint(),
            Source::Again(reading) => reading.size_hint(),
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
