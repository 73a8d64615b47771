//! Selects the violations that become log lines: the first few of each rule in a second. The others
//! are only counted, by rule, so every violation is either sampled or counted as suppressed.
//!
//! [`log_lines`](super::log_lines) emits the lines.

use std::sync::Arc;

use tidegate_rules::RuleSet;
use tidegate_web::LogPaths;

use super::log_lines::ViolationLogLine;
use super::raw_batch::RawViolationBatch;
use crate::violation::IdentityPolicy;

/// Maximum number of violations sampled in a second over all rules, and of bytes of their texts.
const MAX_SAMPLED: usize = 1_000;
const MAX_SAMPLED_BYTES: usize = 1 << 20;

/// The violations sampled and counted since the last [`LogSample::take`].
#[derive(Default)]
pub(super) struct LogSample {
    /// Maximum number of samples of one rule.
    max_per_rule: u32,
    rule_sets: Vec<RuleSetSample>,
}

/// The sample of one rule set.
#[derive(Default)]
pub(super) struct RuleSetSample {
    batch: RawViolationBatch,
    /// By rule index.
    counts: Vec<RuleSampleCount>,
}

#[derive(Clone, Copy, Default)]
struct RuleSampleCount {
    sampled: u32,
    suppressed: u64,
}

impl LogSample {
    /// Creates an empty sample.
    pub(super) const fn with_max_per_rule(max_per_rule: u32) -> Self {
        Self { max_per_rule, rule_sets: Vec::new() }
    }

    /// Samples or counts each violation of a batch.
    pub(super) fn add_batch(&mut self, batch: &RawViolationBatch) {
        let Some(rules) = batch.rules() else { return };
        let index = self.rule_set_index(rules);
        for (at, rule) in batch.rule_indexes().enumerate() {
            // Under load nearly all violations are only counted, so check the limit of the rule
            // first: it is cheaper than `has_room`.
            let is_sampled = self.rule_sets[index].count_mut(rule).sampled < self.max_per_rule
                && self.has_room();
            let sample = &mut self.rule_sets[index];
            if is_sampled {
                sample.count_mut(rule).sampled += 1;
                sample.batch.copy_from(batch, at);
            } else {
                sample.count_mut(rule).suppressed += 1;
            }
        }
    }

    /// Counts a violation that was dropped.
    pub(super) fn add_dropped(&mut self, rules: &Arc<RuleSet>, rule: usize) {
        let index = self.rule_set_index(rules);
        self.rule_sets[index].count_mut(rule).suppressed += 1;
    }

    fn has_room(&self) -> bool {
        let sum = |of: fn(&RawViolationBatch) -> usize| -> usize {
            self.rule_sets.iter().map(|sample| of(&sample.batch)).sum()
        };
        sum(RawViolationBatch::len) < MAX_SAMPLED
            && sum(RawViolationBatch::bytes) < MAX_SAMPLED_BYTES
    }

    /// The index of a rule set's sample, created if missing. During a reload there are two.
    fn rule_set_index(&mut self, rules: &Arc<RuleSet>) -> usize {
        let is_for = |sample: &RuleSetSample| sample.batch.is_for(rules);
        self.rule_sets.iter().rposition(is_for).unwrap_or_else(|| {
            let mut sample = RuleSetSample::default();
            sample.batch.reset_for(rules);
            self.rule_sets.push(sample);
            self.rule_sets.len() - 1
        })
    }

    /// Takes the samples since the last call.
    pub(super) fn take(&mut self) -> Vec<RuleSetSample> {
        std::mem::take(&mut self.rule_sets)
    }
}

impl RuleSetSample {
    fn count_mut(&mut self, rule: usize) -> &mut RuleSampleCount {
        if self.counts.len() <= rule {
            self.counts.resize(rule + 1, RuleSampleCount::default());
        }
        &mut self.counts[rule]
    }

    /// The log lines of the sampled violations, oldest first.
    pub(super) fn log_lines(
        &self,
        identities: IdentityPolicy,
        paths: LogPaths,
    ) -> impl Iterator<Item = ViolationLogLine> {
        self.batch.log_lines(identities, paths)
    }

    /// Number of suppressed violations, by rule ID.
    pub(super) fn suppressed_counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| count.suppressed > 0);
        counted.filter_map(|(rule, count)| Some((self.batch.rule_id(rule)?, count.suppressed)))
    }
}
