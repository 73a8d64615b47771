//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use tidegate_response::RequestCompletion;

pin_project! {
    /// The body of a response: that of the inner service, or of a refusal. When it ends or is
    /// dropped, concurrency slots are freed and the cost of the response is charged.
    pub struct RateLimitBody<B> {
        #[pin]
        source: BodySource<B>,
    }
}

pin_project! {
    #[project = BodySourceProjection]
    enum BodySource<B> {
        Inner { #[pin] body: B, completion: Option<Box<RequestCompletion>> },
        Refusal { #[pin] body: Full<Bytes> },
    }
}

impl<B> RateLimitBody<B> {
    pub(crate) fn from_inner(body: B, completion: Option<Box<RequestCompletion>>) -> Self {
        Self { source: BodySource::Inner { body, completion } }
    }

    pub(crate) fn from_refusal(body: Full<Bytes>) -> Self {
        Self { source: BodySource::Refusal { body } }
    }
}

impl<B: Body<Data = Bytes>> Body for RateLimitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().source.project() {
            BodySourceProjection::Inner { body, completion } => {
                let polled = body.poll_frame(cx);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                        if let Some(completion) = completion {
                            completion.add_sent_bytes(bytes);
                        }
                    }
                    Poll::Ready(None) => drop(completion.take()),
                    _ => {}
                }
                polled
            }
            BodySourceProjection::Refusal { body } => {
                body.poll_frame(cx).map_err(|never| match never {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Inner { body, .. } => body.is_end_stream(),
            BodySource::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Inner { body, .. } => body.size_hint(),
            BodySource::Refusal { body } => body.size_hint(),
        }
    }
}
