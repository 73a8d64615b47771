//! The violations log: what was refused, written in batches off the path of decisions.
//!
//! A decision only puts its violations into a queue. When the database is slow or gone, the queue drops the
//! oldest and counts them; a decision never waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::decision::Verdict;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_engine::{Decided, Observer, RuleReading};
use tidegate_rules::{Facts, Rule};
use tokio::sync::Notify;

use crate::metrics::{Exports, Exposition, Kind};
use crate::repository::Repository;
use crate::violation::{Identities, Violation};

/// The most that wait to be written.
pub const QUEUE: usize = 1 << 16;

/// The most that are written at once.
const BATCH: usize = 5_000;

/// How long violations are gathered before they are written.
const GATHERED: Duration = Duration::from_millis(100);

/// How long after the database refused a batch it is asked again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often old violations are dropped.
const PRUNED: Duration = Duration::from_secs(60);

/// The longest endpoint on record, as long as the seeds' table has it.
const MAX_ENDPOINT: usize = 255;

/// How long violations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Not longer than this.
    pub age: Micros,
    /// Not more than this.
    pub rows: u64,
}

/// What became of violations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// They were heard of.
    pub heard: u64,
    /// They are on record.
    pub written: u64,
    /// There was no room for them.
    pub dropped: u64,
    /// They wait.
    pub waiting: u64,
}

/// A log of violations.
pub struct ViolationLog {
    queue: Mutex<VecDeque<Violation>>,
    filled: Notify,
    heard: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    identities: Identities,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl ViolationLog {
    /// An empty log.
    #[must_use]
    pub fn new(identities: Identities, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            filled: Notify::new(),
            heard: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            identities,
            clock,
        }
    }

    /// What became of violations since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let told = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally {
            heard: told(&self.heard),
            written: told(&self.written),
            dropped: told(&self.dropped),
            waiting: self.queue.lock().len() as u64,
        }
    }

    /// Writes what is queued, and drops what is old, until it is dropped itself.
    pub async fn keep(&self, repository: &dyn Repository, retention: Retention) {
        let mut prune = tokio::time::interval(PRUNED);
        prune.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.filled.notified() => {
                    tokio::time::sleep(GATHERED).await;
                    self.write(repository).await;
                }
                _ = prune.tick() => {
                    let before = (self.clock)().minus(retention.age);
                    // What cannot be dropped now is dropped next time.
                    let _ = repository.prune(before, retention.rows).await;
                }
            }
        }
    }

    /// Writes all that is queued now and comes meanwhile; asks again as long as the database refuses.
    async fn write(&self, repository: &dyn Repository) {
        let mut pause = PAUSES.0;
        loop {
            let batch = self.take();
            if batch.is_empty() {
                return;
            }
            if repository.record(&batch).await.is_ok() {
                self.written.fetch_add(batch.len() as u64, Ordering::Relaxed);
                pause = PAUSES.0;
            } else {
                self.put_back(batch);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// Writes what is queued once, at the end of the process.
    pub async fn finish(&self, repository: &dyn Repository) {
        loop {
            let batch = self.take();
            if batch.is_empty() || repository.record(&batch).await.is_err() {
                return;
            }
            self.written.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Vec<Violation> {
        let mut queue = self.queue.lock();
        let count = queue.len().min(BATCH);
        queue.drain(..count).collect()
    }

    /// Puts a batch back before all others; what has no room any more is dropped, the oldest first.
    fn put_back(&self, batch: Vec<Violation>) {
        let mut queue = self.queue.lock();
        let room = QUEUE.saturating_sub(queue.len());
        let lost = batch.len().saturating_sub(room);
        self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        for violation in batch.into_iter().skip(lost).rev() {
            queue.push_front(violation);
        }
    }

    fn put(&self, violation: Violation) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        let dropped = if queue.len() >= QUEUE { queue.pop_front() } else { None };
        queue.push_back(violation);
        drop(queue);
        if dropped.is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.filled.notify_one();
    }

    fn violation(
        &self,
        decided: &Decided<'_, '_>,
        rule: &Rule,
        reading: &RuleReading,
    ) -> Violation {
        let facts = decided.facts;
        let user = facts.get("user_id").map(|user| self.identities.kept("user_id", user));
        let by_key = || {
            let key = facts.get("api_key")?;
            // A key is a secret, whatever is kept of others.
            Some(self.identities.hashed("api_key", key))
        };
        let key = decided.key(rule);
        Violation {
            at: reading.numbers.map_or_else(|| (self.clock)(), |told| told.now),
            rule: rule.id().to_owned(),
            bucket_key: key
                .map_or_else(String::new, |key| format!("{:016x}{:016x}", key.hi, key.lo)),
            user_id: user.or_else(by_key),
            ip: facts.get("ip").map(|ip| self.identities.kept("ip", ip)),
            endpoint: endpoint(decided, facts),
            remaining: reading.numbers.map_or(0, |told| told.remaining),
            enforced: reading.verdict != Verdict::ShadowDeny,
        }
    }
}

impl Observer for ViolationLog {
    fn decided(&self, decided: &Decided<'_, '_>) {
        for (rule, reading) in decided.readings() {
            if reading.verdict.refuses() || reading.verdict == Verdict::ShadowDeny {
                self.put(self.violation(decided, rule, reading));
            }
        }
    }
}

impl Exports for ViolationLog {
    fn export(&self, to: &mut Exposition) {
        let tally = self.tally();
        to.family("tidegate_violations", Kind::Counter, "Violations, and what became of them.");
        for (fate, count) in
            [("heard", tally.heard), ("written", tally.written), ("dropped", tally.dropped)]
        {
            to.sample("_total", &[("fate", fate)], count);
        }
        let help = "Violations that wait to be written.";
        to.family("tidegate_violations_waiting", Kind::Gauge, help);
        to.sample("", &[], tally.waiting);
    }
}

/// The pattern of the endpoint, cut where the table ends.
fn endpoint(decided: &Decided<'_, '_>, facts: &Facts<'_>) -> Option<String> {
    let mut endpoint = decided.rules.endpoint(facts)?;
    endpoint.truncate(endpoint.floor_char_boundary(MAX_ENDPOINT));
    Some(endpoint)
}

impl fmt::Debug for ViolationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViolationLog").field("tally", &self.tally()).finish_non_exhaustive()
    }
}
