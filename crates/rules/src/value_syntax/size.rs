//! Parses sizes such as `512B`, `1KiB`, `64KiB` and `1MB`.

use crate::diagnostic::FieldError;

const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

const EXAMPLE: &str = "a number with a unit, such as `512B`, `1KiB` or `1MB`";

/// Parses a number of bytes, which must not be zero.
pub(crate) fn parse(text: &str) -> Result<u64, FieldError> {
    let wrong = |message: &str| FieldError::new(message).with_found(text);
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && !number.is_empty() {
        let hint = format!("the unit as well: `{number}B`, `{number}KiB` or `{number}MiB`");
        return Err(wrong("a size needs a unit").with_hint(hint));
    }
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let size = number.parse::<u64>().ok().zip(unit).and_then(|(n, (_, u))| n.checked_mul(*u));
    match size {
        Some(0) => Err(wrong("a size must not be zero").with_hint(EXAMPLE)),
        Some(size) => Ok(size),
        None => Err(wrong("this is not a size").with_hint(EXAMPLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_or_give_hint() {
        for (text, bytes) in [("1KiB", 1_024), ("512B", 512), ("2mib", 2 << 20), ("3MB", 3_000_000)]
        {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
        for (text, hint) in [
            ("", "`1KiB`"),
            ("KiB", "`1KiB`"),
            ("1.5KiB", "`1KiB`"),
            ("-1KiB", "`1KiB`"),
            ("0KiB", "`1KiB`"),
            ("1024", "`1024B`"),
            ("1 KiB", "`1KiB`"),
            ("99999999999999GiB", "`1KiB`"),
        ] {
            let written = parse(text).unwrap_err().hint.unwrap();
            assert!(written.contains(hint), "{text}: {written}");
        }
    }
}
