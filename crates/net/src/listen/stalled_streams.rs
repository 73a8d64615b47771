//! Detects HTTP/2 responses whose client stops granting flow-control window.
//!
//! Flow control is per stream, so a client can stall one stream while the connection itself is
//! never blocked. A stalled stream may also hold an upstream connection. The sign of a stall is
//! that hyper stops polling the response body for its next frame.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

/// The responses in progress on a connection.
#[derive(Debug, Default)]
pub(super) struct StreamTracker {
    /// Number of steps taken by all responses so far.
    steps: AtomicU64,
    streams: Mutex<Vec<Option<Arc<AtomicU64>>>>,
}

/// One response in progress.
#[derive(Debug)]
pub(super) struct TrackedStream {
    tracker: Arc<StreamTracker>,
    /// Twice the number of its last step, plus one if the client must take the next step.
    last_step: Arc<AtomicU64>,
    index: usize,
}

/// State of all streams at the previous check.
#[derive(Debug, Default)]
pub(super) struct StallSnapshot(Vec<(u64, Duration)>);

/// Which side must take the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingOn {
    /// The handler that produces the response.
    Producer,
    /// The client that receives it.
    Client,
}

impl StreamTracker {
    /// Starts tracking a response whose head is ready.
    pub(super) fn track_stream(self: &Arc<Self>) -> TrackedStream {
        let last_step = Arc::new(AtomicU64::new(self.next_step(WaitingOn::Client)));
        let mut streams = self.streams.lock();
        let free = streams.iter().position(Option::is_none);
        let index = free.unwrap_or(streams.len());
        match streams.get_mut(index) {
            Some(free) => *free = Some(Arc::clone(&last_step)),
            None => streams.push(Some(Arc::clone(&last_step))),
        }
        drop(streams);
        TrackedStream { tracker: Arc::clone(self), last_step, index }
    }

    /// The longest time a response has been stalled, given the `interval` between checks.
    pub(super) fn longest_stall(
        &self,
        previous: &mut StallSnapshot,
        interval: Duration,
    ) -> Duration {
        let streams = self.streams.lock();
        previous.0.resize(streams.len(), (0, Duration::ZERO));
        for (stream, (last_step, stalled_for)) in streams.iter().zip(&mut previous.0) {
            let now = stream.as_ref().map_or(0, |stream| stream.load(Relaxed));
            let is_stalled = now == *last_step && now % 2 == 1;
            *stalled_for = if is_stalled { *stalled_for + interval } else { Duration::ZERO };
            *last_step = now;
        }
        previous.0.iter().map(|(_, stalled_for)| *stalled_for).max().unwrap_or_default()
    }

    /// Step numbers are unique, so that a new response is not mistaken for the old one in its slot.
    fn next_step(&self, next: WaitingOn) -> u64 {
        self.steps.fetch_add(1, Relaxed) * 2 + u64::from(next == WaitingOn::Client)
    }
}

impl TrackedStream {
    /// Records that the body was polled for its next frame.
    pub(super) fn record_poll(&self, next: WaitingOn) {
        self.last_step.store(self.tracker.next_step(next), Relaxed);
    }
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        if let Some(slot) = self.tracker.streams.lock().get_mut(self.index) {
            *slot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stalled_stream_is_detected() {
        const INTERVAL: Duration = Duration::from_secs(5);
        let (tracker, mut snapshot) =
            (Arc::new(StreamTracker::default()), StallSnapshot::default());
        let (moving, waiting, stalled) =
            (tracker.track_stream(), tracker.track_stream(), tracker.track_stream());
        waiting.record_poll(WaitingOn::Producer);
        for check in 0..3 {
            moving.record_poll(WaitingOn::Client);
            assert_eq!(tracker.longest_stall(&mut snapshot, INTERVAL), INTERVAL * check);
        }
        stalled.record_poll(WaitingOn::Client);
        assert_eq!(
            tracker.longest_stall(&mut snapshot, INTERVAL),
            INTERVAL,
            "the other stream is stalled now"
        );
        drop((moving, waiting, stalled));
        for _ in 0..3 {
            let _short = tracker.track_stream();
            assert_eq!(
                tracker.longest_stall(&mut snapshot, INTERVAL),
                Duration::ZERO,
                "a new stream in the slot starts at zero"
            );
        }
        assert_eq!(tracker.streams.lock().len(), 3);
    }
}
