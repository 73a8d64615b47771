//! The whole screen from a picture and how a person looks at it: who gets how many lines. What is in them is in the
//! files of the folder. Nothing here reads a terminal or works anything out.

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

/// Draws everything. `picture` is none until the first tick.
pub(super) fn draw_screen(
    frame: &mut Frame<'_>,
    picture: Option<&TopSnapshot>,
    view: &ViewState,
    ink: Palette,
) {
    let ScreenLayout { head, chart, times, rules, keys, foot } =
        ScreenLayout::split_area(frame.area());
    if let Some(picture) = picture {
        header::draw(frame, head, picture, view, ink);
        chart::draw(frame, chart, picture, ink);
        frame.render_widget(chart::latency_line(picture, ink), times);
        rules::draw(frame, rules, picture, view, ink);
        keys::draw(frame, keys, picture, view, ink);
    } else {
        frame.render_widget(Line::raw("waiting for the first numbers"), head);
    }
    frame.render_widget(help::footer_line(view, ink), foot);
    if view.has_help {
        help::draw(frame, ink);
    }
}

/// Where everything is. What a low terminal has no room for is left out: keys first, then the chart.
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

/// Empties a part in the middle that something is written over.
fn clear_centered(frame: &mut Frame<'_>, width: u16, height: u16) -> Rect {
    let area = frame.area().centered(Constraint::Max(width), Constraint::Max(height));
    frame.render_widget(Clear, area);
    area
}

#[cfg(test)]
mod tests;
