//! What of a decision is told: the rule that counts most, its numbers, and when to come back.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::time::Timestamp;
use tidegate_limiter::{Decision, RuleReading};
use tidegate_rules::{Rule, RuleMode, RuleSet};

use super::HeaderSettings;
use super::retry_delay::RetryDelay;

/// The rule that is told of, and what it says.
pub(super) struct LimitSummary<'a> {
    pub(super) rule: &'a Rule,
    /// Which of all rules that is, if it is one.
    rule_key: Option<(u64, u32)>,
    pub(super) verdict: Verdict,
    /// None where the rule counts nothing.
    pub(super) numbers: Option<Reading>,
    /// Whether the rule has a limit but no counter was read: the store is gone, and its `on_fail`
    /// answered.
    pub(super) is_uncounted: bool,
    /// When to come back; none if the request passes, or never will.
    pub(super) wait: Option<RetryDelay>,
}

/// The same where the rule has counted.
pub(super) struct ReportedCounter<'a> {
    pub(super) rule: &'a Rule,
    pub(super) rule_key: Option<(u64, u32)>,
    pub(super) numbers: Reading,
    refused: bool,
    wait: Option<RetryDelay>,
}

impl<'a> LimitSummary<'a> {
    pub(super) fn from_decision(
        decision: &'a Decision,
        settings: &HeaderSettings,
        random: u64,
    ) -> Option<Self> {
        let reading = tightest_visible(decision)?;
        let told = Self::for_allowed(decision.rules(), reading);
        let wait = match decision.is_allowed() {
            true => None,
            false => RetryDelay::from_retry(reading.retry(), settings.retry_jitter, random),
        };
        Some(Self { wait, ..told })
    }

    /// What a rule says of a request that passes.
    pub(super) fn for_allowed(rules: &'a RuleSet, reading: &RuleReading) -> Self {
        let RuleReading { rule, verdict, numbers, uncounted } = *reading;
        let rule_key = (!rules.is_inline_limit()).then(|| (rules.serial(), rule));
        Self { rule: &rules[rule], rule_key, verdict, numbers, is_uncounted: uncounted, wait: None }
    }

    pub(super) fn counter(&self) -> Option<ReportedCounter<'a>> {
        let refused = self.verdict.refuses();
        let mut numbers = self.numbers?;
        if let (true, Retry::After(wait)) = (refused, numbers.retry) {
            // A ban outlasts the counter; whoever looks at the reset alone must not come too early.
            numbers.reset_after = numbers.reset_after.max(wait);
        }
        let Self { rule, rule_key: which, wait, .. } = *self;
        Some(ReportedCounter { rule, rule_key: which, numbers, refused, wait })
    }

    /// The wait as in `Retry-After`.
    pub(super) fn wait_secs(&self) -> Option<u64> {
        self.wait.map(RetryDelay::secs)
    }
}

/// What the rule says that is told of, if one is: none is of rules that only watch.
pub(super) fn tightest_visible(decision: &Decision) -> Option<&RuleReading> {
    let (rule, reading) = decision.tightest()?;
    (*rule.mode() != RuleMode::Shadow).then_some(reading)
}

impl ReportedCounter<'_> {
    /// How long the whole limit takes to come back.
    pub(super) fn window_secs(&self) -> Option<u64> {
        self.rule.limit().policy().map(|policy| policy.period().as_secs_ceil().max(1))
    }

    /// The span within which no more than `remaining` pass, in whole seconds; none if it is shorter, or not known.
    /// When refused it is the same as `Retry-After`, which must not point earlier than its end; when nothing helps
    /// there is none.
    pub(super) fn effective_secs(&self) -> Option<u64> {
        match self.refused {
            true => self.wait.map(RetryDelay::secs),
            false => Some(self.numbers.next_after.as_secs_floor()).filter(|secs| *secs > 0),
        }
    }

    /// When the counter is back to its full limit, or a refused request may be retried; none where no
    /// clock could be read.
    pub(super) fn reset_at(&self) -> Option<Timestamp> {
        let Reading { now, reset_after, .. } = self.numbers;
        (now > Timestamp::EPOCH).then(|| now.plus(reset_after))
    }
}
