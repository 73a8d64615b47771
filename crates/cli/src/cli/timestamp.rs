//! Parses timestamps on the command line.

use tidegate_web::date::{format_rfc3339, parse_rfc3339};

/// Parses an end time: a timestamp, or a date, which includes the whole day (UTC).
pub(super) fn parse_until(text: &str) -> Result<String, String> {
    let day = || parse_rfc3339(&format!("{text}T23:59:59Z"));
    parse_rfc3339(text).or_else(day).map(format_rfc3339).ok_or_else(|| {
        "write a date such as 2026-12-31, or a time such as 2026-12-31T12:00:00Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::parse_until;

    #[test]
    fn until_date_includes_whole_day_utc() {
        assert_eq!(parse_until("2026-12-31"), Ok("2026-12-31T23:59:59Z".to_owned()));
        assert_eq!(parse_until("2026-12-31T01:00:00+02:00"), Ok("2026-12-30T23:00:00Z".to_owned()));
        for wrong in ["", "tomorrow", "2026-13-01", "31.12.2026", "2026-02-30"] {
            assert!(parse_until(wrong).is_err(), "{wrong}");
        }
    }
}
