//! What two ticks say together: counts only grow, so what happened between them is their difference. Whole numbers
//! all the way, so that nothing has to be rounded twice.

use std::collections::HashMap;

use super::tick::{Counts, Distribution, Rule, Tick, Verdicts};

/// What is said to a request, the best first.
pub(super) const BANDS: [&str; 5] = ["allowed", "shadow", "warned", "refused", "banned"];

/// What happened in a second, or in more where a tick was missed.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) micros: u64,
    /// Requests by what was said to them, as [`BANDS`].
    pub(super) bands: [u64; BANDS.len()],
    pub(super) durations: Distribution,
    /// By id.
    pub(super) rules: HashMap<String, RuleStep>,
}

/// What a rule did in it.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleStep {
    pub(super) verdicts: Verdicts,
    pub(super) headroom: Distribution,
}

impl Step {
    /// What happened between two ticks of one process.
    pub(super) fn between(before: &Tick, after: &Tick) -> Self {
        let (was, is) = (&before.counts, &after.counts);
        let known: HashMap<&str, &Rule> =
            was.rules.iter().map(|rule| (rule.id.as_str(), rule)).collect();
        let rules = is.rules.iter().map(|rule| {
            // A rule that was not there has said nothing as far as anybody saw.
            let before = known.get(rule.id.as_str()).copied().unwrap_or(rule);
            (rule.id.clone(), RuleStep::between(before, rule))
        });
        Self {
            micros: after.at_us.saturating_sub(before.at_us),
            bands: bands(was, is),
            durations: is.duration_us.less(&was.duration_us),
            rules: rules.collect(),
        }
    }
}

impl RuleStep {
    fn between(before: &Rule, after: &Rule) -> Self {
        Self {
            verdicts: after.verdicts.less(before.verdicts),
            headroom: after.headroom_percent.less(&before.headroom_percent),
        }
    }
}

/// A request counts once: by the hardest thing that was said to it, as far as rules' counts tell.
fn bands(was: &Counts, is: &Counts) -> [u64; BANDS.len()] {
    let grown = |outcome| is.decided(outcome).saturating_sub(was.decided(outcome));
    let said = |of: fn(&Verdicts) -> u64| {
        let total =
            |counts: &Counts| counts.rules.iter().map(|rule| of(&rule.verdicts)).sum::<u64>();
        total(is).saturating_sub(total(was))
    };
    let (allowed, refused) = (grown("allowed"), grown("refused"));
    let banned = said(|verdicts| verdicts.ban).min(refused);
    let warned = said(|verdicts| verdicts.warn).min(allowed);
    let shadow = said(|verdicts| verdicts.shadow_deny).min(allowed - warned);
    [allowed - warned - shadow, shadow, warned, refused - banned, banned]
}

impl Verdicts {
    fn less(self, before: Self) -> Self {
        Self {
            allow: self.allow.saturating_sub(before.allow),
            deny: self.deny.saturating_sub(before.deny),
            shadow_deny: self.shadow_deny.saturating_sub(before.shadow_deny),
            warn: self.warn.saturating_sub(before.warn),
            ban: self.ban.saturating_sub(before.ban),
        }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            allow: self.allow + other.allow,
            deny: self.deny + other.deny,
            shadow_deny: self.shadow_deny + other.shadow_deny,
            warn: self.warn + other.warn,
            ban: self.ban + other.ban,
        }
    }
}

impl Distribution {
    fn less(&self, before: &Self) -> Self {
        let was = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = self.counts.iter().zip(was).map(|(is, was)| is.saturating_sub(was)).collect();
        Self { bounds: self.bounds.clone(), counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// Adds another of the same classes.
    pub(super) fn add(&mut self, other: &Self) {
        self.bounds.clone_from(&other.bounds);
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
        self.sum += other.sum;
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value below which so many of a thousand lie, in thousandths; within a class as if spread evenly. What
    /// exceeds all bounds is told as the last of them, which it is at least.
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
    use super::super::sample::{rule, tick};
    use super::*;

    #[test]
    fn a_request_counts_once_by_the_hardest_thing_that_was_said_to_it() {
        let mut before = tick(1_000_000, 10, 5);
        let mut after = tick(3_000_000, 110, 25);
        before.counts.rules = vec![rule("a", Verdicts { allow: 7, ..Verdicts::default() })];
        let said = Verdicts { allow: 100, deny: 17, shadow_deny: 30, warn: 20, ban: 3 };
        after.counts.rules = vec![rule("a", said), rule("new", said)];
        let step = Step::between(&before, &after);
        assert_eq!((step.micros, step.bands.iter().sum()), (2_000_000, 120));
        assert_eq!(step.bands, [0, 60, 40, 14, 6]);
        assert_eq!(step.rules["a"].verdicts.allow, 93);
        assert_eq!(step.rules["new"].verdicts, Verdicts::default(), "nobody saw since when");
    }

    #[test]
    fn counts_that_began_again_are_nothing_and_not_a_lot() {
        let step = Step::between(&tick(1_000_000, 500, 500), &tick(2_000_000, 3, 1));
        assert_eq!(step.bands, [0; 5]);
    }

    #[test]
    fn a_quantile_lies_within_its_class() {
        let of = |counts: [u64; 4]| Distribution {
            bounds: vec![10, 20, 40],
            counts: counts.to_vec(),
            sum: 0,
        };
        assert_eq!(of([0; 4]).quantile(500), None);
        assert_eq!(of([4, 0, 0, 0]).quantile(500), Some(5_000));
        assert_eq!(of([50, 50, 0, 0]).quantile(500), Some(10_000));
        assert_eq!(of([50, 25, 25, 0]).quantile(990), Some(39_200));
        assert_eq!(of([1, 0, 0, 99]).quantile(990), Some(40_000), "at least that");
    }
}
