//! Decisions for APIs that cannot delay a request: RESP, forward-auth and Envoy's rate limit
//! service.
//!
//! Here a rule with `queue: true` admits a request only if its queue is empty. A request that would
//! have to wait is refused without being charged, and the wait is returned as `retry_after`. If no
//! other request intervenes, a retry after exactly that time is admitted, and an earlier one is
//! not. All other rules decide as usual.

use std::sync::Arc;

use tidegate_core::store::{Op, QueueMode, Store};
use tidegate_rules::{Facts, Rule, RuleSet};

use crate::decision::Decision;
use crate::limiter::{Limiter, cost_from_request};
use crate::plan::PlanOptions;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Like [`decide`](Self::decide), for callers that cannot delay the request. Its delay is
    /// always zero.
    pub fn decide_no_queue(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(without_queue(), facts, cost)
    }

    /// Like [`decide_with_rules`](Self::decide_with_rules), for callers that cannot delay the
    /// request.
    pub fn decide_no_queue_with_rules(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        request_cost: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(rules, without_queue(), facts, cost_from_request(request_cost))
    }

    /// What [`decide_no_queue`](Self::decide_no_queue) would return, without charging.
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
