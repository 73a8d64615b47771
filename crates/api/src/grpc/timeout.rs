//! `grpc-timeout`: how long the caller waits, as at most eight digits and a unit. Envoy sends `20m`
//! by default.

use std::time::Duration;

use http::HeaderMap;

use super::status::{GrpcCode, GrpcStatus};

const MAX_DIGITS: usize = 8;

/// Returns how long the caller waits, if it sent `grpc-timeout`.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Duration>, GrpcStatus> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let timeout = parse(value.as_bytes());
    timeout.map(Some).ok_or_else(|| {
        let message = "invalid grpc-timeout; send 1 to 8 digits and one of H, M, S, m, u, n";
        GrpcStatus::new(GrpcCode::InvalidArgument, message)
    })
}

fn parse(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_units_are_parsed() {
        for (text, millis) in [
            ("20m", 20),
            ("1S", 1_000),
            ("2M", 120_000),
            ("99999999H", 359_999_996_400_000),
            ("5000u", 5),
            ("7000000n", 7),
            ("0m", 0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "100000000m", " 20m", "20 m"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
