//! Help for the keys: a summary in the footer, and a dialog with all keys.

use ratatui::Frame;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Block;

use super::super::view::ViewState;
use super::{Palette, clear_centered};
use tidegate_server::output::escape_unprintable;

const HELP_KEYS: [(&str, &str); 9] = [
    ("s  >  <", "sort by the next or previous column"),
    ("r", "reverse the order"),
    ("/", "show only rows that contain a text; Enter keeps the filter"),
    ("Esc", "clear the filter"),
    ("p  Space", "pause / resume"),
    ("↑ ↓  j k", "move through the rules; also Page Up and Down, Home"),
    ("?  h", "this help"),
    ("q  Ctrl-C", "quit"),
    ("", "any key closes this help"),
];

/// The footer: the filter while it is typed, otherwise the most important keys.
pub(super) fn footer_line(view: &ViewState, palette: Palette) -> Line<'static> {
    if view.is_typing {
        let typed = format!("/{}", escape_unprintable(&view.filter));
        return Line::from(vec![
            Span::styled(typed, palette.bold()),
            Span::raw("█ Enter keeps, Esc clears"),
        ]);
    }
    let mut spans =
        vec![Span::styled("q quit  ? help  s sort  r reverse  / filter  p pause", palette.dim())];
    if !view.filter.is_empty() {
        let filter = format!("filter: {} (Esc clears)  ", escape_unprintable(&view.filter));
        spans.insert(0, Span::styled(filter, palette.bold()));
    }
    Line::from(spans)
}

/// Draws the dialog with all keys.
pub(super) fn draw(frame: &mut Frame<'_>, palette: Palette) {
    let lines = HELP_KEYS.map(|(keys, what)| {
        Line::from(vec![Span::styled(format!(" {keys:<10} "), palette.bold()), Span::raw(what)])
    });
    let area = clear_centered(frame, 72, u16::try_from(lines.len()).unwrap_or(u16::MAX) + 2);
    let block = Block::bordered().title(" Keys ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    frame.render_widget(Text::from(lines.to_vec()), inner);
}
