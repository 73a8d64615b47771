//! Renders metrics in the Prometheus text format 0.0.4, or in OpenMetrics 1.0 if the scraper asks
//! for it.

use std::fmt::Write as _;

use super::counts::HistogramSnapshot;

/// A component that exports metrics.
pub trait MetricsExporter: Send + Sync {
    /// Writes the component's metrics.
    fn export(&self, to: &mut Exposition);
}

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that can go up and down.
    Gauge,
    /// A distribution of values.
    Histogram,
    /// The constant 1; the information is in the labels.
    Info,
}

/// The unit of an integer value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// No unit.
    One,
    /// Hundredths, written as a fraction.
    Hundredths,
    /// Microseconds, written in seconds.
    Micros,
}

/// A page of metrics under construction.
#[derive(Debug)]
pub struct Exposition {
    text: String,
    open_metrics: bool,
    name: &'static str,
    kind: MetricKind,
}

impl Exposition {
    /// Creates an empty page, in OpenMetrics or in the Prometheus text format.
    #[must_use]
    pub const fn new(open_metrics: bool) -> Self {
        Self { text: String::new(), open_metrics, name: "", kind: MetricKind::Gauge }
    }

    /// Begins a metric family. The name of a counter does not include `_total`.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        (self.name, self.kind) = (name, kind);
        let (suffix, word) = match (kind, self.open_metrics) {
            (MetricKind::Counter, true) => ("", "counter"),
            // The Prometheus format uses the full sample name here.
            (MetricKind::Counter, false) => ("_total", "counter"),
            (MetricKind::Histogram, _) => ("", "histogram"),
            (MetricKind::Info, true) => ("", "info"),
            (MetricKind::Info, false) => ("_info", "gauge"),
            (MetricKind::Gauge, _) => ("", "gauge"),
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}");
        let _ = writeln!(self.text, "# TYPE {name}{suffix} {word}");
    }

    /// Adds a sample to the family. A counter needs the suffix `_total`.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: u64) {
        self.write_sample(suffix, labels, &value.to_string());
    }

    /// Adds a sample, converted from its unit.
    pub fn measure(&mut self, labels: &[(&str, &str)], value: u64, unit: MetricUnit) {
        self.write_sample("", labels, &unit.format_value(value));
    }

    /// Adds the samples of a histogram.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        snapshot: &HistogramSnapshot,
        unit: MetricUnit,
    ) {
        let bounds = snapshot.bounds.iter().map(|bound| unit.format_value(*bound));
        let mut count = 0;
        for (le, more) in bounds.chain(["+Inf".to_owned()]).zip(&snapshot.counts) {
            count += more;
            let labels: Vec<_> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            self.sample("_bucket", &labels, count);
        }
        self.write_sample("_sum", labels, &unit.format_value(snapshot.sum));
        self.sample("_count", labels, count);
    }

    /// Completes the page and returns its text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.open_metrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn write_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: &str) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (name, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{name}=\"", if at == 0 { '{' } else { ',' });
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

impl MetricUnit {
    /// Formats a value as a decimal fraction with at least one digit after the point, as
    /// OpenMetrics does.
    fn format_value(self, value: u64) -> String {
        let (digits, whole) = match self {
            Self::One => return value.to_string(),
            Self::Hundredths => (2, 100),
            Self::Micros => (6, 1_000_000),
        };
        let text = format!("{}.{:0digits$}", value / whole, value % whole);
        let zeros = text.bytes().rev().take_while(|digit| *digit == b'0').count();
        let kept = text.len() - zeros.min(digits - 1);
        text[..kept].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(open_metrics: bool) -> String {
        let mut page = Exposition::new(open_metrics);
        page.family("a_things", MetricKind::Counter, "Things.");
        page.sample("_total", &[("x", "q\"b\\n\n"), ("y", "")], 3);
        page.family("a_build", MetricKind::Info, "What it is.");
        page.sample("_info", &[], 1);
        page.family("a_share", MetricKind::Gauge, "A share.");
        page.measure(&[], 205, MetricUnit::Hundredths);
        page.finish()
    }

    #[test]
    fn numbers_are_written_in_their_unit() {
        for (value, unit, text) in [
            (5, MetricUnit::Micros, "0.000005"),
            (2_500, MetricUnit::Micros, "0.0025"),
            (7_000_000, MetricUnit::Micros, "7.0"),
            (0, MetricUnit::Hundredths, "0.0"),
            (150, MetricUnit::Hundredths, "1.5"),
            (10, MetricUnit::One, "10"),
        ] {
            assert_eq!(unit.format_value(value), text);
        }
    }

    #[test]
    fn prometheus_and_openmetrics_are_written() {
        let samples = "a_things_total{x=\"q\\\"b\\\\n\\n\",y=\"\"} 3\n";
        assert_eq!(
            page(false),
            format!(
                "# HELP a_things_total Things.\n# TYPE a_things_total counter\n{samples}\
                 # HELP a_build_info What it is.\n# TYPE a_build_info gauge\na_build_info 1\n\
                 # HELP a_share A share.\n# TYPE a_share gauge\na_share 2.05\n"
            )
        );
        assert_eq!(
            page(true),
            format!(
                "# HELP a_things Things.\n# TYPE a_things counter\n{samples}\
                 # HELP a_build What it is.\n# TYPE a_build info\na_build_info 1\n\
                 # HELP a_share A share.\n# TYPE a_share gauge\na_share 2.05\n# EOF\n"
            )
        );
    }
}
