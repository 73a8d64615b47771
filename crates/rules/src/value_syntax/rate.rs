//! Parses `rate_per_second` as an exact fraction: `0.5` is one request in two seconds. Does not use
//! floating point.

use tidegate_core::time::Micros;

use crate::diagnostic::FieldError;

/// Maximum number of decimals.
const MAX_DECIMALS: usize = 9;

/// A decimal number of requests per second, as the smallest whole numbers of requests and seconds.
pub(crate) fn parse(text: &str) -> Result<(u64, Micros), FieldError> {
    let wrong =
        |message: &str, hint: &str| FieldError::new(message).with_found(text).with_hint(hint);
    let malformed = || wrong("this is not a rate", "a decimal number such as `10` or `0.5`");
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = decimals.trim_end_matches('0');
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) {
        return Err(malformed());
    }
    if decimals.len() > MAX_DECIMALS {
        return Err(wrong("this rate has too many decimals", "at most 9 decimals"));
    }
    let places = u32::try_from(decimals.len()).map_err(|_| malformed())?;
    let seconds = 10_u64.pow(places);
    let too_large = || wrong("this rate is too large", "a smaller number");
    let requests: u64 = format!("{whole}{decimals}").parse().map_err(|_| too_large())?;
    if requests == 0 {
        return Err(wrong("a rate of zero admits nothing", "`requests: deny` if that is meant"));
    }
    let shared = common_divisor(requests, seconds);
    Ok((requests / shared, Micros::from_secs(seconds / shared)))
}

const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_rates_parse_exactly() {
        for (text, requests, seconds) in [
            ("10", 10, 1),
            ("0.5", 1, 2),
            ("2.5", 5, 2),
            ("0.1", 1, 10),
            ("10.0", 10, 1),
            ("0.000000001", 1, 1_000_000_000),
            ("33.333333333", 33_333_333_333, 1_000_000_000),
        ] {
            assert_eq!(parse(text).unwrap(), (requests, Micros::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn invalid_rates_are_rejected() {
        for text in
            ["", ".", ".5", "-1", "0", "0.0", "1e3", "NaN", "1.0000000001", "99999999999999999999"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
