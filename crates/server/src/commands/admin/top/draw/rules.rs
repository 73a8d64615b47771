//! The table of rules: as many columns as fit, the name and what is asked first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use unicode_width::UnicodeWidthStr as _;

use super::super::fit::{Side, bar, eighths, fit};
use super::super::picture::{MINUTE, Picture, RuleRow};
use super::super::view::{Sort, View};
use super::super::words::{count, percent, rate};
use super::Ink;
use crate::output::printable;

/// A column, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Rule,
    Mode,
    Asked,
    Refused,
    Share,
    Used,
    Scarce,
    Most,
    Past,
}

use Column::{Asked, Mode, Most, Past, Refused, Rule, Scarce, Share, Used};

const ORDER: [Column; 9] = [Rule, Mode, Asked, Refused, Share, Used, Scarce, Most, Past];

/// Which are there as long as there is room, the most important first.
const WORTH: [Column; 9] = [Rule, Asked, Refused, Mode, Share, Used, Past, Scarce, Most];

/// The most that a name takes while others want the room.
const LONGEST_NAME: usize = 32;

const GAP: usize = 1;

/// Columns with how wide they are.
type Widths = Vec<(Column, usize)>;

/// The head and the rows that there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, at: Rect, picture: &Picture, view: &View, ink: Ink) {
    let rules = view.rules(picture);
    let widths = widths(usize::from(at.width), &rules);
    let mut lines = vec![head(&widths, view, ink)];
    let room = usize::from(at.height.saturating_sub(1));
    let skipped = view.skipped.min(rules.len().saturating_sub(room));
    lines.extend(rules.iter().skip(skipped).take(room).map(|rule| row(&widths, rule, ink)));
    if rules.is_empty() {
        let why = match view.filter.is_empty() {
            true => "no rules are in force: every request passes",
            false => "no rule fits the filter",
        };
        lines.push(Line::styled(why, ink.dim()));
    }
    frame.render_widget(Text::from(lines), at);
}

/// What fits: each column as narrow as it may be, then the name and the drawing get what is left.
fn widths(room: usize, rules: &[&RuleRow]) -> Widths {
    let mut left = room;
    let mut there = Vec::new();
    for column in WORTH {
        let taken = column.least() + if there.is_empty() { 0 } else { GAP };
        if taken > left && !there.is_empty() {
            break;
        }
        left = left.saturating_sub(taken);
        there.push(column);
    }
    let name = rules.iter().map(|rule| printable(&rule.id).width()).max().unwrap_or(0);
    let more = name.min(LONGEST_NAME).saturating_sub(Rule.least()).min(left);
    left -= more;
    let wider = |column: Column| match column {
        Rule => column.least() + more,
        Past => (column.least() + left).min(MINUTE),
        other => other.least(),
    };
    ORDER.into_iter().filter(|column| there.contains(column)).map(|one| (one, wider(one))).collect()
}

fn head(widths: &Widths, view: &View, ink: Ink) -> Line<'static> {
    let cells = widths.iter().map(|(column, width)| {
        let mut name = column.name().to_owned();
        if column.sorts() == Some(view.sort) {
            let down = (view.sort != Sort::Rule) != view.is_reversed;
            name.push(if down { '▼' } else { '▲' });
        }
        fit(&name, *width, column.side())
    });
    Line::styled(cells.collect::<Vec<_>>().join(" "), ink.head())
}

fn row(widths: &Widths, rule: &RuleRow, ink: Ink) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in widths {
        if !spans.is_empty() {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        match column {
            Past => spans.extend(past(rule, *width, ink)),
            _ => {
                let text = fit(&column.text(rule), *width, column.side());
                spans.push(Span::styled(text, column.style(rule, ink)));
            }
        }
    }
    Line::from(spans)
}

/// How often it was asked in each second, in the colour of a refusal where it refused.
fn past(rule: &RuleRow, width: usize, ink: Ink) -> Vec<Span<'static>> {
    let shown = &rule.past[rule.past.len().saturating_sub(width)..];
    let highest = shown.iter().map(|(asked, _)| *asked).max().unwrap_or(0);
    let empty = Span::raw(" ".repeat(width - shown.len()));
    let bars = shown.iter().map(|(asked, refused)| {
        let style = ink.band(if *refused > 0 { 3 } else { 0 });
        Span::styled(bar(eighths(*asked, highest, 1)).to_string(), style)
    });
    std::iter::once(empty).chain(bars).collect()
}

impl Column {
    const fn name(self) -> &'static str {
        match self {
            Rule => "RULE",
            Mode => "MODE",
            Asked => "ASKED/S",
            Refused => "REFUSED/S",
            Share => "REFUSED",
            Used => "USED",
            Scarce => "<10% LEFT",
            Most => "MOST/WINDOW",
            Past => "LAST MINUTE",
        }
    }

    /// With room for the sign that it is sorted by.
    const fn least(self) -> usize {
        match self {
            Rule => 12,
            Mode => 8,
            Asked | Share => 8,
            Refused => 10,
            Used => 5,
            Scarce => 9,
            Most | Past => 11,
        }
    }

    const fn side(self) -> Side {
        match self {
            Rule | Mode | Past => Side::Left,
            Asked | Refused | Share | Used | Scarce | Most => Side::Right,
        }
    }

    const fn sorts(self) -> Option<Sort> {
        match self {
            Rule => Some(Sort::Rule),
            Asked => Some(Sort::Asked),
            Refused => Some(Sort::Refused),
            Share => Some(Sort::Share),
            Used => Some(Sort::Used),
            Mode | Scarce | Most | Past => None,
        }
    }

    fn text(self, rule: &RuleRow) -> String {
        match self {
            Rule => rule.id.clone(),
            Mode => rule.state().to_owned(),
            Asked => rate(rule.asked),
            Refused => rate(rule.refused),
            Share => percent(rule.share),
            Used => percent(rule.used),
            Scarce => percent(rule.scarce),
            Most => rule.most_in_window.map_or_else(|| "–".to_owned(), count),
            Past => String::new(),
        }
    }

    fn style(self, rule: &RuleRow, ink: Ink) -> Style {
        match self {
            _ if !rule.is_active => ink.dim(),
            Rule => ink.bold(),
            Refused | Share if rule.refused > 0 => ink.bad(),
            _ => Style::new(),
        }
    }
}
