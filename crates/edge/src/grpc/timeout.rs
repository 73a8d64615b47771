//! `grpc-timeout`: how long the caller waits, at most eight digits and a unit. Envoy sends `20m` unless told
//! otherwise.

use std::time::Duration;

use http::HeaderMap;

use super::status::{Code, Status};

const MOST_DIGITS: usize = 8;

/// How long the caller waits, if it says so.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let timeout = parse(value.as_bytes());
    timeout.map(Some).ok_or_else(|| {
        let message = "grpc-timeout is not up to eight digits and one of H, M, S, m, u, n";
        Status::new(Code::InvalidArgument, message)
    })
}

fn parse(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
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
    fn every_unit_is_read_and_nothing_else() {
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
