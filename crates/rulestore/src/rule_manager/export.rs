//! Metrics of the rule manager: the active version, its entries, and propagation delay.

use super::RuleManager;
use crate::rule_config;
use tidegate_telemetry::{Exposition, HistogramBounds, MetricKind, MetricUnit, MetricsExporter};

/// Histogram bounds of the propagation delay, in microseconds.
pub(super) const PROPAGATION_BOUNDS_US: HistogramBounds = [
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

impl MetricsExporter for RuleManager {
    fn export(&self, to: &mut Exposition) {
        let config = self.config();
        let help = "Version of the active rules; 0 if they do not come from a rules database.";
        to.family("tidegate_rules_version", MetricKind::Gauge, help);
        to.sample("", &[], config.version());
        let help = "Number of entries in the active rule configuration, by kind.";
        to.family("tidegate_rules_entries", MetricKind::Gauge, help);
        for kind in rule_config::EntryKind::ALL {
            to.sample("", &[("kind", kind.name())], config.entries(kind, None).count() as u64);
        }
        let help =
            "Time from writing a rules version, by the writer's clock, until it is active here.";
        to.family("tidegate_rules_propagation_seconds", MetricKind::Histogram, help);
        to.histogram(&[], &self.propagation.snapshot(), MetricUnit::Micros);
    }
}
