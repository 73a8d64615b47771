//! The rule of a case as a document, so that the limiter runs it like any other rule.

use std::fmt::Write as _;

use tidegate_core::key::Secret;
use tidegate_core::policy::Policy;
use tidegate_rules::{Document, RuleSet};

use super::case::{Mode, ScaleCase};

/// Compiles the rule of a case for a fleet that is smaller by `share`, with a share of the limit.
///
/// # Errors
/// Why the rule is invalid.
pub(super) fn compile_share(case: &ScaleCase, mode: Mode, share: f64) -> Result<RuleSet, String> {
    let limit = limit_share(case.limit.policy(), share);
    let exact = compile(&limit, &consistency(case, mode, "exact"));
    match mode {
        // A small share of a limit may have too little room for the exact bound.
        Mode::Leased if share < 1.0 => {
            exact.or_else(|_| compile(&limit, &consistency(case, mode, "plus_ttl")))
        }
        _ => exact,
    }
}

/// The policy of a limit such as `1000/s burst 2000`.
pub(super) fn policy_of_limit(text: &str) -> Result<Policy, String> {
    let rules = compile(text, "")?;
    let policy = rules.get(0).and_then(|rule| rule.limit().policy().copied());
    policy.ok_or_else(|| format!("`{text}` is not a limit of requests"))
}

fn consistency(case: &ScaleCase, mode: Mode, bound: &str) -> String {
    let mut text = format!("  consistency: {}\n", mode.name());
    // Writing to a string cannot fail.
    _ = match mode {
        Mode::Exact => Ok(()),
        Mode::Leased => {
            writeln!(text, "  lease: {{ ttl: {}us, bound: {bound} }}", case.ttl.get())
        }
        Mode::Async => writeln!(text, "  flush: {}us", case.flush.get()),
    };
    text
}

fn compile(limit: &str, consistency: &str) -> Result<RuleSet, String> {
    let source = format!("rules:\n- id: scale\n  key_by: user_id\n  limit: {limit}\n{consistency}");
    let document = Document::parse("scale.yaml", &source).map_err(|error| error.to_string())?;
    let rules = RuleSet::compile(&document, Secret::UNSET).map_err(|error| error.to_string())?;
    Ok(rules.for_shared_store())
}

/// A limit with a share of the rate and the burst. Buckets keep the number of requests and get a
/// longer window, so that small rates stay precise.
fn limit_share(policy: &Policy, share: f64) -> String {
    let (quota, algorithm) = (policy.quota(), policy.algorithm());
    let (requests, window) = (quota.requests, quota.window.get());
    if algorithm.is_bucket() {
        let window = rounded(window as f64 / share);
        let burst = rounded(quota.burst() as f64 * share);
        return format!(
            "{{ requests: {requests}, window: {window}us, algorithm: {algorithm}, burst: {burst} }}"
        );
    }
    let requests = rounded(requests as f64 * share);
    format!("{{ requests: {requests}, window: {window}us, algorithm: {algorithm} }}")
}

/// The nearest whole number from 1 on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is positive, and a float saturates"
)]
pub(super) fn rounded(value: f64) -> u64 {
    value.round().max(1.0) as u64
}
