//! Request and write activity of a connection, for its watchdog.

use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::stalled_streams::{TrackedStream, WaitingOn};

/// What has happened on a connection so far.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    /// Requests passed to the handler.
    requests_started: AtomicU64,
    /// Index of the first request whose framing is ambiguous.
    ambiguous_from: AtomicU64,
    /// Requests whose response was fully sent or dropped.
    requests_finished: AtomicU64,
    /// Whether the bytes on the connection are no longer HTTP.
    tunneled: AtomicBool,
    inside_head: AtomicBool,
    bytes_written: AtomicU64,
    /// Whether the last write found the send buffer full.
    blocked: AtomicBool,
}

/// What a connection is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// A request head is partly read, or no request has arrived yet.
    ReadingHead { answers: u64 },
    /// A response is in progress.
    Responding,
    /// The client is not reading the response.
    Blocked { bytes_written: u64 },
    /// The connection is idle between requests.
    Idle { answers: u64 },
}

impl Default for ConnectionActivity {
    fn default() -> Self {
        Self {
            requests_started: AtomicU64::new(0),
            ambiguous_from: AtomicU64::new(u64::MAX),
            requests_finished: AtomicU64::new(0),
            tunneled: AtomicBool::new(false),
            inside_head: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
        }
    }
}

impl ConnectionActivity {
    pub(super) fn phase(&self) -> ConnectionPhase {
        // Load `requests_finished` first: a request that finishes in between has also started.
        let answers = self.requests_finished.load(Acquire);
        if self.blocked.load(Relaxed) {
            ConnectionPhase::Blocked { bytes_written: self.bytes_written.load(Relaxed) }
        } else if self.requests_started.load(Relaxed) > answers {
            ConnectionPhase::Responding
        } else if answers == 0 || self.inside_head.load(Relaxed) {
            ConnectionPhase::ReadingHead { answers }
        } else {
            ConnectionPhase::Idle { answers }
        }
    }

    /// Registers a request, which is in flight until [`ConnectionActivity::finish_request`].
    /// Returns false if the request's framing is ambiguous.
    pub(super) fn start_request(&self) -> bool {
        let number = self.requests_started.fetch_add(1, Relaxed);
        number < self.ambiguous_from.load(Relaxed)
    }

    /// Records that a response was sent completely, or was dropped.
    pub(super) fn finish_request(&self) {
        self.requests_finished.fetch_add(1, Release);
    }

    /// The number of requests, unless one is in flight or the protocol was switched.
    pub(super) fn all_answered(&self) -> Option<u64> {
        let answered = self.requests_finished.load(Acquire);
        let all = self.requests_started.load(Relaxed) == answered;
        (all && !self.tunneled.load(Relaxed)).then_some(answered)
    }

    /// Records that the connection has switched protocols.
    pub(super) fn begin_tunnel(&self) {
        self.tunneled.store(true, Relaxed);
    }

    pub(super) fn record_framing(&self, inside: bool, ambiguous_from: Option<u64>) {
        self.inside_head.store(inside, Relaxed);
        if let Some(from) = ambiguous_from {
            self.ambiguous_from.store(from, Relaxed);
        }
    }

    pub(super) fn record_write(&self, bytes: Option<usize>) {
        self.blocked.store(bytes.is_none(), Relaxed);
        if let Some(bytes) = bytes {
            // A plain load and store suffice: only the connection's own task writes.
            let before = self.bytes_written.load(Relaxed);
            self.bytes_written.store(before.wrapping_add(bytes as u64), Relaxed);
        }
    }
}

/// A response body that keeps its request in flight until the body is dropped.
pub(super) struct TrackedBody<B, W> {
    pub(super) body: B,
    /// `None` for HTTP/1, which has one response at a time.
    pub(super) stream: Option<TrackedStream>,
    pub(super) _guard: W,
}

impl<B: Body<Data = Bytes> + Unpin, W: Unpin> Body for TrackedBody<B, W> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(stream) = &self.stream {
            stream.record_poll(if frame.is_ready() {
                WaitingOn::Client
            } else {
                WaitingOn::Producer
            });
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
