//! Converts between epoch seconds and RFC 3339 timestamps (UTC), without floating point.

/// The last second of the year 9999, the last year with four digits.
const MAX_EPOCH_SECS: u64 = 253_402_300_799;

const SECS_PER_DAY: u64 = 86_400;

/// Formats epoch seconds, such as `2026-12-31T23:59:59Z`.
#[must_use]
pub fn format_rfc3339(epoch_secs: u64) -> String {
    let secs = epoch_secs.min(MAX_EPOCH_SECS);
    let (year, month, day) = civil_from_days(secs / SECS_PER_DAY);
    let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    let mut text = String::with_capacity("1970-01-01T00:00:00Z".len());
    // Digit by digit: `format!` takes longer than everything else in a refusal.
    for (number, separator) in [
        (year / 100, ""),
        (year % 100, "-"),
        (month, "-"),
        (day, "T"),
        (hour, ":"),
        (minute, ":"),
        (second, "Z"),
    ] {
        text.extend([digit_char(number / 10), digit_char(number % 10)]);
        text.push_str(separator);
    }
    text
}

fn digit_char(number: u64) -> char {
    // The index is less than ten.
    char::from(b"0123456789"[(number % 10) as usize])
}

/// Parses a timestamp such as `2026-12-31T23:59:59Z` into epoch seconds. Accepts an offset instead
/// of `Z`, and drops fractions of a second. `None` for years before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let number = |at: std::ops::Range<usize>| {
        let digits = text.get(at).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u64>().ok()
    };
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let has_separators =
        separators.into_iter().all(|(at, separator)| bytes.get(at) == Some(&separator));
    if !has_separators || !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let days =
        days_from_civil(year, month, day).filter(|_| hour < 24 && minute < 60 && second < 60)?;
    let local = days * SECS_PER_DAY + hour * 3_600 + minute * 60 + second;
    let rest = text.get(19..)?;
    let after_fraction =
        rest.strip_prefix('.').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    match after_fraction.filter(|left| left.len() + 1 < rest.len()).unwrap_or(rest) {
        "Z" | "z" => Some(local),
        offset => {
            let at = text.len() - offset.len();
            let (hours, minutes) = (number(at + 1..at + 3)?, number(at + 4..at + 6)?);
            if offset.len() != 6 || offset.as_bytes()[3] != b':' || hours > 23 || minutes > 59 {
                return None;
            }
            let offset_secs = hours * 3_600 + minutes * 60;
            match offset.as_bytes()[0] {
                b'+' => local.checked_sub(offset_secs),
                b'-' => Some(local + offset_secs),
                _ => None,
            }
        }
    }
}

/// Days from 1970-01-01 to a date; `None` if there is no such date.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let (from_march, year) =
        if month > 2 { (month - 3, year) } else { (month + 9, year.checked_sub(1)?) };
    let day_of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let (era, year_of_era) = (year / 400, year % 400);
    let leap_days = year_of_era / 4 - year_of_era / 100;
    let days = era * 146_097 + year_of_era * 365 + leap_days + day_of_year;
    let days = days.checked_sub(719_468)?;
    // A date such as February 30 maps to another date; reject it.
    let (_, is_month, is_day) = civil_from_days(days);
    ((is_month, is_day) == (month, day)).then_some(days)
}

/// Year, month and day of a number of days after 1970-01-01. The algorithm is from Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms". Years begin in March, so that the leap day is the
/// last day of the year.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let from_march_0000 = days + 719_468;
    let era = from_march_0000 / DAYS_IN_400_YEARS;
    let day_of_era = from_march_0000 % DAYS_IN_400_YEARS;
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, year) = match month_from_march {
        march_to_december @ 0..=9 => (march_to_december + 3, 0),
        january_and_february => (january_and_february - 9, 1),
    };
    (era * 400 + year_of_era + year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_seconds_are_formatted() {
        assert_eq!(format_rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(format_rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(format_rfc3339(MAX_EPOCH_SECS), "9999-12-31T23:59:59Z");
        assert_eq!(format_rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn rfc3339_timestamps_are_parsed() {
        for secs in [0, 951_827_696, 1_700_000_000, MAX_EPOCH_SECS] {
            assert_eq!(parse_rfc3339(&format_rfc3339(secs)), Some(secs));
        }
        let second = 1_700_000_000;
        let names =
            ["2023-11-14T23:13:20+01:00", "2023-11-14 22:13:20.999z", "2023-11-14t17:43:20-04:30"];
        for name in names {
            assert_eq!(parse_rfc3339(name), Some(second), "{name}");
        }
        let wrong = [
            "",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-13-14T22:13:20Z",
            "2023-02-30T00:00:00Z",
            "2023-11-00T22:13:20Z",
            "2023-11-14T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+1:00",
            "2023-11-14T22:13:20 01:00",
            "2023-11-14T22:13:20+01:00x",
            "+023-11-14T22:13:20Z",
            "2023-11-14T22:13:20é:00",
            "1970-01-01T00:00:00+00:01",
        ];
        for name in wrong {
            assert_eq!(parse_rfc3339(name), None, "{name}");
        }
    }

    #[test]
    fn civil_dates_advance_daily() {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let mut expected = (1970, 1, 1);
        for days in 0..=MAX_EPOCH_SECS / SECS_PER_DAY {
            assert_eq!(civil_from_days(days), expected);
            let (year, month, day) = expected;
            assert_eq!(super::days_from_civil(year, month, day), Some(days));
            let length = match month {
                2 => 28 + u64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert_eq!(expected, (10_000, 1, 1));
    }
}
