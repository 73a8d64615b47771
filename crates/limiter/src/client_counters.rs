//! What is counted of one client, by whichever rules: looked at or forgotten by the parts of its keys.
//!
//! A decision is about a request, and finds its counters by what the request matches. Here the client
//! is known and its requests are not ([`RuleSet::client_counters`]).

use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, QueueMode, Store};
use tidegate_core::time::Micros;
use tidegate_rules::{ClientCounter, Facts, Rule, RuleSet};

use crate::decision::{Decision, RuleReading};
use crate::limiter::{Limiter, multiply_base_cost};
use crate::plan::ChargePlan;

/// Counters that the store is asked about at once.
const MAX_COUNTERS_PER_CALL: usize = 64;

/// How the counters of a client stand.
#[derive(Debug)]
pub struct ClientCounters {
    decision: Decision,
    /// The parts of each counter's key in words.
    keys: Vec<Vec<(String, String)>>,
}

impl ClientCounters {
    /// Who answered.
    #[must_use]
    pub const fn answered_by(&self) -> AnsweredBy {
        self.decision.answered_by()
    }

    /// Each counter: its rule, the parts of its key in words, and how it stands. A request that costs
    /// nothing was asked about, so that the wait of a ban is its own.
    pub fn iter(&self) -> impl Iterator<Item = (&Rule, &[(String, String)], &Reading)> {
        let counters = self.decision.readings().zip(&self.keys);
        counters.filter_map(|((rule, reading), key)| {
            Some((rule, key.as_slice(), reading.numbers.as_ref()?))
        })
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// How the counters of the client that the facts describe stand, of all rules or of one. Of keys
    /// with an endpoint that the facts do not say, those are left out that hold nothing.
    pub async fn counters(&self, facts: &Facts<'_>, rule: Option<&str>) -> ClientCounters {
        let rules = self.rules();
        let counters = rules.client_counters(facts, rule);
        let looked = CounterQuery { op: Op::Peek, queue: QueueMode::Hold };
        let mut decision = self.apply_to_counters(looked, &rules, &counters, |_| 0).await;
        let mut keys = Vec::new();
        let mut told = counters.into_iter();
        decision.readings.retain(|reading| {
            let Some(counter) = told.next() else { return false };
            let shown = !counter.assumed || is_in_use(reading);
            if shown {
                keys.push(counter.parts);
            }
            shown
        });
        ClientCounters { decision, keys }
    }

    /// Forgets the counters, warnings and bans of the client that the facts describe, of all rules or
    /// of one: those that [`counters`](Self::counters) lists, and such that hold nothing.
    pub async fn reset(&self, facts: &Facts<'_>, rule: Option<&str>) -> Decision {
        let rules = self.rules();
        let counters = rules.client_counters(facts, rule);
        let forget = CounterQuery { op: Op::Reset, queue: QueueMode::Hold };
        let mut decision =
            self.apply_to_counters(forget, &rules, &counters, multiply_base_cost(1_u32)).await;
        // All counters of a rule read the same now.
        decision.readings.dedup_by_key(|reading| reading.rule);
        decision
    }

    /// What one rule would say to the client that the facts describe; nothing where they do not say
    /// the rule's key.
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
        let looking = CounterQuery { op: Op::Peek, queue };
        Some(self.apply_to_counters(looking, &rules, &counters, multiply_base_cost(cost)).await)
    }

    async fn apply_to_counters(
        &self,
        CounterQuery { op, queue }: CounterQuery,
        rules: &Arc<RuleSet>,
        counters: &[ClientCounter<'_>],
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let mut answer = ChargePlan::empty().into_decision(Arc::clone(rules));
        for some in counters.chunks(MAX_COUNTERS_PER_CALL) {
            let mut plan = ChargePlan::empty();
            for counter in some {
                let rule = &rules[counter.rule];
                if let Some(before) = counter.previous_key {
                    // While the store is gone there is nothing to be known.
                    let _ = self.migrate_counter(rule, before, counter.key).await;
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

/// What is done to counters.
struct CounterQuery {
    op: Op,
    queue: QueueMode,
}

fn is_in_use(reading: &RuleReading) -> bool {
    let numbers = reading.numbers.unwrap_or_default();
    let used = numbers.remaining < numbers.limit || numbers.reset_after > Micros::ZERO;
    used || numbers.warnings > 0 || reading.verdict != Verdict::Allow
}
