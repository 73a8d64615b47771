//! Log lines about violations. They have a separate target, so that they can be filtered or
//! redirected.

use tidegate_core::decision::{Retry, Verdict};
use tidegate_telemetry::{RuleViolation, ViolationLogEvent, ViolationLogLine};
use tidegate_web::date::format_rfc3339;
use tracing::info;

use super::escape::escape_text;

/// The tracing target of violation lines.
const LOG_TARGET: &str = "tidegate::violation";

/// Writes the log line of a violation event.
pub(super) fn log_violation(event: ViolationLogEvent<'_>) {
    match event {
        ViolationLogEvent::Violation(line) => log_line(line),
        ViolationLogEvent::Suppressed { rule, count } => info!(
            target: LOG_TARGET,
            rule = &*escape_text(rule),
            suppressed = count,
            "further violations not logged individually"
        ),
    }
}

fn log_line(line: &ViolationLogLine) {
    let ViolationLogLine {
        verdict, mode, algorithm, limit, retry, api, method, suppressed, ..
    } = line;
    let RuleViolation { at, rule, bucket_key, user_id, ip, endpoint, remaining, .. } =
        &line.violation;
    let shown = |text: &Option<String>| text.as_deref().map(|text| escape_text(text).into_owned());
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
        target: LOG_TARGET,
        at = %format_rfc3339(at.as_micros() / 1_000_000),
        rule = &*escape_text(rule),
        verdict = verdict.name(),
        mode,
        algorithm,
        api = api.name(),
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
