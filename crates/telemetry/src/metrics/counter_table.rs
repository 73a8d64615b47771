//! The counters of a rule set: one row for each rule, and one for each endpoint pattern.
//!
//! When rules are replaced, a rule that keeps its ID keeps its counters; so does an endpoint
//! pattern.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_core::decision::{Reading, Verdict};
use tidegate_rules::{Rule, RuleSet};

use crate::per_rule::{CarryOver, PerRuleTable};

use super::counts::{EndpointCount, HistogramSnapshot, RuleCount, VerdictCounts};
use super::striped::Striped;

const VERDICTS: [Verdict; 5] =
    [Verdict::Allow, Verdict::Deny, Verdict::ShadowDeny, Verdict::Warn, Verdict::Ban];

/// Upper bounds of the remaining-quota buckets, in percent of the limit.
const HEADROOM_BOUNDS: [u64; 6] = [0, 10, 25, 50, 75, 100];

/// Number of classes of a reading: the buckets, and one for a rule that does not count.
const HEADROOM_CLASSES: usize = HEADROOM_BOUNDS.len() + 1;
const UNCOUNTED_CLASS: usize = HEADROOM_BOUNDS.len();

/// The pattern of rules without an endpoint condition.
const ANY_ENDPOINT: &str = "*";

/// The counters of a rule set.
#[derive(Default)]
pub(super) struct RuleCounterTable {
    serial: u64,
    rows: PerRuleTable<RuleMetricsRow>,
    /// By pattern, longest first; [`ANY_ENDPOINT`] is last.
    endpoints: Box<[(String, Arc<Striped<2>>)]>,
}

struct RuleMetricsRow {
    mode: &'static str,
    consistency: &'static str,
    is_active: bool,
    max_in_window: Option<u64>,
    /// Index of the rule's pattern in [`RuleCounterTable::endpoints`].
    endpoint: usize,
    counts: Arc<RuleCounters>,
}

struct RuleCounters {
    /// By verdict and headroom class, so that a reading needs one addition for both.
    readings: Striped<{ VERDICTS.len() * HEADROOM_CLASSES }>,
    /// Sum of the remaining quota, in percent of the limit.
    headroom_sum: Striped<1>,
}

impl CarryOver for RuleCounterTable {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn carry_over(&self, rules: &RuleSet) -> Self {
        let endpoints = self.build_endpoints(rules);
        let indexes: HashMap<&str, usize> =
            endpoints.iter().enumerate().map(|(at, (known, _))| (known.as_str(), at)).collect();
        let rows = self.rows.carry_over(rules, |rule, before| RuleMetricsRow {
            mode: rule.mode().name(),
            consistency: rule.applied_consistency().name(),
            is_active: rule.is_active(),
            max_in_window: rule.max_in_window(),
            endpoint: indexes.get(endpoint_pattern(rule).as_str()).copied().unwrap_or(0),
            counts: before.map_or_else(RuleCounters::new, |row| Arc::clone(&row.counts)),
        });
        Self { serial: rules.serial(), rows, endpoints }
    }
}

impl RuleCounterTable {
    fn build_endpoints(&self, rules: &RuleSet) -> Box<[(String, Arc<Striped<2>>)]> {
        let all = rules.rules().iter().map(endpoint_pattern).chain([ANY_ENDPOINT.to_owned()]);
        let mut patterns: Vec<String> = all.collect::<BTreeSet<_>>().into_iter().collect();
        patterns.sort_by_key(|pattern| (pattern == ANY_ENDPOINT, Reverse(pattern.len())));
        let known: HashMap<&str, &Arc<Striped<2>>> =
            self.endpoints.iter().map(|(known, counts)| (known.as_str(), counts)).collect();
        let counted = patterns.into_iter().map(|pattern| {
            let counts = known.get(pattern.as_str()).map(|counts| Arc::clone(counts));
            (pattern, counts.unwrap_or_else(|| Arc::new(Striped::new())))
        });
        counted.collect()
    }

    /// Counts a rule's verdict. Returns the index of its endpoint pattern.
    pub(super) fn count_verdict(
        &self,
        rule: u32,
        verdict: Verdict,
        reading: Option<&Reading>,
    ) -> usize {
        let Some(row) = self.rows.get(rule) else { return usize::MAX };
        // A counting rule without a reading was not evaluated, because another rule was already
        // known to refuse.
        if reading.is_some() || row.value.max_in_window.is_none() {
            row.value.counts.count_verdict(verdict, reading);
        }
        row.value.endpoint
    }

    /// Counts a request for the endpoint pattern at this index, or for `*` if there is none.
    pub(super) fn count_request(&self, endpoint: usize, refused: bool) {
        let known = self.endpoints.get(endpoint).or_else(|| self.endpoints.last());
        if let Some((_, counts)) = known {
            counts.add(usize::from(refused), 1);
        }
    }

    pub(super) fn rule_counts(&self) -> Vec<RuleCount> {
        let counts = self.rows.by_id().into_iter().map(|row| {
            let RuleMetricsRow { mode, consistency, is_active, .. } = row.value;
            let RuleMetricsRow { max_in_window, endpoint, ref counts, .. } = row.value;
            RuleCount {
                id: row.id.clone(),
                endpoint: self.endpoints[endpoint].0.clone(),
                mode,
                consistency,
                is_active,
                max_in_window,
                verdicts: counts.verdicts(),
                headroom_percent: counts.headroom(),
            }
        });
        counts.collect()
    }

    pub(super) fn endpoint_counts(&self) -> Vec<EndpointCount> {
        let counts = self.endpoints.iter().map(|(endpoint, counts)| EndpointCount {
            endpoint: endpoint.clone(),
            allowed: counts.sum(0),
            refused: counts.sum(1),
        });
        counts.collect()
    }
}

impl RuleCounters {
    fn new() -> Arc<Self> {
        Arc::new(Self { readings: Striped::new(), headroom_sum: Striped::new() })
    }

    fn count_verdict(&self, verdict: Verdict, reading: Option<&Reading>) {
        let mut class = UNCOUNTED_CLASS;
        if let Some(reading) = reading.filter(|reading| reading.limit > 0) {
            let left = reading.remaining.min(reading.limit).saturating_mul(100) / reading.limit;
            class = HEADROOM_BOUNDS
                .iter()
                .position(|bound| left <= *bound)
                .unwrap_or(HEADROOM_BOUNDS.len() - 1);
            if left > 0 {
                self.headroom_sum.add(0, left);
            }
        }
        self.readings.add(verdict_index(verdict) * HEADROOM_CLASSES + class, 1);
    }

    fn verdicts(&self) -> VerdictCounts {
        let of = |verdict| {
            let first = verdict_index(verdict) * HEADROOM_CLASSES;
            (first..first + HEADROOM_CLASSES).map(|at| self.readings.sum(at)).sum()
        };
        VerdictCounts {
            allow: of(Verdict::Allow),
            deny: of(Verdict::Deny),
            shadow_deny: of(Verdict::ShadowDeny),
            warn: of(Verdict::Warn),
            ban: of(Verdict::Ban),
        }
    }

    fn headroom(&self) -> HistogramSnapshot {
        let class = |class| {
            (0..VERDICTS.len())
                .map(|verdict| self.readings.sum(verdict * HEADROOM_CLASSES + class))
                .sum()
        };
        // The last bound is 100 %, so the overflow bucket is always empty.
        let counts = (0..HEADROOM_BOUNDS.len()).map(class).chain([0]).collect();
        HistogramSnapshot { bounds: &HEADROOM_BOUNDS, counts, sum: self.headroom_sum.sum(0) }
    }
}

fn verdict_index(verdict: Verdict) -> usize {
    VERDICTS.iter().position(|known| *known == verdict).unwrap_or(0)
}

/// The endpoint pattern of a rule, or [`ANY_ENDPOINT`].
fn endpoint_pattern(rule: &Rule) -> String {
    let pattern =
        rule.conditions().find_map(|text| Some(text.strip_prefix("endpoint=")?.to_owned()));
    pattern.unwrap_or_else(|| ANY_ENDPOINT.to_owned())
}
