//! How a rule counts: how the nodes agree on its counters, what it admits at most, and what this
//! node holds of it.

use std::collections::BTreeMap;

use tidegate_core::policy::Policy;
use tidegate_core::store::Store;
use tidegate_rules::{Consistency, LeasedLimit, Rule, RuleLimit, RuleMode};

use crate::limiter::Limiter;

/// How a rule counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleConsistency {
    /// The mode in force: `exact`, `leased`, `async` or `split`. On the store of a single process
    /// it is always `exact`.
    pub mode: &'static str,
    /// The mode with its settings and what follows from them, as text.
    pub description: String,
}

/// What this node holds of the counters that it decides without asking the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHoldings {
    /// Leased counters, and the units left to spend.
    pub leased: HeldCounters,
    /// Asynchronous counters, and the units admitted that the store has not answered for.
    pub unflushed: HeldCounters,
    /// By rule ID. A rule of which the node holds nothing is missing.
    pub rules: BTreeMap<String, HeldCounters>,
}

/// A number of counters, and of units of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCounters {
    /// Number of counters.
    pub counters: u64,
    /// Units of all of them.
    pub units: u64,
}

impl RuleConsistency {
    /// How a rule counts; `None` for a rule without a counter.
    #[must_use]
    pub fn of(rule: &Rule) -> Option<Self> {
        rule.limit().policy()?;
        let mode = rule.applied_consistency().name();
        Some(Self { mode, description: describe_consistency(rule) })
    }
}

impl NodeHoldings {
    fn add_to_rule(&mut self, rule: &Rule, units: u64) {
        match self.rules.get_mut(rule.id()) {
            Some(held) => held.add(units),
            None => {
                _ = self.rules.insert(rule.id().to_owned(), HeldCounters { counters: 1, units });
            }
        }
    }
}

impl HeldCounters {
    const fn add(&mut self, units: u64) {
        self.counters += 1;
        self.units = self.units.saturating_add(units);
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// What this node holds of each rule's counters; `None` if the store decides every request.
    #[must_use]
    pub fn holdings(&self) -> Option<NodeHoldings> {
        let counters = self.node_counters.as_ref()?;
        let mut holdings = NodeHoldings::default();
        counters.leases.for_each_counter(|rule, units| {
            holdings.leased.add(units);
            holdings.add_to_rule(rule, units);
        });
        counters.flushes.for_each_counter(|rule, units| {
            holdings.unflushed.add(units);
            holdings.add_to_rule(rule, units);
        });
        Some(holdings)
    }
}

/// The consistency, with what the store counts by if that is less than the limit.
fn describe_consistency(rule: &Rule) -> String {
    let counted = |leased: &LeasedLimit| {
        let lending = leased.lending_policy();
        match leased.policy() == lending {
            true => String::new(),
            false => format!(", leased from {}", describe_policy(lending)),
        }
    };
    let asked = rule.consistency();
    match rule.applied_consistency() {
        Consistency::Exact if !rule.is_shared() && *asked != Consistency::Exact => {
            format!("exact: one process; {asked} on a shared store")
        }
        Consistency::Exact if !rule.is_shared() => "exact: one process".to_owned(),
        Consistency::Exact => "exact: the store decides every request".to_owned(),
        Consistency::Leased(leased) => format!("{asked}{}", counted(leased)),
        Consistency::Async { .. } | Consistency::Split(_) => asked.to_string(),
    }
}

/// The most that a rule admits for one key in any window, wherever the window begins, as text.
#[must_use]
pub fn describe_bound(rule: &Rule) -> String {
    let bound = match &rule.region_limit() {
        RuleLimit::Unlimited => return "none".to_owned(),
        RuleLimit::Deny => "nothing passes".to_owned(),
        RuleLimit::Policy(policy) if policy.is_concurrency() => {
            format!("at most {} at once", policy.max_in_window())
        }
        RuleLimit::Policy(policy) => {
            let most = rule.max_in_window().unwrap_or_default();
            format!("at most {most} in any {}", policy.quota().window)
        }
    };
    let bound = match (rule.regional(), rule.max_in_all_regions()) {
        (Some(regional), Some(all)) => {
            format!("{bound} in region {}, {all} in all regions", regional.region())
        }
        _ => bound,
    };
    match rule.mode() {
        RuleMode::Shadow => format!("{bound}, if enforced"),
        RuleMode::Enforce | RuleMode::Warn(_) => bound,
    }
}

/// The limit and the algorithm.
pub(crate) fn describe_policy(policy: &Policy) -> String {
    let quota = policy.quota();
    let burst = quota.burst.map_or_else(String::new, |burst| format!(", burst {burst}"));
    format!("{} per {} by {}{burst}", quota.requests, quota.window, policy.algorithm())
}
