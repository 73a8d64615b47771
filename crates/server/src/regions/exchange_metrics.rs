//! Duration and size of the batches that go to one region.

use std::time::Duration;

use tidegate_limiter::BorrowReport;
use tidegate_telemetry::{HistogramBounds, HistogramSnapshot, ValueHistogram};

use crate::telemetry::RegionEvent;

const DURATION_BOUNDS_US: HistogramBounds = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000,
    500_000, 1_000_000, 2_500_000,
];

/// Bounds of the number of counters in a batch.
const COUNTER_BOUNDS: HistogramBounds = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256];

/// Measures the batches to one region.
pub(crate) struct ExchangeMetrics {
    took_us: ValueHistogram,
    counters: ValueHistogram,
}

impl Default for ExchangeMetrics {
    fn default() -> Self {
        Self {
            took_us: ValueHistogram::new(&DURATION_BOUNDS_US),
            counters: ValueHistogram::new(&COUNTER_BOUNDS),
        }
    }
}

impl ExchangeMetrics {
    /// Records a batch, answered or not.
    pub(super) fn record(&self, region: &str, report: &BorrowReport, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.took_us.observe(took_us);
        if report.asked > 0 {
            self.counters.observe(report.asked as u64);
        }
        RegionEvent::UnitsBorrowed { region, report, took_us }.log();
    }

    /// How long batches took, in microseconds.
    pub(crate) fn durations(&self) -> HistogramSnapshot {
        self.took_us.snapshot()
    }

    /// For how many counters batches asked.
    pub(crate) fn counters(&self) -> HistogramSnapshot {
        self.counters.snapshot()
    }
}
