//! Escapes client-chosen text for log lines: control characters, line ends, and invisible
//! characters such as direction marks. Neither log format does all of that by itself: JSON leaves
//! everything from U+007F on unescaped.

use std::borrow::Cow;

/// Escapes all hidden characters.
pub(super) fn escape_text(text: &str) -> Cow<'_, str> {
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

/// Whether a character is not visible as itself; `escape_debug` knows the Unicode categories.
fn is_hidden(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().next() == Some('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for plain in ["GET /api/items", "Zoë 東京 \"q\" 'a' \\", ""] {
            assert_eq!(escape_text(plain), plain);
        }
        for (hostile, shown) in [
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb\r", "a\\nb\\r"),
            ("\0\u{7f}\u{9b}31m", "\\0\\u{7f}\\u{9b}31m"),
            ("\u{202e}txt\u{2066}\u{200f}", "\\u{202e}txt\\u{2066}\\u{200f}"),
            ("\u{200b}\u{feff}\u{e0041}\u{2028}", "\\u{200b}\\u{feff}\\u{e0041}\\u{2028}"),
        ] {
            assert_eq!(escape_text(hostile), shown);
        }
    }
}
