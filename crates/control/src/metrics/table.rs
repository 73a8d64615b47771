//! The counters of a rule set: one row for each rule, and one for each endpoint pattern.
//!
//! A rule that keeps its id goes on with its counters, and so does a pattern.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_core::decision::{Reading, Verdict};
use tidegate_rules::{Rule, RuleSet};

use crate::by_rule::{Follows, Rows};

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
#[derive(Default)]
pub(super) struct Table {
    serial: u64,
    rows: Rows<RuleRow>,
    /// The longest first, those that name none last.
    endpoints: Box<[(String, Arc<Striped<2>>)]>,
}

struct RuleRow {
    mode: &'static str,
    is_active: bool,
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

impl Follows for Table {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn following(&self, rules: &RuleSet) -> Self {
        let endpoints = self.endpoints_of(rules);
        let places: HashMap<&str, usize> =
            endpoints.iter().enumerate().map(|(at, (known, _))| (known.as_str(), at)).collect();
        let rows = self.rows.following(rules, |rule, before| RuleRow {
            mode: rule.mode().name(),
            is_active: rule.is_active(),
            most_in_window: rule.limit().most_in_window(),
            endpoint: places.get(endpoint(rule).as_str()).copied().unwrap_or(0),
            counts: before.map_or_else(RuleCounts::new, |row| Arc::clone(&row.counts)),
        });
        Self { serial: rules.serial(), rows, endpoints }
    }
}

impl Table {
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
        let Some(row) = self.rows.get(rule) else { return usize::MAX };
        // A rule that counts and has no numbers was not asked, because another is known to refuse.
        if told.is_some() || row.kept.most_in_window.is_none() {
            row.kept.counts.count(verdict, told);
        }
        row.kept.endpoint
    }

    /// Counts a request at the first of the patterns that its rules name.
    pub(super) fn count_request(&self, endpoint: usize, refused: bool) {
        let known = self.endpoints.get(endpoint).or_else(|| self.endpoints.last());
        if let Some((_, counts)) = known {
            counts.add(usize::from(refused), 1);
        }
    }

    pub(super) fn rules(&self) -> Vec<RuleCount> {
        let told = self.rows.by_id().into_iter().map(|row| {
            let RuleRow { mode, is_active, most_in_window, endpoint, counts } = &row.kept;
            RuleCount {
                id: row.id.clone(),
                endpoint: self.endpoints[*endpoint].0.clone(),
                mode,
                is_active: *is_active,
                most_in_window: *most_in_window,
                verdicts: counts.verdicts(),
                headroom_percent: counts.headroom(),
            }
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
    fn new() -> Arc<Self> {
        Arc::new(Self { readings: Striped::new(), left: Striped::new() })
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
