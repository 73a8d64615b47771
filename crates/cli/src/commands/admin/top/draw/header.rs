//! The header: node, status, rules and store; and whether the view is paused or disconnected.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use super::super::formatting::format_uptime;
use super::super::snapshot::{TopSnapshot, describe_nodes};
use super::super::view::ViewState;
use super::Palette;
use tidegate_server::output::escape_unprintable;

/// Draws two lines, or as many as fit.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    at: Rect,
    snapshot: &TopSnapshot,
    view: &ViewState,
    palette: Palette,
) {
    let lines = [status_line(snapshot, view, palette), source_line(snapshot, palette)];
    frame.render_widget(Text::from(lines.to_vec()), at);
}

fn status_line(snapshot: &TopSnapshot, view: &ViewState, palette: Palette) -> Line<'static> {
    let process = &snapshot.tick.process;
    // Paused or disconnected comes first, because a narrow terminal cuts off the end of the line.
    let mut spans = match (&view.disconnect_reason, view.is_paused) {
        (Some(why), _) => {
            vec![Span::styled(format!("LOST: {} ", escape_unprintable(why)), palette.bad())]
        }
        (None, true) => vec![Span::styled("PAUSED ", palette.bad())],
        (None, false) => Vec::new(),
    };
    let state = &process.status.status;
    let style = if state == "ready" { palette.good() } else { palette.bad() };
    spans.extend([
        Span::styled(escape_unprintable(&process.node), palette.bold()),
        Span::raw(" "),
        Span::styled(escape_unprintable(state), style),
        Span::raw(format!(" up {}", format_uptime(snapshot.uptime_seconds()))),
        Span::styled(
            format!("  tidegate {}, process {}", escape_unprintable(&process.version), process.pid),
            palette.dim(),
        ),
    ]);
    Line::from(spans)
}

fn source_line(snapshot: &TopSnapshot, palette: Palette) -> Line<'static> {
    let source = &snapshot.tick.rule_source;
    let mut spans = vec![
        Span::raw(format!("rules version {}, {} rules", source.version, source.rules)),
        Span::styled(
            format!(" ({})", escape_unprintable(&snapshot.tick.process.status.rules_version)),
            palette.dim(),
        ),
        Span::raw(format!("  store {}", escape_unprintable(&snapshot.store_summary()))),
    ];
    let nodes = describe_nodes(&snapshot.nodes);
    if !nodes.is_empty() {
        let is_healthy = snapshot.nodes.iter().all(|node| !node.behind && !node.silent);
        let style = if is_healthy { Style::new() } else { palette.bad() };
        spans.push(Span::styled(format!("  {nodes}"), style));
    }
    if let Some(regions) = &snapshot.tick.process.regions {
        let style = if regions.are_usable() { Style::new() } else { palette.bad() };
        spans.push(Span::styled(format!("  {}", escape_unprintable(&regions.describe())), style));
    }
    if let Some(error) = snapshot.server_error() {
        spans.push(Span::styled(format!("  {}", escape_unprintable(error)), palette.bad()));
    }
    Line::from(spans)
}
