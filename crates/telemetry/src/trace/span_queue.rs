//! Bounded queue of finished spans between requests and the exporter. Requests never wait for it;
//! when it is full, new spans are dropped and counted.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::span::FinishedSpan;

/// Maximum number of spans that wait or are being exported.
pub(super) const MAX_QUEUED: usize = 4_096;

/// Maximum number of spans in a batch.
pub(super) const MAX_BATCH: usize = 512;

/// The number of spans by outcome, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanExportStats {
    /// Accepted by the collector.
    pub exported: u64,
    /// Dropped because the queue was full, or rejected by the collector.
    pub dropped: u64,
    /// Queued or being exported.
    pub waiting: u64,
}

/// Finished spans that wait for export.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    inner: Mutex<Inner>,
    /// Notified when a full batch is queued.
    pub(super) batch_ready: Notify,
}

/// Under one lock, so that the counts are always consistent.
#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<FinishedSpan>,
    in_flight: usize,
    exported: u64,
    dropped: u64,
}

impl SpanQueue {
    /// Queues a span, or drops it if the queue is full.
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

    /// Takes the oldest spans, up to a batch. The caller reports the result to
    /// [`SpanQueue::complete_batch`].
    pub(super) fn take_batch(&self) -> Vec<FinishedSpan> {
        let mut inner = self.inner.lock();
        let count = inner.waiting.len().min(MAX_BATCH);
        let batch: Vec<FinishedSpan> = inner.waiting.drain(..count).collect();
        inner.in_flight += count;
        batch
    }

    /// Records that a batch of `count` spans was exported or lost.
    pub(super) fn complete_batch(&self, count: usize, exported: bool) {
        let mut inner = self.inner.lock();
        inner.in_flight -= count;
        let total = if exported { &mut inner.exported } else { &mut inner.dropped };
        *total += count as u64;
    }

    /// Drops all spans, including those in flight.
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
        let (started_at, ended_at) = (Timestamp::EPOCH, Timestamp::EPOCH);
        let kind = SpanKind::Upstream { method: "GET", server: None, status: None };
        let context = TraceContext::new_root([1; 16], [1; 8], true);
        FinishedSpan { context, parent: None, started_at, ended_at, kind }
    }

    #[test]
    fn queue_stats_account_for_every_span() {
        let queue = SpanQueue::default();
        (0..MAX_QUEUED + 10).for_each(|_| queue.push(span()));
        let full = MAX_QUEUED as u64;
        assert_eq!(queue.stats(), SpanExportStats { exported: 0, dropped: 10, waiting: full });
        assert_eq!(queue.take_batch().len(), MAX_BATCH);
        queue.push(span());
        let expected = SpanExportStats { exported: 0, dropped: 11, waiting: full };
        assert_eq!(queue.stats(), expected, "spans in flight count towards the capacity");
        assert_eq!(queue.take_batch().len(), MAX_BATCH);
        queue.complete_batch(MAX_BATCH, true);
        let left = full - MAX_BATCH as u64;
        assert_eq!(queue.stats().waiting, left, "the other batch is still in flight");
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
