//! Formats numbers as the dashboard does. All numbers are integers: rates in thousandths per
//! second, shares in thousandths, latencies in nanoseconds.

use tidegate_server::output::escape_unprintable;

/// The rate of `count` events in `micros` microseconds, in thousandths per second.
pub(super) fn rate_per_second(count: u64, micros: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(micros.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// A share in thousandths; `None` if the whole is 0.
pub(super) fn share_permille(part: u64, whole: u64) -> Option<u64> {
    let share = u128::from(part.min(whole)) * 1_000;
    u64::try_from(share.checked_div(u128::from(whole))?).ok()
}

/// Formats a count; abbreviated from 100 000 on.
pub(super) fn format_count(number: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let unit = UNITS.into_iter().find(|(unit, _)| number >= *unit && number >= 100_000);
    unit.map_or_else(
        || number.to_string(),
        |(unit, name)| format!("{}.{}{name}", number / unit, number % unit / (unit / 10)),
    )
}

/// Formats a rate per second.
pub(super) fn format_rate(thousandths: u64) -> String {
    match thousandths {
        0 => "0".to_owned(),
        1..9_950 => format_tenths((thousandths + 50) / 100),
        more => format_count((more + 500) / 1_000),
    }
}

/// Formats a share as a percentage.
pub(super) fn format_percent(thousandths: Option<u64>) -> String {
    match thousandths {
        None => "–".to_owned(),
        Some(share @ 1..100) => format!("{}%", format_tenths(share)),
        Some(share) => format!("{}%", (share + 5) / 10),
    }
}

/// Formats a latency.
pub(super) fn format_latency(nanos: Option<u64>) -> String {
    match nanos {
        None => "–".to_owned(),
        Some(nanos @ 0..9_950) => format!("{} µs", format_tenths((nanos + 50) / 100)),
        Some(nanos @ 9_950..1_000_000) => format!("{} µs", (nanos + 500) / 1_000),
        Some(nanos @ 1_000_000..9_950_000) => {
            format!("{} ms", format_tenths((nanos + 50_000) / 100_000))
        }
        Some(nanos) => format!("{} ms", (nanos + 500_000) / 1_000_000),
    }
}

/// Formats an uptime.
pub(super) fn format_uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

fn format_tenths(number: u64) -> String {
    format!("{}.{}", number / 10, number % 10)
}

/// Formats the estimated count of a key. It is never too low, and too high by at most the number
/// after the minus. Also used by `tidegate keys`.
pub(in crate::commands::admin) fn format_estimate(count: u64, error: u64, spread: u64) -> String {
    let mut times = count.to_string();
    if error > 0 {
        times.push_str(&format!(" -{error}"));
    }
    if spread > 0 {
        times.push_str(&format!(" ±{spread}"));
    }
    times
}

/// The client behind a key. A rule that counts by no fact has one key, shared by all clients.
pub(in crate::commands::admin) fn format_key_owner(who: Option<&str>, key: &str) -> String {
    match who {
        Some("") => "all clients".to_owned(),
        who => escape_unprintable(who.unwrap_or(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_saturate() {
        assert_eq!(rate_per_second(30, 2_000_000), 15_000);
        assert_eq!(rate_per_second(1, 3_000_000), 333);
        assert_eq!(rate_per_second(u64::MAX, 1), u64::MAX);
        assert_eq!(
            (share_permille(1, 4), share_permille(0, 0), share_permille(9, 3)),
            (Some(250), None, Some(1_000))
        );
    }

    #[test]
    fn large_numbers_are_abbreviated() {
        assert_eq!(
            [0, 99_999, 100_000, 1_234_567].map(format_count),
            ["0", "99999", "100.0k", "1.2M"]
        );
        assert_eq!(
            [0, 333, 9_949, 9_950, 1_234_500].map(format_rate),
            ["0", "0.3", "9.9", "10", "1235"]
        );
        let shares = [None, Some(0), Some(4), Some(99), Some(100), Some(996), Some(1_000)];
        assert_eq!(shares.map(format_percent), ["–", "0%", "0.4%", "9.9%", "10%", "100%", "100%"]);
        let times = [None, Some(0), Some(4_230), Some(9_960), Some(1_500_000), Some(25_000_000)];
        assert_eq!(
            times.map(format_latency),
            ["–", "0.0 µs", "4.2 µs", "10 µs", "1.5 ms", "25 ms"]
        );
        assert_eq!([5, 65, 7_265, 90_061].map(format_uptime), ["5s", "1m 5s", "2h 1m", "1d 1h"]);
        assert_eq!(super::format_estimate(7, 0, 0), "7");
        assert_eq!(super::format_estimate(7, 2, 3), "7 -2 ±3");
    }

    #[test]
    fn key_owner_text_is_escaped() {
        assert_eq!(format_key_owner(Some("ip=192.0.2.7"), "ab"), "ip=192.0.2.7");
        assert_eq!(format_key_owner(Some(""), "ab"), "all clients");
        assert_eq!(format_key_owner(None, "ab"), "ab");
        assert_eq!(
            format_key_owner(Some("user_id=\u{1b}[2J\u{202e}x"), "ab"),
            "user_id=\\u{1b}[2J\\u{202e}x"
        );
    }
}
