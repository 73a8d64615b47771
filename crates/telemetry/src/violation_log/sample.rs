//! Which violations become lines of the log: the first few of each rule in a second. The rest is only counted, by
//! rule, and nothing is lost: what was heard is noted or counted.
//!
//! What a line says, and when it is written, is the business of [`log_lines`](super::log_lines).

use std::sync::Arc;

use tidegate_rules::RuleSet;
use tidegate_web::LogPaths;

use super::log_lines::ViolationLogLine;
use super::raw_batch::RawViolationBatch;
use crate::violation::IdentityPolicy;

/// The most that are noted in a second, however many rules there are, and the most bytes that they take.
const MAX_SAMPLED: usize = 1_000;
const MAX_SAMPLED_BYTES: usize = 1 << 20;

/// What is noted and counted since the last look.
#[derive(Default)]
pub(super) struct LogSample {
    /// The most lines of one rule.
    max_per_rule: u32,
    rule_sets: Vec<RuleSetSample>,
}

/// What happened under one rule set.
#[derive(Default)]
pub(super) struct RuleSetSample {
    batch: RawViolationBatch,
    /// By the place of the rule.
    counts: Vec<RuleSampleCount>,
}

#[derive(Clone, Copy, Default)]
struct RuleSampleCount {
    sampled: u32,
    suppressed: u64,
}

impl LogSample {
    /// At most so many of each rule.
    pub(super) const fn with_max_per_rule(max_per_rule: u32) -> Self {
        Self { max_per_rule, rule_sets: Vec::new() }
    }

    /// Looks at what decisions jotted down.
    pub(super) fn add_batch(&mut self, page: &RawViolationBatch) {
        let Some(rules) = page.rules() else { return };
        let on = self.rule_set_index(rules);
        for (at, place) in page.rule_indexes().enumerate() {
            // Of very many nearly all are only counted: that they have room is not looked at.
            let is_noted =
                self.rule_sets[on].count_mut(place).sampled < self.max_per_rule && self.has_room();
            let sheet = &mut self.rule_sets[on];
            if is_noted {
                sheet.count_mut(place).sampled += 1;
                sheet.batch.copy_from(page, at);
            } else {
                sheet.count_mut(place).suppressed += 1;
            }
        }
    }

    /// Counts one that nobody will look at.
    pub(super) fn add_dropped(&mut self, rules: &Arc<RuleSet>, place: usize) {
        let on = self.rule_set_index(rules);
        self.rule_sets[on].count_mut(place).suppressed += 1;
    }

    fn has_room(&self) -> bool {
        let sum = |of: fn(&RawViolationBatch) -> usize| -> usize {
            self.rule_sets.iter().map(|sheet| of(&sheet.batch)).sum()
        };
        sum(RawViolationBatch::len) < MAX_SAMPLED
            && sum(RawViolationBatch::bytes) < MAX_SAMPLED_BYTES
    }

    /// Where the sheet of a rule set is. While rules are replaced there are two.
    fn rule_set_index(&mut self, rules: &Arc<RuleSet>) -> usize {
        let is_for = |sheet: &RuleSetSample| sheet.batch.is_for(rules);
        self.rule_sets.iter().rposition(is_for).unwrap_or_else(|| {
            let mut sheet = RuleSetSample::default();
            sheet.batch.reset_for(rules);
            self.rule_sets.push(sheet);
            self.rule_sets.len() - 1
        })
    }

    /// What came since the last time.
    pub(super) fn take(&mut self) -> Vec<RuleSetSample> {
        std::mem::take(&mut self.rule_sets)
    }
}

impl RuleSetSample {
    fn count_mut(&mut self, place: usize) -> &mut RuleSampleCount {
        if self.counts.len() <= place {
            self.counts.resize(place + 1, RuleSampleCount::default());
        }
        &mut self.counts[place]
    }

    /// What was noted, in order.
    pub(super) fn log_lines(
        &self,
        identities: IdentityPolicy,
        paths: LogPaths,
    ) -> impl Iterator<Item = ViolationLogLine> {
        self.batch.log_lines(identities, paths)
    }

    /// What was only counted, by the id of the rule.
    pub(super) fn suppressed_counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| count.suppressed > 0);
        counted.filter_map(|(place, count)| Some((self.batch.rule_id(place)?, count.suppressed)))
    }
}
