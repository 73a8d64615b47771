//! Shares: what one node of several may admit by itself while the store is gone.
//!
//! A share has the rule's algorithm and window and a part of its numbers. Shares are reckoned once
//! for a rule set and a number of nodes, never for a request.

use std::collections::HashMap;
use std::iter::successors;
use std::sync::Arc;

use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;
use tidegate_core::time::Timestamp;
use tidegate_rules::{OnFail, Rule, RuleSet};

/// The shares of a rule set among a number of nodes.
#[derive(Debug)]
pub(crate) struct NodeQuotas {
    rules: Arc<RuleSet>,
    nodes: u32,
    /// One for each rule and variant, in their order; none for rules that need no share.
    policies: Box<[Option<Policy>]>,
}

impl NodeQuotas {
    /// The first shares of a node: no bucket is older than they are.
    pub(crate) fn new(rules: Arc<RuleSet>, nodes: u32) -> Self {
        let policies =
            rules.rules_and_variants().iter().map(|rule| node_share(rule, nodes)).collect();
        Self { rules, nodes, policies }
    }

    /// The shares that come after these. One that did not change has been in force for as long as
    /// it was, another is from `now` on the local clock: what was used stays used.
    pub(crate) fn updated(&self, rules: Arc<RuleSet>, nodes: u32, now: Timestamp) -> Self {
        let before: HashMap<_, &Policy> = self
            .rules
            .rules_and_variants()
            .iter()
            .zip(&self.policies)
            .filter_map(|(rule, share)| Some((share_key(rule), share.as_ref()?)))
            .collect();
        let mut next = Self::new(rules, nodes);
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

    /// The rule set whose limits are shared.
    pub(crate) const fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Among how many.
    pub(crate) const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A rule's share, if it is to be decided on one.
    pub(crate) fn policy_for(&self, rule: u32) -> Option<&Policy> {
        self.policies.get(rule as usize)?.as_ref()
    }
}

/// What tells a rule and its variants apart: the same numbers have the same share.
fn share_key(rule: &Rule) -> (&str, Option<Quota>) {
    (rule.id(), rule.limit().policy().map(|policy| *policy.quota()))
}

/// An even part of a rule's limit, rounded down but at least one request: where there are more nodes
/// than requests, all of them together admit one each.
fn node_share(rule: &Rule, nodes: u32) -> Option<Policy> {
    let policy = rule.limit().policy().filter(|_| rule.on_fail() == OnFail::Local)?;
    let part = |whole: u64| (whole / u64::from(nodes.max(1))).max(1);
    let quota = Quota { requests: part(policy.quota().requests), ..*policy.quota() };
    let share = |quota| Policy::new(policy.algorithm(), quota).ok();
    // A rate that is rounded down may be too slow for its burst to be counted exactly enough (4/m
    // with a burst of millions); a smaller burst is. Only what takes 35 years to come back cannot be
    // shared at all.
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
        assert_eq!(shares(0), shares(1), "a store that knows of nobody still has this node");
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
        assert_eq!(shares(3), [Some((1, 24_514_495))], "half of a third");
    }
}
