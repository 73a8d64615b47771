//! The keys that are refused most and those that ask most, beside each other; below each other there is no room.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use unicode_width::UnicodeWidthStr as _;

use super::super::fit::{Side, fit};
use super::super::picture::Picture;
use super::super::tick::Key;
use super::super::view::View;
use super::super::words::{times, who};
use super::Ink;
use crate::output::printable;

/// How wide the number is.
const TIMES: usize = 10;

/// The lists, as they are called in the API, and their heads.
const LISTS: [(&str, &str); 2] = [("refused", "REFUSED MOST"), ("busiest", "BUSIEST")];

/// Both lists.
pub(super) fn draw(frame: &mut Frame<'_>, at: Rect, picture: &Picture, view: &View, ink: Ink) {
    let halves: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(1).areas(at);
    for ((kind, name), half) in LISTS.into_iter().zip(halves) {
        let (width, keys) = (usize::from(half.width), view.keys(picture, kind));
        let head = format!("{} {name}", fit("TIMES", TIMES, Side::Right));
        let mut lines = vec![Line::styled(fit(&head, width, Side::Left), ink.head())];
        lines.extend(rows(&keys, width, ink));
        if keys.is_empty() {
            lines.push(Line::styled(fit("nobody", width, Side::Left), ink.dim()));
        }
        frame.render_widget(Text::from(lines), half);
    }
}

/// The number, who it is, and the rule, which gets a third of the room at most.
fn rows(keys: &[&Key], width: usize, ink: Ink) -> Vec<Line<'static>> {
    let room = width.saturating_sub(TIMES + 2);
    let rule = keys.iter().map(|key| printable(&key.rule).width()).max().unwrap_or(0);
    let rule = rule.min(room / 3);
    let row = |key: &&Key| {
        let times = fit(&times(key.count, key.error, key.spread), TIMES, Side::Right);
        let name = fit(&who(key.who.as_deref(), &key.key), room - rule, Side::Left);
        let rule = Span::styled(fit(&key.rule, rule, Side::Left), ink.dim());
        Line::from(vec![Span::raw(format!("{times} {name} ")), rule])
    };
    keys.iter().map(row).collect()
}
