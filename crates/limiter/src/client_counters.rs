//! Reads or resets the counters of one client, across all rules.
//!
//! A decision finds its counters through the rules that match a request. Here only the client is
//! known, and not its requests, so the counters are found by their key parts
//! ([`RuleSet::client_counters`]).

use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, QueueMode, Store};
use tidegate_core::time::Micros;
use tidegate_rules::{ClientCounter, Facts, Rule, RuleSet};

use crate::decision::{Decision, RuleReading};
use crate::limiter::{Limiter, multiply_base_cost};
use crate::plan::ChargePlan;

/// Maximum number of counters per store call.
const MAX_COUNTERS_PER_CALL: usize = 64;

/// The state of a client's counters.
#[derive(Debug)]
pub struct ClientCounters {
    decision: Decision,
    /// The names and values of each counter's key parts.
    keys: Vec<Vec<(String, String)>>,
}

impl ClientCounters {
    /// What produced the readings: the store, the deny cache or the fallback.
    #[must_use]
    pub const fn answered_by(&self) -> AnsweredBy {
        self.decision.answered_by()
    }

    /// Iterates over the counters: rule, key parts and reading. The readings are for a request with
    /// a cost of 0, so a retry time is that of a ban.
    pub fn iter(&self) -> impl Iterator<Item = (&Rule, &[(String, String)], &Reading)> {
        let counters = self.decision.readings().zip(&self.keys);
        counters.filter_map(|((rule, reading), key)| {
            Some((rule, key.as_slice(), reading.numbers.as_ref()?))
        })
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Reads the counters of the client that the facts describe, for all rules or for one. If a key
    /// includes an endpoint that the facts do not contain, only the endpoints whose counters are in
    /// use are listed.
    pub async fn counters(&self, facts: &Facts<'_>, rule: Option<&str>) -> ClientCounters {
        let rules = self.rules();
        let counters = rules.client_counters(facts, rule);
        let query = CounterQuery { op: Op::Peek, queue: QueueMode::Hold };
        let mut decision = self.apply_to_counters(query, &rules, &counters, |_| 0).await;
        let mut keys = Vec::new();
        let mut remaining = counters.into_iter();
        decision.readings.retain(|reading| {
            let Some(counter) = remaining.next() else { return false };
            let shown = !counter.assumed || is_in_use(reading);
            if shown {
                keys.push(counter.parts);
            }
            shown
        });
        ClientCounters { decision, keys }
    }

    /// Resets the counters, warnings and bans of the client that the facts describe, for all rules
    /// or for one: those that [`counters`](Self::counters) lists, and unused ones.
    pub async fn reset(&self, facts: &Facts<'_>, rule: Option<&str>) -> Decision {
        let rules = self.rules();
        let counters = rules.client_counters(facts, rule);
        let query = CounterQuery { op: Op::Reset, queue: QueueMode::Hold };
        let mut decision =
            self.apply_to_counters(query, &rules, &counters, multiply_base_cost(1_u32)).await;
        // After a reset, all counters of a rule have the same reading.
        decision.readings.dedup_by_key(|reading| reading.rule);
        decision
    }

    /// Peeks at one rule's counters of the client that the facts describe. Returns `None` if the
    /// facts do not contain the rule's key.
    pub(crate) async fn peek_rule(
        &self,
        facts: &Facts<'_>,
        rule: &str,
        cost: u32,
        queue: QueueMode,
    ) -> Option<Decision> {
        let rules = self.rules();
        let counters = rules.client_counters(facts, Some(rule));
        if counters.is_empty() {
            return None;
        }
        let query = CounterQuery { op: Op::Peek, queue };
        Some(self.apply_to_counters(query, &rules, &counters, multiply_base_cost(cost)).await)
    }

    async fn apply_to_counters(
        &self,
        CounterQuery { op, queue }: CounterQuery,
        rules: &Arc<RuleSet>,
        counters: &[ClientCounter<'_>],
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let mut answer = ChargePlan::empty().into_decision(Arc::clone(rules));
        for chunk in counters.chunks(MAX_COUNTERS_PER_CALL) {
            let mut plan = ChargePlan::empty();
            for counter in chunk {
                let rule = &rules[counter.rule];
                if let Some(before) = counter.previous_key {
                    // Fails if the store is unreachable; the next call tries again.
                    let _ = self.migrate_counter(rules, rule, before, counter.key).await;
                }
                plan.add_counter(counter.rule, rule, counter.key, cost(rule), queue);
            }
            self.apply_plan(op, &mut plan, rules).await;
            if plan.answered_by != AnsweredBy::Store {
                answer.answered_by = plan.answered_by;
            }
            answer.readings.extend(plan.readings);
        }
        answer
    }
}

/// The operation to apply to the counters.
struct CounterQuery {
    op: Op,
    queue: QueueMode,
}

fn is_in_use(reading: &RuleReading) -> bool {
    let numbers = reading.numbers.unwrap_or_default();
    let used = numbers.remaining < numbers.limit || numbers.reset_after > Micros::ZERO;
    used || numbers.warnings > 0 || reading.verdict != Verdict::Allow
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Timestamp;

    #[test]
    fn any_trace_of_counter_is_in_use() {
        let unused = Reading { limit: 5, remaining: 5, ..Reading::default() };
        let is_used = |verdict, numbers| {
            is_in_use(&RuleReading { numbers: Some(numbers), ..RuleReading::new(0, verdict) })
        };
        assert!(!is_used(Verdict::Allow, unused));
        assert!(!is_used(Verdict::Allow, Reading { now: Timestamp::from_micros(1), ..unused }));
        assert!(is_used(Verdict::Allow, Reading { remaining: 4, ..unused }));
        assert!(is_used(Verdict::Allow, Reading { reset_after: Micros::new(1), ..unused }));
        assert!(is_used(Verdict::Allow, Reading { warnings: 1, ..unused }));
        assert!(is_used(Verdict::Ban, unused));
        assert!(!is_in_use(&RuleReading::new(0, Verdict::Allow)));
    }
}
