//! The deadline of a call: set by the caller, or taken from gRPC's `grpc-timeout`.

use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use tokio::time::Instant;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The time after which the caller has no use for a response. Insert it in the request's
/// extensions; a `grpc-timeout` header counts too.
///
/// It limits the waits before a call and before its retries. It does not end a call that was sent:
/// the caller's own timeout does.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::CallDeadline;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(CallDeadline::after(Duration::from_secs(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallDeadline(Instant);

impl CallDeadline {
    /// A deadline that ends `timeout` from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(timeout).unwrap_or(now))
    }

    /// A deadline at an instant of tokio's clock.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The earliest deadline of a request, and at most `max_wait` from `now`.
    pub(crate) fn of_request(parts: &Parts, now: Instant, max_wait: Duration) -> Instant {
        let latest = now + max_wait;
        let inserted = parts.extensions.get::<Self>().map(|deadline| deadline.0);
        let timeout = parts.headers.get(GRPC_TIMEOUT).and_then(|value| value.to_str().ok());
        let grpc = timeout.and_then(parse_grpc_timeout).and_then(|span| now.checked_add(span));
        [inserted, grpc].into_iter().flatten().fold(latest, Instant::min)
    }
}

/// Parses `grpc-timeout`: at most eight digits and a unit.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grpc_timeouts_of_every_unit_are_parsed() {
        for (text, millis) in
            [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("4m", 4), ("5000u", 5)]
        {
            assert_eq!(parse_grpc_timeout(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_grpc_timeout("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for text in ["", "S", "5", "123456789S", "-1S", "1.5S", "5s", "5é"] {
            assert_eq!(parse_grpc_timeout(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_deadline_of_a_request_counts() {
        let now = Instant::now();
        let secs = Duration::from_secs;
        let deadline = |grpc: &str, inserted: Option<u64>| {
            let (mut parts, ()) = http::Request::builder()
                .header("grpc-timeout", grpc)
                .body(())
                .unwrap()
                .into_parts();
            if let Some(inserted) = inserted {
                parts.extensions.insert(CallDeadline::after(secs(inserted)));
            }
            CallDeadline::of_request(&parts, now, secs(20)) - now
        };
        assert_eq!(deadline("60S", None), secs(20));
        assert_eq!(deadline("5S", Some(9)), secs(5));
        assert_eq!(deadline("nonsense", Some(9)), secs(9));
    }

    proptest! {
        #[test]
        fn arbitrary_grpc_timeout_parses_without_panic(text in "\\PC{0,12}") {
            let _ = parse_grpc_timeout(&text);
        }
    }
}
