//! Snapshots of the decision counters as plain numbers, for `/metrics`, the dashboard and the
//! history. Counters only grow; the difference of two snapshots gives a rate.

use serde::Serialize;

/// All counters since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricsSnapshot {
    /// Decisions by API, by what answered and by outcome; contains all combinations.
    pub decisions: Vec<DecisionCount>,
    /// Latency of the timed decisions, in microseconds.
    pub duration_us: HistogramSnapshot,
    /// Requests by endpoint pattern.
    pub endpoints: Vec<EndpointCount>,
    /// The active rule set's rules, ordered by ID.
    pub rules: Vec<RuleCount>,
}

impl MetricsSnapshot {
    /// The number of decisions that match a filter.
    pub(crate) fn count_decisions(&self, is_counted: impl Fn(&DecisionCount) -> bool) -> u64 {
        self.decisions.iter().filter(|one| is_counted(one)).map(|one| one.count).sum()
    }
}

/// The number of decisions with the same labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecisionCount {
    /// The API that received the requests.
    pub api: &'static str,
    /// What answered, such as `store` or `lease`.
    pub answered_by: &'static str,
    /// `allowed` or `refused`.
    pub outcome: &'static str,
    /// The number of decisions.
    pub count: u64,
}

/// The number of requests for an endpoint pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointCount {
    /// The longest pattern among the rules that match the request; `*` if no rule has one.
    pub endpoint: String,
    /// Allowed requests.
    pub allowed: u64,
    /// Refused requests.
    pub refused: u64,
}

/// The counters of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleCount {
    /// The rule's ID.
    pub id: String,
    /// Its endpoint pattern; `*` if it has none.
    pub endpoint: String,
    /// `enforce`, `shadow` or `warn`.
    pub mode: &'static str,
    /// How nodes agree on its counters: `exact`, `leased`, `async` or `split`.
    pub consistency: &'static str,
    /// Whether the rule is enabled.
    pub is_active: bool,
    /// Maximum number of requests that it admits for one key in any interval as long as its
    /// window; `None` if it does not count.
    pub max_in_window: Option<u64>,
    /// Its verdicts.
    pub verdicts: VerdictCounts,
    /// Remaining quota after a decision, in percent of the limit. The utilisation of the bucket is
    /// 100 minus this.
    pub headroom_percent: HistogramSnapshot,
}

/// The number of each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// Within the limit.
    pub allow: u64,
    /// Refused: over the limit.
    pub deny: u64,
    /// Over the limit, but allowed because the rule is in shadow mode.
    pub shadow_deny: u64,
    /// Allowed with a warning.
    pub warn: u64,
    /// Refused: the key is banned.
    pub ban: u64,
}

impl VerdictCounts {
    /// The number of all verdicts.
    pub(crate) const fn total(&self) -> u64 {
        self.allow + self.deny + self.shadow_deny + self.warn + self.ban
    }

    /// The sum of both.
    pub(crate) const fn plus(self, more: Self) -> Self {
        Self {
            allow: self.allow + more.allow,
            deny: self.deny + more.deny,
            shadow_deny: self.shadow_deny + more.shadow_deny,
            warn: self.warn + more.warn,
            ban: self.ban + more.ban,
        }
    }

    /// The increase since `before`; 0 for a counter that was reset.
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

/// A histogram of integers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Inclusive upper bounds, ascending.
    pub bounds: &'static [u64],
    /// Count of each bucket, not cumulative. There is one more than there are bounds, for values
    /// above the last bound.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
