//! The table of rules, with as many columns as fit, the most important ones first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use unicode_width::UnicodeWidthStr as _;

use super::super::api_types::EXACT;
use super::super::cell_text::{CellAlignment, bar_char, bar_eighths, fit_to_width};
use super::super::formatting::{format_count, format_percent, format_rate};
use super::super::snapshot::{RULE_WINDOW_STEPS, RuleActivity, TopSnapshot};
use super::super::view::{RuleSort, ViewState};
use super::Palette;
use tidegate_server::output::escape_unprintable;

/// The columns, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleColumn {
    Rule,
    Mode,
    Counted,
    RegionShare,
    Borrowed,
    Lent,
    Requests,
    Refused,
    Share,
    Used,
    NearLimit,
    PeakInWindow,
    Trend,
}

use RuleColumn::{
    Borrowed, Counted, Lent, Mode, NearLimit, PeakInWindow, Refused, RegionShare, Requests, Rule,
    Share, Trend, Used,
};

const COLUMN_ORDER: [RuleColumn; 13] = [
    Rule,
    Mode,
    Counted,
    RegionShare,
    Borrowed,
    Lent,
    Requests,
    Refused,
    Share,
    Used,
    NearLimit,
    PeakInWindow,
    Trend,
];

/// The columns by priority: those at the end are omitted first if space is short.
const COLUMN_PRIORITY: [RuleColumn; 13] = [
    Rule,
    Requests,
    Refused,
    Mode,
    Share,
    Used,
    RegionShare,
    Borrowed,
    Lent,
    Counted,
    Trend,
    NearLimit,
    PeakInWindow,
];

/// Maximum width of the rule name.
const MAX_NAME_WIDTH: usize = 32;

const GAP: usize = 1;

/// The visible columns with their widths.
type ColumnWidths = Vec<(RuleColumn, usize)>;

/// Draws the heading and as many rows as fit.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    at: Rect,
    snapshot: &TopSnapshot,
    view: &ViewState,
    palette: Palette,
) {
    let rules = view.visible_rules(snapshot);
    let widths = fit_columns(usize::from(at.width), &rules);
    let mut lines = vec![header_line(&widths, view, palette)];
    let room = usize::from(at.height.saturating_sub(1));
    let skipped = view.scroll_offset.min(rules.len().saturating_sub(room));
    lines.extend(
        rules.iter().skip(skipped).take(room).map(|rule| rule_line(&widths, rule, palette)),
    );
    if rules.is_empty() {
        let why = match view.filter.is_empty() {
            true => "no rules: every request passes",
            false => "no rule matches the filter",
        };
        lines.push(Line::styled(why, palette.dim()));
    }
    frame.render_widget(Text::from(lines), at);
}

/// Chooses the columns that fit at their minimum width. The name and the trend get the rest.
fn fit_columns(room: usize, rules: &[&RuleActivity]) -> ColumnWidths {
    let mut left = room;
    let mut visible = Vec::new();
    // While the store decides all rules, the column says nothing.
    let all_exact = rules.iter().all(|rule| rule.consistency == EXACT);
    let none_divided = rules.iter().all(|rule| rule.region_share.is_none());
    let none_borrowed = rules.iter().all(|rule| rule.borrowed.is_none());
    let none_lent = rules.iter().all(|rule| rule.lent.is_none());
    let says_nothing = |column| match column {
        Counted => all_exact,
        RegionShare => none_divided,
        Borrowed => none_borrowed,
        Lent => none_lent,
        _ => false,
    };
    for column in COLUMN_PRIORITY.into_iter().filter(|column| !says_nothing(*column)) {
        let width = column.min_width() + if visible.is_empty() { 0 } else { GAP };
        if width > left && !visible.is_empty() {
            break;
        }
        left = left.saturating_sub(width);
        visible.push(column);
    }
    let name = rules.iter().map(|rule| escape_unprintable(&rule.id).width()).max().unwrap_or(0);
    let more = name.min(MAX_NAME_WIDTH).saturating_sub(Rule.min_width()).min(left);
    left -= more;
    let final_width = |column: RuleColumn| match column {
        Rule => column.min_width() + more,
        Trend => (column.min_width() + left).min(RULE_WINDOW_STEPS),
        other => other.min_width(),
    };
    COLUMN_ORDER
        .into_iter()
        .filter(|column| visible.contains(column))
        .map(|column| (column, final_width(column)))
        .collect()
}

fn header_line(widths: &ColumnWidths, view: &ViewState, palette: Palette) -> Line<'static> {
    let cells = widths.iter().map(|(column, width)| {
        let mut name = column.name().to_owned();
        if column.sort_key() == Some(view.sort) {
            let down = (view.sort != RuleSort::Rule) != view.is_reversed;
            name.push(if down { '▼' } else { '▲' });
        }
        fit_to_width(&name, *width, column.alignment())
    });
    Line::styled(cells.collect::<Vec<_>>().join(" "), palette.head())
}

fn rule_line(widths: &ColumnWidths, rule: &RuleActivity, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in widths {
        if !spans.is_empty() {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        match column {
            Trend => spans.extend(trend_bars(rule, *width, palette)),
            _ => {
                let text = fit_to_width(&column.text(rule), *width, column.alignment());
                spans.push(Span::styled(text, column.style(rule, palette)));
            }
        }
    }
    Line::from(spans)
}

/// One bar per second for the rate of requests, in the color of refusals if any was refused.
fn trend_bars(rule: &RuleActivity, width: usize, palette: Palette) -> Vec<Span<'static>> {
    let shown = &rule.trend[rule.trend.len().saturating_sub(width)..];
    let highest = shown.iter().map(|(requests, _)| *requests).max().unwrap_or(0);
    let empty = Span::raw(" ".repeat(width - shown.len()));
    let bars = shown.iter().map(|(requests, refused)| {
        let style = palette.band_style(if *refused > 0 { 3 } else { 0 });
        Span::styled(bar_char(bar_eighths(*requests, highest, 1)).to_string(), style)
    });
    std::iter::once(empty).chain(bars).collect()
}

impl RuleColumn {
    const fn name(self) -> &'static str {
        match self {
            Rule => "RULE",
            Mode => "MODE",
            Counted => "COUNTED",
            RegionShare => "SHARE",
            Borrowed => "BORROWED",
            Lent => "LENT",
            Requests => "REQ/S",
            Refused => "REFUSED/S",
            Share => "REFUSED",
            Used => "USED",
            NearLimit => "<10% LEFT",
            PeakInWindow => "MOST/WINDOW",
            Trend => "LAST MINUTE",
        }
    }

    /// The minimum width, including the sort arrow.
    const fn min_width(self) -> usize {
        match self {
            Rule => 12,
            Mode => 8,
            Counted | Lent => 7,
            RegionShare => 6,
            Requests | Share | Borrowed => 8,
            Refused => 10,
            Used => 5,
            NearLimit => 9,
            PeakInWindow | Trend => 11,
        }
    }

    const fn alignment(self) -> CellAlignment {
        match self {
            Rule | Mode | Counted | Trend => CellAlignment::Left,
            RegionShare | Borrowed | Lent | Requests | Refused | Share | Used | NearLimit
            | PeakInWindow => CellAlignment::Right,
        }
    }

    const fn sort_key(self) -> Option<RuleSort> {
        match self {
            Rule => Some(RuleSort::Rule),
            Requests => Some(RuleSort::Requests),
            Refused => Some(RuleSort::Refused),
            Share => Some(RuleSort::Share),
            Used => Some(RuleSort::Used),
            Mode | Counted | RegionShare | Borrowed | Lent | NearLimit | PeakInWindow | Trend => {
                None
            }
        }
    }

    fn text(self, rule: &RuleActivity) -> String {
        match self {
            Rule => rule.id.clone(),
            Mode => rule.mode_or_disabled().to_owned(),
            Counted => rule.consistency.clone(),
            RegionShare => rule.region_share.clone().unwrap_or_else(|| "–".to_owned()),
            Borrowed => rule.borrowed.map_or_else(|| "–".to_owned(), format_count),
            Lent => rule.lent.map_or_else(|| "–".to_owned(), format_count),
            Requests => format_rate(rule.requests),
            Refused => format_rate(rule.refused),
            Share => format_percent(rule.share),
            Used => format_percent(rule.used),
            NearLimit => format_percent(rule.near_limit),
            PeakInWindow => rule.max_in_window.map_or_else(|| "–".to_owned(), format_count),
            Trend => String::new(),
        }
    }

    fn style(self, rule: &RuleActivity, palette: Palette) -> Style {
        match self {
            _ if !rule.is_active => palette.dim(),
            Rule => palette.bold(),
            Refused | Share if rule.refused > 0 => palette.bad(),
            _ => Style::new(),
        }
    }
}
