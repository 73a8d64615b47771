//! What has passed on a connection, as its watchdog needs to know it.

use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
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
    /// Requests whose answer has gone out to its end.
    answered: AtomicU64,
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
            answered: AtomicU64::new(0),
            inside_head: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
        }
    }
}

impl Traffic {
    pub(super) fn phase(&self) -> Phase {
        // In this order: what ends in between has begun as well.
        let answers = self.answered.load(Acquire);
        if self.blocked.load(Relaxed) {
            Phase::Blocked { bytes_written: self.bytes_written.load(Relaxed) }
        } else if self.begun.load(Relaxed) > answers {
            Phase::Answering
        } else if answers == 0 || self.inside_head.load(Relaxed) {
            Phase::Head { answers }
        } else {
            Phase::Idle { answers }
        }
    }

    /// Notes that a request is here; it is at work until it has [`Traffic::ended`]. False if it cannot be told where
    /// the request ends.
    pub(super) fn begin(&self) -> bool {
        let number = self.begun.fetch_add(1, Relaxed);
        number < self.ambiguous_from.load(Relaxed)
    }

    /// Notes that an answer has gone out to its end, or never will.
    pub(super) fn ended(&self) {
        self.answered.fetch_add(1, Release);
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
            // Only the connection itself writes.
            let before = self.bytes_written.load(Relaxed);
            self.bytes_written.store(before.wrapping_add(bytes as u64), Relaxed);
        }
    }
}

/// The body of an answer, at work until it has gone out.
pub(super) struct Watched<B, W> {
    pub(super) body: B,
    /// None where a connection has one answer at a time.
    pub(super) flow: Option<Flow>,
    pub(super) _at_work: W,
}

impl<B: Body<Data = Bytes> + Unpin, W: Unpin> Body for Watched<B, W> {
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
