//! Instants as people and JSON have them (RFC 3339, UTC), from whole numbers.

/// The last second that four digits can name the year of.
const LAST: u64 = 253_402_300_799;

const SECS_A_DAY: u64 = 86_400;

/// The name of the second that begins so many seconds after the epoch.
#[must_use]
pub fn rfc3339(epoch_secs: u64) -> String {
    let secs = epoch_secs.min(LAST);
    let (year, month, day) = civil(secs / SECS_A_DAY);
    let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    let mut name = String::with_capacity("1970-01-01T00:00:00Z".len());
    // Digit by digit: the formatting machinery takes longer than all else that a refusal says.
    for (number, then) in [
        (year / 100, ""),
        (year % 100, "-"),
        (month, "-"),
        (day, "T"),
        (hour, ":"),
        (minute, ":"),
        (second, "Z"),
    ] {
        name.extend([digit(number / 10), digit(number % 10)]);
        name.push_str(then);
    }
    name
}

fn digit(number: u64) -> char {
    // One of ten.
    char::from(b"0123456789"[(number % 10) as usize])
}

/// The seconds after the epoch that such a name is of: `2026-12-31T23:59:59Z`, an offset instead of the
/// `Z`, and parts of a second, which are left out. Years before 1970 are not known.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let number = |at: std::ops::Range<usize>| {
        let digits = text.get(at).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u64>().ok()
    };
    let bytes = text.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let marked = marks.into_iter().all(|(at, mark)| bytes.get(at) == Some(&mark));
    if !marked || !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let days = days(year, month, day).filter(|_| hour < 24 && minute < 60 && second < 60)?;
    let local = days * SECS_A_DAY + hour * 3_600 + minute * 60 + second;
    let rest = text.get(19..)?;
    let parts =
        rest.strip_prefix('.').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    match parts.filter(|left| left.len() + 1 < rest.len()).unwrap_or(rest) {
        "Z" | "z" => Some(local),
        offset => {
            let at = text.len() - offset.len();
            let (hours, minutes) = (number(at + 1..at + 3)?, number(at + 4..at + 6)?);
            if offset.len() != 6 || offset.as_bytes()[3] != b':' || hours > 23 || minutes > 59 {
                return None;
            }
            let ahead = hours * 3_600 + minutes * 60;
            match offset.as_bytes()[0] {
                b'+' => local.checked_sub(ahead),
                b'-' => Some(local + ahead),
                _ => None,
            }
        }
    }
}

/// How many days after 1970-01-01 a date is, if there is such a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (from_march, year) =
        if month > 2 { (month - 3, year) } else { (month + 9, year.checked_sub(1)?) };
    let day_of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let (era, year_of_era) = (year / 400, year % 400);
    let leap_days = year_of_era / 4 - year_of_era / 100;
    let days = era * 146_097 + year_of_era * 365 + leap_days + day_of_year;
    let days = days.checked_sub(719_468)?;
    // The thirtieth of February is somebody else's name.
    let (_, is_month, is_day) = civil(days);
    ((is_month, is_day) == (month, day)).then_some(days)
}

/// Year, month and day of so many days after 1970-01-01, after Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms": years begin in March, so that the leap day is the last.
const fn civil(days: u64) -> (u64, u64, u64) {
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
    fn instants_are_named() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(rfc3339(LAST), "9999-12-31T23:59:59Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn names_are_read() {
        for secs in [0, 951_827_696, 1_700_000_000, LAST] {
            assert_eq!(parse_rfc3339(&rfc3339(secs)), Some(secs));
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
    fn every_day_follows_the_one_before() {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let mut expected = (1970, 1, 1);
        for days in 0..=LAST / SECS_A_DAY {
            assert_eq!(civil(days), expected);
            let (year, month, day) = expected;
            assert_eq!(super::days(year, month, day), Some(days));
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
