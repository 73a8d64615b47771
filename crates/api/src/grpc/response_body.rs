//! Body of a gRPC response: messages, then the status in the trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::status::{GRPC, GrpcStatus};

/// Number of stream messages that may be queued for sending.
const STREAM_CAPACITY: usize = 4;

/// Body of a gRPC response.
#[derive(Debug)]
pub struct GrpcBody(State);

#[derive(Debug)]
enum State {
    /// One message, then trailers with status OK.
    Message(Bytes),
    /// Trailers with status OK.
    Trailers,
    /// Frames sent by a task through a [`GrpcMessageSender`]; the trailers end the call.
    Stream(Receiver<Frame<Bytes>>),
    /// Plain HTTP body, for a request that is not gRPC.
    Plain(Bytes),
    End,
}

/// Sends the messages of a stream.
#[derive(Debug)]
pub(super) struct GrpcMessageSender(Sender<Frame<Bytes>>);

impl GrpcBody {
    /// Response with one framed message.
    pub(super) fn unary_response(message: Bytes) -> Response<Self> {
        Self(State::Message(message)).into_response()
    }

    /// Response whose messages are sent later through the returned sender.
    pub(super) fn streaming_response() -> (GrpcMessageSender, Response<Self>) {
        let (sender, receiver) = channel(STREAM_CAPACITY);
        (GrpcMessageSender(sender), Self(State::Stream(receiver)).into_response())
    }

    fn into_response(self) -> Response<Self> {
        let mut response = Response::new(self);
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        response
    }
}

impl GrpcMessageSender {
    /// Sends a framed message; returns false if the client has closed the stream.
    pub(super) async fn send(&self, message: Bytes) -> bool {
        self.0.send(Frame::data(message)).await.is_ok()
    }

    /// Ends the call with a status.
    pub(super) async fn finish(self, status: &GrpcStatus) {
        // An error means that the client is gone and needs no status.
        let _ = self.0.send(Frame::trailers(status.trailers())).await;
    }

    /// Completes when the client closes the stream.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Creates a plain HTTP body, for responses to requests that are not gRPC.
impl From<Bytes> for GrpcBody {
    fn from(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { State::End } else { State::Plain(bytes) })
    }
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (frame, next) = match std::mem::replace(&mut self.0, State::End) {
            State::Message(message) => (Frame::data(message), State::Trailers),
            State::Trailers => (Frame::trailers(GrpcStatus::OK.trailers()), State::End),
            State::Plain(bytes) => (Frame::data(bytes), State::End),
            State::End => return Poll::Ready(None),
            State::Stream(mut receiver) => match receiver.poll_recv(cx) {
                Poll::Ready(Some(frame)) if frame.is_trailers() => (frame, State::End),
                Poll::Ready(Some(frame)) => (frame, State::Stream(receiver)),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.0 = State::Stream(receiver);
                    return Poll::Pending;
                }
            },
        };
        self.0 = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, State::End)
    }
}
