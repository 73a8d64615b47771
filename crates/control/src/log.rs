//! The violations log: what was refused, written in batches off the path of decisions.
//!
//! A decision only jots its violations down (`notes`) in a queue (`desk`). When the database is slow or gone, the
//! queue drops the oldest and counts them; a decision never waits for it. Some of them become lines of the process's
//! log besides (`sample`, `lines`), once a second and whatever becomes of the database.

mod desk;
mod lines;
mod notes;
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
use tidegate_edge::Status;
use tidegate_engine::{Decided, Observer, RuleReading};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use crate::live::{Live, Recent, Tells};
use crate::metrics::{Exports, Exposition, Kind};
use crate::repository::Repository;
use crate::violation::{Batch, Identities, Violation};
use desk::{BATCH, Desk, Due, Outcome};
use lines::Teller;
use notes::{Page, Refusal};

pub use desk::QUEUE;
pub use lines::{Line, Said};

/// How many are made ready to be written before others on the same thread have a turn.
const AT_A_STRETCH: usize = 128;

/// How long violations are gathered before they are written. Where there are many by then it is longer: an index is written page
/// by page, and a thousand keys are a thousand pages in each transaction, however few violations are in it.
const GATHERED: Duration = Duration::from_millis(100);
const MANY: usize = 256;
const GATHERED_OF_MANY: Duration = Duration::from_secs(1);

/// How long after the database refused a batch it is asked again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often old violations are dropped.
const PRUNED: Duration = Duration::from_secs(60);

/// How often lines are told: the second of which each rule has its few.
const TOLD: Duration = Duration::from_secs(1);

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

/// A log of violations.
pub struct ViolationLog {
    desk: Mutex<Desk>,
    /// What this log is called where it is written to.
    writer: String,
    filled: Notify,
    stopping: watch::Sender<bool>,
    identities: Identities,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    recent: Recent,
    teller: Option<Teller>,
}

impl ViolationLog {
    /// An empty log.
    #[must_use]
    pub fn new(identities: Identities, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        let (filled, stopping) = (Notify::new(), watch::Sender::new(false));
        // What no other process draws.
        let writer =
            [(); 2].map(|()| format!("{:016x}", RandomState::new().hash_one(0_u8))).concat();
        let (desk, recent, teller) = (Mutex::default(), Recent::default(), None);
        Self { desk, writer, filled, stopping, identities, clock, recent, teller }
    }

    /// The same log, which also tells somebody of at most so many violations a second of each rule, and how many
    /// there were besides; of none if `most` is nought. [`ViolationLog::keep`] does the telling.
    #[must_use]
    pub fn telling(self, most: u32, hear: impl Fn(Said<'_>) + Send + Sync + 'static) -> Self {
        let teller = (most > 0).then(|| Teller::new(most, self.identities, hear));
        if teller.is_some() {
            self.desk.lock().be_looked_at();
        }
        Self { teller, ..self }
    }

    /// Tells what `tellers` tell and violations as they come, until `status` says that it is enough.
    #[must_use]
    pub fn live(self: &Arc<Self>, tellers: Vec<Arc<dyn Tells>>, status: Arc<Status>) -> Live {
        Live::new(tellers, Arc::clone(self), status, Arc::clone(&self.clock))
    }

    /// Keeps some violations for whoever watches, from now on.
    pub(crate) fn watch(&self) {
        self.desk.lock().watch(true);
    }

    /// Keeps none any more.
    pub(crate) fn look_away(&self) {
        self.desk.lock().watch(false);
        self.recent.clear();
    }

    /// Those that were kept since the last time, if any were.
    pub(crate) fn recent(&self) -> Option<Json> {
        self.recent.take()
    }

    /// What became of violations since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.desk.lock().tally()
    }

    /// Writes what is queued, and drops what is old, until it is told to stop; then it writes what is left.
    ///
    /// It must not be dropped while it writes: nobody would know whether that is on record.
    pub async fn keep(&self, repository: &dyn Repository, retention: Retention) {
        tokio::select! {
            () = self.write_all(repository) => {}
            // Beside: to drop very many takes a while, and what is heard meanwhile has only so much room.
            () = self.prune(repository, retention) => {}
            // Nor do lines wait for the database.
            () = self.tell_lines() => {}
        }
        self.tell_last();
    }

    /// Tells lines of the log, second by second, until it is told to stop; then it only waits to be dropped.
    async fn tell_lines(&self) {
        let Some(teller) = &self.teller else { return pending().await };
        let mut tick = tokio::time::interval(TOLD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.look(teller);
                    teller.tell();
                }
                () = self.stopped() => break,
            }
        }
        self.tell_last();
        pending::<()>().await;
    }

    /// Tells what is left to tell.
    fn tell_last(&self) {
        if let Some(teller) = &self.teller {
            self.look(teller);
            teller.finish();
        }
    }

    /// Looks at what was jotted down; outside of the lock, for which decisions would wait.
    fn look(&self, teller: &Teller) {
        let unseen = self.desk.lock().unseen();
        unseen.iter().for_each(|page| teller.look(page));
        let mut desk = self.desk.lock();
        desk.seen(unseen);
        teller.miss(desk.missed());
    }

    async fn write_all(&self, repository: &dyn Repository) {
        while !*self.stopping.borrow() {
            tokio::select! {
                () = self.stopped() => {}
                () = self.waiting(1) => {
                    self.gather().await;
                    self.write(repository).await;
                }
            }
        }
        self.finish(repository).await;
    }

    /// Waits until it is worth it to write.
    async fn gather(&self) {
        self.unless_stopped(GATHERED).await;
        if self.desk.lock().waiting() >= MANY {
            tokio::select! {
                () = self.unless_stopped(GATHERED_OF_MANY) => {}
                () = self.waiting(BATCH) => {}
            }
        }
    }

    /// Waits until so many wait to be written: one, or a whole batch.
    async fn waiting(&self, count: usize) {
        while self.desk.lock().waiting() < count {
            self.filled.notified().await;
        }
    }

    /// Drops what is old, again and again.
    async fn prune(&self, repository: &dyn Repository, retention: Retention) {
        let mut look = tokio::time::interval(PRUNED);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

    /// Writes what is queued until less than a batch is left; asks again as long as the database refuses.
    async fn write(&self, repository: &dyn Repository) {
        let mut pause = PAUSES.0;
        while !*self.stopping.borrow() {
            match self.write_batch(repository).await {
                Outcome::None => return,
                // What came meanwhile is gathered first.
                Outcome::Written if self.desk.lock().waiting() < BATCH => return,
                Outcome::Written => pause = PAUSES.0,
                Outcome::Refused => {
                    self.unless_stopped(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Writes what is queued; what the database refuses now is lost, and counted.
    async fn finish(&self, repository: &dyn Repository) {
        while self.write_batch(repository).await == Outcome::Written {}
        self.desk.lock().clear();
    }

    async fn write_batch(&self, repository: &dyn Repository) -> Outcome {
        let Some(page) = self.taken() else { return Outcome::None };
        let (writer, number) = (self.writer.clone(), page.number());
        let batch = Batch { writer, number, violations: self.ready(&page).await };
        let recorded = repository.record(&batch).await;
        self.desk.lock().settle(page, recorded.is_ok())
    }

    /// A page to be written, which the lines know of.
    fn taken(&self) -> Option<Page> {
        let page = self.desk.lock().take()?;
        if let Some(teller) = self.teller.as_ref().filter(|_| !page.is_seen()) {
            teller.look(&page);
        }
        Some(page.into_seen())
    }

    /// Hears of a violation. There is little code on this way, and what is seldom done is not in it: a decision after a pause
    /// finds none of it in a near cache, and waits for each line.
    #[inline]
    fn hear(&self, rule: u32, verdict: Verdict, told: &Reading, decided: &Decided<'_, '_>) {
        let refusal = || Refusal::new(rule, verdict, told);
        let due = self.desk.lock().put(decided.rules, refusal, decided.facts);
        if due.wake || due.show {
            self.follow_up(due, &refusal(), decided);
        }
    }

    /// Does what is due about a violation.
    #[cold]
    fn follow_up(&self, due: Due, refusal: &Refusal, decided: &Decided<'_, '_>) {
        if due.wake {
            self.filled.notify_one();
        }
        if due.show {
            let Decided { rules, facts, .. } = decided;
            self.recent.hear(refusal.rule(), || {
                rules.completing(facts, |facts| refusal.on_record(rules, facts, self.identities))
            });
        }
    }

    /// The same of a rule that refuses without counting: nothing is left, and it is now.
    #[cold]
    fn hear_uncounted(&self, rule: u32, reading: &RuleReading, decided: &Decided<'_, '_>) {
        let told = Reading { retry: reading.retry(), now: (self.clock)(), ..Reading::default() };
        self.hear(rule, reading.verdict, &told, decided);
    }

    /// What is put on record of a page.
    async fn ready(&self, page: &Page) -> Vec<Violation> {
        let mut ready = Vec::with_capacity(page.len());
        let mut violations = page.violations(self.identities);
        while ready.len() < page.len() {
            ready.extend(violations.by_ref().take(AT_A_STRETCH));
            tokio::task::yield_now().await;
        }
        ready
    }
}

impl Observer for ViolationLog {
    fn decided(&self, decided: &Decided<'_, '_>) {
        for (rule, reading) in decided.places() {
            if reading.verdict.is_violation() {
                match &reading.numbers {
                    Some(told) => self.hear(rule, reading.verdict, told, decided),
                    None => self.hear_uncounted(rule, reading, decided),
                }
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

impl fmt::Debug for ViolationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViolationLog").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_engine::Limiter;
    use tidegate_memory::MemoryStore;
    use tidegate_rules::{Document, Facts, RuleSet};

    use super::*;

    #[tokio::test]
    async fn violations_are_kept_for_whoever_watches_only_while_somebody_does() {
        let identities = Identities { secret: Secret::UNSET, plain: false };
        let log = Arc::new(ViolationLog::new(identities, Arc::new(|| Timestamp::EPOCH)));
        let document = Document::parse("rules.yaml", "rules: [{ id: shut, limit: deny }]").unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let limiter = Limiter::new(MemoryStore::new(), rules)
            .observed_by(Arc::clone(&log) as Arc<dyn Observer>);
        let refused = async || assert!(!limiter.decide(&Facts::new(), 1).await.is_allowed());
        refused().await;
        assert_eq!(log.recent(), None);
        log.watch();
        refused().await;
        assert_eq!(log.recent().unwrap()["list"].as_array().unwrap().len(), 1);
        refused().await;
        log.look_away();
        assert_eq!(log.recent(), None, "nobody heard of it");
        refused().await;
        assert_eq!(log.recent(), None);
        assert_eq!(log.tally().heard, 4);
    }
}
