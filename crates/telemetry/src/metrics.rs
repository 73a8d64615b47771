//! Metrics of decisions: counts by API, rule, verdict, endpoint pattern and what answered (store,
//! deny cache or fallback), the remaining quota, and the latency.
//!
//! Labels name rules, never clients, so the number of series does not grow with traffic. Counters
//! are striped, because threads that write to the same cache line slow each other down.

mod counter_table;
mod counts;
mod export;
mod exposition;
mod striped;
mod value_histogram;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::time::Timestamp;
use tidegate_limiter::{DecisionEvent, DecisionObserver, DecisionTimer};
use tidegate_rules::{ApiKind, RuleSet};

use crate::per_rule::PerRuleSet;
use counter_table::RuleCounterTable;
pub use counts::{
    DecisionCount, EndpointCount, HistogramSnapshot, MetricsSnapshot, RuleCount, VerdictCounts,
};
pub use exposition::{Exposition, MetricKind, MetricUnit, MetricsExporter};
use striped::Striped;
pub use value_histogram::{HistogramBounds, ValueHistogram};

const ANSWERED_BY: [AnsweredBy; 6] = [
    AnsweredBy::Store,
    AnsweredBy::DenyCache,
    AnsweredBy::Fallback,
    AnsweredBy::Lease,
    AnsweredBy::Async,
    AnsweredBy::Borrowed,
];

const OUTCOMES: [&str; 2] = ["allowed", "refused"];

/// Upper bounds of the decision latency buckets, in microseconds.
const DURATION_BOUNDS_US: HistogramBounds =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000];

/// Counts decisions.
pub struct DecisionMetrics {
    rules: PerRuleSet<RuleCounterTable>,
    decisions: Striped<{ ApiKind::ALL.len() * ANSWERED_BY.len() * OUTCOMES.len() }>,
    durations: ValueHistogram,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Each thread times one decision in this many.
    time_one_in: u32,
}

impl DecisionMetrics {
    /// Creates metrics with all counters at 0. As a [`DecisionTimer`], it times one decision in
    /// `time_one_in` on each thread.
    #[must_use]
    pub fn new(time_one_in: u32, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self {
            rules: PerRuleSet::new(RuleCounterTable::default()),
            decisions: Striped::new(),
            durations: ValueHistogram::new(&DURATION_BOUNDS_US),
            clock,
            time_one_in: time_one_in.max(1),
        }
    }

    /// A snapshot of all counters.
    #[must_use]
    pub fn counts(&self) -> MetricsSnapshot {
        let table = self.rules.load();
        MetricsSnapshot {
            decisions: self.decision_counts(),
            duration_us: self.durations.snapshot(),
            endpoints: table.endpoint_counts(),
            rules: table.rule_counts(),
        }
    }

    fn decision_counts(&self) -> Vec<DecisionCount> {
        let mut counts = Vec::new();
        for api in ApiKind::ALL {
            for by in ANSWERED_BY {
                for (refused, outcome) in OUTCOMES.into_iter().enumerate() {
                    let count = self.decisions.sum(decision_index(api, by, refused == 1));
                    let (api, answered_by) = (api.name(), by.name());
                    counts.push(DecisionCount { api, answered_by, outcome, count });
                }
            }
        }
        counts
    }
}

impl DecisionObserver for DecisionMetrics {
    fn on_rules_installed(&self, rules: &RuleSet) {
        self.rules.install(rules);
    }

    fn on_decision(&self, decided: &DecisionEvent<'_, '_>) {
        let table = self.rules.get_or_install(decided.rules);
        let (mut refused, mut endpoint) = (false, usize::MAX);
        for (rule, reading) in decided.indexed_readings() {
            refused |= reading.verdict.refuses();
            if let Some(table) = table {
                let pattern = table.count_verdict(rule, reading.verdict, reading.numbers.as_ref());
                endpoint = endpoint.min(pattern);
            }
        }
        if let Some(table) = table {
            table.count_request(endpoint, refused);
        }
        let index = decision_index(decided.facts.api(), decided.answered_by, refused);
        self.decisions.add(index, 1);
    }

    fn on_ad_hoc_charge(&self, api: ApiKind, by: AnsweredBy, verdict: Verdict) {
        self.decisions.add(decision_index(api, by, verdict.refuses()), 1);
    }
}

impl DecisionTimer for DecisionMetrics {
    fn start(&self) -> Option<Timestamp> {
        thread_local! {
            static UNTIL_TIMED: Cell<u32> = const { Cell::new(0) };
        }
        let timed = UNTIL_TIMED.try_with(|left| match left.get() {
            0 => {
                left.set(self.time_one_in - 1);
                true
            }
            more => {
                left.set(more - 1);
                false
            }
        });
        timed.unwrap_or(false).then(|| (self.clock)())
    }

    fn stop(&self, started: Timestamp) {
        self.durations.observe((self.clock)().since(started).get());
    }
}

/// The index of the counter for decisions with these labels.
fn decision_index(api: ApiKind, by: AnsweredBy, refused: bool) -> usize {
    let api = ApiKind::ALL.iter().position(|known| *known == api).unwrap_or(0);
    let by = ANSWERED_BY.iter().position(|known| *known == by).unwrap_or(0);
    (api * ANSWERED_BY.len() + by) * OUTCOMES.len() + usize::from(refused)
}

impl fmt::Debug for DecisionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionMetrics").finish_non_exhaustive()
    }
}
