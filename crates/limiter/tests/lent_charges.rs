//! The deny cache of a store must not answer for charges of leased and asynchronous rules: they are
//! marked as lent, in every call to the store.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use common::{clock, poll_ready};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, Micros, Timestamp};
use tidegate_fixtures::faulty_store::small_store;
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::{LeaseClock, Limiter};

/// The operation, the rule, and whether the charge is marked as lent.
type RecordedCharge = (&'static str, String, bool);

/// A store that records each charge.
struct RecordingStore {
    store: ManualMemoryStore,
    charges: Arc<Mutex<Vec<RecordedCharge>>>,
}

impl Store for RecordingStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let name = match op {
            Op::Charge => "charge",
            Op::Force => "flush",
            Op::Grant(_) => "grant",
            Op::Refund { .. } => "return",
            _ => "other",
        };
        let charged = charges.iter().map(|it| (name, it.key.rule.to_owned(), it.lent));
        self.charges.lock().unwrap().extend(charged);
        self.store.apply_now(op, charges, readings);
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.store.clock().now())
    }
}

#[test]
fn node_counters_mark_charges_as_lent() {
    let source = "rules:
      - { id: hot, match: { path: /hot }, key_by: ip, limit: 1000/h, consistency: leased }
      - { id: soft, match: { path: /soft }, key_by: ip, limit: 1000/h, consistency: async }
      - { id: exact, match: { path: /exact }, key_by: ip, limit: 1000/h }";
    let (clock, charges) = (clock(), Arc::default());
    let store = RecordingStore { store: small_store(&clock), charges: Arc::clone(&charges) };
    let lease_clock = clock.clone();
    let limiter = Limiter::new(store, compile_rules(source).for_shared_store())
        .with_leases(LeaseClock::new(move || lease_clock.now()), 1 << 20);
    let run_tasks = || {
        while let Some(task) = limiter.pop_lease_task() {
            poll_ready(limiter.run_lease_task(task));
        }
    };
    for path in ["/hot", "/soft", "/exact"] {
        let request = [("ip", "203.0.113.7"), ("path", path)].into_iter().collect();
        for _ in 0..12 {
            let mut decision = pin!(limiter.decide(&request, 1));
            let mut context = Context::from_waker(Waker::noop());
            while decision.as_mut().poll(&mut context).is_pending() {
                run_tasks();
            }
        }
    }
    clock.advance(Micros::from_millis(100));
    limiter.sweep_leases();
    run_tasks();
    let mut charges = std::mem::take(&mut *charges.lock().unwrap());
    charges.sort();
    charges.dedup();
    let charge = |op, rule: &str, lent| (op, rule.to_owned(), lent);
    let expected = [
        charge("charge", "exact", false),
        charge("charge", "hot", true),
        charge("charge", "soft", true),
        charge("flush", "soft", true),
        charge("grant", "hot", true),
        charge("return", "hot", true),
    ];
    assert_eq!(charges, expected);
}
