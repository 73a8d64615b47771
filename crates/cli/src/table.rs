//! Tables and aligned columns in command output.

use tidegate_server::output::DIM;
use unicode_width::UnicodeWidthStr as _;

/// Formats rows as a table; the first row is a dimmed header.
pub(crate) fn format_table(indent: usize, rows: &[Vec<String>]) -> String {
    let table = format_columns(indent, rows);
    let (head, body) = table.split_once('\n').unwrap_or((&table, ""));
    format!("{DIM}{head}{DIM:#}\n{body}")
}

/// Formats rows as aligned columns, two spaces apart, each line indented.
pub(crate) fn format_columns(indent: usize, rows: &[Vec<String>]) -> String {
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
    fn columns_align_under_wide_characters() {
        let rows = [["日本", "x"], ["abcd", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(format_columns(0, &rows), "日本  x\nabcd  y\n");
    }
}
