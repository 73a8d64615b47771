//! Parses shorthand limits: `N/WINDOW [by KEY] [burst B] [using ALGORITHM]`.

use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::time::Micros;

use super::{duration, rate};
use crate::decode::nearest;
use crate::diagnostic::FieldError;

const SHORTHAND_SYNTAX: &str =
    "`N/WINDOW [by KEY] [burst B] [using ALGORITHM]`, such as `100/min by ip burst 20`";

/// The names of the algorithms in rules, case-insensitive.
pub(crate) const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket(LeakMode::Police)),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window_log", Algorithm::SlidingWindowLog),
    ("sliding_window_counter", Algorithm::SlidingWindowCounter),
    ("sliding_window", Algorithm::SlidingWindowCounter),
];

/// A parsed shorthand limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitShorthand<'t> {
    pub(crate) requests: u64,
    pub(crate) window: Micros,
    pub(crate) key: Option<&'t str>,
    pub(crate) burst: Option<u64>,
    pub(crate) algorithm: Option<Algorithm>,
}

impl<'t> LimitShorthand<'t> {
    pub(crate) fn parse(text: &'t str) -> Result<Self, FieldError> {
        if let Some(meant) = suggest_shorthand(text) {
            return Err(
                error_with_found("this is not a limit", text).with_hint(format!("`{meant}`"))
            );
        }
        let mut words = text.split_whitespace();
        let rate = words.next().unwrap_or_default();
        let (requests, window) =
            rate.split_once('/').ok_or_else(|| match duration::suggest_duration(text) {
                Some(window) => error_with_found("the number of requests is missing", text)
                    .with_hint(format!("`100/{window}` for 100 of them")),
                None => error_with_found("this is not a limit", text).with_hint(SHORTHAND_SYNTAX),
            })?;
        let requests = parse_requests(requests, window)?;
        let mut limit = Self {
            requests,
            window: parse_window(window)?,
            key: None,
            burst: None,
            algorithm: None,
        };
        while let Some(word) = words.next() {
            let value = words.next();
            let is_duplicate = match word {
                "by" => limit.key.replace(require_value(value, "`by`", "`by ip`")?).is_some(),
                "burst" => {
                    let burst = parse_number(require_value(value, "`burst`", "`burst 20`")?)?;
                    limit.burst.replace(burst).is_some()
                }
                "using" => {
                    let name = require_value(value, "`using`", "`using token_bucket`")?;
                    limit.algorithm.replace(parse_algorithm(name)?).is_some()
                }
                _ => {
                    let hint = nearest(word, ["by", "burst", "using"]);
                    let hint = hint.map_or(SHORTHAND_SYNTAX.to_owned(), |near| format!("`{near}`"));
                    return Err(error_with_found("unknown word in a limit", word).with_hint(hint));
                }
            };
            if is_duplicate {
                return Err(error_with_found("this is set twice", word).with_hint("it once"));
            }
        }
        Ok(limit)
    }
}

/// The limit that the user probably meant by `100 per minute`, `10rps` or `5 requests/s`.
fn suggest_shorthand(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?;
    let (number, rest) = lower.split_at(digits);
    let mut words = rest.split_whitespace();
    let mut word = words.next()?;
    for (unit, window) in [("rps", "s"), ("qps", "s"), ("rpm", "min"), ("rph", "h"), ("rpd", "day")]
    {
        if word == unit {
            return Some(join_words(&format!("{number}/{window}"), words));
        }
    }
    let counted = ["requests", "request", "reqs", "req", "calls", "hits", "r"];
    let named = counted.iter().find_map(|name| word.strip_prefix(name));
    word = match named {
        Some("") => words.next()?,
        Some(rest) => rest,
        None => word,
    };
    let window = match word {
        "per" | "a" | "an" | "each" | "every" => words.next()?,
        // `10/s` is already valid.
        _ => word.strip_prefix('/').filter(|_| named.is_some())?,
    };
    let unit = duration::unit_for_word(window)?;
    Some(join_words(&format!("{number}/{unit}"), words))
}

fn join_words<'w>(limit: &'w str, rest: impl Iterator<Item = &'w str>) -> String {
    std::iter::once(limit).chain(rest).collect::<Vec<_>>().join(" ")
}

/// Parses the number of requests, with hints for negative numbers, fractions and zero.
fn parse_requests(text: &str, window: &str) -> Result<u64, FieldError> {
    if let Some(positive) = text.strip_prefix('-').filter(|rest| parse_number(rest).is_ok()) {
        let error = error_with_found("a limit is not negative", text);
        return Err(error.with_hint(format!("`{positive}/{window}`")));
    }
    if text.contains('.')
        && matches!(window, "s" | "sec" | "second")
        && let Ok((requests, seconds)) = rate::parse(text)
    {
        let error = error_with_found("this is not a whole number", text);
        return Err(error.with_hint(format!("`{requests}/{seconds}`")));
    }
    match parse_number(text)? {
        0 => {
            let error = error_with_found("a limit of zero admits nothing", text);
            Err(error.with_hint(format!(
                "at least `1/{window}`; in a document `limit: deny` refuses all"
            )))
        }
        requests => Ok(requests),
    }
}

fn error_with_found(message: &str, found: &str) -> FieldError {
    FieldError::new(message).with_found(found)
}

fn require_value<'t>(
    value: Option<&'t str>,
    name: &str,
    example: &str,
) -> Result<&'t str, FieldError> {
    value.ok_or_else(|| FieldError::new(format!("nothing follows {name}")).with_hint(example))
}

fn parse_number(text: &str) -> Result<u64, FieldError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        error_with_found("this is not a whole number", text).with_hint(SHORTHAND_SYNTAX)
    })
}

fn parse_window(text: &str) -> Result<Micros, FieldError> {
    match duration::parse_window_word(text) {
        Some(span) => Ok(span),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => duration::parse(text),
        None => {
            if let Some(unit) = duration::unit_for_word(text) {
                return Err(
                    error_with_found("this is not a window", text).with_hint(format!("`{unit}`"))
                );
            }
            let hint = "`s`, `min`, `h`, `day` or a duration such as `5m`";
            Err(error_with_found("this is not a window", text).with_hint(hint))
        }
    }
}

fn parse_algorithm(name: &str) -> Result<Algorithm, FieldError> {
    let known = ALGORITHMS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        let names = ALGORITHMS.map(|(name, _)| name);
        let near = nearest(name, names).unwrap_or("token_bucket");
        error_with_found("unknown algorithm", name).with_hint(format!("`{near}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorthand_parses_every_clause() {
        let limit = LimitShorthand::parse("100/5m by user_id:endpoint burst 20 using Leaky_Bucket")
            .unwrap();
        assert_eq!((limit.requests, limit.window), (100, Micros::from_secs(300)));
        assert_eq!((limit.key, limit.burst), (Some("user_id:endpoint"), Some(20)));
        assert_eq!(limit.algorithm, Some(Algorithm::LeakyBucket(LeakMode::Police)));
        for (text, seconds) in [
            ("1/s", 1),
            ("1/sec", 1),
            ("1/second", 1),
            ("1/m", 60),
            ("1/min", 60),
            ("1/minute", 60),
            ("1/h", 3_600),
            ("1/hour", 3_600),
            ("1/d", 86_400),
            ("1/day", 86_400),
            ("1/1h30m", 5_400),
        ] {
            let limit = LimitShorthand::parse(text).unwrap();
            assert_eq!((limit.window, limit.key), (Micros::from_secs(seconds), None), "{text}");
        }
    }

    #[test]
    fn invalid_shorthand_error_has_hint() {
        for (text, hint) in [
            ("", "N/WINDOW"),
            ("100", "N/WINDOW"),
            ("x/s", "N/WINDOW"),
            ("-5/s", "`5/s`"),
            ("0/s", "`limit: deny`"),
            ("1sec", "`100/1s`"),
            ("0.5/s", "`1/2s`"),
            ("100 per minute", "`100/min`"),
            ("100 per minute by ip", "`100/min by ip`"),
            ("100 requests per hour", "`100/h`"),
            ("10rps", "`10/s`"),
            ("10 RPM burst 5", "`10/min burst 5`"),
            ("10req/s", "`10/s`"),
            ("10/seconds", "`s`"),
            ("10/1sec", "`1s`"),
            ("10/fortnight", "`min`"),
            ("10/1M", "30d"),
            ("10/60", "`60s`"),
            ("10/s by", "`by ip`"),
            ("10/s brust 5", "`burst`"),
            ("10/s burst", "`burst 20`"),
            ("10/s burst x", "N/WINDOW"),
            ("10/s burst 1 burst 2", "once"),
            ("10/s using tokenbucket", "`token_bucket`"),
            ("10/s please stop", "N/WINDOW"),
        ] {
            let written = LimitShorthand::parse(text).unwrap_err().hint.unwrap();
            assert!(written.contains(hint), "{text}: {written}");
        }
    }
}
