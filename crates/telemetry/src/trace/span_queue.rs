//! Spans between the requests that they tell of and whoever exports them: a queue with an end. Nobody waits for it;
//! what has no room is dropped and counted.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::span::FinishedSpan;

/// The most spans that wait.
pub(super) const MAX_QUEUED: usize = 4_096;

/// The most that are exported at once.
pub(super) const MAX_BATCH: usize = 512;

/// What became of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanExportStats {
    /// The collector has them.
    pub exported: u64,
    /// There was no room for them, or the collector did not want them.
    pub dropped: u64,
    /// They wait, or are under way.
    pub waiting: u64,
}

/// Spans that wait.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    inner: Mutex<Inner>,
    /// A batch is there.
    pub(super) batch_ready: Notify,
}

/// Under one lock, so that the sums are right at any time.
#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<FinishedSpan>,
    in_flight: usize,
    exported: u64,
    dropped: u64,
}

impl SpanQueue {
    /// One more, if there is room.
    pub(super) fn push(&self, span: FinishedSpan) {
        let mut inner = self.inner.lock();
        if inner.waiting.len() + inner.in_flight >= MAX_QUEUED {
            inner.dropped += 1;
            return;
        }
        inner.waiting.push(span);
        if inner.waiting.len() == MAX_BATCH {
            self.batch_ready.notify_one();
        }
    }

    /// The oldest, as many as are exported at once; [`SpanQueue::complete_batch`] hears what became of them.
    pub(super) fn take_batch(&self) -> Vec<FinishedSpan> {
        let mut inner = self.inner.lock();
        let count = inner.waiting.len().min(MAX_BATCH);
        let batch: Vec<FinishedSpan> = inner.waiting.drain(..count).collect();
        inner.in_flight += count;
        batch
    }

    /// A batch of so many is with the collector, or lost.
    pub(super) fn complete_batch(&self, count: usize, exported: bool) {
        let mut inner = self.inner.lock();
        inner.in_flight -= count;
        let fate = if exported { &mut inner.exported } else { &mut inner.dropped };
        *fate += count as u64;
    }

    /// Drops all that is left.
    pub(super) fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.dropped += (inner.waiting.len() + inner.in_flight) as u64;
        inner.waiting.clear();
        inner.in_flight = 0;
    }

    pub(super) fn stats(&self) -> SpanExportStats {
        let inner = self.inner.lock();
        let waiting = (inner.waiting.len() + inner.in_flight) as u64;
        SpanExportStats { exported: inner.exported, dropped: inner.dropped, waiting }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;
    use crate::trace::context::TraceContext;
    use crate::trace::span::SpanKind;

    fn span() -> FinishedSpan {
        let (begun, ended) = (Timestamp::EPOCH, Timestamp::EPOCH);
        let what = SpanKind::Upstream { method: "GET", server: None, status: None };
        let context = TraceContext::new_root([1; 16], [1; 8], true);
        FinishedSpan { context, parent: None, started_at: begun, ended_at: ended, kind: what }
    }

    #[test]
    fn queue_stats_account_for_every_span() {
        let queue = SpanQueue::default();
        (0..MAX_QUEUED + 10).for_each(|_| queue.push(span()));
        let full = MAX_QUEUED as u64;
        assert_eq!(queue.stats(), SpanExportStats { exported: 0, dropped: 10, waiting: full });
        assert_eq!(queue.take_batch().len(), MAX_BATCH);
        queue.push(span());
        let told = SpanExportStats { exported: 0, dropped: 11, waiting: full };
        assert_eq!(queue.stats(), told, "what is under way has its place until it is settled");
        assert_eq!(queue.take_batch().len(), MAX_BATCH);
        queue.complete_batch(MAX_BATCH, true);
        let left = full - MAX_BATCH as u64;
        assert_eq!(queue.stats().waiting, left, "the other is still under way");
        queue.complete_batch(MAX_BATCH, false);
        queue.take_batch();
        queue.clear();
        let (batch, all) = (MAX_BATCH as u64, full + 11);
        assert_eq!(
            queue.stats(),
            SpanExportStats { exported: batch, dropped: all - batch, waiting: 0 }
        );
    }
}
