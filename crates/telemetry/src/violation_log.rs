//! The violation log: records refused requests in batches, off the decision path.
//!
//! A decision only copies its violations (`raw_batch`) to a queue (`queue`). If the database is
//! slow or unreachable, the queue drops and counts the oldest violations; a decision never waits
//! for it. Once a second, a sample of the violations (`sample`) also goes to the process log
//! (`log_lines`), independently of the database. The task that writes batches is in `writer`.

mod log_lines;
mod queue;
mod raw_batch;
mod sample;
mod writer;

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

use crate::live_feed::{LiveBroadcaster, LiveSource, RecentViolations};
use crate::metrics::{Exposition, MetricKind, MetricsExporter};
use crate::violation::IdentityPolicy;
use log_lines::ViolationLogEmitter;
use queue::{FollowUp, ViolationQueue};
use raw_batch::RuleRefusal;

pub use log_lines::{ViolationLogEvent, ViolationLogLine};
pub use queue::QUEUE_CAPACITY;

/// How often log lines are emitted; the limit per rule applies to this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How long and how many violations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Maximum age.
    pub age: Micros,
    /// Maximum number.
    pub rows: u64,
}

/// The number of violations by state, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViolationCounts {
    /// All violations: the sum of the others.
    pub received: u64,
    /// Written to the sink.
    pub written: u64,
    /// Dropped because the queue was full, or at shutdown.
    pub dropped: u64,
    /// Queued or being written.
    pub waiting: u64,
}

/// Queues violations and writes them to a [`ViolationSink`](crate::ViolationSink).
pub struct ViolationLog {
    queue: Mutex<ViolationQueue>,
    /// The name of this process in [`ViolationBatch::writer`](crate::ViolationBatch::writer).
    writer: String,
    work_ready: Notify,
    stopping: watch::Sender<bool>,
    identities: IdentityPolicy,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    recent: RecentViolations,
    log_emitter: Option<ViolationLogEmitter>,
}

impl ViolationLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new(
        identities: IdentityPolicy,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (work_ready, stopping) = (Notify::new(), watch::Sender::new(false));
        // 128 random bits, unique among all processes.
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
        on_event: impl Fn(ViolationLogEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let log_emitter = (max_per_rule > 0)
            .then(|| ViolationLogEmitter::new(max_per_rule, self.identities, paths, on_event));
        if log_emitter.is_some() {
            self.queue.lock().enable_sampling();
        }
        Self { log_emitter, ..self }
    }

    /// Creates a live feed of the data of `sources` and of violations, until the process drains.
    #[must_use]
    pub fn live_broadcaster(
        self: &Arc<Self>,
        sources: Vec<Arc<dyn LiveSource>>,
        status: Arc<ProcessStatus>,
    ) -> LiveBroadcaster {
        LiveBroadcaster::new(sources, Arc::clone(self), status, Arc::clone(&self.clock))
    }

    /// Starts to buffer violations for the live feed.
    pub(crate) fn start_live(&self) {
        self.queue.lock().set_live(true);
    }

    /// Stops buffering violations for the live feed and discards the buffer.
    pub(crate) fn stop_live(&self) {
        self.queue.lock().set_live(false);
        self.recent.clear();
    }

    /// The violations buffered since the last call; `None` if there were none.
    pub(crate) fn take_recent(&self) -> Option<Json> {
        self.recent.take()
    }

    /// The number of violations by state.
    #[must_use]
    pub fn counts(&self) -> ViolationCounts {
        self.queue.lock().counts()
    }

    /// Emits log lines every second until the log is stopped, then stays pending until dropped.
    async fn emit_log_lines(&self) {
        let Some(emitter) = &self.log_emitter else { return pending().await };
        let mut tick = tokio::time::interval(LOG_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.sample_queued(emitter);
                    emitter.emit();
                }
                () = self.wait_for_stop() => break,
            }
        }
        self.flush_log_lines();
        pending::<()>().await;
    }

    /// Emits the remaining log lines.
    fn flush_log_lines(&self) {
        if let Some(emitter) = &self.log_emitter {
            self.sample_queued(emitter);
            emitter.finish();
        }
    }

    /// Samples the queued violations, without holding the lock that decisions need.
    fn sample_queued(&self, emitter: &ViolationLogEmitter) {
        let unsampled = self.queue.lock().take_unsampled();
        unsampled.iter().for_each(|batch| emitter.sample_batch(batch));
        let mut queue = self.queue.lock();
        queue.restore_sampled(unsampled);
        emitter.add_dropped(queue.take_dropped_sample());
    }

    /// Queues a violation. This path has little code, and rare work is out of line: after a pause,
    /// a decision finds none of the code in the CPU cache and stalls on each cache line.
    #[inline]
    fn record(
        &self,
        rule: u32,
        verdict: Verdict,
        reading: &Reading,
        decided: &DecisionEvent<'_, '_>,
    ) {
        let refusal = || RuleRefusal::new(rule, verdict, reading);
        let follow_up = self.queue.lock().push(decided.rules, refusal, decided.facts);
        if follow_up.wake || follow_up.show {
            self.follow_up(follow_up, &refusal(), decided);
        }
    }

    /// Wakes the writer, and buffers the violation for the live feed, if necessary.
    #[cold]
    fn follow_up(
        &self,
        follow_up: FollowUp,
        refusal: &RuleRefusal,
        decided: &DecisionEvent<'_, '_>,
    ) {
        if follow_up.wake {
            self.work_ready.notify_one();
        }
        if follow_up.show {
            let DecisionEvent { rules, facts, .. } = decided;
            self.recent.push(refusal.rule_index(), || {
                rules.with_enriched_facts(facts, |facts| {
                    refusal.to_violation(rules, facts, self.identities)
                })
            });
        }
    }

    /// Queues a violation of a rule that refuses without counting, with the current time and no
    /// remaining quota.
    #[cold]
    fn record_uncounted(&self, rule: u32, reading: &RuleReading, decided: &DecisionEvent<'_, '_>) {
        let numbers = Reading { retry: reading.retry(), now: (self.clock)(), ..Reading::default() };
        self.record(rule, reading.verdict, &numbers, decided);
    }
}

impl DecisionObserver for ViolationLog {
    fn on_decision(&self, decided: &DecisionEvent<'_, '_>) {
        for (rule, reading) in decided.indexed_readings() {
            if reading.verdict.is_violation() {
                match &reading.numbers {
                    Some(numbers) => self.record(rule, reading.verdict, numbers, decided),
                    None => self.record_uncounted(rule, reading, decided),
                }
            }
        }
    }
}

impl MetricsExporter for ViolationLog {
    fn export(&self, to: &mut Exposition) {
        let counts = self.counts();
        to.family(
            "tidegate_violations",
            MetricKind::Counter,
            "Violations by result: all (received), written and dropped.",
        );
        for (result, count) in [
            ("received", counts.received),
            ("written", counts.written),
            ("dropped", counts.dropped),
        ] {
            to.sample("_total", &[("result", result)], count);
        }
        let help = "Violations waiting to be written.";
        to.family("tidegate_violations_waiting", MetricKind::Gauge, help);
        to.sample("", &[], counts.waiting);
    }
}

impl fmt::Debug for ViolationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViolationLog").field("counts", &self.counts()).finish_non_exhaustive()
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
        assert_eq!(log.take_recent(), None, "`stop_live` discards the buffer");
        refused().await;
        assert_eq!(log.take_recent(), None);
        assert_eq!(log.counts().received, 4);
    }
}
