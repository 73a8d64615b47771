//! The head: which node, how it is, which rules, which store; and whether what is shown is now.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use super::super::formatting::format_uptime;
use super::super::snapshot::{TopSnapshot, describe_nodes};
use super::super::view::ViewState;
use super::Palette;
use tidegate_server::output::escape_unprintable;

/// Two lines, or as many as there is room for.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    at: Rect,
    picture: &TopSnapshot,
    view: &ViewState,
    ink: Palette,
) {
    let lines = [status_line(picture, view, ink), source_line(picture, ink)];
    frame.render_widget(Text::from(lines.to_vec()), at);
}

fn status_line(picture: &TopSnapshot, view: &ViewState, ink: Palette) -> Line<'static> {
    let process = &picture.tick.process;
    // What is not now is said first: a narrow terminal has no room for all.
    let mut spans = match (&view.disconnect_reason, view.is_paused) {
        (Some(why), _) => {
            vec![Span::styled(format!("LOST: {} ", escape_unprintable(why)), ink.bad())]
        }
        (None, true) => vec![Span::styled("PAUSED ", ink.bad())],
        (None, false) => Vec::new(),
    };
    let state = &process.status.status;
    let style = if state == "ready" { ink.good() } else { ink.bad() };
    spans.extend([
        Span::styled(escape_unprintable(&process.node), ink.bold()),
        Span::raw(" "),
        Span::styled(escape_unprintable(state), style),
        Span::raw(format!(" up {}", format_uptime(picture.uptime_seconds()))),
        Span::styled(
            format!("  tidegate {}, process {}", escape_unprintable(&process.version), process.pid),
            ink.dim(),
        ),
    ]);
    Line::from(spans)
}

fn source_line(picture: &TopSnapshot, ink: Palette) -> Line<'static> {
    let office = &picture.tick.office;
    let mut spans = vec![
        Span::raw(format!("rules version {}, {} rules", office.version, office.rules)),
        Span::styled(
            format!(" ({})", escape_unprintable(&picture.tick.process.status.rules_version)),
            ink.dim(),
        ),
        Span::raw(format!("  store {}", escape_unprintable(&picture.store_summary()))),
    ];
    let nodes = describe_nodes(&picture.nodes);
    if !nodes.is_empty() {
        let well = picture.nodes.iter().all(|node| !node.behind && !node.silent);
        let style = if well { Style::new() } else { ink.bad() };
        spans.push(Span::styled(format!("  {nodes}"), style));
    }
    if let Some(trouble) = picture.server_error() {
        spans.push(Span::styled(format!("  {}", escape_unprintable(trouble)), ink.bad()));
    }
    Line::from(spans)
}
