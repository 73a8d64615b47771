//! How each rule counts on this node, as JSON: its consistency, its bound, and what the node holds.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_api::http::HttpApi;
use tidegate_core::store::Store;
use tidegate_limiter::{BorrowStats, HeldCounters, NodeHoldings, RuleConsistency, describe_bound};
use tidegate_rules::{Consistency, Rule, RuleSet};

use super::rule_regions;

/// The active rules, and what this node holds of their counters.
pub(super) trait ActiveCounters: Send + Sync {
    fn rules(&self) -> Arc<RuleSet>;

    /// `None` if the store decides every request.
    fn holdings(&self) -> Option<NodeHoldings>;

    /// `None` if the node cannot borrow from other regions.
    fn borrow_stats(&self) -> Option<BorrowStats>;
}

impl<S: Store, L: Store> ActiveCounters for HttpApi<S, L> {
    fn rules(&self) -> Arc<RuleSet> {
        self.rules()
    }

    fn holdings(&self) -> Option<NodeHoldings> {
        self.holdings()
    }

    fn borrow_stats(&self) -> Option<BorrowStats> {
        self.borrow_stats()
    }
}

/// How the rules of one response count.
pub(super) struct ConsistencyView {
    rules: Arc<RuleSet>,
    holdings: Option<NodeHoldings>,
    borrowed: Option<BorrowStats>,
}

impl ConsistencyView {
    pub(super) fn new(counters: &dyn ActiveCounters) -> Self {
        let (holdings, borrowed) = (counters.holdings(), counters.borrow_stats());
        Self { rules: counters.rules(), holdings, borrowed }
    }

    /// Null for a rule without a counter, and for one that is not installed on this node.
    pub(super) fn of_rule(&self, id: &str) -> Json {
        let rule = self.rules.rules().iter().find(|rule| rule.id() == id);
        rule.and_then(|rule| self.describe(rule)).unwrap_or_default()
    }

    fn describe(&self, rule: &Rule) -> Option<Json> {
        let nodes = self.holdings.as_ref().map_or(1, |holdings| holdings.nodes);
        let RuleConsistency { mode, description } = RuleConsistency::of(rule, nodes)?;
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
            "regions": rule
                .regional()
                .map(|regional| rule_regions::to_json(rule, regional, self.borrowed.as_ref())),
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
