//! Decisions and explanations as JSON.
//!
//! Spans are whole milliseconds, rounded up: a wait that is told must be long enough.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_engine::{ClientCounters, Decision, Explained, Explanation, RuleReading};
use tidegate_rules::Rule;

use super::write::{list, put};
use crate::date::rfc3339;

/// Room for a decision under two rules.
const USUAL_BYTES: usize = 512;

/// A decision as JSON.
#[must_use]
pub fn decision(decision: &Decision) -> String {
    let mut out = String::with_capacity(USUAL_BYTES);
    write_decision(&mut out, decision);
    out
}

/// The answer to a batch as JSON, `{"results":[…]}`.
#[must_use]
pub fn decisions(decisions: &[Decision]) -> String {
    let mut out = String::with_capacity(USUAL_BYTES * decisions.len());
    list(&mut out, r#"{"results":"#, decisions, write_decision);
    out.push('}');
    out
}

/// The counters of a client as JSON, `{"answered_by":"store","counters":[…]}`.
#[must_use]
pub fn counters(counters: &ClientCounters) -> String {
    let mut out = String::with_capacity(2 * USUAL_BYTES);
    put(&mut out, r#"{"answered_by":"#, counters.answered_by().name());
    list(&mut out, r#","counters":"#, counters.iter(), |out, (rule, key, reading)| {
        write_counter(out, rule, key, reading);
    });
    out.push('}');
    out
}

/// An explanation as JSON.
#[must_use]
pub fn explanation(explanation: &Explanation) -> String {
    let Explanation { facts, decision, rules, deciding, why } = explanation;
    let mut out = String::with_capacity(2 * USUAL_BYTES);
    write_pairs(&mut out, r#"{"facts":"#, facts);
    put(&mut out, r#","deciding":"#, deciding.as_deref());
    put(&mut out, r#","why":"#, why.as_str());
    let explained = rules.iter().zip(decision.readings());
    list(&mut out, r#","rules":"#, explained, |out, (rule, (_, reading))| {
        write_explained(out, rule, reading);
    });
    out.push_str(r#","decision":"#);
    write_decision(&mut out, decision);
    out.push('}');
    out
}

fn write_decision(out: &mut String, decision: &Decision) {
    let tightest = decision.tightest();
    let allowed = decision.is_allowed();
    let numbers = tightest.and_then(|(_, reading)| reading.numbers);
    let retry = match tightest {
        Some((_, reading)) if !allowed => reading.retry(),
        _ => Retry::Now,
    };
    let delay_ms = if allowed { decision.delay().as_millis_ceil() } else { 0 };
    let reset_after = numbers.map(|numbers| numbers.reset_after).unwrap_or_default();
    put(out, r#"{"allowed":"#, allowed);
    put(out, r#","rule":"#, tightest.map(|(rule, _)| rule.id()));
    put(out, r#","limit":"#, numbers.map(|numbers| numbers.limit));
    put(out, r#","remaining":"#, numbers.map(|numbers| numbers.remaining));
    put(out, r#","reset_after_ms":"#, reset_after.as_millis_ceil());
    put(out, r#","retry_after_ms":"#, retry_after_ms(retry));
    put(out, r#","delay_ms":"#, delay_ms);
    put(out, r#","charged_at_us":"#, decision.charged_at().map(Timestamp::as_micros));
    put(out, r#","answered_by":"#, decision.answered_by().name());
    list(out, r#","rules":"#, decision.readings(), |out, (rule, reading)| {
        write_reading(out, rule, reading);
    });
    out.push('}');
}

fn write_reading(out: &mut String, rule: &Rule, reading: &RuleReading) {
    put(out, r#"{"id":"#, rule.id());
    put(out, r#","verdict":"#, reading.verdict.name());
    put(out, r#","mode":"#, rule.mode().name());
    put(out, r#","limit":"#, reading.numbers.map(|numbers| numbers.limit));
    write_numbers(out, reading);
    out.push('}');
}

fn write_counter(out: &mut String, rule: &Rule, key: &[(String, String)], reading: &Reading) {
    let ban = match (reading.verdict, reading.retry) {
        (Verdict::Ban, Retry::After(left)) => Some(left),
        _ => None,
    };
    let until = ban.map(|left| reading.now.plus(left).since(Timestamp::EPOCH));
    put(out, r#"{"rule":"#, rule.id());
    write_pairs(out, r#","key":"#, key);
    put(out, r#","mode":"#, rule.mode().name());
    put(out, r#","limit":"#, reading.limit);
    put(out, r#","used":"#, reading.limit.saturating_sub(reading.remaining));
    put(out, r#","remaining":"#, reading.remaining);
    put(out, r#","reset_after_ms":"#, reading.reset_after.as_millis_ceil());
    put(out, r#","warnings":"#, u64::from(reading.warnings));
    put(out, r#","banned_for_ms":"#, ban.map(Micros::as_millis_ceil));
    put(out, r#","banned_until":"#, until.map(|at| rfc3339(at.as_secs_ceil())).as_deref());
    out.push('}');
}

fn write_explained(out: &mut String, explained: &Explained, reading: &RuleReading) {
    let Explained { id, matched, key, fingerprint, limit, most_in_window, bound, why } = explained;
    let hex = fingerprint.map(Fingerprint::hex);
    put(out, r#"{"id":"#, id.as_str());
    list(out, r#","matched":"#, matched, |out, name| put(out, "", name.as_str()));
    write_pairs(out, r#","key":"#, key);
    put(out, r#","fingerprint":"#, hex.as_deref());
    put(out, r#","limit":"#, limit.as_str());
    put(out, r#","most_in_window":"#, *most_in_window);
    put(out, r#","bound":"#, bound.as_str());
    put(out, r#","why":"#, why.as_str());
    put(out, r#","verdict":"#, reading.verdict.name());
    write_numbers(out, reading);
    out.push('}');
}

fn write_numbers(out: &mut String, reading: &RuleReading) {
    let numbers = reading.numbers.unwrap_or_default();
    put(out, r#","remaining":"#, reading.numbers.map(|numbers| numbers.remaining));
    put(out, r#","reset_after_ms":"#, numbers.reset_after.as_millis_ceil());
    put(out, r#","retry_after_ms":"#, retry_after_ms(reading.retry()));
    put(out, r#","delay_ms":"#, numbers.delay.as_millis_ceil());
}

/// An object of names and values; of a name that is repeated the first counts, as it does in rules.
fn write_pairs(out: &mut String, before: &str, pairs: &[(String, String)]) {
    out.push_str(before);
    out.push('{');
    for (at, (name, value)) in pairs.iter().enumerate() {
        if pairs[..at].iter().all(|(known, _)| known != name) {
            put(out, if at == 0 { "" } else { "," }, name.as_str());
            put(out, ":", value.as_str());
        }
    }
    out.push('}');
}

pub(crate) const fn retry_after_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(wait.as_millis_ceil()),
        Retry::Never => None,
    }
}
