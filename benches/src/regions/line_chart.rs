//! Line charts as SVG, readable on light and dark pages.

use std::fmt;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 320.0;

/// Margins of the plotted area.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 40.0;

/// Colour of text and axes, in the middle between a light and a dark page.
const GREY: &str = "#848d97";

/// A chart whose axes begin at 0.
#[derive(Debug)]
pub struct LineChart {
    /// What it shows.
    pub title: String,
    /// Unit of the horizontal axis.
    pub x_label: String,
    /// Ends of the axes.
    pub x_max: f64,
    /// Distance of the labels.
    pub x_step: f64,
    /// End of the vertical axis.
    pub y_max: f64,
    /// Distance of its labels.
    pub y_step: f64,
    /// What is plotted.
    pub lines: Vec<ChartLine>,
    /// Vertical lines with a label on their right.
    pub marks: Vec<(f64, String)>,
}

/// A line of a chart.
#[derive(Debug)]
pub struct ChartLine {
    /// Name in the legend.
    pub name: &'static str,
    /// An SVG colour.
    pub colour: &'static str,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

impl LineChart {
    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value.min(self.y_max) / self.y_max * (HEIGHT - TOP - BOTTOM)
    }

    fn write_axes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right, bottom) = (self.x(0.0), self.x(self.x_max), self.y(0.0));
        for value in steps(self.y_max, self.y_step) {
            let y = self.y(value);
            writeln!(
                f,
                r#"<path d="M{left:.1} {y:.1}H{right:.1}" stroke="{GREY}" stroke-opacity="0.3"/>"#
            )?;
            let (x, y) = (left - 6.0, y + 4.0);
            writeln!(f, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{value}</text>"#)?;
        }
        for value in steps(self.x_max, self.x_step) {
            let (x, y) = (self.x(value), bottom + 16.0);
            writeln!(f, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{value}</text>"#)?;
        }
        let (x, y, label) = (f64::midpoint(left, right), HEIGHT - 6.0, &self.x_label);
        writeln!(f, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{label}</text>"#)
    }

    fn write_marks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, label) in &self.marks {
            let (x, top, bottom) = (self.x(*at), TOP - 14.0, self.y(0.0));
            writeln!(
                f,
                r#"<path d="M{x:.1} {top:.1}V{bottom:.1}" stroke="{GREY}" stroke-dasharray="4 3"/>"#
            )?;
            let (x, y) = (x + 5.0, TOP - 5.0);
            writeln!(f, r#"<text x="{x:.1}" y="{y:.1}">{label}</text>"#)?;
        }
        Ok(())
    }

    fn write_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ChartLine { name, colour, points }) in self.lines.iter().enumerate() {
            write!(f, r#"<polyline stroke="{colour}" stroke-width="2" points=""#)?;
            for (x, y) in points {
                write!(f, "{:.1},{:.1} ", self.x(*x), self.y(*y))?;
            }
            writeln!(f, r#""/>"#)?;
            let x = WIDTH - RIGHT - 120.0 * (self.lines.len() - index) as f64;
            writeln!(f, r#"<path d="M{x:.1} 16h20" stroke="{colour}" stroke-width="2"/>"#)?;
            writeln!(f, r#"<text x="{:.1}" y="20">{name}</text>"#, x + 26.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for LineChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = format!(r#"viewBox="0 0 {WIDTH} {HEIGHT}""#);
        let style = r#"style="font-family:sans-serif;font-size:12px""#;
        writeln!(f, r#"<svg xmlns="http://www.w3.org/2000/svg" {view} {style}>"#)?;
        writeln!(f, r#"<g fill="none"><style>text{{fill:{GREY}}}</style>"#)?;
        writeln!(f, r#"<text x="{LEFT}" y="20">{}</text>"#, self.title)?;
        self.write_axes(f)?;
        self.write_marks(f)?;
        self.write_lines(f)?;
        f.write_str("</g></svg>\n")
    }
}

/// Multiples of `step` from 0 to `max`.
fn steps(max: f64, step: f64) -> impl Iterator<Item = f64> {
    (0_u16..).map(move |index| f64::from(index) * step).take_while(move |value| *value <= max)
}
