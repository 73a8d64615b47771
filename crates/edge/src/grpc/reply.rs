//! The body of an answer: messages, then the status in the trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::status::{GRPC, Status};

/// Messages of a stream that wait to be taken.
const WAITING: usize = 4;

/// The body of an answer.
#[derive(Debug)]
pub struct Reply(State);

#[derive(Debug)]
enum State {
    /// One message, and that all is well.
    Message(Bytes),
    /// That all is well.
    Trailers,
    /// What somebody sends until it says how the call ended.
    Stream(Receiver<Frame<Bytes>>),
    /// No gRPC.
    Plain(Bytes),
    End,
}

/// Where the messages of a stream are put.
#[derive(Debug)]
pub(super) struct Outbox(Sender<Frame<Bytes>>);

impl Reply {
    /// The answer with one message, framed.
    pub(super) fn one(message: Bytes) -> Response<Self> {
        Self(State::Message(message)).response()
    }

    /// The answer with messages that are yet to come.
    pub(super) fn stream() -> (Outbox, Response<Self>) {
        let (sender, receiver) = channel(WAITING);
        (Outbox(sender), Self(State::Stream(receiver)).response())
    }

    fn response(self) -> Response<Self> {
        let mut response = Response::new(self);
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        response
    }
}

impl Outbox {
    /// Sends a message, framed; false if nobody takes it any more.
    pub(super) async fn send(&self, message: Bytes) -> bool {
        self.0.send(Frame::data(message)).await.is_ok()
    }

    /// Ends the call.
    pub(super) async fn end(self, status: &Status) {
        // Whoever has gone away needs no status.
        let _ = self.0.send(Frame::trailers(status.trailers())).await;
    }

    /// Waits until the caller has gone away.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// A body that is no gRPC: the answer to a request that is none either.
impl From<Bytes> for Reply {
    fn from(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { State::End } else { State::Plain(bytes) })
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (frame, next) = match std::mem::replace(&mut self.0, State::End) {
            State::Message(message) => (Frame::data(message), State::Trailers),
            State::Trailers => (Frame::trailers(Status::OK.trailers()), State::End),
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
