//! Reads `Retry-After` (RFC 9110 section 10.2.3) and the non-standard `retry-after-ms`.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, RETRY_AFTER};

use super::{number, values};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// How long the server asks to wait: the longest of several valid values.
///
/// `retry-after-ms` says the same more exactly, because `Retry-After` is rounded up to seconds. It
/// counts only if both agree.
pub(super) fn read(headers: &HeaderMap, server_time: Option<SystemTime>) -> Option<Duration> {
    let waits = values(headers, &RETRY_AFTER).filter_map(|text| parse_wait(text, server_time));
    let millis = values(headers, &RETRY_AFTER_MS).filter_map(number::parse_rounded_up);
    let exact = millis.max().map(Duration::from_millis);
    match (waits.max(), exact) {
        (Some(wait), Some(exact)) if wait.saturating_sub(exact) < Duration::from_secs(1) => {
            Some(exact)
        }
        (wait, exact) => wait.max(exact),
    }
}

/// Parses seconds or a date. A date in the past means now.
fn parse_wait(text: &str, server_time: Option<SystemTime>) -> Option<Duration> {
    if let Some(secs) = number::parse_rounded_up(text) {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(server_time?).unwrap_or_default())
}
