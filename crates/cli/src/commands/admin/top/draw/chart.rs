//! Decisions a second: in words, and drawn for the last two minutes, a column a second, stacked by what was said.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::cell_text::{bar_char, bar_eighths};
use super::super::formatting::{format_count, format_latency, format_percent, format_rate};
use super::super::snapshot::{QUANTILES, TopSnapshot};
use super::super::tick_delta::BANDS;
use super::Palette;

/// A line of words, and below it the drawing.
pub(super) fn draw(frame: &mut Frame<'_>, at: Rect, picture: &TopSnapshot, ink: Palette) {
    let [words, drawing] = split(at);
    frame.render_widget(legend(picture, usize::from(at.width), ink), words);
    draw_bars(frame.buffer_mut(), drawing, &picture.trend, ink);
}

fn split(at: Rect) -> [Rect; 2] {
    let words = Rect { height: at.height.min(1), ..at };
    [words, Rect { y: at.y + words.height, height: at.height - words.height, ..at }]
}

/// Decisions a second, and what the bands of the drawing mean: the first form that fits. A narrow
/// terminal has no room for bands without a request, then for wide gaps, then for the sum.
fn legend(picture: &TopSnapshot, width: usize, ink: Palette) -> Line<'static> {
    let forms = [("  ", true, true), ("  ", false, true), (" ", false, true), (" ", false, false)];
    let mut lines = forms.map(|(gap, has_idle, has_sum)| {
        let mut spans = legend_bands(picture, gap, has_idle, ink);
        if has_sum {
            let sum = format_rate(picture.bands.iter().sum());
            spans.insert(0, Span::styled(format!("{sum}/s{gap}"), ink.bold()));
        }
        Line::from(spans)
    });
    let fitting = lines.iter().position(|line| line.width() <= width);
    std::mem::take(&mut lines[fitting.unwrap_or(forms.len() - 1)])
}

fn legend_bands(
    picture: &TopSnapshot,
    gap: &str,
    has_idle: bool,
    ink: Palette,
) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    for (at, (name, count)) in BANDS.into_iter().zip(picture.bands).enumerate() {
        if has_idle || count > 0 {
            let before = if spans.is_empty() { "" } else { gap };
            let sign = ink.band_char(at, '■');
            spans.push(Span::styled(format!("{before}{sign} "), ink.band_style(at)));
            spans.push(Span::raw(format!("{name} {}", format_rate(count))));
        }
    }
    spans
}

/// How long decisions take, the share that is refused, and how many there were in all.
pub(super) fn latency_line(picture: &TopSnapshot, ink: Palette) -> Line<'static> {
    let mut spans = vec![Span::raw("decision time ")];
    for ((name, _), took) in QUANTILES.into_iter().zip(picture.latencies) {
        spans.push(Span::styled(format!("{name} "), ink.dim()));
        spans.push(Span::raw(format!("{}  ", format_latency(took))));
    }
    spans.push(Span::raw(format!("refused {}  ", format_percent(picture.refused))));
    spans.push(Span::styled(format!("{} since the start", format_count(picture.total)), ink.dim()));
    Line::from(spans)
}

/// Columns of bands on each other, the newest at the right.
fn draw_bars(buffer: &mut Buffer, at: Rect, past: &[[u64; BANDS.len()]], ink: Palette) {
    let shown = &past[past.len().saturating_sub(usize::from(at.width))..];
    let highest = shown.iter().map(|bands| bands.iter().sum()).max().unwrap_or(0);
    let xs = (at.left()..at.right()).rev();
    for (x, bands) in xs.zip(shown.iter().rev()) {
        let whole = bar_eighths(bands.iter().sum(), highest, at.height.into());
        for row in 0..at.height {
            let left = whole.saturating_sub(u64::from(row) * 8);
            if left == 0 {
                break;
            }
            // The middle of a cell says what it is, but at the bottom the least that is there.
            let inside = if row == 0 { 1 } else { left.min(8).div_ceil(2) };
            let band = band_at(bands, u64::from(row) * 8 + inside, whole);
            let cell = &mut buffer[(x, at.bottom() - 1 - row)];
            cell.set_char(ink.band_char(band, bar_char(left))).set_style(ink.band_style(band));
        }
    }
}

/// The band that is at a height of the whole: refusals are at the bottom.
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
