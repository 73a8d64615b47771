//! The violations log: what was refused, written in batches off the path of decisions.
//!
//! A decision only puts its violations into a queue. When the database is slow or gone, the queue drops the
//! oldest and counts them; a decision never waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::decision::Verdict;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_edge::Status;
use tidegate_engine::{Decided, Observer, RuleReading};
use tidegate_rules::{Facts, Rule, RuleSet};
use tokio::sync::{Notify, watch};

use crate::live::{Live, Recent, Tells};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// They were heard of.
    pub heard: u64,
    /// They are on record.
    pub written: u64,
    /// There was no room for them.
    pub dropped: u64,
    /// They wait, or are being written.
    pub waiting: u64,
}

/// What came of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// Nothing waits.
    None,
    Written,
    /// It waits again.
    Refused,
}

/// A log of violations.
pub struct ViolationLog {
    desk: Mutex<Desk>,
    filled: Notify,
    stopping: watch::Sender<bool>,
    identities: Identities,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    recent: Arc<Recent>,
}

/// What waits, and what became of the rest: under one lock, so that the sums are right at any time.
#[derive(Default)]
struct Desk {
    queue: VecDeque<Violation>,
    /// They are being written.
    writing: usize,
    heard: u64,
    written: u64,
    dropped: u64,
}

impl ViolationLog {
    /// An empty log.
    #[must_use]
    pub fn new(identities: Identities, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        let (desk, filled, stopping) = (Mutex::default(), Notify::new(), watch::Sender::new(false));
        Self { desk, filled, stopping, identities, clock, recent: Arc::default() }
    }

    /// Tells what `tellers` tell and violations as they come, until `status` says that it is enough.
    #[must_use]
    pub fn live(&self, tellers: Vec<Arc<dyn Tells>>, status: Arc<Status>) -> Live {
        Live::new(tellers, Arc::clone(&self.recent), status, Arc::clone(&self.clock))
    }

    /// What became of violations since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let Desk { queue, writing, heard, written, dropped } = &*self.desk.lock();
        let waiting = (queue.len() + writing) as u64;
        Tally { heard: *heard, written: *written, dropped: *dropped, waiting }
    }

    /// Writes what is queued, and drops what is old, until it is told to stop; then it writes what is left.
    ///
    /// It must not be dropped while it writes: nobody would know whether that is on record.
    pub async fn keep(&self, repository: &dyn Repository, retention: Retention) {
        tokio::select! {
            () = self.write_all(repository) => {}
            // Beside: to drop very many takes a while, and what is heard meanwhile has only so much room.
            () = self.prune(repository, retention) => {}
        }
    }

    async fn write_all(&self, repository: &dyn Repository) {
        while !*self.stopping.borrow() {
            tokio::select! {
                () = self.stopped() => {}
                () = self.filled.notified() => {
                    self.unless_stopped(GATHERED).await;
                    self.write(repository).await;
                }
            }
        }
        self.finish(repository).await;
    }

    /// Drops what is old, again and again.
    async fn prune(&self, repository: &dyn Repository, retention: Retention) {
        let mut look = tokio::time::interval(PRUNED);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let before = (self.clock)().minus(retention.age);
            // What cannot be dropped now is dropped next time.
            let _ = repository.prune(before, retention.rows).await;
        }
    }

    /// Lets [`ViolationLog::keep`] come to its end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    async fn stopped(&self) {
        // The sender is our own: it is there as long as we are.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    async fn unless_stopped(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.stopped()).await;
    }

    /// Writes all that is queued now and comes meanwhile; asks again as long as the database refuses.
    async fn write(&self, repository: &dyn Repository) {
        let mut pause = PAUSES.0;
        while !*self.stopping.borrow() {
            match self.write_batch(repository).await {
                Batch::None => return,
                Batch::Written => pause = PAUSES.0,
                Batch::Refused => {
                    self.unless_stopped(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Writes what is queued; what the database refuses now is lost, and counted.
    async fn finish(&self, repository: &dyn Repository) {
        while self.write_batch(repository).await == Batch::Written {}
        let mut desk = self.desk.lock();
        desk.dropped += desk.queue.len() as u64;
        desk.queue.clear();
    }

    async fn write_batch(&self, repository: &dyn Repository) -> Batch {
        let batch = self.desk.lock().take();
        if batch.is_empty() {
            return Batch::None;
        }
        let recorded = repository.record(&batch).await;
        self.desk.lock().settle(batch, recorded.is_ok())
    }

    fn put(&self, violation: Violation) {
        self.recent.hear(&violation);
        self.desk.lock().put(violation);
        self.filled.notify_one();
    }

    fn violation(
        &self,
        decided: &Decided<'_, '_>,
        rule: &Rule,
        reading: &RuleReading,
    ) -> Violation {
        let mut facts = decided.facts.borrowed();
        decided.rules.complete(&mut facts);
        let user = facts.get("user_id").map(|user| self.identities.kept("user_id", user));
        let by_key = || {
            let key = facts.get("api_key")?;
            // A key is a secret, whatever is kept of others.
            Some(self.identities.hashed("api_key", key))
        };
        let key = rule.shown_key(&facts, decided.rules);
        Violation {
            at: reading.numbers.map_or_else(|| (self.clock)(), |told| told.now),
            rule: rule.id().to_owned(),
            bucket_key: key
                .map_or_else(String::new, |key| format!("{:016x}{:016x}", key.hi, key.lo)),
            user_id: user.or_else(by_key),
            ip: facts.get("ip").map(|ip| self.identities.kept("ip", ip)),
            endpoint: endpoint(decided.rules, &facts),
            remaining: reading.numbers.map_or(0, |told| told.remaining),
            enforced: reading.verdict != Verdict::ShadowDeny,
        }
    }
}

impl Desk {
    fn put(&mut self, violation: Violation) {
        self.heard += 1;
        if self.queue.len() >= QUEUE && self.queue.pop_front().is_some() {
            self.dropped += 1;
        }
        self.queue.push_back(violation);
    }

    fn take(&mut self) -> Vec<Violation> {
        self.writing = self.queue.len().min(BATCH);
        self.queue.drain(..self.writing).collect()
    }

    /// A batch is on record, or goes back before all others; what has no room any more is dropped, the oldest
    /// first.
    fn settle(&mut self, batch: Vec<Violation>, recorded: bool) -> Batch {
        self.writing = 0;
        if recorded {
            self.written += batch.len() as u64;
            return Batch::Written;
        }
        let room = QUEUE.saturating_sub(self.queue.len());
        let lost = batch.len().saturating_sub(room);
        self.dropped += lost as u64;
        for violation in batch.into_iter().skip(lost).rev() {
            self.queue.push_front(violation);
        }
        Batch::Refused
    }
}

impl Observer for ViolationLog {
    fn decided(&self, decided: &Decided<'_, '_>) {
        for (rule, reading) in decided.readings() {
            if reading.verdict.is_violation() {
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
fn endpoint(rules: &RuleSet, facts: &Facts<'_>) -> Option<String> {
    let mut endpoint = rules.endpoint(facts)?;
    endpoint.truncate(endpoint.floor_char_boundary(MAX_ENDPOINT));
    Some(endpoint)
}

impl fmt::Debug for ViolationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViolationLog").field("tally", &self.tally()).finish_non_exhaustive()
    }
}
