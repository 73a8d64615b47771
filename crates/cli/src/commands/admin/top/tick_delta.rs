//! Differences between two ticks. Counts only grow, so a difference is what happened between them.
//! All numbers are integers, to avoid rounding twice.

use std::collections::HashMap;

use super::api_types::{LiveCounts, LiveHistogram, LiveRule, LiveTick, VerdictTotals};

/// The outcomes of a request, mildest first.
pub(super) const BANDS: [&str; 5] = ["allowed", "shadow", "warned", "refused", "banned"];

/// What happened in one second, or more if ticks were missed.
#[derive(Clone, Debug, Default)]
pub(super) struct TickDelta {
    pub(super) micros: u64,
    /// Number of requests by outcome, in the order of [`BANDS`].
    pub(super) bands: [u64; BANDS.len()],
    /// Number of requests that the node decided without asking the store.
    pub(super) local: u64,
    pub(super) durations: LiveHistogram,
    /// By rule ID.
    pub(super) rules: HashMap<String, RuleDelta>,
}

/// What a rule did in that time.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleDelta {
    pub(super) verdicts: VerdictTotals,
    pub(super) headroom: LiveHistogram,
}

impl TickDelta {
    /// The difference between two ticks of one process.
    pub(super) fn from_ticks(before: &LiveTick, after: &LiveTick) -> Self {
        let (old, new) = (&before.counts, &after.counts);
        let known: HashMap<&str, &LiveRule> =
            old.rules.iter().map(|rule| (rule.id.as_str(), rule)).collect();
        let rules = new.rules.iter().map(|rule| {
            // A new rule starts at 0: its counts may be older than the previous tick.
            let before = known.get(rule.id.as_str()).copied().unwrap_or(rule);
            (rule.id.clone(), RuleDelta::from_counts(before, rule))
        });
        Self {
            micros: after.at_us.saturating_sub(before.at_us),
            bands: count_bands(old, new),
            local: new.count_local().saturating_sub(old.count_local()),
            durations: new.duration_us.saturating_sub(&old.duration_us),
            rules: rules.collect(),
        }
    }
}

impl RuleDelta {
    fn from_counts(before: &LiveRule, after: &LiveRule) -> Self {
        Self {
            verdicts: after.verdicts.saturating_sub(before.verdicts),
            headroom: after.headroom_percent.saturating_sub(&before.headroom_percent),
        }
    }
}

/// Counts requests by their severest outcome, each once. An estimate, because a request may have
/// verdicts of several rules, and only the rules' totals are known.
fn count_bands(old: &LiveCounts, new: &LiveCounts) -> [u64; BANDS.len()] {
    let decisions = |outcome| new.count_outcome(outcome).saturating_sub(old.count_outcome(outcome));
    let verdicts = |kind: fn(&VerdictTotals) -> u64| {
        let total =
            |counts: &LiveCounts| counts.rules.iter().map(|rule| kind(&rule.verdicts)).sum::<u64>();
        total(new).saturating_sub(total(old))
    };
    let (allowed, refused) = (decisions("allowed"), decisions("refused"));
    let banned = verdicts(|totals| totals.ban).min(refused);
    let warned = verdicts(|totals| totals.warn).min(allowed);
    let shadow = verdicts(|totals| totals.shadow_deny).min(allowed - warned);
    [allowed - warned - shadow, shadow, warned, refused - banned, banned]
}

impl VerdictTotals {
    fn saturating_sub(self, before: Self) -> Self {
        Self {
            allow: self.allow.saturating_sub(before.allow),
            deny: self.deny.saturating_sub(before.deny),
            shadow_deny: self.shadow_deny.saturating_sub(before.shadow_deny),
            warn: self.warn.saturating_sub(before.warn),
            ban: self.ban.saturating_sub(before.ban),
        }
    }

    /// The sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            allow: self.allow + other.allow,
            deny: self.deny + other.deny,
            shadow_deny: self.shadow_deny + other.shadow_deny,
            warn: self.warn + other.warn,
            ban: self.ban + other.ban,
        }
    }
}

impl LiveHistogram {
    fn saturating_sub(&self, before: &Self) -> Self {
        let old = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts =
            self.counts.iter().zip(old).map(|(new, old)| new.saturating_sub(old)).collect();
        Self { bounds: self.bounds.clone(), counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// Adds a histogram with the same bounds.
    pub(super) fn merge(&mut self, other: &Self) {
        self.bounds.clone_from(&other.bounds);
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
        self.sum += other.sum;
    }

    /// The number of values.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The quantile at `thousandths`, in thousandths of the unit. Interpolates linearly within a
    /// bucket. A quantile above all bounds returns the last bound, as a lower limit.
    pub(super) fn quantile(&self, thousandths: u64) -> Option<u64> {
        let wanted = self.count().checked_mul(thousandths).filter(|wanted| *wanted > 0)?;
        let (mut below, mut from) = (0, 0);
        for (at, count) in self.counts.iter().enumerate() {
            let Some(to) = self.bounds.get(at).copied() else { return Some(from * 1_000) };
            if *count > 0 && (below + count) * 1_000 >= wanted {
                return Some(from * 1_000 + (wanted - below * 1_000) * (to - from) / count);
            }
            below += count;
            from = to;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{sample_rule, sample_tick};
    use super::*;

    #[test]
    fn request_counts_in_hardest_band() {
        let mut before = sample_tick(1_000_000, 10, 5);
        let mut after = sample_tick(3_000_000, 110, 25);
        before.counts.rules =
            vec![sample_rule("a", VerdictTotals { allow: 7, ..VerdictTotals::default() })];
        let verdicts = VerdictTotals { allow: 100, deny: 17, shadow_deny: 30, warn: 20, ban: 3 };
        after.counts.rules = vec![sample_rule("a", verdicts), sample_rule("new", verdicts)];
        let delta = TickDelta::from_ticks(&before, &after);
        assert_eq!((delta.micros, delta.bands.iter().sum()), (2_000_000, 120));
        assert_eq!(delta.bands, [0, 60, 40, 14, 6]);
        assert_eq!(delta.rules["a"].verdicts.allow, 93);
        assert_eq!(delta.rules["new"].verdicts, VerdictTotals::default(), "a new rule starts at 0");
    }

    #[test]
    fn reset_counts_give_zero_delta() {
        let delta =
            TickDelta::from_ticks(&sample_tick(1_000_000, 500, 500), &sample_tick(2_000_000, 3, 1));
        assert_eq!(delta.bands, [0; 5]);
    }

    #[test]
    fn quantile_interpolates_within_bucket() {
        let of = |counts: [u64; 4]| LiveHistogram {
            bounds: vec![10, 20, 40],
            counts: counts.to_vec(),
            sum: 0,
        };
        assert_eq!(of([0; 4]).quantile(500), None);
        assert_eq!(of([4, 0, 0, 0]).quantile(500), Some(5_000));
        assert_eq!(of([50, 50, 0, 0]).quantile(500), Some(10_000));
        assert_eq!(of([50, 25, 25, 0]).quantile(990), Some(39_200));
        assert_eq!(of([1, 0, 0, 99]).quantile(990), Some(40_000), "the last bound");
    }
}
