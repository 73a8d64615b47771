//! Writes queued violations to the sink in batches, and deletes old ones.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::queue::{BatchWriteOutcome, MAX_BATCH};
use super::raw_batch::RawViolationBatch;
use super::{RetentionPolicy, ViolationLog};
use crate::violation::{RuleViolation, ViolationBatch};
use crate::violation_sink::ViolationSink;

/// Number of violations rendered before the task yields to others on the same thread.
const RENDER_CHUNK: usize = 128;

/// How long violations are collected before they are written.
const FLUSH_DELAY: Duration = Duration::from_millis(100);

/// If this many violations are queued after [`FLUSH_DELAY`], wait for [`LARGE_FLUSH_DELAY`] more.
/// The database writes an index page by page: with a thousand keys, each transaction writes a
/// thousand pages, however few violations it has.
const LARGE_BATCH: usize = 256;
const LARGE_FLUSH_DELAY: Duration = Duration::from_secs(1);

/// Back-off before a failed batch is retried: initial and maximum.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often old violations are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

impl ViolationLog {
    /// Writes queued violations and deletes old ones until [`ViolationLog::stop`] is called, then
    /// writes the remaining ones.
    ///
    /// The future must not be dropped during a write, because it would then be unknown whether the
    /// batch was recorded.
    pub async fn run(&self, sink: &(impl ViolationSink + ?Sized), retention: RetentionPolicy) {
        tokio::select! {
            () = self.write_all(sink) => {}
            // Concurrent with writing: deleting many violations takes a while, in which the queue
            // could overflow.
            () = self.run_pruning(sink, retention) => {}
            // Log lines do not wait for the database either.
            () = self.emit_log_lines() => {}
        }
        self.flush_log_lines();
    }

    /// Makes [`ViolationLog::run`] flush and return.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(super) async fn wait_for_stop(&self) {
        // Cannot fail: `self` holds the sender.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    async fn sleep_unless_stopped(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wait_for_stop()).await;
    }

    async fn write_all(&self, sink: &(impl ViolationSink + ?Sized)) {
        while !*self.stopping.borrow() {
            tokio::select! {
                () = self.wait_for_stop() => {}
                () = self.wait_for_queued(1) => {
                    self.wait_for_batch().await;
                    self.drain_queue(sink).await;
                }
            }
        }
        self.flush_remaining(sink).await;
    }

    /// Collects violations until the batch is worth writing.
    async fn wait_for_batch(&self) {
        self.sleep_unless_stopped(FLUSH_DELAY).await;
        if self.queue.lock().queued() >= LARGE_BATCH {
            tokio::select! {
                () = self.sleep_unless_stopped(LARGE_FLUSH_DELAY) => {}
                () = self.wait_for_queued(MAX_BATCH) => {}
            }
        }
    }

    /// Waits until at least `count` violations are queued. `count` is 1 or [`MAX_BATCH`]: the queue
    /// notifies only at these.
    async fn wait_for_queued(&self, count: usize) {
        while self.queue.lock().queued() < count {
            self.work_ready.notified().await;
        }
    }

    /// Deletes old violations at a fixed interval; never returns.
    async fn run_pruning(&self, sink: &(impl ViolationSink + ?Sized), retention: RetentionPolicy) {
        let mut interval = tokio::time::interval(PRUNE_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let before = (self.clock)().minus(retention.age);
            // After an error, the next run deletes them.
            let _ = sink.prune(before, retention.rows).await;
        }
    }

    /// Writes queued violations until less than a batch is left. Retries failed batches.
    async fn drain_queue(&self, sink: &(impl ViolationSink + ?Sized)) {
        let mut pause = RETRY_BACKOFF.0;
        while !*self.stopping.borrow() {
            match self.write_batch(sink).await {
                BatchWriteOutcome::Empty => return,
                // Collect the violations that arrived during the write into a larger batch.
                BatchWriteOutcome::Written if self.queue.lock().queued() < MAX_BATCH => return,
                BatchWriteOutcome::Written => pause = RETRY_BACKOFF.0,
                BatchWriteOutcome::Failed => {
                    self.sleep_unless_stopped(pause).await;
                    pause = (pause * 2).min(RETRY_BACKOFF.1);
                }
            }
        }
    }

    /// Writes all queued violations. If a batch fails, drops and counts the remaining ones.
    async fn flush_remaining(&self, sink: &(impl ViolationSink + ?Sized)) {
        while self.write_batch(sink).await == BatchWriteOutcome::Written {}
        self.queue.lock().clear();
    }

    async fn write_batch(&self, sink: &(impl ViolationSink + ?Sized)) -> BatchWriteOutcome {
        let Some(raw) = self.take_batch() else { return BatchWriteOutcome::Empty };
        let (writer, number) = (self.writer.clone(), raw.sequence());
        let batch =
            ViolationBatch { writer, number, violations: self.build_violations(&raw).await };
        let recorded = sink.record_violations(&batch).await;
        self.queue.lock().settle_batch(raw, recorded.is_ok())
    }

    /// Takes the next batch to write. Samples it first for the log lines, if necessary.
    fn take_batch(&self) -> Option<RawViolationBatch> {
        let batch = self.queue.lock().take_batch()?;
        if let Some(emitter) = self.log_emitter.as_ref().filter(|_| !batch.is_sampled()) {
            emitter.sample_batch(&batch);
        }
        Some(batch.into_sampled())
    }

    /// Renders the violations of a batch.
    async fn build_violations(&self, batch: &RawViolationBatch) -> Vec<RuleViolation> {
        let mut rendered = Vec::with_capacity(batch.len());
        let mut violations = batch.violations(self.identities);
        while rendered.len() < batch.len() {
            rendered.extend(violations.by_ref().take(RENDER_CHUNK));
            tokio::task::yield_now().await;
        }
        rendered
    }
}
