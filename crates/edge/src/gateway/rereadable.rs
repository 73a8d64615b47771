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
const MOST_KEPT: usize = 64 * 1024;

/// One reading of a body; the latest is the one that counts.
#[derive(Debug)]
pub(super) struct Reading {
    source: Arc<Mutex<Source>>,
    number: u32,
    /// How many pieces were passed on.
    passed: usize,
}

/// How to begin anew.
#[derive(Debug)]
pub(super) struct Rereadable(Arc<Mutex<Source>>);

#[derive(Debug)]
struct Source {
    body: Incoming,
    /// What came so far; none where it was too much.
    kept: Option<Vec<Bytes>>,
    readings: u32,
}

/// The next piece, and whether it came just now.
pub(super) struct Piece {
    pub(super) frame: Result<Frame<Bytes>, ()>,
    pub(super) fresh: bool,
}

impl Rereadable {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(Source { body, kept: Some(Vec::new()), readings: 0 })))
    }

    /// The body from its beginning, if it is all there still. Whoever reads it already gets no more of it.
    pub(super) fn read(&self) -> Option<Reading> {
        let mut source = self.0.lock();
        source.kept.as_ref()?;
        source.readings += 1;
        Some(Reading { source: Arc::clone(&self.0), number: source.readings, passed: 0 })
    }
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| {
            let frame = frame?.map_err(|_| ());
            self.keep(frame.as_ref().ok());
            Some(frame)
        })
    }

    fn keep(&mut self, frame: Option<&Frame<Bytes>>) {
        let data = frame.and_then(Frame::data_ref);
        self.kept = self.kept.take().zip(data).and_then(|(mut kept, data)| {
            kept.push(data.clone());
            let bytes: usize = kept.iter().map(Bytes::len).sum();
            (bytes <= MOST_KEPT).then_some(kept)
        });
    }
}

impl Reading {
    /// The body, to be read once more.
    pub(super) fn into_rereadable(self) -> Rereadable {
        Rereadable(self.source)
    }

    /// The next piece.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let mut source = self.source.lock();
        if source.readings != self.number {
            return Poll::Ready(Some(Piece { frame: Err(()), fresh: false }));
        }
        let kept = source.kept.as_ref().and_then(|kept| kept.get(self.passed)).cloned();
        self.passed += 1;
        if let Some(data) = kept {
            return Poll::Ready(Some(Piece { frame: Ok(Frame::data(data)), fresh: false }));
        }
        let next = source.poll(cx);
        if next.is_pending() {
            self.passed -= 1;
        }
        next.map(|frame| frame.map(|frame| Piece { frame, fresh: true }))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        let left = source.kept.as_ref().map_or(0, |kept| kept.len().saturating_sub(self.passed));
        left == 0 && source.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        let again = source.kept.iter().flatten().skip(self.passed).map(|data| data.len() as u64);
        let (again, rest) = (again.sum::<u64>(), source.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + again);
        }
        hint
    }
}
