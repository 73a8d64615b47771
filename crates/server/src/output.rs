//! Command output on stdout: colored on a terminal, plain when piped, JSON on request.

use std::io;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// Style for success.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style for warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style for refusals and errors.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style for names and headings.
pub const BOLD: Style = Style::new().bold();
/// Style for secondary information.
pub const DIM: Style = Style::new().dimmed();

/// Prints text; colors are removed if stdout is not a terminal.
pub fn print_text(text: &str) -> io::Result<()> {
    write_ignoring_closed_pipe(anstream::stdout().lock(), text.as_bytes())
}

/// Prints one JSON value as a line.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    write_ignoring_closed_pipe(io::stdout().lock(), &bytes)
}

/// Ignores a closed pipe: a reader such as `head` may stop early.
fn write_ignoring_closed_pipe(mut out: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Makes untrusted text safe for a terminal. Escapes characters that move the cursor, reverse the
/// text direction or are invisible, for example as `\u{202e}`.
pub fn escape_unprintable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_visible(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Whether a character is printed as itself. `escape_debug` decides; it escapes combining marks
/// only when no letter precedes them, hence the leading letter.
fn is_visible(c: char) -> bool {
    let after_a_letter = ['a', c].iter().collect::<String>();
    matches!(c, '"' | '\'' | '\\') || after_a_letter.escape_debug().eq(after_a_letter.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(
            escape_unprintable("a\u{1b}[31m\u{202e}b\u{9b}\n\u{200b}"),
            "a\\u{1b}[31m\\u{202e}b\\u{9b}\\u{a}\\u{200b}"
        );
        let plain = "GET /api/* \"it's\" C:\\x 日本 e\u{301} 🙂 नमस्ते";
        assert_eq!(escape_unprintable(plain), plain);
    }
}
