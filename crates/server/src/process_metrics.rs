//! Metrics of the process and its store in `/metrics`. Stores report plain numbers; this module
//! gives them names and help texts. Metrics of decisions are elsewhere.

use std::sync::Arc;

use tidegate_limiter::{AsyncStats, LeaseStats, Limiter};
use tidegate_memory::StoreUsage;
use tidegate_redis::{BreakerState, RedisHistogram, Stats};
use tidegate_telemetry::trace::{SpanExportStats, Tracer};
use tidegate_telemetry::{Exposition, HistogramSnapshot, MetricKind, MetricUnit, MetricsExporter};
use tidegate_web::ProcessStatus;

use crate::store::ManagedStore;
use crate::store_calls::StoreCallMetrics;

/// Exports metrics of the process and its store.
pub(crate) struct ProcessMetrics<S: ManagedStore> {
    pub(crate) limiter: Arc<Limiter<S, S::Local>>,
    pub(crate) status: Arc<ProcessStatus>,
    pub(crate) store_calls: Arc<StoreCallMetrics>,
}

impl<S: ManagedStore> MetricsExporter for ProcessMetrics<S> {
    fn export(&self, to: &mut Exposition) {
        to.family("tidegate_build", MetricKind::Info, "Version of the running program.");
        to.sample("_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.export_rules(to);
        let help = "Whether the counter store answers; if not, each rule's on_fail applies.";
        to.family("tidegate_store_up", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(!self.status.has_store_error()));
        if let Some(usage) = S::usage(&self.limiter) {
            export_memory(&usage, to);
        }
        if let Some(stats) = S::stats(&self.limiter) {
            export_servers(&stats, to);
        }
        if let Some(stats) = self.limiter.lease_stats() {
            export_leases(&stats, to);
        }
        if let Some(stats) = self.limiter.async_stats() {
            export_flushes(&stats, to);
            self.store_calls.export(to);
        }
    }
}

impl<S: ManagedStore> ProcessMetrics<S> {
    fn export_rules(&self, to: &mut Exposition) {
        let help = "Whether newer rules failed to load and the previous ones stay active.";
        to.family("tidegate_rules_degraded", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(self.status.has_reload_error()));
        let reloads = self.status.reload_counts();
        let help = "Rule sets loaded, including the first, and rule sets that failed to load.";
        to.family("tidegate_rules_reloads", MetricKind::Counter, help);
        for (outcome, count) in [("ok", reloads.ok), ("failed", reloads.failed)] {
            to.sample("_total", &[("outcome", outcome)], count);
        }
        let help = "Identifies the active rules: the database version, or a hash of the file.";
        to.family("tidegate_rules_fingerprint", MetricKind::Gauge, help);
        // Prometheus values are floats, which represent integers exactly only below 2^53.
        to.sample("", &[], self.limiter.rules().version() & ((1 << 53) - 1));
    }
}

/// Exports metrics of the span exporter.
pub(crate) struct TraceMetrics(pub(crate) Tracer);

impl MetricsExporter for TraceMetrics {
    fn export(&self, to: &mut Exposition) {
        let SpanExportStats { exported, dropped, waiting } = self.0.export_stats();
        let help = "Trace spans by outcome.";
        to.family("tidegate_trace_spans", MetricKind::Counter, help);
        for (result, count) in [("exported", exported), ("dropped", dropped)] {
            to.sample("_total", &[("result", result)], count);
        }
        let help = "Spans waiting to be sent to the collector.";
        to.family("tidegate_trace_spans_waiting", MetricKind::Gauge, help);
        to.sample("", &[], waiting);
    }
}

fn export_memory(usage: &StoreUsage, to: &mut Exposition) {
    let StoreUsage { keys, overflow, bytes, max_bytes, reclaimed, overflowed } = *usage;
    to.family("tidegate_memory_keys", MetricKind::Gauge, "Keys with a separate counter in memory.");
    to.sample("", &[], keys as u64);
    let help = "Overflow buckets: shared counters for keys that found no free slot.";
    to.family("tidegate_memory_overflow_states", MetricKind::Gauge, help);
    to.sample("", &[], overflow as u64);
    to.family("tidegate_memory_bytes", MetricKind::Gauge, "Memory used by the counters.");
    to.sample("", &[], bytes);
    let help = "Memory limit for the counters (--memory-limit).";
    to.family("tidegate_memory_limit_bytes", MetricKind::Gauge, help);
    to.sample("", &[], max_bytes);
    let help = "Keys removed after their quota had fully recovered; no other keys are removed.";
    to.family("tidegate_memory_reclaimed_keys", MetricKind::Counter, help);
    to.sample("_total", &[], reclaimed);
    let help = "Charges to overflow buckets.";
    to.family("tidegate_memory_overflow_charges", MetricKind::Counter, help);
    to.sample("_total", &[], overflowed);
}

fn export_leases(stats: &LeaseStats, to: &mut Exposition) {
    let LeaseStats {
        counters,
        units_held,
        units_granted,
        units_spent,
        units_returned,
        units_expired,
        questions,
        refused,
    } = *stats;
    to.family("tidegate_lease_counters", MetricKind::Gauge, "Counters that this node leases.");
    to.sample("", &[], counters as u64);
    let help = "Units that this node has leased and not spent.";
    to.family("tidegate_lease_units_held", MetricKind::Gauge, help);
    to.sample("", &[], units_held);
    let help = "Leased units: granted by the store, spent on requests, returned to the store, expired unspent.";
    to.family("tidegate_lease_units", MetricKind::Counter, help);
    for (event, count) in [
        ("granted", units_granted),
        ("spent", units_spent),
        ("returned", units_returned),
        ("expired", units_expired),
    ] {
        to.sample("_total", &[("event", event)], count);
    }
    let help = "Calls to the store to lease units.";
    to.family("tidegate_lease_grants", MetricKind::Counter, help);
    to.sample("_total", &[], questions);
    let help = "Requests that this node refused because the store had no units left to lease.";
    to.family("tidegate_lease_refusals", MetricKind::Counter, help);
    to.sample("_total", &[], refused);
}

fn export_flushes(stats: &AsyncStats, to: &mut Exposition) {
    let AsyncStats { counters, units_open, units_admitted, units_flushed, .. } = *stats;
    let AsyncStats { units_lost, units_overshot, flushes, flush_calls, refused, .. } = *stats;
    let help = "Asynchronous counters of which this node has a view.";
    to.family("tidegate_async_counters", MetricKind::Gauge, help);
    to.sample("", &[], counters as u64);
    let help = "Units admitted by this node that the store has not confirmed.";
    to.family("tidegate_async_units_open", MetricKind::Gauge, help);
    to.sample("", &[], units_open);
    let help = "Units of asynchronous rules: admitted by the node, flushed to the store, lost with a \
                flush that may not have run, overshot (they did not fit when flushed).";
    to.family("tidegate_async_units", MetricKind::Counter, help);
    for (event, count) in [
        ("admitted", units_admitted),
        ("flushed", units_flushed),
        ("lost", units_lost),
        ("overshot", units_overshot),
    ] {
        to.sample("_total", &[("event", event)], count);
    }
    let help = "Flushes confirmed by the store, one for each counter.";
    to.family("tidegate_async_flushes", MetricKind::Counter, help);
    to.sample("_total", &[], flushes);
    let help = "Calls to the store to flush counters, each for up to 64 of them.";
    to.family("tidegate_async_flush_calls", MetricKind::Counter, help);
    to.sample("_total", &[], flush_calls);
    let help = "Requests of asynchronous rules that this node refused without asking the store.";
    to.family("tidegate_async_refusals", MetricKind::Counter, help);
    to.sample("_total", &[], refused);
}

fn export_servers(stats: &Stats, to: &mut Exposition) {
    let help = "Time from sending commands to a server until its replies arrive.";
    to.family("tidegate_store_round_trip_seconds", MetricKind::Histogram, help);
    to.histogram(&[], &to_distribution(&stats.round_trip_us), MetricUnit::Micros);
    let help = "Requests sent to a server in one batch.";
    to.family("tidegate_store_batch_requests", MetricKind::Histogram, help);
    to.histogram(&[], &to_distribution(&stats.batch), MetricUnit::One);
    let help = "Requests that the store did not answer, by cause.";
    to.family("tidegate_store_errors", MetricKind::Counter, help);
    for (cause, count) in &stats.errors {
        to.sample("_total", &[("kind", cause.name())], *count);
    }
    let help = "Circuit breaker state: closed sends all requests, closing some, open none.";
    to.family("tidegate_store_breaker", MetricKind::Gauge, help);
    for (server, state) in &stats.servers {
        for known in BreakerState::ALL {
            let labels = [("server", server.as_str()), ("state", known.name())];
            to.sample("", &labels, u64::from(known == *state));
        }
    }
    let help = "Nodes that use the store, as seen by this node.";
    to.family("tidegate_store_nodes", MetricKind::Gauge, help);
    to.sample("", &[], u64::from(stats.nodes));
}

fn to_distribution(histogram: &RedisHistogram) -> HistogramSnapshot {
    HistogramSnapshot {
        bounds: histogram.bounds,
        counts: histogram.counts.clone(),
        sum: histogram.sum,
    }
}
