//! Node shares: the part of each limit that one node may admit alone while the store is
//! unreachable.
//!
//! A share has the rule's algorithm and window, and a fraction of its quota. Shares are computed
//! once per rule set and number of nodes, never per request.

use std::collections::HashMap;
use std::iter::successors;
use std::sync::Arc;

use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;
use tidegate_core::time::Timestamp;
use tidegate_rules::{OnFail, Rule, RuleSet};

use crate::lease::{BugSwitch, SeededBug};

/// The shares of a rule set, divided among a number of nodes.
#[derive(Debug)]
pub(crate) struct NodeQuotas {
    rules: Arc<RuleSet>,
    nodes: u32,
    bug: BugSwitch,
    /// One per rule and variant, in order; `None` for rules that need no share.
    policies: Box<[Option<Policy>]>,
}

impl NodeQuotas {
    /// The first shares of a node, which predate all of its buckets.
    pub(crate) fn new(rules: Arc<RuleSet>, nodes: u32) -> Self {
        Self::with_bug(rules, nodes, BugSwitch::default())
    }

    /// The same, with a bug that a test has switched on.
    pub(crate) fn with_bug(rules: Arc<RuleSet>, nodes: u32, bug: BugSwitch) -> Self {
        let parts = if bug.has(SeededBug::WholeLimitInFallback) { 1 } else { nodes };
        let policies =
            rules.rules_and_variants().iter().map(|rule| node_share(rule, parts)).collect();
        Self { rules, nodes, bug, policies }
    }

    /// The shares that replace these. An unchanged share keeps its effective time; a changed one is
    /// effective from `now` on the local clock. Usage is preserved.
    pub(crate) fn updated(&self, rules: Arc<RuleSet>, nodes: u32, now: Timestamp) -> Self {
        let before: HashMap<_, &Policy> = self
            .rules
            .rules_and_variants()
            .iter()
            .zip(&self.policies)
            .filter_map(|(rule, share)| Some((share_key(rule), share.as_ref()?)))
            .collect();
        let mut next = Self::with_bug(rules, nodes, self.bug);
        for (rule, share) in next.rules.rules_and_variants().iter().zip(&mut next.policies) {
            if let Some(share) = share {
                let since = match before.get(&share_key(rule)) {
                    Some(old) if share.with_effective_since(old.effective_since()) == **old => {
                        old.effective_since()
                    }
                    _ => now,
                };
                *share = share.with_effective_since(since);
            }
        }
        next
    }

    /// The rule set whose limits are divided.
    pub(crate) const fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// The number of nodes.
    pub(crate) const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A rule's share, if the rule is `on_fail: local`.
    pub(crate) fn policy_for(&self, rule: u32) -> Option<&Policy> {
        self.policies.get(rule as usize)?.as_ref()
    }
}

/// Identifies a rule or variant: equal quotas have equal shares.
fn share_key(rule: &Rule) -> (&str, Option<Quota>) {
    (rule.id(), rule.limit().policy().map(|policy| *policy.quota()))
}

/// An even share of a rule's limit, rounded down but at least one request. If there are more nodes
/// than requests, each node admits one.
fn node_share(rule: &Rule, nodes: u32) -> Option<Policy> {
    let policy = rule.limit().policy().filter(|_| rule.on_fail() == OnFail::Local)?;
    let part = |whole: u64| (whole / u64::from(nodes.max(1))).max(1);
    let quota = Quota { requests: part(policy.quota().requests), ..*policy.quota() };
    let share = |quota| Policy::new(policy.algorithm(), quota).ok();
    // A rounded-down rate may be too slow to count its burst precisely enough (4/m with a burst of
    // millions); a smaller burst works. Only a limit that takes 35 years to refill cannot be
    // divided at all.
    let countable = match quota.burst.map(part) {
        None => share(quota),
        Some(burst) => successors(Some(burst), |burst| Some(burst / 2).filter(|half| *half > 0))
            .find_map(|burst| share(quota.with_burst(burst))),
    };
    Some(countable.unwrap_or(*policy).with_effective_since(Timestamp::EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    fn rules(source: &str) -> Arc<RuleSet> {
        let document = Document::parse("rules.yaml", source).unwrap();
        Arc::new(RuleSet::compile(&document, Secret::UNSET).unwrap())
    }

    fn requests_and_bursts(shares: &NodeQuotas) -> Vec<Option<(u64, u64)>> {
        let numbers = |share: &Policy| (share.quota().requests, share.quota().burst());
        shares.policies.iter().map(|share| share.as_ref().map(numbers)).collect()
    }

    #[test]
    fn node_share_rounds_down_above_zero() {
        let rules = rules(
            "on_fail: local
rules:
  - { id: a, key_by: ip, limit: 10/s burst 30 }
  - { id: b, key_by: ip, limit: 3/h using sliding_window_log }
  - { id: c, key_by: ip, limit: 100/s, on_fail: allow }
  - { id: d, key_by: ip, limit: { requests: unlimited } }",
        );
        let shares = |nodes| requests_and_bursts(&NodeQuotas::new(Arc::clone(&rules), nodes));
        assert_eq!(shares(1), [Some((10, 30)), Some((3, 3)), None, None]);
        assert_eq!(shares(4), [Some((2, 7)), Some((1, 1)), None, None]);
        assert_eq!(shares(0), shares(1), "0 nodes count as this node alone");
    }

    #[test]
    fn unchanged_share_keeps_its_in_force_time() {
        let set = rules(
            "on_fail: local
rules: [{ id: a, key_by: ip, limit: 8/s }, { id: b, key_by: ip, limit: 1/s }]",
        );
        let since = |shares: &NodeQuotas| {
            [0, 1].map(|at| shares.policy_for(at).unwrap().effective_since().as_micros())
        };
        let at = Timestamp::from_micros;
        let one = NodeQuotas::new(Arc::clone(&set), 1);
        let four = one.updated(Arc::clone(&set), 4, at(50));
        assert_eq!((since(&one), since(&four)), ([0, 0], [50, 0]));
        assert_eq!(since(&four.updated(set, 4, at(60))), [50, 0]);
    }

    #[test]
    fn slow_rate_gets_smaller_burst_share() {
        let set =
            rules("rules: [{ id: a, key_by: ip, limit: 4/m burst 147086972, on_fail: local }]");
        let shares = |nodes| requests_and_bursts(&NodeQuotas::new(Arc::clone(&set), nodes));
        assert_eq!(shares(2), [Some((2, 73_543_486))]);
        assert_eq!(shares(3), [Some((1, 24_514_495))], "a third of the burst, halved");
    }
}
