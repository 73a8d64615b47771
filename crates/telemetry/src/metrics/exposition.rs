//! Metrics as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0 where that is asked for.

use std::fmt::Write as _;

use super::counts::HistogramSnapshot;

/// Whoever has something to tell.
pub trait MetricsExporter: Send + Sync {
    /// Tells it.
    fn export(&self, to: &mut Exposition);
}

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
    /// It is 1; the labels say it all.
    Info,
}

/// What a whole number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Itself.
    One,
    /// Hundredths.
    Hundredths,
    /// Microseconds, told in seconds.
    Micros,
}

/// A page of metrics in the making.
#[derive(Debug)]
pub struct Exposition {
    text: String,
    open_metrics: bool,
    name: &'static str,
    kind: MetricKind,
}

impl Exposition {
    /// An empty page, in one format or the other.
    #[must_use]
    pub const fn new(open_metrics: bool) -> Self {
        Self { text: String::new(), open_metrics, name: "", kind: MetricKind::Gauge }
    }

    /// Begins a family of samples. The name of a counter is without `_total`.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        (self.name, self.kind) = (name, kind);
        let (suffix, word) = match (kind, self.open_metrics) {
            (MetricKind::Counter, true) => ("", "counter"),
            // The older format knows a counter by its whole name.
            (MetricKind::Counter, false) => ("_total", "counter"),
            (MetricKind::Histogram, _) => ("", "histogram"),
            (MetricKind::Info, true) => ("", "info"),
            (MetricKind::Info, false) => ("_info", "gauge"),
            (MetricKind::Gauge, _) => ("", "gauge"),
        };
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}");
        let _ = writeln!(self.text, "# TYPE {name}{suffix} {word}");
    }

    /// A sample of the family; a counter's has the suffix `_total`.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: u64) {
        self.write_sample(suffix, labels, &value.to_string());
    }

    /// A sample in a unit.
    pub fn measure(&mut self, labels: &[(&str, &str)], value: u64, unit: MetricUnit) {
        self.write_sample("", labels, &unit.format_value(value));
    }

    /// The samples of a histogram.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        told: &HistogramSnapshot,
        unit: MetricUnit,
    ) {
        let bounds = told.bounds.iter().map(|bound| unit.format_value(*bound));
        let mut count = 0;
        for (le, more) in bounds.chain(["+Inf".to_owned()]).zip(&told.counts) {
            count += more;
            let labels: Vec<_> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            self.sample("_bucket", &labels, count);
        }
        self.write_sample("_sum", labels, &unit.format_value(told.sum));
        self.sample("_count", labels, count);
    }

    /// The page.
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
    /// A number of it as a decimal fraction, with at least one digit after the point as OpenMetrics has it.
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
