//! Everything that is counted of decisions, as plain numbers that only grow: for `/metrics`, the dashboard and
//! whoever takes the difference of two of them.

use serde::Serialize;

/// What was counted since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricsSnapshot {
    /// Decisions, by door, by who answered and by what came of them; all combinations.
    pub decisions: Vec<DecisionCount>,
    /// How long decisions took, in microseconds; of those that were timed.
    pub duration_us: HistogramSnapshot,
    /// Requests by endpoint pattern.
    pub endpoints: Vec<EndpointCount>,
    /// The rules in force, by id.
    pub rules: Vec<RuleCount>,
}

impl MetricsSnapshot {
    /// How many decisions are of a kind.
    pub(crate) fn count_decisions(&self, is_counted: impl Fn(&DecisionCount) -> bool) -> u64 {
        self.decisions.iter().filter(|one| is_counted(one)).map(|one| one.count).sum()
    }
}

/// So many decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecisionCount {
    /// Where they were asked for.
    pub door: &'static str,
    /// Who answered.
    pub answered_by: &'static str,
    /// `allowed` or `refused`.
    pub outcome: &'static str,
    /// How many.
    pub count: u64,
}

/// The requests to the endpoints of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointCount {
    /// The longest pattern of the rules that govern the request; `*` where none of them names one.
    pub endpoint: String,
    /// How many passed.
    pub allowed: u64,
    /// How many did not.
    pub refused: u64,
}

/// What a rule said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleCount {
    /// The rule's id.
    pub id: String,
    /// The endpoints that it is for.
    pub endpoint: String,
    /// `enforce`, `shadow` or `warn`.
    pub mode: &'static str,
    /// Whether it is switched on.
    pub is_active: bool,
    /// The most that it admits to one key in any interval as long as its window; none where it counts nothing.
    pub most_in_window: Option<u64>,
    /// How often it said what.
    pub verdicts: VerdictCounts,
    /// What was left of the limit after a decision, in hundredths of it. What is not left is used: the
    /// utilisation of the bucket is 100 less that.
    pub headroom_percent: HistogramSnapshot,
}

/// How often a rule said what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// It passes.
    pub allow: u64,
    /// It is over the limit.
    pub deny: u64,
    /// It would be refused, but the rule is in shadow mode.
    pub shadow_deny: u64,
    /// It passes with a warning.
    pub warn: u64,
    /// The key is banned.
    pub ban: u64,
}

impl VerdictCounts {
    /// How many there are.
    pub(crate) const fn total(&self) -> u64 {
        self.allow + self.deny + self.shadow_deny + self.warn + self.ban
    }

    /// Both together.
    pub(crate) const fn plus(self, more: Self) -> Self {
        Self {
            allow: self.allow + more.allow,
            deny: self.deny + more.deny,
            shadow_deny: self.shadow_deny + more.shadow_deny,
            warn: self.warn + more.warn,
            ban: self.ban + more.ban,
        }
    }

    /// What came since `before`; nothing where the count has started again.
    pub(crate) const fn saturating_sub(self, before: Self) -> Self {
        Self {
            allow: self.allow.saturating_sub(before.allow),
            deny: self.deny.saturating_sub(before.deny),
            shadow_deny: self.shadow_deny.saturating_sub(before.shadow_deny),
            warn: self.warn.saturating_sub(before.warn),
            ban: self.ban.saturating_sub(before.ban),
        }
    }
}

/// A distribution of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Upper bounds, ascending, each part of its class.
    pub bounds: &'static [u64],
    /// How many are in each class, not counting those below; one more than bounds, for what exceeds all of them.
    pub counts: Vec<u64>,
    /// The sum of all.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
