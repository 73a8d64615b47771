//! Decisions per second: a legend, and a chart of the last two minutes with one column per second,
//! stacked by outcome.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::cell_text::{bar_char, bar_eighths};
use super::super::formatting::{format_count, format_latency, format_percent, format_rate};
use super::super::snapshot::{QUANTILES, TopSnapshot};
use super::super::tick_delta::BANDS;
use super::Palette;

/// Draws the legend, and the chart below it.
pub(super) fn draw(frame: &mut Frame<'_>, at: Rect, snapshot: &TopSnapshot, palette: Palette) {
    let [legend_area, chart_area] = split(at);
    frame.render_widget(legend(snapshot, usize::from(at.width), palette), legend_area);
    draw_bars(frame.buffer_mut(), chart_area, &snapshot.trend, palette);
}

fn split(at: Rect) -> [Rect; 2] {
    let legend = Rect { height: at.height.min(1), ..at };
    [legend, Rect { y: at.y + legend.height, height: at.height - legend.height, ..at }]
}

/// The rate of decisions and the legend of the bands, in the longest form that fits. A narrow
/// terminal omits bands without requests first, then wide gaps, then the sum.
fn legend(snapshot: &TopSnapshot, width: usize, palette: Palette) -> Line<'static> {
    let forms = [("  ", true, true), ("  ", false, true), (" ", false, true), (" ", false, false)];
    let mut lines = forms.map(|(gap, has_idle, has_sum)| {
        let mut spans = legend_bands(snapshot, gap, has_idle, palette);
        if has_sum {
            let sum = format_rate(snapshot.bands.iter().sum());
            spans.insert(0, Span::styled(format!("{sum}/s{gap}"), palette.bold()));
        }
        Line::from(spans)
    });
    let fitting = lines.iter().position(|line| line.width() <= width);
    std::mem::take(&mut lines[fitting.unwrap_or(forms.len() - 1)])
}

fn legend_bands(
    snapshot: &TopSnapshot,
    gap: &str,
    has_idle: bool,
    palette: Palette,
) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    for (at, (name, count)) in BANDS.into_iter().zip(snapshot.bands).enumerate() {
        if has_idle || count > 0 {
            let gap = if spans.is_empty() { "" } else { gap };
            let symbol = palette.band_char(at, '■');
            spans.push(Span::styled(format!("{gap}{symbol} "), palette.band_style(at)));
            spans.push(Span::raw(format!("{name} {}", format_rate(count))));
        }
    }
    spans
}

/// The latency of decisions, the shares of refusals and of local decisions, and the number of
/// decisions since the start. Without the second latency if the line is too long for the width.
pub(super) fn latency_line(snapshot: &TopSnapshot, width: u16, palette: Palette) -> Line<'static> {
    let all = latency_spans(snapshot, &[0, 1, 2], palette);
    match all.width() <= usize::from(width) {
        true => all,
        false => latency_spans(snapshot, &[0, 2], palette),
    }
}

fn latency_spans(snapshot: &TopSnapshot, shown: &[usize], palette: Palette) -> Line<'static> {
    let mut spans = vec![Span::raw("decision time ")];
    for at in shown {
        spans.push(Span::styled(format!("{} ", QUANTILES[*at].0), palette.dim()));
        spans.push(Span::raw(format!("{}  ", format_latency(snapshot.latencies[*at]))));
    }
    spans.push(Span::raw(format!("refused {}  ", format_percent(snapshot.refused))));
    if snapshot.local.is_some() {
        spans.push(Span::raw(format!("local {}  ", format_percent(snapshot.local))));
    }
    spans.push(Span::styled(
        format!("{} since the start", format_count(snapshot.total)),
        palette.dim(),
    ));
    Line::from(spans)
}

/// Draws columns of stacked bands, the newest at the right.
fn draw_bars(buffer: &mut Buffer, at: Rect, trend: &[[u64; BANDS.len()]], palette: Palette) {
    let shown = &trend[trend.len().saturating_sub(usize::from(at.width))..];
    let highest = shown.iter().map(|bands| bands.iter().sum()).max().unwrap_or(0);
    let xs = (at.left()..at.right()).rev();
    for (x, bands) in xs.zip(shown.iter().rev()) {
        let whole = bar_eighths(bands.iter().sum(), highest, at.height.into());
        for row in 0..at.height {
            let left = whole.saturating_sub(u64::from(row) * 8);
            if left == 0 {
                break;
            }
            // A cell shows the band at its middle. The bottom cell shows the lowest band, so that
            // rare refusals stay visible.
            let inside = if row == 0 { 1 } else { left.min(8).div_ceil(2) };
            let band = band_at(bands, u64::from(row) * 8 + inside, whole);
            let cell = &mut buffer[(x, at.bottom() - 1 - row)];
            cell.set_char(palette.band_char(band, bar_char(left)))
                .set_style(palette.band_style(band));
        }
    }
}

/// The band at a height of the column; refusals are at the bottom.
fn band_at(bands: &[u64; BANDS.len()], height: u64, whole: u64) -> usize {
    let reaches = |part: u64, of: u64| u128::from(part) * u128::from(of);
    let all: u64 = bands.iter().sum();
    let mut below = 0;
    for (at, count) in bands.iter().enumerate().rev() {
        below += count;
        if *count > 0 && reaches(below, whole) >= reaches(height, all) {
            return at;
        }
    }
    0
}
