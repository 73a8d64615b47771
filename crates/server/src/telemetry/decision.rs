//! Log lines about decisions. They have a separate target, so that they can be filtered or
//! redirected.

use tidegate_core::decision::AnsweredBy;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::RuleReading;
use tidegate_rules::ApiKind;
use tracing::debug;

use super::escape::escape_text;

/// The tracing target of decision lines.
const LOG_TARGET: &str = "tidegate::decision";

/// One counter of a decision.
pub(crate) struct DecisionLine<'a> {
    pub(crate) rule: &'a str,
    /// The counter, unless its hash must not be shown.
    pub(crate) key: Option<String>,
    pub(crate) api: ApiKind,
    pub(crate) reading: &'a RuleReading,
    pub(crate) cost: u64,
    /// Whether all rules allow the request.
    pub(crate) allowed: bool,
    pub(crate) answered_by: AnsweredBy,
    /// When the decision had been made, by the machine's clock.
    pub(crate) at: Timestamp,
    /// How long it took, if it was timed.
    pub(crate) took: Option<Micros>,
}

/// Writes the log line of a decision.
pub(super) fn log_decision(line: &DecisionLine<'_>) {
    let DecisionLine { rule, key, api, reading, cost, allowed, answered_by, at, took } = line;
    debug!(
        target: LOG_TARGET,
        at_us = at.as_micros(),
        took_us = took.map(Micros::get),
        rule = &*escape_text(rule),
        key = key.as_deref(),
        verdict = reading.verdict.name(),
        answered_by = answered_by.name(),
        api = api.name(),
        cost,
        remaining = reading.numbers.map(|numbers| numbers.remaining),
        "{}", if *allowed { "allowed" } else { "refused" }
    );
}
