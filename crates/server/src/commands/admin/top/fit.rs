//! Text in a cell of so many columns: escaped, measured as a terminal measures it, cut or padded; and numbers as
//! bars.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::output::printable;

/// The side of a cell that text stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Bars of an eighth to eight eighths.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Text that others wrote, in exactly so many columns.
pub(super) fn fit(text: &str, columns: usize, side: Side) -> String {
    let text = cut(&printable(text), columns);
    let room = " ".repeat(columns.saturating_sub(text.width()));
    match side {
        Side::Left => text + &room,
        Side::Right => room + &text,
    }
}

/// The beginning of a text that is too long, with a sign that it goes on. A wide character is not cut in two.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (mut kept, mut taken) = (String::new(), 0);
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken >= columns {
            break;
        }
        kept.push(c);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// How many eighths of so many rows a number takes, of the highest there is; what is there at all takes one.
pub(super) fn eighths(number: u64, highest: u64, rows: u64) -> u64 {
    let all = u128::from(rows * 8);
    let part = (u128::from(number) * all).div_ceil(u128::from(highest.max(1))).min(all);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// A bar of so many eighths.
pub(super) fn bar(eighths: u64) -> char {
    match usize::try_from(eighths).unwrap_or(usize::MAX) {
        0 => ' ',
        some => BARS[some.min(BARS.len()) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_takes_the_columns_that_it_is_given() {
        assert_eq!(fit("ab", 4, Side::Left), "ab  ");
        assert_eq!(fit("ab", 4, Side::Right), "  ab");
        assert_eq!(fit("abcdef", 4, Side::Left), "abc…");
        assert_eq!(fit("ab", 0, Side::Left), "");
        assert_eq!(fit("", 2, Side::Left), "  ");
    }

    #[test]
    fn wide_characters_take_two_columns_and_are_not_cut_in_two() {
        assert_eq!(fit("日本", 5, Side::Left), "日本 ");
        assert_eq!(fit("日本語", 5, Side::Left), "日本…");
        assert_eq!(fit("日本語", 4, Side::Left), "日… ");
        assert_eq!(fit("e\u{301}t\u{e9}", 4, Side::Left), "e\u{301}t\u{e9} ");
    }

    #[test]
    fn nothing_that_others_wrote_moves_the_cursor_or_turns_the_line() {
        for hostile in ["\u{1b}[2J", "a\nb", "\u{202e}abc", "\u{200f}", "\u{9b}31m", "\r", "\u{7f}"]
        {
            let shown = fit(hostile, 20, Side::Left);
            assert!(shown.starts_with(['\\', 'a']) && shown.is_ascii(), "{shown:?}");
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn bars_are_of_the_highest_and_the_least_is_seen() {
        assert_eq!([0, 1, 500, 1_000].map(|number| eighths(number, 1_000, 1)), [0, 1, 4, 8]);
        assert_eq!(eighths(1_000, 1_000, 4), 32);
        assert_eq!(eighths(7, 0, 1), 8);
        assert_eq!([0, 1, 8, 99].map(bar), [' ', '▁', '█', '█']);
    }
}
