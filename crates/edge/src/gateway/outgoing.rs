//! The body of a request on its way to an upstream: passed on piece by piece, never kept.

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
use crate::problem::Problem;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Outgoing {
    body: Option<Incoming>,
    left: u64,
    patience: Patience,
    /// Where its bytes are counted, if somebody wants to know.
    counted: Option<Arc<AtomicU64>>,
    /// None where there is nothing to send.
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
        let body = (!body.is_end_stream()).then_some(body);
        let progress = body.as_ref().map(|_| Progress::default());
        let patience = Patience::new(patience);
        Self { body, left: max_bytes, patience, counted: None, progress }
    }

    /// The same, with its bytes counted as they pass.
    pub(super) fn counted(self, counted: Option<Arc<AtomicU64>>) -> Self {
        Self { counted, ..self }
    }

    /// The same, if it is no body at all.
    pub(super) fn again(&self) -> Option<Self> {
        self.body.is_none().then(Self::none)
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        self.progress.clone()
    }

    /// No body at all.
    pub(super) const fn none() -> Self {
        let patience = Patience::new(Duration::ZERO);
        Self { body: None, left: 0, patience, counted: None, progress: None }
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
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let lost = this.patience.poll_lost(cx);
                return lost.map(|()| Some(Err(BodyFault::TooSlow)));
            }
        };
        this.patience.progressed();
        if let Some(progress) = &this.progress {
            progress.made();
        }
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|_| BodyFault::BrokenOff)?;
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            this.left = this.left.checked_sub(length).ok_or(BodyFault::TooLarge)?;
            if let Some(counted) = &this.counted {
                counted.fetch_add(length, Relaxed);
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
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
