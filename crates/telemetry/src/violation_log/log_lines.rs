//! Emits violations as log lines. Each line has the number of violations of its rule suppressed
//! since the previous line. If a rule has suppressed violations and no further line, one event
//! reports the number, so lines and suppressed counts add up to all violations.
//!
//! The receiver of the events formats the lines.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_rules::ApiKind;
use tidegate_web::LogPaths;

use super::raw_batch::RawViolationBatch;
use super::sample::{LogSample, RuleSetSample};
use crate::violation::{IdentityPolicy, RuleViolation};

/// A violation with the additional fields of a log line. Identities are always hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationLogLine {
    /// The violation as it is recorded.
    pub violation: RuleViolation,
    /// The rule's verdict.
    pub verdict: Verdict,
    /// The rule's mode.
    pub mode: &'static str,
    /// The rule's algorithm; `None` if it refuses all requests.
    pub algorithm: Option<&'static str>,
    /// The rule's limit; `None` if it refuses all requests.
    pub limit: Option<u64>,
    /// When the client may retry.
    pub retry: Retry,
    /// The API that received the request.
    pub api: ApiKind,
    /// The method of the request, if known.
    pub method: Option<String>,
    /// Number of violations of the rule suppressed since its last line.
    pub suppressed: u64,
}

/// An entry for the log.
#[derive(Clone, Copy, Debug)]
pub enum ViolationLogEvent<'a> {
    /// A violation.
    Violation(&'a ViolationLogLine),
    /// The suppressed violations of a rule that had no line in the last second.
    Suppressed {
        /// The rule's ID.
        rule: &'a str,
        /// Number of suppressed violations.
        count: u64,
    },
}

/// Samples violations and emits log lines.
pub(super) struct ViolationLogEmitter {
    max_per_rule: u32,
    identities: IdentityPolicy,
    paths: LogPaths,
    sink: Box<dyn Fn(ViolationLogEvent<'_>) + Send + Sync>,
    state: Mutex<EmitterState>,
}

/// The violations that were not emitted yet.
struct EmitterState {
    sample: LogSample,
    /// Violations that the queue dropped before they were sampled.
    dropped: Vec<RuleSetSample>,
    /// Number of violations suppressed since the last line, by rule ID.
    suppressed: HashMap<String, u64>,
}

impl ViolationLogEmitter {
    pub(super) fn new(
        max_per_rule: u32,
        identities: IdentityPolicy,
        paths: LogPaths,
        on_event: impl Fn(ViolationLogEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let identities = IdentityPolicy { plain: false, ..identities };
        let state = EmitterState {
            sample: LogSample::with_max_per_rule(max_per_rule),
            dropped: Vec::new(),
            suppressed: HashMap::new(),
        };
        Self { max_per_rule, identities, paths, sink: Box::new(on_event), state: Mutex::new(state) }
    }

    /// Samples a batch.
    pub(super) fn sample_batch(&self, batch: &RawViolationBatch) {
        self.state.lock().sample.add_batch(batch);
    }

    /// Adds violations that the queue dropped before they were sampled.
    pub(super) fn add_dropped(&self, dropped: Vec<RuleSetSample>) {
        self.state.lock().dropped.extend(dropped);
    }

    /// Emits the lines of the last second.
    pub(super) fn emit(&self) {
        let EmitterState { sample, dropped, suppressed } = &mut *self.state.lock();
        let (samples, dropped) = (sample.take(), std::mem::take(dropped));
        let mut emitted: HashMap<String, u32> = HashMap::new();
        let lines = samples.iter().flat_map(|of| of.log_lines(self.identities, self.paths));
        for mut line in lines {
            let rule = &line.violation.rule;
            let lines = emitted.entry(rule.clone()).or_default();
            if *lines == self.max_per_rule {
                // The samples count the variants of a rule, and a rule before and after a reload,
                // separately. The limit applies to all of them together.
                *suppressed.entry(rule.clone()).or_default() += 1;
                continue;
            }
            *lines += 1;
            line.suppressed = suppressed.remove(rule).unwrap_or(0);
            (self.sink)(ViolationLogEvent::Violation(&line));
        }
        let silent = suppressed.extract_if(|rule, _| !emitted.contains_key(rule));
        silent.for_each(|(rule, count)| {
            (self.sink)(ViolationLogEvent::Suppressed { rule: &rule, count });
        });
        let counts = samples.iter().chain(&dropped).flat_map(RuleSetSample::suppressed_counts);
        for (rule, more) in counts {
            *suppressed.entry(rule.to_owned()).or_default() += more;
        }
    }

    /// Emits the last lines, and then the suppressed counts that have no further line.
    pub(super) fn finish(&self) {
        self.emit();
        self.emit();
    }
}
