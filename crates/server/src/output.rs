//! Answers on stdout: in colours on a terminal, plain when piped, JSON when asked for.

use std::io;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

/// What went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What should be looked at.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What was refused.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Names and headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// What may be skipped when reading.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Writes text; its colours are dropped where nobody would see them.
pub(crate) fn text(text: &str) -> io::Result<()> {
    written(anstream::stdout().lock(), text.as_bytes())
}

/// Writes one JSON value as a line.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    written(io::stdout().lock(), &bytes)
}

/// A reader that has seen enough, as `head` does, is no failure.
fn written(mut out: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Text from elsewhere that a terminal must not obey: what would move its cursor, turn the line round or not be seen is
/// written as `\u{202e}`.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_seen(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Whether a character is seen as itself. The library knows: it escapes what is not. Marks that belong to a letter it
/// escapes only where there is none.
fn is_seen(c: char) -> bool {
    let after_a_letter = ['a', c].iter().collect::<String>();
    matches!(c, '"' | '\'' | '\\') || after_a_letter.escape_debug().eq(after_a_letter.chars())
}

/// Rows as a table below a head that is not in the way.
pub(crate) fn table(indent: usize, rows: &[Vec<String>]) -> String {
    let table = columns(indent, rows);
    let (head, body) = table.split_once('\n').unwrap_or((&table, ""));
    format!("{DIM}{head}{DIM:#}\n{body}")
}

/// Rows as columns that line up, two spaces apart, each line indented.
pub(crate) fn columns(indent: usize, rows: &[Vec<String>]) -> String {
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width()).max();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let pad = width(at).unwrap_or(0).saturating_sub(cell.width());
            format!("{cell}{:pad$}", "")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("{:indent$}{}\n", "", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_all_else_is_as_it_was() {
        assert_eq!(
            printable("a\u{1b}[31m\u{202e}b\u{9b}\n\u{200b}"),
            "a\\u{1b}[31m\\u{202e}b\\u{9b}\\u{a}\\u{200b}"
        );
        let plain = "GET /api/* \"it's\" C:\\x 日本 e\u{301} 🙂 नमस्ते";
        assert_eq!(printable(plain), plain);
    }

    #[test]
    fn columns_line_up_under_wide_characters() {
        let rows = [["日本", "x"], ["abcd", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(0, &rows), "日本  x\nabcd  y\n");
    }
}
