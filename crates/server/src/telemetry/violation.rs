//! Lines about violations, on a target of their own, so that they can be sent elsewhere or left out.

use tidegate_control::{Line, Said, Violation};
use tidegate_core::decision::{Retry, Verdict};
use tidegate_edge::date::rfc3339;
use tracing::info;

use super::escaped::escaped;

/// What to ask for to have these lines and no other.
const TARGET: &str = "tidegate::violation";

/// Writes the line.
pub(super) fn tell(said: Said<'_>) {
    match said {
        Said::One(line) => one(line),
        Said::LeftOut { rule, count } => info!(
            target: TARGET,
            rule = &*escaped(rule),
            suppressed = count,
            "further violations not logged individually"
        ),
    }
}

fn one(line: &Line) {
    let Line { verdict, mode, algorithm, limit, retry, door, method, suppressed, .. } = line;
    let Violation { at, rule, bucket_key, user_id, ip, endpoint, remaining, .. } = &line.violation;
    let shown = |text: &Option<String>| text.as_deref().map(|text| escaped(text).into_owned());
    let (method, endpoint, user, ip) = (shown(method), shown(endpoint), shown(user_id), shown(ip));
    let retry_after_ms = match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(wait.as_millis_ceil()),
        Retry::Never => None,
    };
    let message = match verdict {
        Verdict::ShadowDeny => "would be refused (shadow mode)",
        Verdict::Ban => "refused: banned",
        Verdict::Deny | Verdict::Warn | Verdict::Allow => "refused",
    };
    info!(
        target: TARGET,
        at = %rfc3339(at.as_micros() / 1_000_000),
        rule = &*escaped(rule),
        verdict = verdict.name(),
        mode,
        algorithm,
        door = door.name(),
        method = method.as_deref(),
        endpoint = endpoint.as_deref(),
        key = bucket_key,
        user = user.as_deref(),
        ip = ip.as_deref(),
        limit,
        remaining,
        retry_after_ms,
        suppressed,
        "{message}"
    );
}
