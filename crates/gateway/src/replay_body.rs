//! A request's body that can be sent once more, where a server has said that it read nothing of the request.
//!
//! Pieces go on as they come; a short body's are kept besides (they are not copied) until the head of the answer is
//! there. Of a long one nothing is kept, and it cannot be sent again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// The most that is kept of a body.
const MAX_REPLAY_BYTES: usize = 64 * 1024;

/// One reading of a body; the latest is the one that counts.
#[derive(Debug)]
pub(super) struct ReplayBody {
    source: Arc<Mutex<ReplaySource>>,
    generation: u32,
    /// How many pieces were passed on.
    next_frame: usize,
}

/// How to begin anew.
#[derive(Debug)]
pub(super) struct ReplayBuffer(Arc<Mutex<ReplaySource>>);

#[derive(Debug)]
struct ReplaySource {
    body: Incoming,
    /// What came so far; none where it was too much.
    buffered: Option<Vec<Bytes>>,
    generations: u32,
}

/// The next piece, and whether it came just now.
pub(super) struct ReplayFrame {
    pub(super) frame: Result<Frame<Bytes>, ()>,
    pub(super) is_new: bool,
}

impl ReplayBuffer {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(ReplaySource {
            body,
            buffered: Some(Vec::new()),
            generations: 0,
        })))
    }

    /// The body from its beginning, if it is all there still. Whoever reads it already gets no more of it.
    pub(super) fn start_replay(&self) -> Option<ReplayBody> {
        let mut source = self.0.lock();
        source.buffered.as_ref()?;
        source.generations += 1;
        Some(ReplayBody {
            source: Arc::clone(&self.0),
            generation: source.generations,
            next_frame: 0,
        })
    }
}

impl ReplaySource {
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| {
            let frame = frame?.map_err(|_| ());
            self.buffer_frame(frame.as_ref().ok());
            Some(frame)
        })
    }

    fn buffer_frame(&mut self, frame: Option<&Frame<Bytes>>) {
        let data = frame.and_then(Frame::data_ref);
        self.buffered = self.buffered.take().zip(data).and_then(|(mut kept, data)| {
            kept.push(data.clone());
            let bytes: usize = kept.iter().map(Bytes::len).sum();
            (bytes <= MAX_REPLAY_BYTES).then_some(kept)
        });
    }
}

impl ReplayBody {
    /// The body, to be read once more.
    pub(super) fn into_buffer(self) -> ReplayBuffer {
        ReplayBuffer(self.source)
    }

    /// The next piece.
    pub(super) fn poll_replay_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<ReplayFrame>> {
        let mut source = self.source.lock();
        if source.generations != self.generation {
            return Poll::Ready(Some(ReplayFrame { frame: Err(()), is_new: false }));
        }
        let kept = source.buffered.as_ref().and_then(|kept| kept.get(self.next_frame)).cloned();
        self.next_frame += 1;
        if let Some(data) = kept {
            return Poll::Ready(Some(ReplayFrame { frame: Ok(Frame::data(data)), is_new: false }));
        }
        let next = source.poll_source(cx);
        if next.is_pending() {
            self.next_frame -= 1;
        }
        next.map(|frame| frame.map(|frame| ReplayFrame { frame, is_new: true }))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        let left =
            source.buffered.as_ref().map_or(0, |kept| kept.len().saturating_sub(self.next_frame));
        left == 0 && source.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        let again =
            source.buffered.iter().flatten().skip(self.next_frame).map(|data| data.len() as u64);
        let (again, rest) = (again.sum::<u64>(), source.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + again);
        }
        hint
    }
}
