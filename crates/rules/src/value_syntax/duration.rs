//! Parses durations such as `250ms`, `10s`, `5m`, `36h`, `1d`, `1w` and `1h30m`.
//!
//! Months and years are not supported, because they have no fixed length.

use tidegate_core::policy::MAX_WINDOW;
use tidegate_core::time::Micros;

use crate::diagnostic::FieldError;

const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

const EXAMPLE: &str = "a number with a unit, such as `250ms`, `10s`, `5m`, `36h`, `1d` or `1h30m`";

/// Parses a duration. It must not be zero or longer than the longest window.
///
/// # Errors
/// Why the text is invalid, and what to write instead.
pub fn parse(text: &str) -> Result<Micros, FieldError> {
    let wrong = |message: &str| FieldError::new(message).with_found(text);
    if text.is_empty() {
        return Err(wrong("a duration is missing here").with_hint(EXAMPLE));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let hint = format!("the unit as well: `{text}s`, `{text}m`, `{text}h` or `{text}d`");
        return Err(wrong("a duration needs a unit").with_hint(hint));
    }
    let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let (number, unit, after) = split_unit(rest);
        let size = unit_size(unit).map_err(|hint| {
            let hint = suggest_duration(text).map_or(hint, |meant| format!("`{meant}`"));
            wrong("this is not a duration").with_hint(hint)
        })?;
        let number: u64 = number.parse().map_err(|_| match number {
            "" => wrong("this is not a duration").with_hint(EXAMPLE),
            _ => too_long(text),
        })?;
        if size >= last {
            let message = "the units of a duration go from large to small, each once";
            return Err(wrong(message).with_hint("for instance `1h30m`"));
        }
        last = size;
        total = number
            .checked_mul(size)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| too_long(text))?;
        rest = after;
    }
    match Micros::new(total) {
        Micros::ZERO => Err(wrong("a duration must not be zero").with_hint(EXAMPLE)),
        span if span > MAX_WINDOW => Err(too_long(text)),
        span => Ok(span),
    }
}

/// The unit of a rate such as `10/min`: a word without a number.
pub(crate) fn parse_window_word(word: &str) -> Option<Micros> {
    let size = match word {
        "s" | "sec" | "second" => 1_000_000,
        "m" | "min" | "minute" => 60_000_000,
        "h" | "hour" => 3_600_000_000,
        "d" | "day" => 86_400_000_000,
        _ => return None,
    };
    Some(Micros::new(size))
}

/// The unit in rates for a word such as `minutes`.
pub(crate) fn unit_for_word(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "min",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "day",
        _ => return None,
    })
}

/// The duration that the user probably meant by `1sec` or `5 minutes`.
pub(crate) fn suggest_duration(text: &str) -> Option<String> {
    let (number, unit, rest) = split_unit(text);
    // `M` may mean months.
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "m" if unit.trim() == "M" => return None,
        "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => "ms",
        "week" | "weeks" | "wk" => "w",
        word => match unit_for_word(word)? {
            "min" => "m",
            "day" => "d",
            unit => unit,
        },
    };
    (rest.is_empty() && !number.is_empty()).then(|| format!("{number}{unit}"))
}

fn split_unit(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    (number, unit, rest)
}

fn unit_size(unit: &str) -> Result<u64, String> {
    if let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Ok(*size);
    }
    Err(match unit {
        "M" | "mo" | "mon" | "month" | "months" | "Mo" => {
            "days, such as `30d` (months differ in length), or `m` for minutes".to_owned()
        }
        "y" | "Y" | "yr" | "year" | "years" => {
            "days, such as `365d` (years differ in length)".to_owned()
        }
        "" => "a unit after every number, such as `1h30m`".to_owned(),
        _ if unit.contains('.') || unit.contains(',') => {
            "whole numbers: `1500ms` rather than `1.5s`".to_owned()
        }
        _ => EXAMPLE.to_owned(),
    })
}

fn too_long(text: &str) -> FieldError {
    FieldError::new("this is longer than the longest window")
        .with_found(text)
        .with_hint("at most `52124d`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_to_the_microsecond() {
        for (text, micros) in [
            ("1us", 1),
            ("250ms", 250_000),
            ("10s", 10_000_000),
            ("5m", 300_000_000),
            ("36h", 129_600_000_000),
            ("1d", 86_400_000_000),
            ("1w", 604_800_000_000),
            ("1h30m", 5_400_000_000),
            ("1d12h30m15s500ms", 131_415_500_000),
            ("52124d", 4_503_513_600_000_000),
        ] {
            assert_eq!(parse(text).unwrap(), Micros::new(micros), "{text}");
        }
    }

    #[test]
    fn invalid_duration_error_has_hint() {
        for (text, hint) in [
            ("60", "`60s`"),
            ("", "`10s`"),
            ("1M", "30d"),
            ("1mo", "30d"),
            ("1y", "365d"),
            ("1.5s", "1500ms"),
            ("1x", "`10s`"),
            ("0s", "`10s`"),
            ("-1s", "`10s`"),
            ("s", "`10s`"),
            ("1h30", "after every number"),
            ("30m1h", "1h30m"),
            ("1s1s", "1h30m"),
            ("1 s", "`1s`"),
            ("1sec", "`1s`"),
            ("5 minutes", "`5m`"),
            ("2Days", "`2d`"),
            ("300msec", "`300ms`"),
            ("52125d", "52124d"),
            ("99999999999999999999s", "52124d"),
            ("18446744073709551615w", "52124d"),
            ("١s", "`10s`"),
        ] {
            let error = parse(text).unwrap_err();
            let written = error.hint.unwrap();
            assert!(written.contains(hint), "{text}: {written}");
        }
    }
}
