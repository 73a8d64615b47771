//! Callers that ask without a pause, and what they were told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::decision::AnsweredBy;
use tidegate_testkit::process::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::node::{BURST, FallbackLimiter, LimiterNode, facts};

/// Callers at once.
const CALLERS: usize = 6;

/// How often a user of the rule with shares asks before the next one does.
const REQUESTS_PER_USER: u64 = 25;

/// The longest that anybody may wait for an answer. (How long exactly is the benchmark's business.)
const MAX_DECISION_TIME: Duration = Duration::from_millis(1_500);

/// Who asks `open` and `closed`.
pub(crate) const USER: &str = "crowd";

/// Callers at work on a node.
pub(crate) struct LoadGenerator {
    callers: Vec<JoinHandle<()>>,
    shared: Arc<LoadState>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    asked: AtomicU64,
    by_store: AtomicU64,
    by_fallback: AtomicU64,
    report: Mutex<FaultLoadReport>,
}

/// What callers were told.
#[derive(Debug, Default)]
pub(crate) struct FaultLoadReport {
    /// Requests of `open` and `closed` that were asked, and that the store admitted.
    pub(crate) open: AnswerTally,
    pub(crate) closed: AnswerTally,
    /// What each user of `shared` was admitted.
    shared: HashMap<String, u64>,
    slowest: Duration,
    wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerTally {
    pub(crate) asked: u64,
    pub(crate) by_store: u64,
    pub(crate) by_fallback: u64,
}

impl LoadGenerator {
    /// Callers that begin at once.
    pub(crate) fn start(node: &LimiterNode) -> Self {
        let shared = Arc::new(LoadState::default());
        let callers = (0..CALLERS).map(|_| {
            let (limiter, shared) = (Arc::clone(&node.limiter), Arc::clone(&shared));
            node.runtime.spawn(async move {
                while !shared.stop.load(Ordering::Relaxed) {
                    shared.run_round(&limiter).await;
                    // A refusal that is remembered waits for nothing: others want to work too.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let load = Self { callers: callers.collect(), shared };
        load.await_store_answers();
        load
    }

    /// Waits until the store has answered some more.
    #[track_caller]
    pub(crate) fn await_store_answers(&self) {
        let from = self.shared.by_store.load(Ordering::SeqCst);
        let now = || self.shared.by_store.load(Ordering::SeqCst);
        eventually("the store answers", || now() > from + 60);
    }

    /// Waits until some more were answered by `on_fail`.
    #[track_caller]
    pub(crate) fn await_fallback_answers(&self) {
        let from = self.shared.by_fallback.load(Ordering::SeqCst);
        let now = || self.shared.by_fallback.load(Ordering::SeqCst);
        eventually("requests are answered by on_fail", || now() > from + 300);
    }

    /// Ends the callers. Every request was answered in time and as its rule says; of `shared`, each
    /// user was admitted its burst once, and once more for each outage at most.
    #[track_caller]
    pub(crate) fn stop(self, node: &LimiterNode, outages: u64) -> FaultLoadReport {
        self.shared.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            node.runtime.block_on(caller).expect("a caller does not panic");
        }
        let heard = std::mem::take(&mut *self.shared.report());
        assert_eq!(heard.wrong, Vec::<String>::new());
        let told = heard.open.by_store + heard.open.by_fallback;
        assert_eq!(told, heard.open.asked, "everybody is answered");
        let most = heard.shared.values().max().copied().unwrap_or_default();
        assert!(most <= (1 + outages) * BURST, "{most} admitted to one user: {heard:?}");
        assert!(most >= BURST, "the burst was used: {heard:?}");
        assert!(heard.slowest <= MAX_DECISION_TIME, "somebody waited for {:?}", heard.slowest);
        heard
    }
}

impl LoadState {
    async fn run_round(&self, limiter: &FallbackLimiter) {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let user = format!("user-{}", number / REQUESTS_PER_USER);
        for kind in ["open", "closed", "shared"] {
            let facts = facts(kind, if kind == "shared" { &user } else { USER });
            let asked = Instant::now();
            let decision = limiter.decide(&facts, 1).await;
            let took = asked.elapsed();
            let (by, allowed) = (decision.answered_by(), decision.is_allowed());
            let mut heard = self.report();
            heard.slowest = heard.slowest.max(took);
            match (kind, by, allowed) {
                ("open", _, true) => heard.open.count(by),
                ("closed", AnsweredBy::Store, true) => heard.closed.count(by),
                ("closed", AnsweredBy::Fallback, false) => heard.closed.count(by),
                ("shared", _, true) => *heard.shared.entry(user.clone()).or_default() += 1,
                ("shared", _, false) => {}
                _ => heard.wrong.push(format!("{kind} by {by:?}: allowed is {allowed}")),
            }
            drop(heard);
            match by {
                AnsweredBy::Store => self.by_store.fetch_add(1, Ordering::SeqCst),
                AnsweredBy::Fallback => self.by_fallback.fetch_add(1, Ordering::SeqCst),
                AnsweredBy::DenyCache => 0,
            };
        }
    }

    fn report(&self) -> std::sync::MutexGuard<'_, FaultLoadReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerTally {
    fn count(&mut self, by: AnsweredBy) {
        self.asked += 1;
        match by {
            AnsweredBy::Fallback => self.by_fallback += 1,
            _ => self.by_store += 1,
        }
    }
}

/// Nothing was done twice, and nothing that the store admitted was forgotten.
#[track_caller]
pub(crate) fn assert_counted_once(node: &LimiterNode, heard: &FaultLoadReport) {
    for (kind, tally) in [("open", heard.open), ("closed", heard.closed)] {
        let used = node.used(kind, USER);
        assert!(used <= tally.asked, "{kind}: {used} counted of {tally:?}");
        assert!(used >= tally.by_store, "{kind}: only {used} counted of {tally:?}");
    }
}
