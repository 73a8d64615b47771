//! A store that does not answer: every request is answered all the same, as its rules say.

mod common;

use common::{facts, ready, rules, told};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_engine::Limiter;

/// A store that is gone.
struct Gone;

impl Store for Gone {
    async fn apply(
        &self,
        _: Op,
        _: &[Charge<'_>],
        _: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        Err(StoreError::nothing("connection refused"))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Err(StoreError::nothing("connection refused"))
    }
}

#[test]
fn each_rule_answers_with_its_on_fail() {
    let limiter = Limiter::new(
        Gone,
        rules(
            "rules:
               - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
               - { id: watched, mode: shadow, key_by: ip, limit: 5/h, on_fail: deny }
               - { id: closed, match: { path: /login }, key_by: ip, limit: 5/h, on_fail: deny }",
        ),
    );
    let passed = ready(limiter.decide(&facts(&[("ip", "203.0.113.7")]), 1));
    assert!(passed.is_allowed());
    assert_eq!(passed.answered_by(), AnsweredBy::Fallback);
    let refused = ready(limiter.decide(&facts(&[("ip", "203.0.113.7"), ("path", "/login")]), 1));
    assert_eq!(told(&refused), ["open allow 5", "watched allow 5", "closed deny 0"]);
    assert_eq!(refused.tightest().expect("a rule").0.id(), "closed");
}

#[test]
fn rules_stay_when_the_stores_clock_cannot_be_read() {
    let limiter = Limiter::new(Gone, rules("rules: [{ id: old, key_by: ip, limit: 5/h }]"));
    let installed = ready(limiter.install(rules("rules: [{ id: new, key_by: ip, limit: 5/h }]")));
    assert!(installed.is_err());
    assert_eq!(limiter.rules().rules()[0].id(), "old");
}
