//! The keys with the most refusals and those with the most requests, side by side to save rows.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use unicode_width::UnicodeWidthStr as _;

use super::super::api_types::LiveKey;
use super::super::cell_text::{CellAlignment, fit_to_width};
use super::super::formatting::{format_estimate, format_key_owner};
use super::super::snapshot::TopSnapshot;
use super::super::view::ViewState;
use super::Palette;
use tidegate_server::output::escape_unprintable;

/// Width of the count column.
const COUNT_WIDTH: usize = 10;

/// The names of the lists in the API, and their headings.
const LISTS: [(&str, &str); 2] = [("refused", "REFUSED MOST"), ("busiest", "BUSIEST")];

/// Draws both lists.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    at: Rect,
    snapshot: &TopSnapshot,
    view: &ViewState,
    palette: Palette,
) {
    let halves: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(1).areas(at);
    for ((kind, name), half) in LISTS.into_iter().zip(halves) {
        let (width, keys) = (usize::from(half.width), view.visible_keys(snapshot, kind));
        let head = format!("{} {name}", fit_to_width("TIMES", COUNT_WIDTH, CellAlignment::Right));
        let mut lines =
            vec![Line::styled(fit_to_width(&head, width, CellAlignment::Left), palette.head())];
        lines.extend(rows(&keys, width, palette));
        if keys.is_empty() {
            lines.push(Line::styled(
                fit_to_width("none", width, CellAlignment::Left),
                palette.dim(),
            ));
        }
        frame.render_widget(Text::from(lines), half);
    }
}

/// The rows: count, client and rule. The rule gets at most a third of the width.
fn rows(keys: &[&LiveKey], width: usize, palette: Palette) -> Vec<Line<'static>> {
    let room = width.saturating_sub(COUNT_WIDTH + 2);
    let rule = keys.iter().map(|key| escape_unprintable(&key.rule).width()).max().unwrap_or(0);
    let rule = rule.min(room / 3);
    let row = |key: &&LiveKey| {
        let times = fit_to_width(
            &format_estimate(key.count, key.error, key.spread),
            COUNT_WIDTH,
            CellAlignment::Right,
        );
        let name = fit_to_width(
            &format_key_owner(key.client.as_deref(), &key.key),
            room - rule,
            CellAlignment::Left,
        );
        let rule = Span::styled(fit_to_width(&key.rule, rule, CellAlignment::Left), palette.dim());
        Line::from(vec![Span::raw(format!("{times} {name} ")), rule])
    };
    keys.iter().map(row).collect()
}
