//! The part of a decision that a response describes: the tightest rule, its numbers, and the wait
//! before a retry.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::time::Timestamp;
use tidegate_limiter::{Decision, RuleReading};
use tidegate_rules::{Rule, RuleMode, RuleSet};

use super::HeaderSettings;
use super::retry_after::RetryAfter;

/// The tightest rule of a decision and its reading.
pub(super) struct LimitSummary<'a> {
    pub(super) rule: &'a Rule,
    /// The serial of the rule set and the index of the rule; `None` for an inline limit.
    rule_key: Option<(u64, u32)>,
    pub(super) verdict: Verdict,
    /// `None` if the rule does not count.
    pub(super) numbers: Option<Reading>,
    /// Whether the rule has a limit but its counter was not read: the store is unreachable, and the
    /// rule's `on_fail` decided.
    pub(super) is_uncounted: bool,
    /// The wait before a retry; `None` if the request is allowed, or if no wait would help.
    pub(super) wait: Option<RetryAfter>,
}

/// A [`LimitSummary`] of a rule that counts.
pub(super) struct ReportedCounter<'a> {
    pub(super) rule: &'a Rule,
    pub(super) rule_key: Option<(u64, u32)>,
    pub(super) numbers: Reading,
    refused: bool,
    wait: Option<RetryAfter>,
}

impl<'a> LimitSummary<'a> {
    pub(super) fn from_decision(
        decision: &'a Decision,
        settings: &HeaderSettings,
        random: u64,
    ) -> Option<Self> {
        let reading = tightest_visible(decision)?;
        let summary = Self::for_allowed(decision.rules(), reading);
        let wait = match decision.is_allowed() {
            true => None,
            false => RetryAfter::from_retry(reading.retry(), settings.retry_jitter, random),
        };
        Some(Self { wait, ..summary })
    }

    /// The summary for a request that is allowed, so without a wait.
    pub(super) fn for_allowed(rules: &'a RuleSet, reading: &RuleReading) -> Self {
        let RuleReading { rule, verdict, numbers, uncounted } = *reading;
        let rule_key = (!rules.is_inline_limit()).then(|| (rules.serial(), rule));
        Self { rule: &rules[rule], rule_key, verdict, numbers, is_uncounted: uncounted, wait: None }
    }

    pub(super) fn counter(&self) -> Option<ReportedCounter<'a>> {
        let refused = self.verdict.refuses();
        let mut numbers = self.numbers?;
        if let (true, Retry::After(wait)) = (refused, numbers.retry) {
            // A ban outlasts the counter. A client that only reads the reset must not retry too
            // early.
            numbers.reset_after = numbers.reset_after.max(wait);
        }
        let Self { rule, rule_key, wait, .. } = *self;
        Some(ReportedCounter { rule, rule_key, numbers, refused, wait })
    }

    /// The wait in seconds, as in `Retry-After`.
    pub(super) fn wait_secs(&self) -> Option<u64> {
        self.wait.map(RetryAfter::secs)
    }
}

/// The reading of the tightest rule; `None` if no rule applied or that rule is in shadow mode.
pub(super) fn tightest_visible(decision: &Decision) -> Option<&RuleReading> {
    let (rule, reading) = decision.tightest()?;
    (*rule.mode() != RuleMode::Shadow).then_some(reading)
}

impl ReportedCounter<'_> {
    /// How long a used-up limit takes to become fully available again.
    pub(super) fn window_secs(&self) -> Option<u64> {
        self.rule.limit().policy().map(|policy| policy.period().as_secs_ceil().max(1))
    }

    /// The time in which at most `remaining` more requests are allowed, rounded down to seconds;
    /// `None` if it is below a second or unknown.
    ///
    /// For a refusal it equals `Retry-After`, which must not end earlier; `None` if no wait would
    /// help.
    pub(super) fn effective_secs(&self) -> Option<u64> {
        match self.refused {
            true => self.wait.map(RetryAfter::secs),
            false => Some(self.numbers.next_after.as_secs_floor()).filter(|secs| *secs > 0),
        }
    }

    /// When the counter is back to its full limit, or when a refused request may be retried,
    /// whichever is later; `None` if no clock could be read.
    pub(super) fn reset_at(&self) -> Option<Timestamp> {
        let Reading { now, reset_after, .. } = self.numbers;
        (now > Timestamp::EPOCH).then(|| now.plus(reset_after))
    }
}
