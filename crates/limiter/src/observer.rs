//! Observers of decisions: violation logs, metrics and lists of the busiest clients. They cannot
//! influence a decision.

use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::Charge;
use tidegate_core::time::Timestamp;
use tidegate_rules::{ApiKind, Facts, Rule, RuleSet};

use crate::decision::RuleReading;
use crate::plan::ChargePlan;

/// Called for every charging decision, before the response is sent. Implementations must not block.
pub trait DecisionObserver: Send + Sync + fmt::Debug {
    /// A rule set was activated. Requests that began earlier may still be decided under the
    /// previous one.
    fn on_rules_installed(&self, _: &RuleSet) {}

    /// A request was decided.
    fn on_decision(&self, event: &DecisionEvent<'_, '_>);

    /// A charge on an ad-hoc bucket was decided, through the given API.
    fn on_ad_hoc_charge(&self, _: ApiKind, _: AnsweredBy, _: Verdict) {}
}

/// Measures the duration of decisions. The timer supplies the clock, because the limiter reads
/// none. A batch of queries is timed as one decision.
pub trait DecisionTimer: Send + Sync + fmt::Debug {
    /// A decision begins. Returns the time, if this decision is to be timed.
    fn start(&self) -> Option<Timestamp>;

    /// A timed decision has ended.
    fn stop(&self, started: Timestamp);
}

/// The clock that measures store calls.
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

/// A decision and the request that it was made for.
#[derive(Clone, Copy, Debug)]
pub struct DecisionEvent<'a, 'f> {
    /// The rules under which it was decided.
    pub rules: &'a Arc<RuleSet>,
    /// The request's facts; [`RuleSet::enrich`] adds the derived ones.
    pub facts: &'a Facts<'f>,
    /// What produced the readings: the store, the deny cache or the fallback.
    pub answered_by: AnsweredBy,
    /// When the decision began, by the [`DecisionTimer`]'s clock, if it was timed.
    pub started: Option<Timestamp>,
    readings: &'a [RuleReading],
    charges: &'a [Charge<'a>],
    reading_indices: &'a [u32],
}

/// A counter that a request was charged to, or would have been.
#[derive(Clone, Copy, Debug)]
pub struct CounterReading<'a> {
    /// The reading of its rule.
    pub reading: &'a RuleReading,
    /// Which counter it is.
    pub key: Fingerprint,
    /// What the request costs on it.
    pub cost: u64,
}

impl<'a, 'f> DecisionEvent<'a, 'f> {
    pub(crate) fn new(
        plan: &'a ChargePlan<'_>,
        rules: &'a Arc<RuleSet>,
        facts: &'a Facts<'f>,
        started: Option<Timestamp>,
    ) -> Self {
        Self {
            rules,
            facts,
            answered_by: plan.answered_by,
            started,
            readings: &plan.readings,
            charges: &plan.charges,
            reading_indices: plan.reading_indices(),
        }
    }

    /// The matching rules with their readings, in document order.
    pub fn readings(&self) -> impl Iterator<Item = (&'a Rule, &'a RuleReading)> {
        let rules = self.rules;
        self.readings.iter().map(move |reading| (&rules[reading.rule], reading))
    }

    /// Like [`readings`](Self::readings), with rule indices instead of rules.
    pub fn indexed_readings(&self) -> impl Iterator<Item = (u32, &'a RuleReading)> {
        self.readings.iter().map(|reading| (reading.rule, reading))
    }

    /// The counters that the request was charged to, or would have been.
    pub fn counters(&self) -> impl Iterator<Item = CounterReading<'a>> {
        let readings = self.readings;
        self.charges.iter().zip(self.reading_indices).filter_map(move |(charge, index)| {
            let reading = readings.get(*index as usize)?;
            Some(CounterReading { reading, key: charge.key.fingerprint, cost: charge.cost })
        })
    }
}
