//! Fits text into cells of a given width: escapes it, measures its terminal width, and truncates or
//! pads it. Also draws numbers as bars.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use tidegate_server::output::escape_unprintable;

/// The alignment of text in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellAlignment {
    Left,
    Right,
}

/// Bars from one eighth to eight eighths of a cell.
const BAR_CHARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Escapes untrusted text and fits it into exactly `columns` columns.
pub(super) fn fit_to_width(text: &str, columns: usize, alignment: CellAlignment) -> String {
    let text = truncate(&escape_unprintable(text), columns);
    let padding = " ".repeat(columns.saturating_sub(text.width()));
    match alignment {
        CellAlignment::Left => text + &padding,
        CellAlignment::Right => padding + &text,
    }
}

/// Truncates text that is too wide and appends an ellipsis. Never splits a wide character.
fn truncate(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (mut kept, mut width) = (String::new(), 0);
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width >= columns {
            break;
        }
        kept.push(c);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// The height of a bar, in eighths of a row, if `highest` fills `rows` rows. Numbers above 0 have
/// at least one eighth.
pub(super) fn bar_eighths(number: u64, highest: u64, rows: u64) -> u64 {
    let all = u128::from(rows * 8);
    let part = (u128::from(number) * all).div_ceil(u128::from(highest.max(1))).min(all);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The character for a bar of `eighths` eighths.
pub(super) fn bar_char(eighths: u64) -> char {
    match usize::try_from(eighths).unwrap_or(usize::MAX) {
        0 => ' ',
        some => BAR_CHARS[some.min(BAR_CHARS.len()) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_or_truncated() {
        assert_eq!(fit_to_width("ab", 4, CellAlignment::Left), "ab  ");
        assert_eq!(fit_to_width("ab", 4, CellAlignment::Right), "  ab");
        assert_eq!(fit_to_width("abcdef", 4, CellAlignment::Left), "abc…");
        assert_eq!(fit_to_width("ab", 0, CellAlignment::Left), "");
        assert_eq!(fit_to_width("", 2, CellAlignment::Left), "  ");
    }

    #[test]
    fn wide_characters_are_never_split() {
        assert_eq!(fit_to_width("日本", 5, CellAlignment::Left), "日本 ");
        assert_eq!(fit_to_width("日本語", 5, CellAlignment::Left), "日本…");
        assert_eq!(fit_to_width("日本語", 4, CellAlignment::Left), "日… ");
        assert_eq!(fit_to_width("e\u{301}t\u{e9}", 4, CellAlignment::Left), "e\u{301}t\u{e9} ");
    }

    #[test]
    fn control_characters_are_escaped() {
        for hostile in ["\u{1b}[2J", "a\nb", "\u{202e}abc", "\u{200f}", "\u{9b}31m", "\r", "\u{7f}"]
        {
            let shown = fit_to_width(hostile, 20, CellAlignment::Left);
            assert!(shown.starts_with(['\\', 'a']) && shown.is_ascii(), "{shown:?}");
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn bars_scale_to_highest_value() {
        assert_eq!([0, 1, 500, 1_000].map(|number| bar_eighths(number, 1_000, 1)), [0, 1, 4, 8]);
        assert_eq!(bar_eighths(1_000, 1_000, 4), 32);
        assert_eq!(bar_eighths(7, 0, 1), 8);
        assert_eq!([0, 1, 8, 99].map(bar_char), [' ', '▁', '█', '█']);
    }
}
