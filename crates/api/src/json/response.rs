//! JSON encoding of decisions, counters and explanations.
//!
//! Durations are whole milliseconds, rounded up so that a reported wait is always long enough.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::{
    ClientCounters, Decision, Explanation, RuleConsistency, RuleExplanation, RuleReading,
};
use tidegate_rules::Rule;

use tidegate_web::date::format_rfc3339;
use tidegate_web::json::write::{write_list, write_value};

/// Initial capacity: enough for a decision under two rules.
const DECISION_CAPACITY: usize = 512;

/// Encodes a decision.
#[must_use]
pub fn encode_decision(decision: &Decision) -> String {
    let mut out = String::with_capacity(DECISION_CAPACITY);
    write_decision(&mut out, decision);
    out
}

/// Encodes the decisions of a batch as `{"results":[…]}`.
#[must_use]
pub fn encode_decisions(decisions: &[Decision]) -> String {
    let mut out = String::with_capacity(DECISION_CAPACITY * decisions.len());
    write_list(&mut out, r#"{"results":"#, decisions, write_decision);
    out.push('}');
    out
}

/// Encodes a client's counters as `{"answered_by":"store","counters":[…]}`.
#[must_use]
pub fn encode_counters(counters: &ClientCounters) -> String {
    let mut out = String::with_capacity(2 * DECISION_CAPACITY);
    write_value(&mut out, r#"{"answered_by":"#, counters.answered_by().name());
    write_list(&mut out, r#","counters":"#, counters.iter(), |out, (rule, key, reading)| {
        write_counter(out, rule, key, reading);
    });
    out.push('}');
    out
}

/// Encodes an explanation.
#[must_use]
pub fn encode_explanation(explanation: &Explanation) -> String {
    let Explanation { facts, decision, rules, deciding, why } = explanation;
    let mut out = String::with_capacity(2 * DECISION_CAPACITY);
    write_pairs(&mut out, r#"{"facts":"#, facts);
    write_value(&mut out, r#","deciding":"#, deciding.as_deref());
    write_value(&mut out, r#","why":"#, why.as_str());
    let explained = rules.iter().zip(decision.readings());
    write_list(&mut out, r#","rules":"#, explained, |out, (rule, (_, reading))| {
        write_rule_explanation(out, rule, reading);
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
    write_value(out, r#"{"allowed":"#, allowed);
    write_value(out, r#","rule":"#, tightest.map(|(rule, _)| rule.id()));
    write_value(out, r#","limit":"#, numbers.map(|numbers| numbers.limit));
    write_value(out, r#","remaining":"#, numbers.map(|numbers| numbers.remaining));
    write_value(out, r#","reset_after_ms":"#, reset_after.as_millis_ceil());
    write_value(out, r#","retry_after_ms":"#, retry_after_ms(retry));
    write_value(out, r#","delay_ms":"#, delay_ms);
    write_value(out, r#","charged_at_us":"#, decision.charged_at().map(Timestamp::as_micros));
    write_value(out, r#","answered_by":"#, decision.answered_by().name());
    write_list(out, r#","rules":"#, decision.readings(), |out, (rule, reading)| {
        write_reading(out, rule, reading);
    });
    out.push('}');
}

fn write_reading(out: &mut String, rule: &Rule, reading: &RuleReading) {
    write_value(out, r#"{"id":"#, rule.id());
    write_value(out, r#","verdict":"#, reading.verdict.name());
    write_value(out, r#","mode":"#, rule.mode().name());
    write_value(out, r#","limit":"#, reading.numbers.map(|numbers| numbers.limit));
    write_numbers(out, reading);
    out.push('}');
}

fn write_counter(out: &mut String, rule: &Rule, key: &[(String, String)], reading: &Reading) {
    let ban = match (reading.verdict, reading.retry) {
        (Verdict::Ban, Retry::After(left)) => Some(left),
        _ => None,
    };
    let until = ban.map(|left| reading.now.plus(left).since(Timestamp::EPOCH));
    write_value(out, r#"{"rule":"#, rule.id());
    write_pairs(out, r#","key":"#, key);
    write_value(out, r#","mode":"#, rule.mode().name());
    write_value(out, r#","limit":"#, reading.limit);
    write_value(out, r#","used":"#, reading.limit.saturating_sub(reading.remaining));
    write_value(out, r#","remaining":"#, reading.remaining);
    write_value(out, r#","reset_after_ms":"#, reading.reset_after.as_millis_ceil());
    write_value(out, r#","warnings":"#, u64::from(reading.warnings));
    write_value(out, r#","banned_for_ms":"#, ban.map(Micros::as_millis_ceil));
    write_value(
        out,
        r#","banned_until":"#,
        until.map(|at| format_rfc3339(at.as_secs_ceil())).as_deref(),
    );
    out.push('}');
}

fn write_rule_explanation(out: &mut String, explained: &RuleExplanation, reading: &RuleReading) {
    let RuleExplanation { id, matched, key, fingerprint, limit, .. } = explained;
    let RuleExplanation { consistency, units, borrow, max_in_window, bound, why, .. } = explained;
    let hex = fingerprint.map(Fingerprint::to_hex);
    write_value(out, r#"{"id":"#, id.as_str());
    write_list(out, r#","matched":"#, matched, |out, name| write_value(out, "", name.as_str()));
    write_pairs(out, r#","key":"#, key);
    write_value(out, r#","fingerprint":"#, hex.as_deref());
    write_value(out, r#","limit":"#, limit.as_str());
    match consistency {
        Some(RuleConsistency { mode, description }) => {
            write_value(out, r#","consistency":{"mode":"#, *mode);
            write_value(out, r#","description":"#, description.as_str());
            write_value(out, r#","units":"#, *units);
            out.push('}');
        }
        None => out.push_str(r#","consistency":null"#),
    }
    write_value(out, r#","borrow":"#, borrow.as_deref());
    write_value(out, r#","max_in_window":"#, *max_in_window);
    write_value(out, r#","bound":"#, bound.as_str());
    write_value(out, r#","why":"#, why.as_str());
    write_value(out, r#","verdict":"#, reading.verdict.name());
    write_numbers(out, reading);
    out.push('}');
}

fn write_numbers(out: &mut String, reading: &RuleReading) {
    let numbers = reading.numbers.unwrap_or_default();
    write_value(out, r#","remaining":"#, reading.numbers.map(|numbers| numbers.remaining));
    write_value(out, r#","reset_after_ms":"#, numbers.reset_after.as_millis_ceil());
    write_value(out, r#","retry_after_ms":"#, retry_after_ms(reading.retry()));
    write_value(out, r#","delay_ms":"#, numbers.delay.as_millis_ceil());
}

/// Writes an object of names and values. The first value of a repeated name counts, as in rules.
fn write_pairs(out: &mut String, before: &str, pairs: &[(String, String)]) {
    out.push_str(before);
    out.push('{');
    for (at, (name, value)) in pairs.iter().enumerate() {
        if pairs[..at].iter().all(|(known, _)| known != name) {
            write_value(out, if at == 0 { "" } else { "," }, name.as_str());
            write_value(out, ":", value.as_str());
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
