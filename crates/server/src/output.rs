//! Answers on stdout: in colours on a terminal, plain when piped, JSON when asked for.

use std::io;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// What went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
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

/// Text from elsewhere that a terminal must not obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// Rows as a table below a head that is not in the way.
pub(crate) fn table(indent: usize, rows: &[Vec<String>]) -> String {
    let table = columns(indent, rows);
    let (head, body) = table.split_once('\n').unwrap_or((&table, ""));
    format!("{DIM}{head}{DIM:#}\n{body}")
}

/// Rows as columns that line up, two spaces apart, each line indented.
pub(crate) fn columns(indent: usize, rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max()
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let pad = width(at).unwrap_or(0).saturating_sub(cell.chars().count());
            format!("{cell}{:pad$}", "")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("{:indent$}{}\n", "", line.trim_end()));
    }
    text
}
