//! Draws the screen from a snapshot and the view settings. This file divides the screen into
//! sections; the submodules draw them. Nothing here reads the terminal or computes numbers.

mod chart;
mod header;
mod help;
mod keys;
mod palette;
mod rules;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Clear;

use super::snapshot::TopSnapshot;
use super::view::ViewState;
pub(super) use palette::Palette;

/// Draws the screen. `snapshot` is `None` until the first tick.
pub(super) fn draw_screen(
    frame: &mut Frame<'_>,
    snapshot: Option<&TopSnapshot>,
    view: &ViewState,
    palette: Palette,
) {
    let ScreenLayout { head, chart, times, rules, keys, foot } =
        ScreenLayout::split_area(frame.area());
    if let Some(snapshot) = snapshot {
        header::draw(frame, head, snapshot, view, palette);
        chart::draw(frame, chart, snapshot, palette);
        let line = chart::latency_line(snapshot, times.width, palette);
        frame.render_widget(line, times);
        rules::draw(frame, rules, snapshot, view, palette);
        keys::draw(frame, keys, snapshot, view, palette);
    } else {
        frame.render_widget(Line::raw("waiting for the first update"), head);
    }
    frame.render_widget(help::footer_line(view, palette), foot);
    if view.has_help {
        help::draw(frame, palette);
    }
}

/// The areas of the sections. A low terminal omits the keys first, then shrinks the chart.
struct ScreenLayout {
    head: Rect,
    chart: Rect,
    times: Rect,
    rules: Rect,
    keys: Rect,
    foot: Rect,
}

impl ScreenLayout {
    fn split_area(area: Rect) -> Self {
        let (head, chart, times, keys) = match area.height {
            0..8 => (1, 1, 0, 0),
            8..16 => (2, 2, 1, 0),
            16..24 => (2, 2, 1, 4),
            24..36 => (2, 4, 1, 7),
            36.. => (2, 7, 1, 9),
        };
        let heights = [head, chart, times].into_iter().map(Constraint::Length);
        let heights =
            heights.chain([Constraint::Min(2), Constraint::Length(keys), Constraint::Length(1)]);
        let [head, chart, times, rules, keys, foot] = Layout::vertical(heights).areas(area);
        Self { head, chart, times, rules, keys, foot }
    }
}

/// Clears an area in the middle of the screen, to draw over it.
fn clear_centered(frame: &mut Frame<'_>, width: u16, height: u16) -> Rect {
    let area = frame.area().centered(Constraint::Max(width), Constraint::Max(height));
    frame.render_widget(Clear, area);
    area
}

#[cfg(test)]
mod tests;
