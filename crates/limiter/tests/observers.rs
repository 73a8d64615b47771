//! Observers and timers see every charging decision, and nothing else.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::{facts, limiter, poll_ready};
use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::key::Secret;
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::faulty_store::FaultyStore;
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{
    AdHoc, DecisionEvent, DecisionObserver, DecisionQuery, DecisionTimer, Limiter, QueryAction,
};
use tidegate_rules::{ApiKind, Facts, InlineLimit, RuleSet};

const RULES: &str = "rules:
  - { id: free, key_by: ip, limit: { requests: unlimited } }
  - { id: r, key_by: ip, limit: 5/h }
  - { id: s, key_by: ip, limit: 50/h }";

/// Writes down what it sees.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn write(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }
}

impl DecisionObserver for Notes {
    fn on_rules_installed(&self, rules: &RuleSet) {
        self.write(format!("{} rules", rules.rules().len()));
    }

    fn on_decision(&self, event: &DecisionEvent<'_, '_>) {
        let verdicts: Vec<&str> =
            event.readings().map(|(_, reading)| reading.verdict.name()).collect();
        let counters: Vec<u32> = event.counters().map(|counter| counter.reading.rule).collect();
        self.write(format!("{} on {counters:?}", verdicts.join(" ")));
    }

    fn on_ad_hoc_charge(&self, api: ApiKind, _: AnsweredBy, verdict: Verdict) {
        self.write(format!("{api:?} {}", verdict.name()));
    }
}

/// Counts the decisions that it has timed.
#[derive(Debug, Default)]
struct Stopwatch {
    started: AtomicU64,
    stopped: AtomicU64,
}

impl DecisionTimer for Stopwatch {
    fn start(&self) -> Option<Timestamp> {
        Some(Timestamp::from_micros(self.started.fetch_add(1, Ordering::SeqCst)))
    }

    fn stop(&self, started: Timestamp) {
        let before = self.stopped.fetch_add(1, Ordering::SeqCst);
        assert_eq!(started.as_micros(), before, "the time that `start` returned");
    }
}

fn ip() -> Facts<'static> {
    facts(&[("ip", "203.0.113.7")])
}

fn charge<'q, 'f>(facts: &'q Facts<'f>, action: QueryAction) -> DecisionQuery<'q, 'f> {
    DecisionQuery { facts, action, inline_limit: None }
}

#[test]
fn observer_sees_charging_decisions_only() {
    let (limiter, _) = limiter(RULES);
    let notes = Arc::new(Notes::default());
    let limiter = limiter.with_observer(notes.clone());
    assert_eq!(notes.take(), ["3 rules"]);
    let ip = ip();
    let first = poll_ready(limiter.decide(&ip, 4));
    poll_ready(limiter.peek(&ip, None, 1));
    poll_ready(limiter.force(&ip, None, 1));
    poll_ready(limiter.decide_no_queue(&ip, 1));
    poll_ready(limiter.refund_decision(first));
    assert_eq!(notes.take(), ["allow allow allow on [1, 2]", "allow deny allow on [1, 2]"]);
    poll_ready(limiter.install(compile_rules("rules: []"))).unwrap();
    assert_eq!(notes.take(), ["0 rules"]);
}

#[test]
fn observer_sees_queries_that_charge_rules() {
    let (limiter, _) = limiter(RULES);
    let notes = Arc::new(Notes::default());
    let limiter = limiter.with_observer(notes.clone());
    notes.take();
    let ip = ip();
    let inline_limit = Some(InlineLimit { requests: 3, window: Micros::from_secs(60) });
    let own = DecisionQuery { inline_limit, ..charge(&ip, QueryAction::Charge(1)) };
    let queries = [
        charge(&ip, QueryAction::Charge(1)),
        charge(&ip, QueryAction::Charge(0)),
        own,
        charge(&ip, QueryAction::Refund(1)),
    ];
    poll_ready(limiter.decide_batch(&queries)).unwrap();
    assert_eq!(notes.take(), ["allow allow allow on [1, 2]"]);
    for query in limiter.decide_separately(&queries[..1]) {
        poll_ready(query).unwrap();
    }
    assert_eq!(notes.take(), ["allow allow allow on [1, 2]"]);
}

#[test]
fn observer_sees_ad_hoc_charges() {
    let (limiter, _) = limiter("rules: []");
    let notes = Arc::new(Notes::default());
    let limiter = limiter.with_observer(notes.clone());
    notes.take();
    let buckets = AdHoc::new(Secret::UNSET);
    let (key, policy) =
        (buckets.key(b"k"), buckets.policy(Quota::new(2, Micros::from_secs(60))).unwrap());
    for _ in 0..3 {
        poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, 1)).unwrap();
    }
    assert_eq!(notes.take(), ["Resp allow", "Resp allow", "Resp deny"]);
}

#[test]
fn timer_measures_charging_decisions_only() {
    let (limiter, _) = limiter(RULES);
    let watch = Arc::new(Stopwatch::default());
    let limiter = limiter.with_timer(watch.clone());
    let times = || [&watch.started, &watch.stopped].map(|count| count.load(Ordering::SeqCst));
    let ip = ip();
    poll_ready(limiter.decide(&ip, 1));
    assert_eq!(times(), [1, 1]);
    poll_ready(limiter.peek(&ip, None, 1));
    poll_ready(limiter.force(&ip, None, 1));
    assert_eq!(times(), [1, 1]);
    poll_ready(limiter.decide_batch(&[charge(&ip, QueryAction::Charge(1)); 3])).unwrap();
    assert_eq!(times(), [2, 2], "a batch is one decision");
}

#[test]
fn observer_does_not_see_failed_batch() {
    let notes = Arc::new(Notes::default());
    let limiter = Limiter::new(FaultyStore::unreachable(), compile_rules(RULES));
    let limiter = limiter.with_observer(notes.clone());
    notes.take();
    let ip = ip();
    let inline_limit = Some(InlineLimit { requests: 3, window: Micros::from_secs(60) });
    let plain = charge(&ip, QueryAction::Charge(1));
    assert!(
        poll_ready(limiter.decide_batch(&[plain, DecisionQuery { inline_limit, ..plain }]))
            .is_err()
    );
    assert_eq!(notes.take(), Vec::<String>::new());
}
