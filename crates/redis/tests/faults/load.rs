//! A load generator with continuous requests, and a report of the decisions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::decision::AnsweredBy;
use tidegate_testkit::process::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::node::{BURST, FallbackLimiter, LimiterNode, facts};

/// Concurrent callers.
const CALLERS: usize = 6;

/// Requests of one user of the `shared` rule before the next user starts.
const REQUESTS_PER_USER: u64 = 25;

/// The longest acceptable decision time. Benchmarks measure the exact latency.
const MAX_DECISION_TIME: Duration = Duration::from_millis(1_500);

/// The user of the `open` and `closed` rules.
pub(crate) const USER: &str = "crowd";

/// Running callers of a node.
pub(crate) struct LoadGenerator {
    callers: Vec<JoinHandle<()>>,
    shared: Arc<LoadState>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    requests: AtomicU64,
    by_store: AtomicU64,
    by_fallback: AtomicU64,
    report: Mutex<FaultLoadReport>,
}

/// The decisions that callers received.
#[derive(Debug, Default)]
pub(crate) struct FaultLoadReport {
    /// Requests to the `open` and `closed` rules, by the source of the decision.
    pub(crate) open: AnswerTally,
    pub(crate) closed: AnswerTally,
    /// Requests admitted by the `shared` rule, by user.
    shared: HashMap<String, u64>,
    slowest: Duration,
    wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerTally {
    pub(crate) requests: u64,
    pub(crate) by_store: u64,
    pub(crate) by_fallback: u64,
}

impl LoadGenerator {
    /// Starts the callers and waits until the store answers them.
    pub(crate) fn start(node: &LimiterNode) -> Self {
        let shared = Arc::new(LoadState::default());
        let callers = (0..CALLERS).map(|_| {
            let (limiter, shared) = (Arc::clone(&node.limiter), Arc::clone(&shared));
            node.runtime.spawn(async move {
                while !shared.stop.load(Ordering::Relaxed) {
                    shared.run_round(&limiter).await;
                    // A cached refusal does not suspend the task: leave time for other tasks.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let load = Self { callers: callers.collect(), shared };
        load.await_store_answers();
        load
    }

    /// Waits until the store has answered more requests.
    #[track_caller]
    pub(crate) fn await_store_answers(&self) {
        let from = self.shared.by_store.load(Ordering::SeqCst);
        let now = || self.shared.by_store.load(Ordering::SeqCst);
        eventually("the store answers", || now() > from + 60);
    }

    /// Waits until `on_fail` has answered more requests.
    #[track_caller]
    pub(crate) fn await_fallback_answers(&self) {
        let from = self.shared.by_fallback.load(Ordering::SeqCst);
        let now = || self.shared.by_fallback.load(Ordering::SeqCst);
        eventually("requests are answered by on_fail", || now() > from + 300);
    }

    /// Stops the callers. Asserts that every request was answered in time and as its rule requires,
    /// and that `shared` admitted each user at most one burst, plus one for each outage.
    #[track_caller]
    pub(crate) fn stop(self, node: &LimiterNode, outages: u64) -> FaultLoadReport {
        self.shared.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            node.runtime.block_on(caller).expect("a caller does not panic");
        }
        let report = std::mem::take(&mut *self.shared.report());
        assert_eq!(report.wrong, Vec::<String>::new());
        let answered = report.open.by_store + report.open.by_fallback;
        assert_eq!(answered, report.open.requests, "every request is answered");
        let most = report.shared.values().max().copied().unwrap_or_default();
        assert!(most <= (1 + outages) * BURST, "{most} admitted to one user: {report:?}");
        assert!(most >= BURST, "the burst was used: {report:?}");
        assert!(report.slowest <= MAX_DECISION_TIME, "a decision took {:?}", report.slowest);
        report
    }
}

impl LoadState {
    async fn run_round(&self, limiter: &FallbackLimiter) {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let user = format!("user-{}", number / REQUESTS_PER_USER);
        for kind in ["open", "closed", "shared"] {
            let facts = facts(kind, if kind == "shared" { &user } else { USER });
            let start = Instant::now();
            let decision = limiter.decide(&facts, 1).await;
            let took = start.elapsed();
            let (by, allowed) = (decision.answered_by(), decision.is_allowed());
            let mut report = self.report();
            report.slowest = report.slowest.max(took);
            match (kind, by, allowed) {
                ("open", _, true) => report.open.count(by),
                ("closed", AnsweredBy::Store, true) => report.closed.count(by),
                ("closed", AnsweredBy::Fallback, false) => report.closed.count(by),
                ("shared", _, true) => *report.shared.entry(user.clone()).or_default() += 1,
                ("shared", _, false) => {}
                _ => report.wrong.push(format!("{kind} by {by:?}: allowed is {allowed}")),
            }
            drop(report);
            match by {
                AnsweredBy::Store => self.by_store.fetch_add(1, Ordering::SeqCst),
                AnsweredBy::Fallback => self.by_fallback.fetch_add(1, Ordering::SeqCst),
                AnsweredBy::DenyCache
                | AnsweredBy::Lease
                | AnsweredBy::Async
                | AnsweredBy::Borrowed => 0,
            };
        }
    }

    fn report(&self) -> std::sync::MutexGuard<'_, FaultLoadReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerTally {
    fn count(&mut self, by: AnsweredBy) {
        self.requests += 1;
        match by {
            AnsweredBy::Fallback => self.by_fallback += 1,
            _ => self.by_store += 1,
        }
    }
}

/// Asserts that no request was counted twice, and that every request admitted by the store was
/// counted.
#[track_caller]
pub(crate) fn assert_counted_once(node: &LimiterNode, report: &FaultLoadReport) {
    for (kind, tally) in [("open", report.open), ("closed", report.closed)] {
        let used = node.used(kind, USER);
        assert!(used <= tally.requests, "{kind}: {used} counted of {tally:?}");
        assert!(used >= tally.by_store, "{kind}: only {used} counted of {tally:?}");
    }
}
