//! Exports what has ended, batch by batch, beside everything else: requests never wait for a collector.
//!
//! A batch that the collector cannot take now is kept and sent again, with pauses; meanwhile others wait in the queue
//! until there is no room. That it is gone, and that it is back, is told once.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::MissedTickBehavior;

use super::collector::SpanExportError;
use super::{ExporterEvent, Tracer, otlp};

/// How long spans are gathered unless there is a batch before.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the collector did not take a batch it is asked again, at first and at most.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// How long what is left may take at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A batch on its way.
struct SpanBatch {
    bytes: Bytes,
    count: usize,
}

/// What is known of the collector.
#[derive(Default)]
struct CollectorState {
    lost: bool,
}

impl Tracer {
    /// Exports spans until it is told to stop, then what is left, for a while: a collector that is not there by then
    /// does not keep the process.
    pub async fn run_exporter(&self) {
        let over = async {
            self.wait_for_stop().await;
            tokio::time::sleep(FLUSH_TIMEOUT).await;
        };
        tokio::select! {
            () = self.export_until_stopped() => {}
            () = over => {}
        }
        self.0.queue.clear();
    }

    /// Lets [`Tracer::run_exporter`] come to its end.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    async fn wait_for_stop(&self) {
        // The sender is our own: it is there as long as we are.
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

    /// Exports all that waits, and again what the collector does not take; only once when it is told to stop.
    async fn export_all(&self, state: &mut CollectorState) {
        let mut pause = RETRY_BACKOFF.0;
        while let Some(batch) = self.next_batch() {
            while let Err(refused) = self.send(&batch, state).await {
                if !refused.is_retryable {
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

    /// Tells what has changed.
    fn report_change(&self, state: &mut CollectorState, refused: Option<&SpanExportError>) {
        if state.lost == refused.is_some() {
            return;
        }
        state.lost = refused.is_some();
        let news = refused.map_or(ExporterEvent::CollectorRecovered, |refused| {
            ExporterEvent::CollectorLost { why: &refused.why }
        });
        (self.0.on_event)(news);
    }
}
