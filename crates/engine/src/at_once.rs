//! Decisions for doors that cannot hold a request until its turn: RESP, forward-auth, Envoy's service.
//!
//! A rule with `queue: true` admits a request there only if nobody is before it. One that would have to
//! wait is refused uncharged, and the wait is told as `retry_after`: alone, it passes after that, and not
//! a microsecond earlier. All other rules decide as they do everywhere.

use std::sync::Arc;

use tidegate_core::store::{Op, Queue, Store};
use tidegate_rules::{Facts, Rule, RuleSet};

use crate::decision::Decision;
use crate::limiter::{Limiter, told_by};
use crate::plan::Asking;

impl<S: Store, L: Store> Limiter<S, L> {
    /// [`decide`](Self::decide), where nobody can hold the request. Its delay is always zero.
    pub fn decide_at_once(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(unheld(), facts, cost)
    }

    /// [`decide_under`](Self::decide_under), where nobody can hold the request.
    pub fn decide_at_once_under(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        told: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_under(rules, unheld(), facts, told_by(told))
    }

    /// What [`decide_at_once`](Self::decide_at_once) would say; nothing changes.
    pub async fn peek_at_once(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.peek_for(facts, rule, cost, Queue::Refuse).await
    }
}

const fn unheld() -> Asking<'static> {
    Asking { queue: Queue::Refuse, ..Asking::all(Op::Charge) }
}
