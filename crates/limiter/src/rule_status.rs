//! How a rule counts: how the nodes agree on its counters, what it admits at most, and what this
//! node holds of it.

use std::collections::BTreeMap;
use std::fmt;

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
    /// How many nodes share the store.
    pub nodes: u32,
}

/// An asynchronous rule that its nodes cannot decide by themselves: the part of each is less than
/// one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndivisibleRule {
    /// The rule's ID.
    pub rule: String,
    /// What can be admitted at once.
    pub limit: u64,
    /// The nodes that share it.
    pub nodes: u32,
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
    /// How a rule counts on one of `nodes` nodes; `None` for a rule without a counter.
    #[must_use]
    pub fn of(rule: &Rule, nodes: u32) -> Option<Self> {
        rule.limit().policy()?;
        let mode = rule.applied_consistency().name();
        let mut description = describe_consistency(rule);
        if let Some(IndivisibleRule { limit, .. }) = IndivisibleRule::of(rule, nodes) {
            let store = "the store decides every request";
            description = format!("{description}; {store}: {nodes} nodes cannot share {limit}");
        }
        Some(Self { mode, description })
    }
}

impl IndivisibleRule {
    fn of(rule: &Rule, nodes: u32) -> Option<Self> {
        let limit = rule.limit().policy()?.limit();
        let is_async = matches!(rule.applied_consistency(), Consistency::Async { .. });
        let is_indivisible = is_async && limit < nodes.into();
        is_indivisible.then(|| Self { rule: rule.id().to_owned(), limit, nodes })
    }
}

impl fmt::Display for IndivisibleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, limit, nodes } = self;
        write!(
            f,
            "rule `{rule}` has `consistency: async`, but {nodes} nodes cannot share {limit}: the \
             store decides every request; raise the limit or its burst to at least {nodes}, or \
             write `consistency: exact`"
        )
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
        let nodes = self.store().node_count();
        let mut holdings = NodeHoldings { nodes, ..NodeHoldings::default() };
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

    /// The asynchronous rules that the store decides, because there are too many nodes.
    #[must_use]
    pub fn indivisible_rules(&self) -> Vec<IndivisibleRule> {
        let (rules, nodes) = (self.rules(), self.store().node_count());
        rules.rules().iter().filter_map(|rule| IndivisibleRule::of(rule, nodes)).collect()
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
        RuleLimit::Deny { .. } => "nothing passes".to_owned(),
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
