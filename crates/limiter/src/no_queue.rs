//! Decisions for doors that cannot hold a request until its turn: RESP, forward-auth, Envoy's service.
//!
//! A rule with `queue: true` admits a request there only if nobody is before it. One that would have to
//! wait is refused uncharged, and the wait is told as `retry_after`: alone, it passes after that, and not
//! a microsecond earlier. All other rules decide as they do everywhere.

use std::sync::Arc;

use tidegate_core::store::{Op, QueueMode, Store};
use tidegate_rules::{Facts, Rule, RuleSet};

use crate::decision::Decision;
use crate::limiter::{Limiter, cost_from_request};
use crate::plan::PlanOptions;

impl<S: Store, L: Store> Limiter<S, L> {
    /// [`decide`](Self::decide), where nobody can hold the request. Its delay is always zero.
    pub fn decide_no_queue(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(without_queue(), facts, cost)
    }

    /// [`decide_with_rules`](Self::decide_with_rules), where nobody can hold the request.
    pub fn decide_no_queue_with_rules(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        told: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(rules, without_queue(), facts, cost_from_request(told))
    }

    /// What [`decide_no_queue`](Self::decide_no_queue) would say; nothing changes.
    pub async fn peek_no_queue(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
    ) -> Decision {
        self.peek_with_queue(facts, rule, cost, QueueMode::Refuse).await
    }
}

const fn without_queue() -> PlanOptions<'static> {
    PlanOptions { queue: QueueMode::Refuse, ..PlanOptions::all_rules(Op::Charge) }
}
