//! Text that a client chose, as a log line may have it: what a terminal would obey, what ends a line and what cannot
//! be seen (marks that turn the direction of writing) is written as an escape. Neither format of the log does all of
//! that by itself: JSON leaves everything from U+007F on as it is.

use std::borrow::Cow;

/// The same text, of which everything is seen and nothing obeyed.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether it is not plainly seen; the standard library knows the categories of Unicode.
fn is_hidden(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().next() == Some('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_obeyed_or_unseen_is_escaped_and_the_rest_stays() {
        for plain in ["GET /api/items", "Zoë 東京 \"q\" 'a' \\", ""] {
            assert_eq!(escaped(plain), plain);
        }
        for (hostile, shown) in [
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb\r", "a\\nb\\r"),
            ("\0\u{7f}\u{9b}31m", "\\0\\u{7f}\\u{9b}31m"),
            ("\u{202e}txt\u{2066}\u{200f}", "\\u{202e}txt\\u{2066}\\u{200f}"),
            ("\u{200b}\u{feff}\u{e0041}\u{2028}", "\\u{200b}\\u{feff}\\u{e0041}\\u{2028}"),
        ] {
            assert_eq!(escaped(hostile), shown);
        }
    }
}
