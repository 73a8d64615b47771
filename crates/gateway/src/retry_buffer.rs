//! A request body that can be sent again if a server reports that it did not process the request.
//!
//! Pieces are forwarded as they arrive. Those of a short body are also buffered, without a copy,
//! until the head of the response arrives. A long body is not buffered and cannot be sent again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// The maximum number of buffered bytes of a body.
const MAX_REPLAY_BYTES: usize = 64 * 1024;

/// A reader of the body; only the latest one is valid.
#[derive(Debug)]
pub(super) struct RetryBody {
    source: Arc<Mutex<RetrySource>>,
    generation: u32,
    /// The number of pieces that this reader has returned.
    next_frame: usize,
}

/// Creates readers that start at the beginning of the body.
#[derive(Debug)]
pub(super) struct RetryBuffer(Arc<Mutex<RetrySource>>);

#[derive(Debug)]
struct RetrySource {
    body: Incoming,
    /// The pieces so far; `None` once they exceed the limit or a trailer arrived.
    buffered: Option<Vec<Bytes>>,
    generations: u32,
}

/// The next piece, and whether it is read for the first time.
pub(super) struct RetryFrame {
    pub(super) frame: Result<Frame<Bytes>, ()>,
    pub(super) is_new: bool,
}

impl RetryBuffer {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(RetrySource { body, buffered: Some(Vec::new()), generations: 0 })))
    }

    /// Starts a new reader at the beginning, if the whole body so far is buffered. Earlier readers
    /// fail from then on.
    pub(super) fn start_retry(&self) -> Option<RetryBody> {
        let mut source = self.0.lock();
        source.buffered.as_ref()?;
        source.generations += 1;
        Some(RetryBody {
            source: Arc::clone(&self.0),
            generation: source.generations,
            next_frame: 0,
        })
    }
}

impl RetrySource {
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| {
            let frame = frame?.map_err(|_| ());
            self.buffer_frame(frame.as_ref().ok());
            Some(frame)
        })
    }

    fn buffer_frame(&mut self, frame: Option<&Frame<Bytes>>) {
        let data = frame.and_then(Frame::data_ref);
        self.buffered = self.buffered.take().zip(data).and_then(|(mut buffered, data)| {
            buffered.push(data.clone());
            let bytes: usize = buffered.iter().map(Bytes::len).sum();
            (bytes <= MAX_REPLAY_BYTES).then_some(buffered)
        });
    }
}

impl RetryBody {
    /// Converts into a buffer that can start another reader.
    pub(super) fn into_buffer(self) -> RetryBuffer {
        RetryBuffer(self.source)
    }

    /// Reads the next piece, from the buffer or from the client.
    pub(super) fn poll_retry_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<RetryFrame>> {
        let mut source = self.source.lock();
        if source.generations != self.generation {
            return Poll::Ready(Some(RetryFrame { frame: Err(()), is_new: false }));
        }
        let buffered =
            source.buffered.as_ref().and_then(|buffered| buffered.get(self.next_frame)).cloned();
        self.next_frame += 1;
        if let Some(data) = buffered {
            return Poll::Ready(Some(RetryFrame { frame: Ok(Frame::data(data)), is_new: false }));
        }
        let next = source.poll_source(cx);
        if next.is_pending() {
            self.next_frame -= 1;
        }
        next.map(|frame| frame.map(|frame| RetryFrame { frame, is_new: true }))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        let left = source
            .buffered
            .as_ref()
            .map_or(0, |buffered| buffered.len().saturating_sub(self.next_frame));
        left == 0 && source.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        let buffered_bytes =
            source.buffered.iter().flatten().skip(self.next_frame).map(|data| data.len() as u64);
        let (buffered_bytes, rest) = (buffered_bytes.sum::<u64>(), source.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + buffered_bytes);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + buffered_bytes);
        }
        hint
    }
}
