//! Exports what has ended, batch by batch, beside everything else: requests never wait for a collector.
//!
//! A batch that the collector cannot take now is kept and sent again, with pauses; meanwhile others wait in the queue
//! until there is no room. That it is gone, and that it is back, is told once.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::MissedTickBehavior;

use super::collector::Refused;
use super::{News, Tracer, otlp};

/// How long spans are gathered unless there is a batch before.
const GATHERED: Duration = Duration::from_secs(1);

/// How long after the collector did not take a batch it is asked again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// How long what is left may take at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// A batch on its way.
struct Batch {
    bytes: Bytes,
    count: usize,
}

/// What is known of the collector.
#[derive(Default)]
struct State {
    lost: bool,
}

impl Tracer {
    /// Exports spans until it is told to stop, then what is left, for a while: a collector that is not there by then
    /// does not keep the process.
    pub async fn keep(&self) {
        let over = async {
            self.stopped().await;
            tokio::time::sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.export_until_stopped() => {}
            () = over => {}
        }
        self.0.queue.clear();
    }

    /// Lets [`Tracer::keep`] come to its end.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    async fn stopped(&self) {
        // The sender is our own: it is there as long as we are.
        let _ = self.0.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    async fn export_until_stopped(&self) {
        let mut state = State::default();
        let mut tick = tokio::time::interval(GATHERED);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_stopping() {
            tokio::select! {
                () = self.stopped() => {}
                _ = tick.tick() => {}
                () = self.0.queue.filled.notified() => {}
            }
            self.export_all(&mut state).await;
        }
    }

    /// Exports all that waits, and again what the collector does not take; only once when it is told to stop.
    async fn export_all(&self, state: &mut State) {
        let mut pause = PAUSES.0;
        while let Some(batch) = self.batch() {
            while let Err(refused) = self.send(&batch, state).await {
                if !refused.again {
                    break;
                }
                if self.is_stopping() {
                    return;
                }
                let _ = tokio::time::timeout(pause, self.stopped()).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            self.0.queue.settle(batch.count, !state.lost);
        }
    }

    fn batch(&self) -> Option<Batch> {
        let spans = self.0.queue.take();
        let bytes = || otlp::request(&self.0.settings.resource, &spans).into();
        (!spans.is_empty()).then(|| Batch { bytes: bytes(), count: spans.len() })
    }

    async fn send(&self, batch: &Batch, state: &mut State) -> Result<(), Refused> {
        let sent = self.0.settings.collector.export(batch.bytes.clone()).await;
        self.tell(state, sent.as_ref().err());
        sent
    }

    /// Tells what has changed.
    fn tell(&self, state: &mut State, refused: Option<&Refused>) {
        if state.lost == refused.is_some() {
            return;
        }
        state.lost = refused.is_some();
        let news = refused.map_or(News::Back, |refused| News::Lost { why: &refused.why });
        (self.0.hear)(news);
    }
}
