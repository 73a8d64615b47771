//! The last two minutes of decisions, one step a second, so that a chart does not start empty.
//!
//! A step holds the increase of each counter since the previous step. The size does not depend on
//! traffic: the ring has a fixed number of steps, and a step names only its busiest rules.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_core::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use crate::metrics::{
    DecisionMetrics, HistogramSnapshot, MetricsSnapshot, RuleCount, VerdictCounts,
};

/// Maximum number of steps kept.
pub const STEPS: usize = 120;

/// Maximum number of rules that a step names; its totals include all rules.
pub const RULES_PER_STEP: usize = 64;

/// How often a step is taken.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last steps of one process.
pub struct DecisionHistory {
    metrics: Arc<DecisionMetrics>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    state: Mutex<HistoryState>,
}

#[derive(Default)]
struct HistoryState {
    latest: Option<(Timestamp, MetricsSnapshot)>,
    steps: VecDeque<HistoryStep>,
}

/// The decisions between two samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HistoryStep {
    at_us: u64,
    span_us: u64,
    allowed: u64,
    refused: u64,
    fallback: u64,
    /// Decisions that the node made without asking the store, while it is available.
    local: u64,
    /// Verdicts, summed over all rules.
    verdicts: VerdictCounts,
    /// Number of decisions per bucket of `duration_bounds_us`.
    durations: Vec<u64>,
    rules: Vec<RuleHistoryStep>,
}

/// The verdicts of one rule in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RuleHistoryStep {
    id: String,
    verdicts: VerdictCounts,
    /// Number of decisions per bucket of remaining quota, in percent of the limit.
    headroom: Vec<u64>,
    /// Sum of the remaining quota, in percent of the limit.
    left: u64,
}

impl DecisionHistory {
    /// Creates an empty history of the counters in `metrics`.
    #[must_use]
    pub fn new(
        metrics: Arc<DecisionMetrics>,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        Self { metrics, clock, state: Mutex::default() }
    }

    /// Takes a step each second until it is dropped, the first one in a second.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.sample();
        }
    }

    /// Adds a step with the increase since the last sample. The first sample adds no step.
    pub fn sample(&self) {
        let (now, counts) = ((self.clock)(), self.metrics.counts());
        let mut state = self.state.lock();
        // If the clock went backwards, skip the step; the next one starts from this sample.
        if let Some((before, was)) = state.latest.take()
            && now > before
        {
            let step = HistoryStep::between((before, &was), (now, &counts));
            if state.steps.len() == STEPS {
                state.steps.pop_front();
            }
            state.steps.push_back(step);
        }
        state.latest = Some((now, counts));
    }

    /// The steps as JSON, oldest first, with the bounds of their duration buckets.
    #[must_use]
    pub fn steps(&self) -> Json {
        let state = self.state.lock();
        let bounds = state.latest.as_ref().map_or(&[][..], |(_, counts)| counts.duration_us.bounds);
        json!({"duration_bounds_us": bounds, "steps": state.steps})
    }
}

impl HistoryStep {
    fn between(
        before: (Timestamp, &MetricsSnapshot),
        after: (Timestamp, &MetricsSnapshot),
    ) -> Self {
        let ((from, was), (to, is)) = (before, after);
        let known: HashMap<&str, &RuleCount> =
            was.rules.iter().map(|rule| (rule.id.as_str(), rule)).collect();
        let mut verdicts = VerdictCounts::default();
        let mut rules = Vec::new();
        for rule in &is.rules {
            let verdict_counts = verdict_delta(known.get(rule.id.as_str()).copied(), rule);
            verdicts = verdicts.plus(verdict_counts);
            if verdict_counts.total() > 0 {
                rules.push((verdict_counts, rule));
            }
        }
        rules.sort_by_key(|(verdict_counts, _)| Reverse(verdict_counts.total()));
        rules.truncate(RULES_PER_STEP);
        let rules = rules.into_iter().map(|(verdict_counts, rule)| {
            RuleHistoryStep::between(known.get(rule.id.as_str()).copied(), rule, verdict_counts)
        });
        let of = |counts: &MetricsSnapshot, outcome| {
            counts.count_decisions(|one| one.outcome == outcome)
        };
        let by = |counts: &MetricsSnapshot, sources: &[&str]| {
            counts.count_decisions(|one| sources.contains(&one.answered_by))
        };
        let grown = |sources| by(is, sources).saturating_sub(by(was, sources));
        Self {
            at_us: to.as_micros(),
            span_us: to.since(from).get(),
            allowed: of(is, "allowed").saturating_sub(of(was, "allowed")),
            refused: of(is, "refused").saturating_sub(of(was, "refused")),
            fallback: grown(&["fallback"]),
            local: grown(&["lease", "async", "borrowed", "deny_cache"]),
            verdicts,
            durations: count_delta(Some(&was.duration_us), &is.duration_us),
            rules: rules.collect(),
        }
    }
}

impl RuleHistoryStep {
    fn between(before: Option<&RuleCount>, after: &RuleCount, verdicts: VerdictCounts) -> Self {
        let was = before.map(|rule| &rule.headroom_percent);
        let left = after.headroom_percent.sum;
        Self {
            id: after.id.clone(),
            verdicts,
            headroom: count_delta(was, &after.headroom_percent),
            left: left.saturating_sub(was.map_or(0, |was| was.sum)),
        }
    }
}

/// The verdicts since `before`; a rule that is new counts from 0.
fn verdict_delta(before: Option<&RuleCount>, after: &RuleCount) -> VerdictCounts {
    after.verdicts.saturating_sub(before.map(|rule| rule.verdicts).unwrap_or_default())
}

fn count_delta(before: Option<&HistogramSnapshot>, after: &HistogramSnapshot) -> Vec<u64> {
    let was = before.map_or(&[][..], |before| &before.counts);
    let was = was.iter().copied().chain(std::iter::repeat(0));
    after.counts.iter().zip(was).map(|(is, was)| is.saturating_sub(was)).collect()
}

impl fmt::Debug for DecisionHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionHistory").field("steps", &self.state.lock().steps.len()).finish()
    }
}
