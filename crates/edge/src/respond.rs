//! The rate-limit headers of an answer: the de-facto `X-RateLimit` family, the IETF pair
//! (draft-ietf-httpapi-ratelimit-headers-11) and `Retry-After`.
//!
//! They tell of the tightest rule only, and never of a rule in shadow.

use bytes::{BufMut, BytesMut};
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::time::Timestamp;
use tidegate_engine::Decision;
use tidegate_rules::{Mode, Rule};

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The largest Integer of RFC 9651.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// How the headers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSettings {
    /// What `X-RateLimit-Reset` means.
    pub reset: ResetStyle,
}

/// What `X-RateLimit-Reset` means; clients in the field expect the one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// Seconds since the Unix epoch, as GitHub has it.
    #[default]
    Epoch,
    /// Seconds from now, as Envoy has it.
    Delta,
}

/// Adds the headers of a decision. Where no rule that counts decided, there are none.
pub fn headers(decision: &Decision, settings: &HeaderSettings, headers: &mut HeaderMap) {
    if let Some((rule, reading)) = decision.tightest()
        && *rule.mode() != Mode::Shadow
    {
        let wait_secs = match reading.retry() {
            _ if decision.is_allowed() => None,
            Retry::Never => None,
            Retry::Now => Some(1),
            Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
        };
        if let Some(numbers) = reading.numbers {
            limit_headers(&numbers, settings, headers);
            let effective = if decision.is_allowed() {
                Some(numbers.reset_after.as_secs_ceil())
            } else {
                wait_secs
            };
            ietf_headers(rule, &numbers, effective, headers);
        }
        if let Some(secs) = wait_secs {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
    }
    if !decision.is_allowed() {
        headers.insert(CACHE_CONTROL, NO_STORE);
    }
    warning_header(decision, headers);
}

fn limit_headers(numbers: &Reading, settings: &HeaderSettings, headers: &mut HeaderMap) {
    headers.insert(X_LIMIT, HeaderValue::from(numbers.limit));
    headers.insert(X_REMAINING, HeaderValue::from(numbers.remaining));
    let reset = match settings.reset {
        ResetStyle::Delta => numbers.reset_after.as_secs_ceil(),
        // A fallback knows no store's clock, so it cannot say when.
        ResetStyle::Epoch if numbers.now == Timestamp::EPOCH => return,
        ResetStyle::Epoch => {
            numbers.now.plus(numbers.reset_after).since(Timestamp::EPOCH).as_secs_ceil()
        }
    };
    headers.insert(X_RESET, HeaderValue::from(reset));
}

/// `effective_secs` is the span within which no more than `remaining` pass. When refused it is the
/// same as `Retry-After`, which must not point earlier than its end.
fn ietf_headers(
    rule: &Rule,
    numbers: &Reading,
    effective_secs: Option<u64>,
    headers: &mut HeaderMap,
) {
    let mut policy = Line::quoted(rule.id());
    policy.parameter("q", numbers.limit);
    if let Some(period) = rule.limit().policy().map(|policy| policy.period().as_secs_ceil()) {
        policy.parameter("w", period.max(1));
    }
    policy.insert(POLICY, headers);
    let mut state = Line::quoted(rule.id());
    state.parameter("r", numbers.remaining);
    if let Some(secs) = effective_secs {
        state.parameter("t", secs);
    }
    state.insert(RATE_LIMIT, headers);
}

fn warning_header(decision: &Decision, headers: &mut HeaderMap) {
    let mut line = Line(BytesMut::new());
    for rule in decision.warnings() {
        if !line.0.is_empty() {
            line.0.put_slice(b", ");
        }
        line.0.put_slice(rule.id().as_bytes());
    }
    if !line.0.is_empty() {
        line.insert(X_WARNING, headers);
    }
}

/// The value of a header while it is written.
struct Line(BytesMut);

impl Line {
    /// A String of RFC 9651.
    fn quoted(text: &str) -> Self {
        let mut line = BytesMut::with_capacity(text.len() + 48);
        line.put_u8(b'"');
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                line.put_u8(b'\\');
            }
            line.put_u8(byte);
        }
        line.put_u8(b'"');
        Self(line)
    }

    fn parameter(&mut self, name: &str, integer: u64) {
        self.0.put_u8(b';');
        self.0.put_slice(name.as_bytes());
        self.0.put_u8(b'=');
        self.0.put_slice(HeaderValue::from(integer.min(MAX_INTEGER)).as_bytes());
    }

    /// Rule ids are printable ASCII; were one not, its header would be left out.
    fn insert(self, name: HeaderName, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_maybe_shared(self.0.freeze()) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_as_rfc_9651_has_them() {
        let mut headers = HeaderMap::new();
        let mut line = Line::quoted(r#"a"b\c, d;e"#);
        line.parameter("q", u64::MAX);
        line.parameter("w", MAX_INTEGER);
        line.parameter("t", 0);
        line.insert(POLICY, &mut headers);
        let expected = r#""a\"b\\c, d;e";q=999999999999999;w=999999999999999;t=0"#;
        assert_eq!(headers[POLICY], expected);
    }

    #[test]
    fn a_name_that_no_header_can_carry_is_left_out() {
        let mut headers = HeaderMap::new();
        Line::quoted("a\r\nSet-Cookie: b").insert(POLICY, &mut headers);
        assert!(headers.is_empty());
    }
}
