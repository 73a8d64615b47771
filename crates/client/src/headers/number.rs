//! Parses numbers of headers.

/// The largest Integer of RFC 9651. Larger numbers are read as this one, so that sums of them
/// cannot overflow.
const MAX_NUMBER: u64 = 999_999_999_999_999;

/// Parses a number that is not negative, such as `12` or `12.5`, and drops its fraction. `None` for
/// everything else, such as a sign, an exponent or `NaN`.
pub(super) fn parse(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t']);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    // Only a number that is too large fails here.
    Some(whole.parse().unwrap_or(MAX_NUMBER).min(MAX_NUMBER))
}

/// Parses a number and rounds a fraction up, for a wait that must not end early.
pub(super) fn parse_rounded_up(text: &str) -> Option<u64> {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    let is_fractional = fraction.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
    Some(parse(text)? + u64::from(is_fractional))
}
