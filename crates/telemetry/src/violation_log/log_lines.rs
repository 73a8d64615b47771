//! Violations as lines of the log. Each line says how many of its rule were left out since the one before; a rule
//! that falls silent while some were left out is told once more, so that lines and left-out together are all.
//!
//! How a line is written is the business of whoever hears it.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_rules::ApiKind;
use tidegate_web::LogPaths;

use super::raw_batch::RawViolationBatch;
use super::sample::{LogSample, RuleSetSample};
use crate::violation::{IdentityPolicy, RuleViolation};

/// A violation with what the log says of it besides what is on record. Identities are hashed, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationLogLine {
    /// What is on record too.
    pub violation: RuleViolation,
    /// What the rule said.
    pub verdict: Verdict,
    /// How the rule is meant.
    pub mode: &'static str,
    /// How the rule counts; none if it refuses everybody.
    pub algorithm: Option<&'static str>,
    /// What it admits.
    pub limit: Option<u64>,
    /// When to come back.
    pub retry: Retry,
    /// Where it was asked.
    pub api: ApiKind,
    /// With what method, if that is known.
    pub method: Option<String>,
    /// How many of the rule were left out since its last line.
    pub suppressed: u64,
}

/// What the log is to say.
#[derive(Clone, Copy, Debug)]
pub enum ViolationLogEvent<'a> {
    /// There was a violation.
    Violation(&'a ViolationLogLine),
    /// A rule that has said nothing for a second had left some out.
    Suppressed {
        /// Its id.
        rule: &'a str,
        /// How many.
        count: u64,
    },
}

/// Tells somebody.
pub(super) struct ViolationLogEmitter {
    max_per_rule: u32,
    identities: IdentityPolicy,
    paths: LogPaths,
    sink: Box<dyn Fn(ViolationLogEvent<'_>) + Send + Sync>,
    state: Mutex<EmitterState>,
}

/// What is to be told.
struct EmitterState {
    sample: LogSample,
    /// What was dropped before somebody looked at it.
    dropped: Vec<RuleSetSample>,
    /// How many were left out since the last line, by rule.
    suppressed: HashMap<String, u64>,
}

impl ViolationLogEmitter {
    pub(super) fn new(
        max_per_rule: u32,
        identities: IdentityPolicy,
        paths: LogPaths,
        hear: impl Fn(ViolationLogEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let identities = IdentityPolicy { plain: false, ..identities };
        let heard = EmitterState {
            sample: LogSample::with_max_per_rule(max_per_rule),
            dropped: Vec::new(),
            suppressed: HashMap::new(),
        };
        Self { max_per_rule, identities, paths, sink: Box::new(hear), state: Mutex::new(heard) }
    }

    /// Looks at what decisions jotted down.
    pub(super) fn sample_batch(&self, page: &RawViolationBatch) {
        self.state.lock().sample.add_batch(page);
    }

    /// Hears of those that nobody looked at.
    pub(super) fn add_dropped(&self, missed: Vec<RuleSetSample>) {
        self.state.lock().dropped.extend(missed);
    }

    /// Tells what came in a second.
    pub(super) fn emit(&self) {
        let EmitterState { sample, dropped: missed, suppressed: owed } = &mut *self.state.lock();
        let (sheets, missed) = (sample.take(), std::mem::take(missed));
        let mut told: HashMap<String, u32> = HashMap::new();
        let lines = sheets.iter().flat_map(|sheet| sheet.log_lines(self.identities, self.paths));
        for mut line in lines {
            let rule = &line.violation.rule;
            let lines = told.entry(rule.clone()).or_default();
            if *lines == self.max_per_rule {
                // Variants of a rule, and rules before and after a reload, are one rule to the reader.
                *owed.entry(rule.clone()).or_default() += 1;
                continue;
            }
            *lines += 1;
            line.suppressed = owed.remove(rule).unwrap_or(0);
            (self.sink)(ViolationLogEvent::Violation(&line));
        }
        let silent = owed.extract_if(|rule, _| !told.contains_key(rule));
        silent.for_each(|(rule, count)| {
            (self.sink)(ViolationLogEvent::Suppressed { rule: &rule, count });
        });
        for (rule, more) in sheets.iter().chain(&missed).flat_map(RuleSetSample::suppressed_counts)
        {
            *owed.entry(rule.to_owned()).or_default() += more;
        }
    }

    /// Tells what came last, and what nobody waits for any more.
    pub(super) fn finish(&self) {
        self.emit();
        self.emit();
    }
}
