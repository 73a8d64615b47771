//! The violations log: what was refused, written in batches off the path of decisions.
//!
//! A decision only jots its violations down (`notes`) in a queue (`desk`). When the database is slow or gone, the
//! queue drops the oldest and counts them; a decision never waits for it. Some of them become lines of the process's
//! log besides (`sample`, `lines`), once a second and whatever becomes of the database.

mod log_lines;
mod queue;
mod raw_batch;
mod sample;

use std::fmt;
use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value as Json;
use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::{DecisionEvent, DecisionObserver, RuleReading};
use tidegate_web::LogPaths;
use tidegate_web::ProcessStatus;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use crate::live::{LiveBroadcaster, LiveSource, RecentViolations};
use crate::metrics::{Exposition, MetricKind, MetricsExporter};
use crate::violation::{IdentityPolicy, RuleViolation, ViolationBatch};
use crate::violation_sink::ViolationSink;
use log_lines::ViolationLogEmitter;
use queue::{BatchWriteOutcome, FollowUp, MAX_BATCH, ViolationQueue};
use raw_batch::{RawViolationBatch, RuleRefusal};

pub use log_lines::{ViolationLogEvent, ViolationLogLine};
pub use queue::QUEUE_CAPACITY;

/// How many are made ready to be written before others on the same thread have a turn.
const RENDER_CHUNK: usize = 128;

/// How long violations are gathered before they are written. Where there are many by then it is longer: an index is written page
/// by page, and a thousand keys are a thousand pages in each transaction, however few violations are in it.
const FLUSH_DELAY: Duration = Duration::from_millis(100);
const LARGE_BATCH: usize = 256;
const LARGE_FLUSH_DELAY: Duration = Duration::from_secs(1);

/// How long after the database refused a batch it is asked again, at first and at most.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often old violations are dropped.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// How often lines are told: the second of which each rule has its few.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How long violations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Not longer than this.
    pub age: Micros,
    /// Not more than this.
    pub rows: u64,
}

/// What became of violations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViolationCounts {
    /// They were heard of.
    pub heard: u64,
    /// They are on record.
    pub written: u64,
    /// There was no room for them.
    pub dropped: u64,
    /// They wait, or are being written.
    pub waiting: u64,
}

/// A log of violations.
pub struct ViolationLog {
    queue: Mutex<ViolationQueue>,
    /// What this log is called where it is written to.
    writer: String,
    work_ready: Notify,
    stopping: watch::Sender<bool>,
    identities: IdentityPolicy,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    recent: RecentViolations,
    log_emitter: Option<ViolationLogEmitter>,
}

impl ViolationLog {
    /// An empty log.
    #[must_use]
    pub fn new(
        identities: IdentityPolicy,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (work_ready, stopping) = (Notify::new(), watch::Sender::new(false));
        // What no other process draws.
        let writer =
            [(); 2].map(|()| format!("{:016x}", RandomState::new().hash_one(0_u8))).concat();
        let (queue, recent, log_emitter) = (Mutex::default(), RecentViolations::default(), None);
        Self { queue, writer, work_ready, stopping, identities, clock, recent, log_emitter }
    }

    /// Also emits up to `max_per_rule` log lines a second for each rule, plus a count of the
    /// violations without a line; 0 disables it. [`ViolationLog::run`] emits them.
    #[must_use]
    pub fn with_log_lines(
        self,
        max_per_rule: u32,
        paths: LogPaths,
        hear: impl Fn(ViolationLogEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let teller = (max_per_rule > 0)
            .then(|| ViolationLogEmitter::new(max_per_rule, self.identities, paths, hear));
        if teller.is_some() {
            self.queue.lock().enable_sampling();
        }
        Self { log_emitter: teller, ..self }
    }

    /// Tells what `tellers` tell and violations as they come, until `status` says that it is enough.
    #[must_use]
    pub fn live_broadcaster(
        self: &Arc<Self>,
        tellers: Vec<Arc<dyn LiveSource>>,
        status: Arc<ProcessStatus>,
    ) -> LiveBroadcaster {
        LiveBroadcaster::new(tellers, Arc::clone(self), status, Arc::clone(&self.clock))
    }

    /// Keeps some violations for whoever watches, from now on.
    pub(crate) fn start_live(&self) {
        self.queue.lock().set_live(true);
    }

    /// Keeps none any more.
    pub(crate) fn stop_live(&self) {
        self.queue.lock().set_live(false);
        self.recent.clear();
    }

    /// Those that were kept since the last time, if any were.
    pub(crate) fn take_recent(&self) -> Option<Json> {
        self.recent.take()
    }

    /// What became of violations since the start.
    #[must_use]
    pub fn counts(&self) -> ViolationCounts {
        self.queue.lock().counts()
    }

    /// Writes what is queued, and drops what is old, until it is told to stop; then it writes what is left.
    ///
    /// It must not be dropped while it writes: nobody would know whether that is on record.
    pub async fn run(&self, sink: &(impl ViolationSink + ?Sized), retention: RetentionPolicy) {
        tokio::select! {
            () = self.write_all(sink) => {}
            // Beside: to drop very many takes a while, and what is heard meanwhile has only so much room.
            () = self.run_pruning(sink, retention) => {}
            // Nor do lines wait for the database.
            () = self.emit_log_lines() => {}
        }
        self.flush_log_lines();
    }

    /// Tells lines of the log, second by second, until it is told to stop; then it only waits to be dropped.
    async fn emit_log_lines(&self) {
        let Some(teller) = &self.log_emitter else { return pending().await };
        let mut tick = tokio::time::interval(LOG_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.sample_queued(teller);
                    teller.emit();
                }
                () = self.wait_for_stop() => break,
            }
        }
        self.flush_log_lines();
        pending::<()>().await;
    }

    /// Tells what is left to tell.
    fn flush_log_lines(&self) {
        if let Some(teller) = &self.log_emitter {
            self.sample_queued(teller);
            teller.finish();
        }
    }

    /// Looks at what was jotted down; outside of the lock, for which decisions would wait.
    fn sample_queued(&self, teller: &ViolationLogEmitter) {
        let unseen = self.queue.lock().take_unsampled();
        unseen.iter().for_each(|page| teller.sample_batch(page));
        let mut desk = self.queue.lock();
        desk.restore_sampled(unseen);
        teller.add_dropped(desk.take_dropped_sample());
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

    /// Waits until it is worth it to write.
    async fn wait_for_batch(&self) {
        self.sleep_unless_stopped(FLUSH_DELAY).await;
        if self.queue.lock().queued() >= LARGE_BATCH {
            tokio::select! {
                () = self.sleep_unless_stopped(LARGE_FLUSH_DELAY) => {}
                () = self.wait_for_queued(MAX_BATCH) => {}
            }
        }
    }

    /// Waits until so many wait to be written: one, or a whole batch.
    async fn wait_for_queued(&self, count: usize) {
        while self.queue.lock().queued() < count {
            self.work_ready.notified().await;
        }
    }

    /// Drops what is old, again and again.
    async fn run_pruning(&self, sink: &(impl ViolationSink + ?Sized), retention: RetentionPolicy) {
        let mut look = tokio::time::interval(PRUNE_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let before = (self.clock)().minus(retention.age);
            // What cannot be dropped now is dropped next time.
            let _ = sink.prune(before, retention.rows).await;
        }
    }

    /// Lets [`ViolationLog::run`] come to its end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    async fn wait_for_stop(&self) {
        // The sender is our own: it is there as long as we are.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    async fn sleep_unless_stopped(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wait_for_stop()).await;
    }

    /// Writes what is queued until less than a batch is left; asks again as long as the database refuses.
    async fn drain_queue(&self, sink: &(impl ViolationSink + ?Sized)) {
        let mut pause = RETRY_BACKOFF.0;
        while !*self.stopping.borrow() {
            match self.write_batch(sink).await {
                BatchWriteOutcome::Empty => return,
                // What came meanwhile is gathered first.
                BatchWriteOutcome::Written if self.queue.lock().queued() < MAX_BATCH => return,
                BatchWriteOutcome::Written => pause = RETRY_BACKOFF.0,
                BatchWriteOutcome::Failed => {
                    self.sleep_unless_stopped(pause).await;
                    pause = (pause * 2).min(RETRY_BACKOFF.1);
                }
            }
        }
    }

    /// Writes what is queued; what the database refuses now is lost, and counted.
    async fn flush_remaining(&self, sink: &(impl ViolationSink + ?Sized)) {
        while self.write_batch(sink).await == BatchWriteOutcome::Written {}
        self.queue.lock().clear();
    }

    async fn write_batch(&self, sink: &(impl ViolationSink + ?Sized)) -> BatchWriteOutcome {
        let Some(page) = self.take_batch() else { return BatchWriteOutcome::Empty };
        let (writer, number) = (self.writer.clone(), page.sequence());
        let batch =
            ViolationBatch { writer, number, violations: self.build_violations(&page).await };
        let recorded = sink.record_violations(&batch).await;
        self.queue.lock().settle_batch(page, recorded.is_ok())
    }

    /// A page to be written, which the lines know of.
    fn take_batch(&self) -> Option<RawViolationBatch> {
        let page = self.queue.lock().take_batch()?;
        if let Some(teller) = self.log_emitter.as_ref().filter(|_| !page.is_sampled()) {
            teller.sample_batch(&page);
        }
        Some(page.into_sampled())
    }

    /// Hears of a violation. There is little code on this way, and what is seldom done is not in it: a decision after a pause
    /// finds none of it in a near cache, and waits for each line.
    #[inline]
    fn record(&self, rule: u32, verdict: Verdict, told: &Reading, decided: &DecisionEvent<'_, '_>) {
        let refusal = || RuleRefusal::new(rule, verdict, told);
        let due = self.queue.lock().push(decided.rules, refusal, decided.facts);
        if due.wake || due.show {
            self.follow_up(due, &refusal(), decided);
        }
    }

    /// Does what is due about a violation.
    #[cold]
    fn follow_up(&self, due: FollowUp, refusal: &RuleRefusal, decided: &DecisionEvent<'_, '_>) {
        if due.wake {
            self.work_ready.notify_one();
        }
        if due.show {
            let DecisionEvent { rules, facts, .. } = decided;
            self.recent.push(refusal.rule_index(), || {
                rules.with_enriched_facts(facts, |facts| {
                    refusal.to_violation(rules, facts, self.identities)
                })
            });
        }
    }

    /// The same of a rule that refuses without counting: nothing is left, and it is now.
    #[cold]
    fn record_uncounted(&self, rule: u32, reading: &RuleReading, decided: &DecisionEvent<'_, '_>) {
        let told = Reading { retry: reading.retry(), now: (self.clock)(), ..Reading::default() };
        self.record(rule, reading.verdict, &told, decided);
    }

    /// What is put on record of a page.
    async fn build_violations(&self, page: &RawViolationBatch) -> Vec<RuleViolation> {
        let mut ready = Vec::with_capacity(page.len());
        let mut violations = page.violations(self.identities);
        while ready.len() < page.len() {
            ready.extend(violations.by_ref().take(RENDER_CHUNK));
            tokio::task::yield_now().await;
        }
        ready
    }
}

impl DecisionObserver for ViolationLog {
    fn on_decision(&self, decided: &DecisionEvent<'_, '_>) {
        for (rule, reading) in decided.indexed_readings() {
            if reading.verdict.is_violation() {
                match &reading.numbers {
                    Some(told) => self.record(rule, reading.verdict, told, decided),
                    None => self.record_uncounted(rule, reading, decided),
                }
            }
        }
    }
}

impl MetricsExporter for ViolationLog {
    fn export(&self, to: &mut Exposition) {
        let tally = self.counts();
        to.family(
            "tidegate_violations",
            MetricKind::Counter,
            "Violations, and what became of them.",
        );
        for (fate, count) in
            [("heard", tally.heard), ("written", tally.written), ("dropped", tally.dropped)]
        {
            to.sample("_total", &[("fate", fate)], count);
        }
        let help = "Violations that wait to be written.";
        to.family("tidegate_violations_waiting", MetricKind::Gauge, help);
        to.sample("", &[], tally.waiting);
    }
}

impl fmt::Debug for ViolationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViolationLog").field("tally", &self.counts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_limiter::Limiter;
    use tidegate_memory::MemoryStore;
    use tidegate_rules::{Document, Facts, RuleSet};

    use super::*;

    #[tokio::test]
    async fn violations_are_buffered_only_while_live() {
        let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
        let log = Arc::new(ViolationLog::new(identities, Arc::new(|| Timestamp::EPOCH)));
        let document = Document::parse("rules.yaml", "rules: [{ id: shut, limit: deny }]").unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let limiter = Limiter::new(MemoryStore::new(), rules)
            .with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>);
        let refused = async || assert!(!limiter.decide(&Facts::new(), 1).await.is_allowed());
        refused().await;
        assert_eq!(log.take_recent(), None);
        log.start_live();
        refused().await;
        assert_eq!(log.take_recent().unwrap()["list"].as_array().unwrap().len(), 1);
        refused().await;
        log.stop_live();
        assert_eq!(log.take_recent(), None, "nobody heard of it");
        refused().await;
        assert_eq!(log.take_recent(), None);
        assert_eq!(log.counts().heard, 4);
    }
}
