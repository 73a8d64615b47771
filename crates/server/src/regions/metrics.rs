//! Metrics of borrowing and lending in `/metrics`; none on a node without a region.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::store::Store;
use tidegate_limiter::{BorrowStats, BorrowedUnits, Limiter};
use tidegate_telemetry::{Exposition, MetricKind, MetricUnit, MetricsExporter};

use super::loans::{LentUnits, RegionLoans};
use super::{RegionLinks, RegionState};

/// Exports metrics of borrowing.
pub(crate) struct RegionMetrics<S, L> {
    pub(crate) limiter: Arc<Limiter<S, L>>,
    pub(crate) links: Arc<RegionLinks>,
}

impl<S: Store, L: Store> MetricsExporter for RegionMetrics<S, L> {
    fn export(&self, to: &mut Exposition) {
        export_loans(&self.links.lent_units(), to);
        let Some(stats) = self.limiter.borrow_stats() else { return };
        self.links.export(to);
        export_units(&stats, to);
    }
}

impl RegionLinks {
    fn export(&self, to: &mut Exposition) {
        let help = "Whether this node can borrow from a region: its store answers and has the \
                    right marker.";
        to.family("tidegate_region_up", MetricKind::Gauge, help);
        for link in self.iter() {
            let up = link.state() == RegionState::Usable;
            to.sample("", &[("region", &link.region)], u64::from(up));
        }
        let help = "Time of a batch to the store of another region, to its answer or the deadline.";
        to.family("tidegate_region_exchange_seconds", MetricKind::Histogram, help);
        for link in self.iter() {
            let durations = link.exchanges.durations();
            to.histogram(&[("region", &link.region)], &durations, MetricUnit::Micros);
        }
        let help = "Counters of which a batch asked for units.";
        to.family("tidegate_region_exchange_counters", MetricKind::Histogram, help);
        for link in self.iter() {
            let counters = link.exchanges.counters();
            to.histogram(&[("region", &link.region)], &counters, MetricUnit::One);
        }
    }
}

/// Every node of a region reads the same numbers.
fn export_loans(lent: &RegionLoans, to: &mut Exposition) {
    let mut sums: BTreeMap<&str, LentUnits> = BTreeMap::new();
    for (region, units) in lent.values().flatten() {
        let sum = sums.entry(region).or_default();
        sum.granted = sum.granted.saturating_add(units.granted);
        sum.returned = sum.returned.saturating_add(units.returned);
    }
    if sums.is_empty() {
        return;
    }
    let help = "Units of this region's share that nodes of another region borrowed and returned, \
                as they reported. All nodes of the lending region export the same numbers.";
    to.family("tidegate_region_units_lent", MetricKind::Counter, help);
    for (region, LentUnits { granted, returned }) in sums {
        to.sample("_total", &[("region", region), ("event", "granted")], granted);
        to.sample("_total", &[("region", region), ("event", "returned")], returned);
    }
}

fn export_units(stats: &BorrowStats, to: &mut Exposition) {
    let help = "Questions to the store of another region, each for units of one counter.";
    to.family("tidegate_region_questions", MetricKind::Counter, help);
    for lender in &stats.lenders {
        let answered = lender.questions.saturating_sub(lender.unanswered);
        for (outcome, count) in [("answered", answered), ("unanswered", lender.unanswered)] {
            to.sample("_total", &[("region", &*lender.region), ("outcome", outcome)], count);
        }
    }
    let units = units_by_region(stats);
    let help = "Borrowed units that this node holds.";
    to.family("tidegate_region_units_held", MetricKind::Gauge, help);
    for (region, units) in &units {
        to.sample("", &[("region", region)], units.held);
    }
    let help = "Borrowed units: granted by the store of the region, spent on requests, returned to \
                it, expired unspent.";
    to.family("tidegate_region_units", MetricKind::Counter, help);
    for (region, units) in &units {
        for (event, count) in [
            ("granted", units.granted),
            ("spent", units.spent()),
            ("returned", units.returned),
            ("expired", units.expired),
        ] {
            to.sample("_total", &[("region", region), ("event", event)], count);
        }
    }
    let help = "Requests that this node refused although another region had room.";
    to.family("tidegate_region_refusals_with_room", MetricKind::Counter, help);
    to.sample("_total", &[], stats.rules.values().map(|rule| rule.refused_with_room).sum());
}

/// The units of all rules together, for each region that may lend.
fn units_by_region(stats: &BorrowStats) -> BTreeMap<&str, BorrowedUnits> {
    let none = |region| (region, BorrowedUnits::default());
    let regions = stats.lenders.iter().map(|lender| none(&*lender.region));
    let mut sums: BTreeMap<&str, BorrowedUnits> = regions.collect();
    for (region, units) in stats.rules.values().flat_map(|rule| &rule.lenders) {
        let sum = sums.entry(region).or_default();
        sum.held += units.held;
        sum.granted += units.granted;
        sum.returned += units.returned;
        sum.expired += units.expired;
    }
    sums
}
