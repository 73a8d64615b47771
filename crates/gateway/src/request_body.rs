//! The body of a request on its way to an upstream, passed on piece by piece.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::forwarded_bytes::{ForwardedBytes, ForwardingClosedError};
use super::header_policy;
use super::idle_timeout::IdleTimeout;
use super::replay_body::{ReplayBody, ReplayBuffer, ReplayFrame};
use super::upload_progress::UploadProgress;
use tidegate_identity::RuleInputHeaders;
use tidegate_web::problem::HttpError;

/// The body of a request. Most have none, and a request is moved often: what a body needs lies elsewhere.
#[derive(Debug)]
pub(super) struct UpstreamRequestBody(Option<Box<UploadState>>);

/// A body on its way.
#[derive(Debug)]
struct UploadState {
    body: BodySource,
    bytes_left: u64,
    idle_timeout: IdleTimeout,
    /// Where its bytes are counted, if a rule charges for them.
    forwarded_bytes: Option<ForwardedBytes>,
    /// The headers that the rules read.
    rule_headers: Arc<RuleInputHeaders>,
    progress: UploadProgress,
}

/// Where it comes from.
#[derive(Debug)]
enum BodySource {
    Direct(Incoming),
    Replay(ReplayBody),
}

/// A body that may be sent once more; none where there is no body at all.
#[derive(Debug)]
pub(super) struct ReplayHandle(Option<BufferedBody>);

#[derive(Debug)]
struct BufferedBody {
    body: ReplayBuffer,
    bytes_left: u64,
    idle_timeout: Duration,
    forwarded_bytes: Option<ForwardedBytes>,
    rule_headers: Arc<RuleInputHeaders>,
    progress: UploadProgress,
}

/// What went wrong with the body of a request; it is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestBodyError {
    TooLarge,
    TimedOut,
    Aborted,
}

impl UpstreamRequestBody {
    /// A body of at most `max_bytes`, which are counted as they pass if a rule charges for them.
    pub(super) fn new(
        body: Incoming,
        max_bytes: u64,
        patience: Duration,
        read: Arc<RuleInputHeaders>,
        counted: impl FnOnce() -> Option<ForwardedBytes>,
    ) -> Self {
        if body.is_end_stream() {
            return Self::empty();
        }
        let (left, patience) = (max_bytes, IdleTimeout::new(patience));
        let (counted, progress) = (counted(), UploadProgress::default());
        let body = BodySource::Direct(body);
        Self(Some(Box::new(UploadState {
            body,
            bytes_left: left,
            idle_timeout: patience,
            forwarded_bytes: counted,
            rule_headers: read,
            progress,
        })))
    }

    /// No body at all.
    pub(super) const fn empty() -> Self {
        Self(None)
    }

    /// Makes it one that can be sent again, as long as it is short.
    pub(super) fn make_replayable(&mut self) -> ReplayHandle {
        let kept = self.0.take().map(|sending| sending.into_buffered());
        self.0 = kept.as_ref().and_then(BufferedBody::start_upload);
        ReplayHandle(kept)
    }

    /// How it gets on; none where there is nothing to send.
    pub(super) fn progress(&self) -> Option<UploadProgress> {
        self.0.as_ref().map(|sending| sending.progress.clone())
    }
}

impl UploadState {
    fn into_buffered(self) -> BufferedBody {
        let Self {
            body,
            bytes_left: left,
            idle_timeout: patience,
            forwarded_bytes: counted,
            rule_headers: read,
            progress,
        } = self;
        let body = match body {
            BodySource::Direct(body) => ReplayBuffer::new(body),
            BodySource::Replay(reading) => reading.into_buffer(),
        };
        BufferedBody {
            body,
            bytes_left: left,
            idle_timeout: patience.duration(),
            forwarded_bytes: counted,
            rule_headers: read,
            progress,
        }
    }

    /// What goes on of a piece: all of it but some trailers, once it is counted.
    fn process_frame(
        &mut self,
        piece: ReplayFrame,
    ) -> Result<Option<Frame<Bytes>>, RequestBodyError> {
        let frame = piece.frame.map_err(|()| RequestBodyError::Aborted)?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.bytes_left = self.bytes_left.checked_sub(length).ok_or(RequestBodyError::TooLarge)?;
        if let Some(counted) = self.forwarded_bytes.as_ref().filter(|_| piece.is_new) {
            counted.add(length).map_err(|ForwardingClosedError| RequestBodyError::Aborted)?;
        }
        Ok(match frame.into_trailers() {
            Ok(mut trailers) => {
                header_policy::strip_trailers(&mut trailers, &self.rule_headers);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
            Err(data) => Some(data),
        })
    }

    fn poll_source_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<ReplayFrame>> {
        match &mut self.body {
            BodySource::Direct(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| Some(ReplayFrame { frame: frame?.map_err(|_| ()), is_new: true })),
            BodySource::Replay(reading) => reading.poll_replay_frame(cx),
        }
    }
}

impl ReplayHandle {
    /// The same body from its beginning; none if it was too long to be kept.
    pub(super) fn replay(&self) -> Option<UpstreamRequestBody> {
        match &self.0 {
            Some(kept) => Some(UpstreamRequestBody(Some(kept.start_upload()?))),
            None => Some(UpstreamRequestBody::empty()),
        }
    }
}

impl BufferedBody {
    fn start_upload(&self) -> Option<Box<UploadState>> {
        let (left, patience) = (self.bytes_left, IdleTimeout::new(self.idle_timeout));
        let (counted, progress) = (self.forwarded_bytes.clone(), self.progress.clone());
        let (body, read) =
            (BodySource::Replay(self.body.start_replay()?), Arc::clone(&self.rule_headers));
        Some(Box::new(UploadState {
            body,
            bytes_left: left,
            idle_timeout: patience,
            forwarded_bytes: counted,
            rule_headers: read,
            progress,
        }))
    }
}

impl Body for UpstreamRequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(this) = &mut self.get_mut().0 else { return Poll::Ready(None) };
        let piece = match this.poll_source_frame(cx) {
            Poll::Ready(piece) => piece,
            Poll::Pending => {
                let lost = this.idle_timeout.poll_elapsed(cx);
                return lost.map(|()| Some(Err(RequestBodyError::TimedOut)));
            }
        };
        this.idle_timeout.record_progress();
        this.progress.record_frame();
        Poll::Ready(piece.and_then(|piece| this.process_frame(piece).transpose()))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| match &sending.body {
            BodySource::Direct(body) => body.is_end_stream(),
            BodySource::Replay(reading) => reading.is_end_stream(),
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.as_ref().map(|sending| &sending.body) {
            None => SizeHint::with_exact(0),
            Some(BodySource::Direct(body)) => body.size_hint(),
            Some(BodySource::Replay(reading)) => reading.size_hint(),
        }
    }
}

impl RequestBodyError {
    pub(super) fn to_http_error(self) -> HttpError {
        let (status, detail) = match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            Self::TimedOut => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
            Self::Aborted => (StatusCode::BAD_REQUEST, "the body broke off"),
        };
        HttpError::new(status, detail)
    }
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the client's body is too large",
            Self::TimedOut => "the client's body did not come in time",
            Self::Aborted => "the client's body broke off",
        })
    }
}

impl std::error::Error for RequestBodyError {}
