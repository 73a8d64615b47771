//! Exports finished spans in batches from a background task, so that requests never wait for the
//! collector.
//!
//! If the collector is unreachable or busy, the batch is retried with back-off, and new spans queue
//! up until the queue is full. The loss and the recovery of the collector are each reported once.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::MissedTickBehavior;

use super::collector::SpanExportError;
use super::{ExporterEvent, Tracer, otlp};

/// How often spans are exported; a full batch is exported earlier.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Back-off before a retry: initial and maximum.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Maximum time to export the remaining spans at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// An encoded batch.
struct SpanBatch {
    bytes: Bytes,
    count: usize,
}

/// The last known state of the collector.
#[derive(Default)]
struct CollectorState {
    lost: bool,
}

impl Tracer {
    /// Exports spans until [`Tracer::stop`] is called, then tries to export the remaining spans for
    /// a limited time, so that an unreachable collector does not delay the shutdown.
    pub async fn run_exporter(&self) {
        let flush_timeout = async {
            self.wait_for_stop().await;
            tokio::time::sleep(FLUSH_TIMEOUT).await;
        };
        tokio::select! {
            () = self.export_until_stopped() => {}
            () = flush_timeout => {}
        }
        self.0.queue.clear();
    }

    /// Makes [`Tracer::run_exporter`] flush and return.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    async fn wait_for_stop(&self) {
        // Cannot fail: `self` holds the sender.
        let _ = self.0.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    async fn export_until_stopped(&self) {
        let mut state = CollectorState::default();
        let mut tick = tokio::time::interval(BATCH_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_stopping() {
            tokio::select! {
                () = self.wait_for_stop() => {}
                _ = tick.tick() => {}
                () = self.0.queue.batch_ready.notified() => {}
            }
            self.export_all(&mut state).await;
        }
    }

    /// Exports all queued spans. Retries a batch that fails, except during shutdown.
    async fn export_all(&self, state: &mut CollectorState) {
        let mut pause = RETRY_BACKOFF.0;
        while let Some(batch) = self.next_batch() {
            while let Err(error) = self.send(&batch, state).await {
                if !error.is_retryable {
                    break;
                }
                if self.is_stopping() {
                    return;
                }
                let _ = tokio::time::timeout(pause, self.wait_for_stop()).await;
                pause = (pause * 2).min(RETRY_BACKOFF.1);
            }
            self.0.queue.complete_batch(batch.count, !state.lost);
        }
    }

    fn next_batch(&self) -> Option<SpanBatch> {
        let spans = self.0.queue.take_batch();
        let bytes = || otlp::encode_request(&self.0.settings.resource, &spans).into();
        (!spans.is_empty()).then(|| SpanBatch { bytes: bytes(), count: spans.len() })
    }

    async fn send(
        &self,
        batch: &SpanBatch,
        state: &mut CollectorState,
    ) -> Result<(), SpanExportError> {
        let sent = self.0.settings.collector.export(batch.bytes.clone()).await;
        self.report_change(state, sent.as_ref().err());
        sent
    }

    /// Reports the loss or the recovery of the collector.
    fn report_change(&self, state: &mut CollectorState, error: Option<&SpanExportError>) {
        if state.lost == error.is_some() {
            return;
        }
        state.lost = error.is_some();
        let event = error.map_or(ExporterEvent::CollectorRecovered, |error| {
            ExporterEvent::CollectorLost { why: &error.why }
        });
        (self.0.on_event)(event);
    }
}
