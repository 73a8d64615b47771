//! What of a decision is told: the rule that counts most, its numbers, and when to come back.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::time::Timestamp;
use tidegate_engine::{Decision, RuleReading};
use tidegate_rules::{Mode, Rule, RuleSet};

use super::HeaderSettings;
use super::wait::Wait;

/// The rule that is told of, and what it says.
pub(super) struct Told<'a> {
    pub(super) rule: &'a Rule,
    /// Which of all rules that is, if it is one.
    which: Option<(u64, u32)>,
    pub(super) verdict: Verdict,
    /// None where the rule counts nothing.
    pub(super) numbers: Option<Reading>,
    /// Whether the rule has a limit but no counter was read: the store is gone, and its `on_fail`
    /// answered.
    pub(super) is_unknown: bool,
    /// When to come back; none if the request passes, or never will.
    pub(super) wait: Option<Wait>,
}

/// The same where the rule has counted.
pub(super) struct Counted<'a> {
    pub(super) rule: &'a Rule,
    pub(super) which: Option<(u64, u32)>,
    pub(super) numbers: Reading,
    refused: bool,
    wait: Option<Wait>,
}

impl<'a> Told<'a> {
    pub(super) fn of(
        decision: &'a Decision,
        settings: &HeaderSettings,
        random: u64,
    ) -> Option<Self> {
        let reading = tightest(decision)?;
        let told = Self::of_passing(decision.rules(), reading);
        let wait = match decision.is_allowed() {
            true => None,
            false => Wait::of(reading.retry(), settings.retry_jitter, random),
        };
        Some(Self { wait, ..told })
    }

    /// What a rule says of a request that passes.
    pub(super) fn of_passing(rules: &'a RuleSet, reading: &RuleReading) -> Self {
        let RuleReading { rule, verdict, numbers, uncounted } = *reading;
        let which = (!rules.is_brought()).then(|| (rules.serial(), rule));
        Self { rule: &rules[rule], which, verdict, numbers, is_unknown: uncounted, wait: None }
    }

    pub(super) fn counted(&self) -> Option<Counted<'a>> {
        let refused = self.verdict.refuses();
        let mut numbers = self.numbers?;
        if let (true, Retry::After(wait)) = (refused, numbers.retry) {
            // A ban outlasts the counter; whoever looks at the reset alone must not come too early.
            numbers.reset_after = numbers.reset_after.max(wait);
        }
        let Self { rule, which, wait, .. } = *self;
        Some(Counted { rule, which, numbers, refused, wait })
    }

    /// The wait as in `Retry-After`.
    pub(super) fn wait_secs(&self) -> Option<u64> {
        self.wait.map(Wait::secs)
    }
}

/// What the rule says that is told of, if one is: none is of rules that only watch.
pub(super) fn tightest(decision: &Decision) -> Option<&RuleReading> {
    let (rule, reading) = decision.tightest()?;
    (*rule.mode() != Mode::Shadow).then_some(reading)
}

impl Counted<'_> {
    /// How long the whole limit takes to come back.
    pub(super) fn window_secs(&self) -> Option<u64> {
        self.rule.limit().policy().map(|policy| policy.period().as_secs_ceil().max(1))
    }

    /// The span within which no more than `remaining` pass, in whole seconds; none if it is shorter, or not known.
    /// When refused it is the same as `Retry-After`, which must not point earlier than its end; when nothing helps
    /// there is none.
    pub(super) fn effective_secs(&self) -> Option<u64> {
        match self.refused {
            true => self.wait.map(Wait::secs),
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
