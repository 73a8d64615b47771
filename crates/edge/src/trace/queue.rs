//! Spans between the requests that they tell of and whoever exports them: a queue with an end. Nobody waits for it;
//! what has no room is dropped and counted.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::span::Span;

/// The most spans that wait.
pub(super) const ROOM: usize = 4_096;

/// The most that are exported at once.
pub(super) const BATCH: usize = 512;

/// What became of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The collector has them.
    pub exported: u64,
    /// There was no room for them, or the collector did not want them.
    pub dropped: u64,
    /// They wait, or are under way.
    pub waiting: u64,
}

/// Spans that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// A batch is there.
    pub(super) filled: Notify,
}

/// Under one lock, so that the sums are right at any time.
#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<Span>,
    under_way: usize,
    exported: u64,
    dropped: u64,
}

impl Queue {
    /// One more, if there is room.
    pub(super) fn put(&self, span: Span) {
        let mut inner = self.inner.lock();
        if inner.waiting.len() + inner.under_way >= ROOM {
            inner.dropped += 1;
            return;
        }
        inner.waiting.push(span);
        if inner.waiting.len() == BATCH {
            self.filled.notify_one();
        }
    }

    /// The oldest, as many as are exported at once; [`Queue::settle`] hears what became of them.
    pub(super) fn take(&self) -> Vec<Span> {
        let mut inner = self.inner.lock();
        let count = inner.waiting.len().min(BATCH);
        let batch: Vec<Span> = inner.waiting.drain(..count).collect();
        inner.under_way += count;
        batch
    }

    /// A batch of so many is with the collector, or lost.
    pub(super) fn settle(&self, count: usize, exported: bool) {
        let mut inner = self.inner.lock();
        inner.under_way -= count;
        let fate = if exported { &mut inner.exported } else { &mut inner.dropped };
        *fate += count as u64;
    }

    /// Drops all that is left.
    pub(super) fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.dropped += (inner.waiting.len() + inner.under_way) as u64;
        inner.waiting.clear();
        inner.under_way = 0;
    }

    pub(super) fn tally(&self) -> Tally {
        let inner = self.inner.lock();
        let waiting = (inner.waiting.len() + inner.under_way) as u64;
        Tally { exported: inner.exported, dropped: inner.dropped, waiting }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;
    use crate::trace::context::Context;
    use crate::trace::span::What;

    fn span() -> Span {
        let (begun, ended) = (Timestamp::EPOCH, Timestamp::EPOCH);
        let what = What::Called { method: "GET", server: None, status: None };
        let context = Context::first([1; 16], [1; 8], true);
        Span { context, parent: None, begun, ended, what }
    }

    #[test]
    fn what_was_put_is_exported_dropped_or_waits_at_any_time() {
        let queue = Queue::default();
        (0..ROOM + 10).for_each(|_| queue.put(span()));
        let full = ROOM as u64;
        assert_eq!(queue.tally(), Tally { exported: 0, dropped: 10, waiting: full });
        assert_eq!(queue.take().len(), BATCH);
        queue.put(span());
        let told = Tally { exported: 0, dropped: 11, waiting: full };
        assert_eq!(queue.tally(), told, "what is under way has its place until it is settled");
        assert_eq!(queue.take().len(), BATCH);
        queue.settle(BATCH, true);
        let left = full - BATCH as u64;
        assert_eq!(queue.tally().waiting, left, "the other is still under way");
        queue.settle(BATCH, false);
        queue.take();
        queue.clear();
        let (batch, all) = (BATCH as u64, full + 11);
        assert_eq!(queue.tally(), Tally { exported: batch, dropped: all - batch, waiting: 0 });
    }
}
