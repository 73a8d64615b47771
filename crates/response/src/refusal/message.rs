//! Why a request is refused, in two sentences for the end user of an API. A rule's id means nothing
//! to that user; operators find it in the policy headers, in `violated-policies` and in the log.
//!
//! Put together piece by piece: the formatting machinery took a third of what a whole refusal takes.

use tidegate_core::decision::Verdict;
use tidegate_core::time::Micros;

use super::super::summary::{LimitSummary, ReportedCounter};

/// Room for most.
const USUAL_BYTES: usize = 128;

/// Units of a period, in microseconds.
const UNITS: [(u64, &str); 4] = [
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
];

/// What is said of a refusal.
pub(super) fn render(told: Option<&LimitSummary<'_>>) -> String {
    let Some(told) = told else { return "The request is refused.".to_owned() };
    let mut said = String::with_capacity(USUAL_BYTES);
    write_reason(told, &mut said);
    match told.wait_secs() {
        Some(secs) => {
            said.push_str(". Retry after ");
            write_count(secs, "second", &mut said);
            said.push('.');
        }
        None => said.push_str(". Retrying will not help."),
    }
    said
}

fn write_reason(told: &LimitSummary<'_>, said: &mut String) {
    let counted = match told.counter() {
        _ if told.verdict == Verdict::Ban => {
            return said.push_str("Banned for a while after too many requests over the limit");
        }
        Some(_) if told.is_uncounted => {
            return said.push_str("Requests cannot be counted at the moment");
        }
        None => return said.push_str("Requests of this kind are not allowed"),
        Some(counted) => counted,
    };
    let (before, after) = match told.wait {
        Some(_) => ("Limit of ", " reached"),
        None => ("This request costs more than the limit of ", ""),
    };
    said.push_str(before);
    write_limit(&counted, said);
    said.push_str(after);
}

/// Such as `20 requests per 2 seconds`.
fn write_limit(counted: &ReportedCounter<'_>, said: &mut String) {
    write_count(counted.numbers.limit, "request", said);
    match counted.rule.limit().policy() {
        Some(policy) if policy.is_concurrency() => said.push_str(" at a time"),
        Some(policy) => write_period(policy.period(), said),
        None => {}
    }
}

/// Such as ` per minute` or ` per 2 seconds`.
fn write_period(period: Micros, said: &mut String) {
    said.push_str(" per ");
    let unit = UNITS.into_iter().find(|(size, _)| period.get().is_multiple_of(*size));
    match unit.map(|(size, name)| (period.get() / size, name)) {
        Some((1, name)) => said.push_str(name),
        Some((number, name)) => write_count(number, name, said),
        None => said.push_str(&period.to_human_string()),
    }
}

fn write_count(number: u64, of: &str, said: &mut String) {
    said.push_str(itoa::Buffer::new().format(number));
    said.push(' ');
    said.push_str(of);
    if number != 1 {
        said.push('s');
    }
}
