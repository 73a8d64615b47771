//! Duration and size of the calls that the node makes for its leased and asynchronous counters.

use std::time::Duration;

use tidegate_limiter::StoreCallReport;
use tidegate_telemetry::{
    Exposition, HistogramBounds, MetricKind, MetricUnit, MetricsExporter, ValueHistogram,
};

use crate::telemetry::ServerEvent;

/// Bounds of durations, in microseconds.
const DURATION_BOUNDS_US: HistogramBounds = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000,
];

/// Bounds of granted units.
const UNIT_BOUNDS: HistogramBounds =
    [0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000];

/// Bounds of counters in one call, which are at most 64.
const COUNTER_BOUNDS: HistogramBounds = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64];

/// Records the calls.
pub struct StoreCallMetrics {
    grant_us: ValueHistogram,
    grant_units: ValueHistogram,
    flush_us: ValueHistogram,
    flush_counters: ValueHistogram,
}

impl Default for StoreCallMetrics {
    fn default() -> Self {
        Self {
            grant_us: ValueHistogram::new(&DURATION_BOUNDS_US),
            grant_units: ValueHistogram::new(&UNIT_BOUNDS),
            flush_us: ValueHistogram::new(&DURATION_BOUNDS_US),
            flush_counters: ValueHistogram::new(&COUNTER_BOUNDS),
        }
    }
}

impl StoreCallMetrics {
    /// Counts and logs a call. Calls without an answer count with their duration only.
    pub(crate) fn record(&self, report: &StoreCallReport, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        match *report {
            StoreCallReport::Grant { ref rule, most, granted } => {
                self.grant_us.observe(took_us);
                if let Some(granted) = granted {
                    self.grant_units.observe(granted.into());
                }
                ServerEvent::UnitsLeased { rule, most, granted, took_us }.log();
            }
            StoreCallReport::Flush { counters, answered, units } => {
                self.flush_us.observe(took_us);
                self.flush_counters.observe(counters as u64);
                ServerEvent::CountersFlushed { counters, answered, units, took_us }.log();
            }
            StoreCallReport::Other => {}
        }
    }
}

impl MetricsExporter for StoreCallMetrics {
    fn export(&self, to: &mut Exposition) {
        let help = "Time of a call to the store to lease units, to its answer or the deadline.";
        to.family("tidegate_lease_grant_duration_seconds", MetricKind::Histogram, help);
        to.histogram(&[], &self.grant_us.snapshot(), MetricUnit::Micros);
        let help = "Units that the store granted in one answer.";
        to.family("tidegate_lease_grant_units", MetricKind::Histogram, help);
        to.histogram(&[], &self.grant_units.snapshot(), MetricUnit::One);
        let help = "Time of a call to the store to flush counters, to its answer or the deadline.";
        to.family("tidegate_async_flush_duration_seconds", MetricKind::Histogram, help);
        to.histogram(&[], &self.flush_us.snapshot(), MetricUnit::Micros);
        let help = "Counters that were flushed in one call.";
        to.family("tidegate_async_flush_counters", MetricKind::Histogram, help);
        to.histogram(&[], &self.flush_counters.snapshot(), MetricUnit::One);
    }
}
