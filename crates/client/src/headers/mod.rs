//! Reads what a response says about rate limits. Every value comes from outside: a malformed one is
//! ignored, and no number is trusted to be small.

mod number;
mod quota_numbers;
mod retry_after;

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE, HeaderMap, HeaderName};
use http::{Response, StatusCode};

pub use quota_numbers::QuotaNumbers;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a response says about rate limits: whether the call was refused, how long to wait, and how
/// much quota is left.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{CallOutcome, ResponseHints};
///
/// let response = http::Response::builder()
///     .status(429)
///     .header("retry-after", "2")
///     .header("ratelimit-policy", r#""free";q=100;w=60"#)
///     .header("ratelimit", r#""free";r=0;t=2"#)
///     .body(())?;
/// let hints = ResponseHints::from_response(&response, None);
/// assert_eq!(hints.outcome, CallOutcome::Refused);
/// assert_eq!(hints.retry_after, Some(Duration::from_secs(2)));
/// assert_eq!((hints.quotas[0].remaining, hints.quotas[0].limit), (0, Some(100)));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHints {
    /// Whether the server did the work.
    pub outcome: CallOutcome,
    /// How long the server asks to wait. Zero if it allows an immediate retry.
    pub retry_after: Option<Duration>,
    /// Whether the server asks not to retry (a negative `grpc-retry-pushback-ms`).
    pub forbids_retry: bool,
    /// The remaining quota of each policy; empty if the server does not report any.
    pub quotas: Vec<QuotaNumbers>,
}

/// Whether the server did the work of a call.
///
/// ```
/// use tidegate_client::{CallOutcome, ResponseHints};
///
/// let busy = http::Response::builder().status(503).body(())?;
/// assert_eq!(ResponseHints::from_response(&busy, None).outcome, CallOutcome::Overloaded);
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallOutcome {
    /// The server did not refuse the call. It may have failed for another reason.
    #[default]
    Accepted,
    /// The call was over a limit: 429, 403 without remaining quota (GitHub), or gRPC
    /// `RESOURCE_EXHAUSTED`.
    Refused,
    /// The server is short of capacity: 503, or gRPC `UNAVAILABLE`.
    Overloaded,
}

impl ResponseHints {
    /// Reads the status and headers of a response.
    ///
    /// Dates are compared with the response's `Date`, so that the clocks need not agree.
    /// `wall_clock` is used if it has none; without either, dates are ignored.
    #[must_use]
    pub fn from_response<B>(response: &Response<B>, wall_clock: Option<SystemTime>) -> Self {
        let headers = response.headers();
        let date = values(headers, &DATE).find_map(|text| httpdate::parse_http_date(text).ok());
        let server_time = date.or(wall_clock);
        let is_cached = values(headers, &AGE).any(|age| number::parse(age).is_some_and(|n| n > 0));
        let mut quotas = match is_cached {
            // The numbers are those of the request that filled the cache.
            true => Vec::new(),
            false => quota_numbers::read(headers, server_time),
        };
        let outcome = CallOutcome::classify(response.status(), headers, &quotas);
        let pushback = values(headers, &GRPC_PUSHBACK).next();
        let retry_after = retry_after::read(headers, server_time)
            .or_else(|| number::parse(pushback?).map(Duration::from_millis));
        if outcome != CallOutcome::Accepted && retry_after.is_some() {
            // `Retry-After` wins over the end of a window (draft-ietf-httpapi-ratelimit-headers).
            quotas.iter_mut().for_each(|quota| quota.reset_after = retry_after);
        }
        let forbids_retry = pushback.is_some_and(|text| number::parse(text).is_none());
        Self { outcome, retry_after, forbids_retry, quotas }
    }
}

impl CallOutcome {
    fn classify(status: StatusCode, headers: &HeaderMap, quotas: &[QuotaNumbers]) -> Self {
        let grpc_status = values(headers, &GRPC_STATUS).next();
        match (status, grpc_status) {
            (StatusCode::TOO_MANY_REQUESTS, _) | (_, Some("8")) => Self::Refused,
            (StatusCode::FORBIDDEN, _) if quotas.iter().any(|quota| quota.remaining == 0) => {
                Self::Refused
            }
            (StatusCode::SERVICE_UNAVAILABLE, _) | (_, Some("14")) => Self::Overloaded,
            _ => Self::Accepted,
        }
    }
}

/// The values of a header in all its lines, without those that are not visible ASCII.
fn values<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> + use<'h> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

#[cfg(test)]
pub(crate) mod tests;
