//! What is counted of one client, by whichever rules: looked at or forgotten by the parts of its keys.
//!
//! A decision is about a request, and finds its counters by what the request matches. Here the client
//! is known and its requests are not ([`RuleSet::counters_of`]).

use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, Queue, Store};
use tidegate_core::time::Micros;
use tidegate_rules::{ClientCounter, Facts, Rule, RuleSet};

use crate::decision::{Decision, RuleReading};
use crate::limiter::{Limiter, times};
use crate::plan::Plan;

/// Counters that the store is asked about at once.
const PORTION: usize = 64;

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
        let counters = rules.counters_of(facts, rule);
        let looked = Looking { op: Op::Peek, queue: Queue::Hold };
        let mut decision = self.ask_counters(looked, &rules, &counters, |_| 0).await;
        let mut keys = Vec::new();
        let mut told = counters.into_iter();
        decision.readings.retain(|reading| {
            let Some(counter) = told.next() else { return false };
            let shown = !counter.assumed || holds_something(reading);
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
        let counters = rules.counters_of(facts, rule);
        let forget = Looking { op: Op::Reset, queue: Queue::Hold };
        let mut decision = self.ask_counters(forget, &rules, &counters, times(1_u32)).await;
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
        queue: Queue,
    ) -> Option<Decision> {
        let rules = self.rules();
        let counters = rules.counters_of(facts, Some(rule));
        if counters.is_empty() {
            return None;
        }
        let looking = Looking { op: Op::Peek, queue };
        Some(self.ask_counters(looking, &rules, &counters, times(cost)).await)
    }

    async fn ask_counters(
        &self,
        Looking { op, queue }: Looking,
        rules: &Arc<RuleSet>,
        counters: &[ClientCounter<'_>],
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let mut answer = Plan::empty().decision(Arc::clone(rules));
        for some in counters.chunks(PORTION) {
            let mut plan = Plan::empty();
            for counter in some {
                let rule = &rules[counter.rule];
                if let Some(before) = counter.before {
                    // While the store is gone there is nothing to be known.
                    let _ = self.carry(rule, before, counter.key).await;
                }
                plan.add_counter(counter.rule, rule, counter.key, cost(rule), queue);
            }
            self.ask(op, &mut plan, rules).await;
            if plan.answered_by != AnsweredBy::Store {
                answer.answered_by = plan.answered_by;
            }
            answer.readings.extend(plan.readings);
        }
        answer
    }
}

/// What is done to counters.
struct Looking {
    op: Op,
    queue: Queue,
}

fn holds_something(reading: &RuleReading) -> bool {
    let numbers = reading.numbers.unwrap_or_default();
    let used = numbers.remaining < numbers.limit || numbers.reset_after > Micros::ZERO;
    used || numbers.warnings > 0 || reading.verdict != Verdict::Allow
}
