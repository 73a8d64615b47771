//! The head: which node, how it is, which rules, which store; and whether what is shown is now.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use super::super::picture::{Picture, in_words};
use super::super::view::View;
use super::super::words::span;
use super::Ink;
use crate::output::printable;

/// Two lines, or as many as there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, at: Rect, picture: &Picture, view: &View, ink: Ink) {
    let lines = [first(picture, view, ink), second(picture, ink)];
    frame.render_widget(Text::from(lines.to_vec()), at);
}

fn first(picture: &Picture, view: &View, ink: Ink) -> Line<'static> {
    let process = &picture.tick.process;
    // What is not now is said first: a narrow terminal has no room for all.
    let mut spans = match (&view.lost, view.is_paused) {
        (Some(why), _) => vec![Span::styled(format!("LOST: {} ", printable(why)), ink.bad())],
        (None, true) => vec![Span::styled("PAUSED ", ink.bad())],
        (None, false) => Vec::new(),
    };
    let state = &process.status.status;
    let style = if state == "ready" { ink.good() } else { ink.bad() };
    spans.extend([
        Span::styled(printable(&process.node), ink.bold()),
        Span::raw(" "),
        Span::styled(printable(state), style),
        Span::raw(format!(" up {}", span(picture.up()))),
        Span::styled(
            format!("  tidegate {}, process {}", printable(&process.version), process.pid),
            ink.dim(),
        ),
    ]);
    Line::from(spans)
}

fn second(picture: &Picture, ink: Ink) -> Line<'static> {
    let office = &picture.tick.office;
    let mut spans = vec![
        Span::raw(format!("rules version {}, {} rules", office.version, office.rules)),
        Span::styled(
            format!(" ({})", printable(&picture.tick.process.status.rules_version)),
            ink.dim(),
        ),
        Span::raw(format!("  store {}", printable(&picture.store()))),
    ];
    let nodes = in_words(&picture.nodes);
    if !nodes.is_empty() {
        let well = picture.nodes.iter().all(|node| !node.behind && !node.silent);
        let style = if well { Style::new() } else { ink.bad() };
        spans.push(Span::styled(format!("  {nodes}"), style));
    }
    if let Some(trouble) = picture.trouble() {
        spans.push(Span::styled(format!("  {}", printable(trouble)), ink.bad()));
    }
    Line::from(spans)
}
