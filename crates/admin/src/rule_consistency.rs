//! How each rule counts on this node, as JSON: its consistency, its bound, and what the node holds.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_api::http::HttpApi;
use tidegate_core::store::Store;
use tidegate_limiter::{HeldCounters, NodeHoldings, RuleConsistency, describe_bound};
use tidegate_rules::{Consistency, Rule, RuleSet};

/// The active rules, and what this node holds of their counters.
pub(super) trait ActiveCounters: Send + Sync {
    fn rules(&self) -> Arc<RuleSet>;

    /// `None` if the store decides every request.
    fn holdings(&self) -> Option<NodeHoldings>;
}

impl<S: Store, L: Store> ActiveCounters for HttpApi<S, L> {
    fn rules(&self) -> Arc<RuleSet> {
        self.rules()
    }

    fn holdings(&self) -> Option<NodeHoldings> {
        self.holdings()
    }
}

/// How the rules of one response count.
pub(super) struct ConsistencyView {
    rules: Arc<RuleSet>,
    holdings: Option<NodeHoldings>,
}

impl ConsistencyView {
    pub(super) fn new(counters: &dyn ActiveCounters) -> Self {
        Self { rules: counters.rules(), holdings: counters.holdings() }
    }

    /// Null for a rule without a counter, and for one that is not installed on this node.
    pub(super) fn of_rule(&self, id: &str) -> Json {
        let rule = self.rules.rules().iter().find(|rule| rule.id() == id);
        rule.and_then(|rule| self.describe(rule)).unwrap_or_default()
    }

    fn describe(&self, rule: &Rule) -> Option<Json> {
        let RuleConsistency { mode, description } = RuleConsistency::of(rule)?;
        let local = matches!(
            rule.applied_consistency(),
            Consistency::Leased(_) | Consistency::Async { .. }
        );
        let held = self.holdings.as_ref().filter(|_| local);
        let held = held.map(|held| held.rules.get(rule.id()).copied().unwrap_or_default());
        Some(json!({
            "mode": mode,
            "description": description,
            "bound": describe_bound(rule),
            "max_in_window": rule.max_in_window(),
            "node": held.map(held_json),
        }))
    }
}

/// What this node holds of all rules; null if the store decides every request.
pub(super) fn node_json(holdings: Option<&NodeHoldings>) -> Json {
    let Some(NodeHoldings { leased, unflushed, .. }) = holdings else { return Json::Null };
    json!({"leased": held_json(*leased), "async": held_json(*unflushed)})
}

fn held_json(held: HeldCounters) -> Json {
    json!({"counters": held.counters, "units": held.units})
}
