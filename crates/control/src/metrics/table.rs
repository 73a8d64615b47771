//! The counters of a rule set: one row for each rule, and one for each endpoint pattern.
//!
//! A rule that keeps its id goes on with its counters, and so does a pattern; what is in no rule any more is
//! forgotten, so that what is told does not grow with edits.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::policy::Policy;
use tidegate_rules::{Mode, Rule, RuleSet};

use super::counts::{Distribution, EndpointCount, RuleCount, VerdictCounts};
use super::striped::Striped;

const VERDICTS: [Verdict; 5] =
    [Verdict::Allow, Verdict::Deny, Verdict::ShadowDeny, Verdict::Warn, Verdict::Ban];

/// Upper bounds of what is left of a limit, in hundredths.
const HEADROOM: [u64; 6] = [0, 10, 25, 50, 75, 100];

/// Classes of a reading: what was left, or that nothing was counted.
const CLASSES: usize = HEADROOM.len() + 1;
const NOTHING_COUNTED: usize = HEADROOM.len();

/// The pattern of rules that name none.
const ANY: &str = "*";

/// The counters of a rule set.
pub(super) struct Table {
    pub(super) serial: u64,
    /// By the place of the rule; variants count with their rule.
    rows: Box<[Arc<Row>]>,
    /// The longest first, those that name none last.
    endpoints: Box<[(String, Arc<Striped<2>>)]>,
}

struct Row {
    id: String,
    mode: &'static str,
    most_in_window: Option<u64>,
    /// The place of its pattern.
    endpoint: usize,
    counts: Arc<RuleCounts>,
}

struct RuleCounts {
    /// By verdict and by what was left: one addition for both.
    readings: Striped<{ VERDICTS.len() * CLASSES }>,
    /// The sum of what was left, in hundredths of the limit.
    left: Striped<1>,
}

impl Table {
    /// The counters of no rules.
    pub(super) fn empty() -> Self {
        Self { serial: 0, rows: Box::default(), endpoints: Box::default() }
    }

    /// The counters of the rules that follow.
    pub(super) fn following(&self, rules: &RuleSet) -> Self {
        let endpoints = self.endpoints_of(rules);
        let places: HashMap<&str, usize> =
            endpoints.iter().enumerate().map(|(at, (known, _))| (known.as_str(), at)).collect();
        let known: HashMap<&str, &Arc<RuleCounts>> =
            self.rows.iter().map(|row| (row.id.as_str(), &row.counts)).collect();
        let mut by_id: HashMap<&str, Arc<Row>> = HashMap::new();
        // A rule comes before its variants, so that a row says what the rule says.
        let rows = rules.with_variants().iter().map(|rule| {
            let row = by_id.entry(rule.id()).or_insert_with(|| {
                let counts = known.get(rule.id()).map(|counts| Arc::clone(counts));
                Arc::new(Row {
                    id: rule.id().to_owned(),
                    mode: mode(rule),
                    most_in_window: rule.limit().policy().map(Policy::most_in_window),
                    endpoint: places.get(endpoint(rule).as_str()).copied().unwrap_or(0),
                    counts: counts.unwrap_or_else(|| Arc::new(RuleCounts::new())),
                })
            });
            Arc::clone(row)
        });
        let rows = rows.collect();
        Self { serial: rules.serial(), rows, endpoints }
    }

    fn endpoints_of(&self, rules: &RuleSet) -> Box<[(String, Arc<Striped<2>>)]> {
        let named = rules.rules().iter().map(endpoint).chain([ANY.to_owned()]);
        let mut patterns: Vec<String> = named.collect::<BTreeSet<_>>().into_iter().collect();
        patterns.sort_by_key(|pattern| (pattern == ANY, Reverse(pattern.len())));
        let known: HashMap<&str, &Arc<Striped<2>>> =
            self.endpoints.iter().map(|(known, counts)| (known.as_str(), counts)).collect();
        let counted = patterns.into_iter().map(|pattern| {
            let counts = known.get(pattern.as_str()).map(|counts| Arc::clone(counts));
            (pattern, counts.unwrap_or_else(|| Arc::new(Striped::new())))
        });
        counted.collect()
    }

    /// Counts what a rule said; tells the place of its pattern.
    pub(super) fn count(&self, rule: u32, verdict: Verdict, told: Option<&Reading>) -> usize {
        let Some(row) = self.rows.get(rule as usize) else { return usize::MAX };
        row.counts.count(verdict, told);
        row.endpoint
    }

    /// Counts a request at the first of the patterns that its rules name.
    pub(super) fn count_request(&self, endpoint: usize, refused: bool) {
        let known = self.endpoints.get(endpoint).or_else(|| self.endpoints.last());
        if let Some((_, counts)) = known {
            counts.add(usize::from(refused), 1);
        }
    }

    pub(super) fn rules(&self) -> Vec<RuleCount> {
        let mut rows: Vec<&Arc<Row>> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let told = rows.into_iter().map(|row| RuleCount {
            id: row.id.clone(),
            endpoint: self.endpoints[row.endpoint].0.clone(),
            mode: row.mode,
            most_in_window: row.most_in_window,
            verdicts: row.counts.verdicts(),
            headroom_percent: row.counts.headroom(),
        });
        told.collect()
    }

    pub(super) fn endpoints(&self) -> Vec<EndpointCount> {
        let told = self.endpoints.iter().map(|(endpoint, counts)| EndpointCount {
            endpoint: endpoint.clone(),
            allowed: counts.sum(0),
            refused: counts.sum(1),
        });
        told.collect()
    }
}

impl RuleCounts {
    fn new() -> Self {
        Self { readings: Striped::new(), left: Striped::new() }
    }

    fn count(&self, verdict: Verdict, told: Option<&Reading>) {
        let mut class = NOTHING_COUNTED;
        if let Some(told) = told.filter(|told| told.limit > 0) {
            let left = told.remaining.min(told.limit).saturating_mul(100) / told.limit;
            class = HEADROOM.iter().position(|bound| left <= *bound).unwrap_or(HEADROOM.len() - 1);
            if left > 0 {
                self.left.add(0, left);
            }
        }
        self.readings.add(place(verdict) * CLASSES + class, 1);
    }

    fn verdicts(&self) -> VerdictCounts {
        let of = |verdict| {
            let first = place(verdict) * CLASSES;
            (first..first + CLASSES).map(|at| self.readings.sum(at)).sum()
        };
        VerdictCounts {
            allow: of(Verdict::Allow),
            deny: of(Verdict::Deny),
            shadow_deny: of(Verdict::ShadowDeny),
            warn: of(Verdict::Warn),
            ban: of(Verdict::Ban),
        }
    }

    fn headroom(&self) -> Distribution {
        let class = |class| {
            (0..VERDICTS.len()).map(|verdict| self.readings.sum(verdict * CLASSES + class)).sum()
        };
        // Nothing exceeds the whole.
        let counts = (0..HEADROOM.len()).map(class).chain([0]).collect();
        Distribution { bounds: &HEADROOM, counts, sum: self.left.sum(0) }
    }
}

fn place(verdict: Verdict) -> usize {
    VERDICTS.iter().position(|known| *known == verdict).unwrap_or(0)
}

/// The pattern of the endpoints that a rule is for.
fn endpoint(rule: &Rule) -> String {
    let named = rule.conditions().find_map(|text| Some(text.strip_prefix("endpoint=")?.to_owned()));
    named.unwrap_or_else(|| ANY.to_owned())
}

fn mode(rule: &Rule) -> &'static str {
    match rule.mode() {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Warn(_) => "warn",
    }
}
