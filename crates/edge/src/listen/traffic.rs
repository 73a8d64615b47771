//! What has passed on a connection, as its watchdog needs to know it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::flow::{Flow, Next};

/// What has passed on a connection.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Requests that came to the door.
    begun: AtomicU64,
    /// The request from which on nothing can be told apart.
    ambiguous_from: AtomicU64,
    /// Requests whose answer has not gone out to its end.
    answering: AtomicU32,
    answers: AtomicU64,
    inside_head: AtomicBool,
    bytes_written: AtomicU64,
    /// Whether the other side takes no more for now.
    blocked: AtomicBool,
}

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request has begun to come, or is yet to come for the first time.
    Head { answers: u64 },
    /// A request is being answered.
    Answering,
    /// The other side takes none of the answer.
    Blocked { bytes_written: u64 },
    /// There is nothing to do.
    Idle { answers: u64 },
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            begun: AtomicU64::new(0),
            ambiguous_from: AtomicU64::new(u64::MAX),
            answering: AtomicU32::new(0),
            answers: AtomicU64::new(0),
            inside_head: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
        }
    }
}

impl Traffic {
    pub(super) fn phase(&self) -> Phase {
        let answers = self.answers.load(Relaxed);
        if self.blocked.load(Relaxed) {
            Phase::Blocked { bytes_written: self.bytes_written.load(Relaxed) }
        } else if self.answering.load(Relaxed) > 0 {
            Phase::Answering
        } else if answers == 0 || self.inside_head.load(Relaxed) {
            Phase::Head { answers }
        } else {
            Phase::Idle { answers }
        }
    }

    /// Notes that a request is here; it is at work until the value is dropped. None if it cannot be
    /// told where the request ends.
    pub(super) fn begin(self: &Arc<Self>) -> (AtWork, bool) {
        let number = self.begun.fetch_add(1, Relaxed);
        self.answering.fetch_add(1, Relaxed);
        (AtWork(Arc::clone(self)), number < self.ambiguous_from.load(Relaxed))
    }

    pub(super) fn heads(&self, inside: bool, ambiguous_from: Option<u64>) {
        self.inside_head.store(inside, Relaxed);
        if let Some(from) = ambiguous_from {
            self.ambiguous_from.store(from, Relaxed);
        }
    }

    pub(super) fn written(&self, bytes: Option<usize>) {
        self.blocked.store(bytes.is_none(), Relaxed);
        if let Some(bytes) = bytes {
            self.bytes_written.fetch_add(bytes as u64, Relaxed);
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct AtWork(Arc<Traffic>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.answers.fetch_add(1, Relaxed);
        self.0.answering.fetch_sub(1, Relaxed);
    }
}

/// The body of an answer, at work until it has gone out.
pub(super) struct Watched<B> {
    pub(super) body: B,
    /// None where a connection has one answer at a time.
    pub(super) flow: Option<Flow>,
    pub(super) _at_work: AtWork,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(flow) = &self.flow {
            flow.asked(if frame.is_ready() { Next::Theirs } else { Next::Ours });
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
