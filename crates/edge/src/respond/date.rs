//! Instants as people and JSON have them (RFC 3339, UTC), from whole numbers.

/// The last second that four digits can name the year of.
const LAST: u64 = 253_402_300_799;

const SECS_A_DAY: u64 = 86_400;

/// The name of the second that begins so many seconds after the epoch.
pub(super) fn rfc3339(epoch_secs: u64) -> String {
    let secs = epoch_secs.min(LAST);
    let (year, month, day) = civil(secs / SECS_A_DAY);
    let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
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
    fn every_day_follows_the_one_before() {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let mut expected = (1970, 1, 1);
        for days in 0..=LAST / SECS_A_DAY {
            assert_eq!(civil(days), expected);
            let (year, month, day) = expected;
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
