//! The body of a request, streamed to the upstream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::body_idle_timeout::IdleTimeout;
use super::header_policy;
use super::retry_buffer::{RetryBody, RetryBuffer, RetryFrame};
use super::upload_progress::UploadProgress;
use tidegate_identity::RuleInputHeaders;
use tidegate_response::{ForwardedBytes, ForwardingClosedError};
use tidegate_web::problem::HttpError;

/// The body of a request. Most requests have none, and requests are moved often, so the state is
/// boxed.
#[derive(Debug)]
pub(super) struct UpstreamRequestBody(Option<Box<UploadState>>);

/// The state of an upload.
#[derive(Debug)]
struct UploadState {
    body: BodySource,
    bytes_left: u64,
    idle_timeout: IdleTimeout,
    /// The byte counter, if a rule charges for the body.
    forwarded_bytes: Option<ForwardedBytes>,
    /// The headers that the rules read; they are removed from the trailers.
    rule_headers: Arc<RuleInputHeaders>,
    progress: UploadProgress,
}

/// The source of the pieces.
#[derive(Debug)]
enum BodySource {
    Direct(Incoming),
    Retry(RetryBody),
}

/// A body that may be sent again; `None` if the request has no body.
#[derive(Debug)]
pub(super) struct RetryHandle(Option<BufferedBody>);

#[derive(Debug)]
struct BufferedBody {
    body: RetryBuffer,
    bytes_left: u64,
    idle_timeout: Duration,
    forwarded_bytes: Option<ForwardedBytes>,
    rule_headers: Arc<RuleInputHeaders>,
    progress: UploadProgress,
}

/// Why a request body failed; always caused by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestBodyError {
    TooLarge,
    TimedOut,
    Aborted,
}

impl UpstreamRequestBody {
    /// Creates a body of at most `max_bytes`, which are counted if a rule charges for them.
    pub(super) fn new(
        body: Incoming,
        max_bytes: u64,
        idle_timeout: Duration,
        rule_headers: Arc<RuleInputHeaders>,
        forwarded_bytes: impl FnOnce() -> Option<ForwardedBytes>,
    ) -> Self {
        if body.is_end_stream() {
            return Self::empty();
        }
        let (bytes_left, idle_timeout) = (max_bytes, IdleTimeout::new(idle_timeout));
        let (forwarded_bytes, progress) = (forwarded_bytes(), UploadProgress::default());
        let body = BodySource::Direct(body);
        Self(Some(Box::new(UploadState {
            body,
            bytes_left,
            idle_timeout,
            forwarded_bytes,
            rule_headers,
            progress,
        })))
    }

    /// A request without a body.
    pub(super) const fn empty() -> Self {
        Self(None)
    }

    /// Buffers the body for a retry, as long as it is short.
    pub(super) fn make_retryable(&mut self) -> RetryHandle {
        let buffered = self.0.take().map(|upload| upload.into_buffered());
        self.0 = buffered.as_ref().and_then(BufferedBody::start_upload);
        RetryHandle(buffered)
    }

    /// The upload progress; `None` if there is no body.
    pub(super) fn progress(&self) -> Option<UploadProgress> {
        self.0.as_ref().map(|upload| upload.progress.clone())
    }
}

impl UploadState {
    fn into_buffered(self) -> BufferedBody {
        let Self { body, bytes_left, idle_timeout, forwarded_bytes, rule_headers, progress } = self;
        let body = match body {
            BodySource::Direct(body) => RetryBuffer::new(body),
            BodySource::Retry(body) => body.into_buffer(),
        };
        BufferedBody {
            body,
            bytes_left,
            idle_timeout: idle_timeout.duration(),
            forwarded_bytes,
            rule_headers,
            progress,
        }
    }

    /// Counts a piece, and removes unsafe trailers.
    fn process_frame(
        &mut self,
        piece: RetryFrame,
    ) -> Result<Option<Frame<Bytes>>, RequestBodyError> {
        let frame = piece.frame.map_err(|()| RequestBodyError::Aborted)?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.bytes_left = self.bytes_left.checked_sub(length).ok_or(RequestBodyError::TooLarge)?;
        if let Some(forwarded_bytes) = self.forwarded_bytes.as_ref().filter(|_| piece.is_new) {
            forwarded_bytes
                .add(length)
                .map_err(|ForwardingClosedError| RequestBodyError::Aborted)?;
        }
        Ok(match frame.into_trailers() {
            Ok(mut trailers) => {
                header_policy::strip_trailers(&mut trailers, &self.rule_headers);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
            Err(data) => Some(data),
        })
    }

    fn poll_source_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<RetryFrame>> {
        match &mut self.body {
            BodySource::Direct(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| Some(RetryFrame { frame: frame?.map_err(|_| ()), is_new: true })),
            BodySource::Retry(body) => body.poll_retry_frame(cx),
        }
    }
}

impl RetryHandle {
    /// The same body from the beginning; `None` if it was too long to buffer.
    pub(super) fn retry_body(&self) -> Option<UpstreamRequestBody> {
        match &self.0 {
            Some(buffered) => Some(UpstreamRequestBody(Some(buffered.start_upload()?))),
            None => Some(UpstreamRequestBody::empty()),
        }
    }
}

impl BufferedBody {
    fn start_upload(&self) -> Option<Box<UploadState>> {
        let (bytes_left, idle_timeout) = (self.bytes_left, IdleTimeout::new(self.idle_timeout));
        let (forwarded_bytes, progress) = (self.forwarded_bytes.clone(), self.progress.clone());
        let (body, rule_headers) =
            (BodySource::Retry(self.body.start_retry()?), Arc::clone(&self.rule_headers));
        Some(Box::new(UploadState {
            body,
            bytes_left,
            idle_timeout,
            forwarded_bytes,
            rule_headers,
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
                let elapsed = this.idle_timeout.poll_elapsed(cx);
                return elapsed.map(|()| Some(Err(RequestBodyError::TimedOut)));
            }
        };
        this.idle_timeout.record_progress();
        this.progress.record_frame();
        Poll::Ready(piece.and_then(|piece| this.process_frame(piece).transpose()))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|upload| match &upload.body {
            BodySource::Direct(body) => body.is_end_stream(),
            BodySource::Retry(body) => body.is_end_stream(),
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.as_ref().map(|upload| &upload.body) {
            None => SizeHint::with_exact(0),
            Some(BodySource::Direct(body)) => body.size_hint(),
            Some(BodySource::Retry(body)) => body.size_hint(),
        }
    }
}

impl RequestBodyError {
    pub(super) fn to_http_error(self) -> HttpError {
        let (status, detail) = match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large"),
            Self::TimedOut => {
                (StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")
            }
            Self::Aborted => (StatusCode::BAD_REQUEST, "the request body ended early"),
        };
        HttpError::new(status, detail)
    }
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the client's request body is too large",
            Self::TimedOut => "the client did not send the request body in time",
            Self::Aborted => "the client's request body ended early",
        })
    }
}

impl std::error::Error for RequestBodyError {}
