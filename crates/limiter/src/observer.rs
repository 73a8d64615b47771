//! Who hears of decisions and never answers: logs of violations, metrics, lists of who asks most.

use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::Charge;
use tidegate_core::time::Timestamp;
use tidegate_rules::{ApiKind, Facts, Rule, RuleSet};

use crate::decision::RuleReading;
use crate::plan::ChargePlan;

/// Hears of every decision that charges, before it is answered: it must not wait for anything.
pub trait DecisionObserver: Send + Sync + fmt::Debug {
    /// A rule set is in force from now on. Requests that began before may still be decided under the one before.
    fn on_rules_installed(&self, _: &RuleSet) {}

    /// A request was decided.
    fn on_decision(&self, decided: &DecisionEvent<'_, '_>);

    /// A bucket that no rule names was charged at a door, or was not.
    fn on_ad_hoc_charge(&self, _: ApiKind, _: AnsweredBy, _: Verdict) {}
}

/// Times decisions, by a clock of its own: the engine reads none. A call that asks several questions is timed
/// as one.
pub trait DecisionTimer: Send + Sync + fmt::Debug {
    /// A decision begins. Says when, if it is one that is timed.
    fn start(&self) -> Option<Timestamp>;

    /// A decision that is timed is made.
    fn stop(&self, started: Timestamp);
}

/// By which the store is timed.
#[derive(Clone)]
pub(crate) struct StoreClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl StoreClock {
    pub(crate) fn new(clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self(clock)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreClock(..)")
    }
}

/// A decision, and what it was about.
#[derive(Clone, Copy, Debug)]
pub struct DecisionEvent<'a, 'f> {
    /// The rules that it was decided under.
    pub rules: &'a Arc<RuleSet>,
    /// What was known of the request; [`RuleSet::enrich`] adds what follows from it.
    pub facts: &'a Facts<'f>,
    /// Who answered.
    pub answered_by: AnsweredBy,
    readings: &'a [RuleReading],
    charges: &'a [Charge<'a>],
    reading_indices: &'a [u32],
}

impl<'a, 'f> DecisionEvent<'a, 'f> {
    pub(crate) fn new(
        plan: &'a ChargePlan<'_>,
        rules: &'a Arc<RuleSet>,
        facts: &'a Facts<'f>,
    ) -> Self {
        Self {
            rules,
            facts,
            answered_by: plan.answered_by,
            readings: &plan.readings,
            charges: &plan.charges,
            reading_indices: plan.reading_indices(),
        }
    }

    /// What each rule said that governs the request, in document order.
    pub fn readings(&self) -> impl Iterator<Item = (&'a Rule, &'a RuleReading)> {
        let rules = self.rules;
        self.readings.iter().map(move |reading| (&rules[reading.rule], reading))
    }

    /// The same with the places of the rules in their rule set.
    pub fn indexed_readings(&self) -> impl Iterator<Item = (u32, &'a RuleReading)> {
        self.readings.iter().map(|reading| (reading.rule, reading))
    }

    /// The counters that the request was charged to, or would have been: the place of the rule in its rule set,
    /// what it said, and the key.
    pub fn counters(&self) -> impl Iterator<Item = (u32, &'a RuleReading, Fingerprint)> {
        let readings = self.readings;
        self.charges.iter().zip(self.reading_indices).filter_map(move |(charge, place)| {
            let reading = readings.get(*place as usize)?;
            Some((reading.rule, reading, charge.key.fingerprint))
        })
    }
}
