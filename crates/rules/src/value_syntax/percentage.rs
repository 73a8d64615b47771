//! Parses percentages such as `50%` and `33.3%`.

use std::fmt;

use crate::diagnostic::FieldError;

const EXAMPLE: &str = "a percentage with at most four decimals, such as `50%` or `33.3%`";

/// One hundred percent, in millionths.
const WHOLE: u32 = 1_000_000;

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentage(u32);

impl Percentage {
    /// 0 %.
    pub const ZERO: Self = Self(0);

    /// 50 %.
    pub(crate) const FIFTY: Self = Self(WHOLE / 2);

    /// 100 %.
    pub const ONE_HUNDRED: Self = Self(WHOLE);

    /// Parses a percentage from 0 % to 100 %.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = |message: &str| FieldError::new(message).with_found(text).with_hint(EXAMPLE);
        let Some(number) = text.strip_suffix('%') else {
            return Err(wrong("a percentage ends with `%`"));
        };
        let (whole, decimals) =
            number.trim_end().split_once('.').unwrap_or((number.trim_end(), "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(decimals) || whole.len() > 3 || decimals.len() > 4 {
            return Err(wrong("this is not a percentage"));
        }
        let millionths = format!("{whole}{decimals:0<4}").parse().unwrap_or(u32::MAX);
        match Self(millionths) {
            share if share <= Self::ONE_HUNDRED => Ok(share),
            _ => Err(wrong("this is more than 100 %")),
        }
    }

    /// This part of a number, rounded down.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / u128::from(WHOLE);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The smallest number of which this part is at least `part`.
    pub(crate) fn whole_of(self, part: u64) -> u64 {
        let whole = (u128::from(part) * u128::from(WHOLE)).div_ceil(u128::from(self.0.max(1)));
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// The largest percentage without decimals, of which `whole` has at most `part`.
    pub(crate) fn of_ratio(part: u64, whole: u64) -> Self {
        let percent = u128::from(part) * 100 / u128::from(whole.max(1));
        Self(u32::try_from(percent.min(100)).unwrap_or(100) * (WHOLE / 100))
    }

    /// The sum, which may exceed 100 %.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or 0 %.
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.0 / 10_000, format!("{:04}", self.0 % 10_000));
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            decimals => write!(f, "{whole}.{decimals}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_parse_or_give_hint() {
        for (text, millionths) in
            [("50%", 500_000), ("33.3%", 333_000), ("0.0001%", 1), ("100 %", 1_000_000), ("0%", 0)]
        {
            assert_eq!(Percentage::parse(text).unwrap(), Percentage(millionths), "{text}");
        }
        for text in ["", "%", "50", "0.5", "100.0001%", "101%", "-1%", "1.%", ".5%", "1.00001%"] {
            let error = Percentage::parse(text).unwrap_err();
            assert!(error.hint.unwrap().contains("`50%`"), "{text}");
        }
    }

    #[test]
    fn part_of_number_is_rounded_down() {
        let third = Percentage::parse("33.3333%").unwrap();
        assert_eq!((third.of(10), third.of(3), third.of(u64::MAX)), (3, 0, 6148908542321825968));
        assert_eq!(Percentage::ONE_HUNDRED.of(u64::MAX), u64::MAX);
    }

    #[test]
    fn whole_is_smallest_with_that_part() {
        for (share, part) in [("33.3333%", 10), ("50%", 7), ("0.0001%", 3), ("100%", 9)] {
            let share = Percentage::parse(share).unwrap();
            let whole = share.whole_of(part);
            assert!(share.of(whole) >= part && share.of(whole - 1) < part, "{share} {part}");
        }
    }

    #[test]
    fn ratio_is_rounded_down_to_whole_percent() {
        for (part, whole, expected) in [(1, 3, "33%"), (5, 5, "100%"), (9, 5, "100%"), (0, 0, "0%")]
        {
            assert_eq!(Percentage::of_ratio(part, whole).to_string(), expected);
        }
    }

    #[test]
    fn percentage_prints_as_it_is_written() {
        for text in ["50%", "33.3%", "0.0001%", "100%", "12.05%"] {
            assert_eq!(Percentage::parse(text).unwrap().to_string(), text);
        }
    }
}
