//! What this process tells of itself in `/metrics`, besides what is counted of decisions. Stores tell plain numbers;
//! their names are here.

use std::sync::Arc;

use tidegate_control::{Distribution, Exports, Exposition, MetricKind, Unit};
use tidegate_edge::Status;
use tidegate_edge::trace::{Tally, Tracer};
use tidegate_engine::Limiter;
use tidegate_memory::Usage;
use tidegate_redis::{BreakerState, Histogram, Stats};

use crate::store::Tended;

/// The process and its store.
pub(crate) struct Process<S: Tended> {
    pub(crate) limiter: Arc<Limiter<S, S::Local>>,
    pub(crate) status: Arc<Status>,
}

impl<S: Tended> Exports for Process<S> {
    fn export(&self, to: &mut Exposition) {
        to.family("tidegate_build", MetricKind::Info, "The program.");
        to.sample("_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.rules(to);
        let help = "Whether the store of the counters answers; each rule's on_fail does otherwise.";
        to.family("tidegate_store_up", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(!self.status.has_store_error()));
        if let Some(usage) = S::usage(&self.limiter) {
            memory(&usage, to);
        }
        if let Some(stats) = S::stats(&self.limiter) {
            servers(&stats, to);
        }
    }
}

impl<S: Tended> Process<S> {
    fn rules(&self, to: &mut Exposition) {
        let help = "Whether the last good rules are in force because newer ones cannot be.";
        to.family("tidegate_rules_degraded", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(self.status.has_reload_error()));
        let reloads = self.status.reloads();
        let help = "Rules that came into force, the first included, and those that could not.";
        to.family("tidegate_rules_reloads", MetricKind::Counter, help);
        for (outcome, count) in [("ok", reloads.ok), ("failed", reloads.failed)] {
            to.sample("_total", &[("outcome", outcome)], count);
        }
        let help =
            "A number that tells rules apart: the version of a database, else a hash of the file.";
        to.family("tidegate_rules_fingerprint", MetricKind::Gauge, help);
        // Numbers of Prometheus are exact below 2^53.
        to.sample("", &[], self.limiter.rules().version() & ((1 << 53) - 1));
    }
}

/// What becomes of traces, where they are made.
pub(crate) struct Traces(pub(crate) Tracer);

impl Exports for Traces {
    fn export(&self, to: &mut Exposition) {
        let Tally { exported, dropped, waiting } = self.0.tally();
        let help = "Spans of traces, and what became of them.";
        to.family("tidegate_trace_spans", MetricKind::Counter, help);
        for (fate, count) in [("exported", exported), ("dropped", dropped)] {
            to.sample("_total", &[("fate", fate)], count);
        }
        let help = "Spans that wait for the collector.";
        to.family("tidegate_trace_spans_waiting", MetricKind::Gauge, help);
        to.sample("", &[], waiting);
    }
}

fn memory(usage: &Usage, to: &mut Exposition) {
    let Usage { keys, overflow, bytes, max_bytes, reclaimed, overflowed } = *usage;
    to.family(
        "tidegate_memory_keys",
        MetricKind::Gauge,
        "Keys with a place of their own in memory.",
    );
    to.sample("", &[], keys as u64);
    let help = "States that keys share for which there was no place.";
    to.family("tidegate_memory_overflow_states", MetricKind::Gauge, help);
    to.sample("", &[], overflow as u64);
    to.family("tidegate_memory_bytes", MetricKind::Gauge, "Bytes that the counters take.");
    to.sample("", &[], bytes);
    let help = "Bytes that the counters may take (--memory-limit).";
    to.family("tidegate_memory_limit_bytes", MetricKind::Gauge, help);
    to.sample("", &[], max_bytes);
    let help = "Keys that were dropped because they were equal to fresh; no other is.";
    to.family("tidegate_memory_reclaimed_keys", MetricKind::Counter, help);
    to.sample("_total", &[], reclaimed);
    let help = "Charges of keys for which there was no place, so that they shared a state.";
    to.family("tidegate_memory_overflow_charges", MetricKind::Counter, help);
    to.sample("_total", &[], overflowed);
}

fn servers(stats: &Stats, to: &mut Exposition) {
    let help = "From when commands are sent to a server until their answers are there.";
    to.family("tidegate_store_round_trip_seconds", MetricKind::Histogram, help);
    to.distribution(&[], &distribution(&stats.round_trip_us), Unit::Micros);
    let help = "Requests that travelled to a server together.";
    to.family("tidegate_store_batch_requests", MetricKind::Histogram, help);
    to.distribution(&[], &distribution(&stats.batch), Unit::One);
    let help = "Requests that the store did not answer, by why.";
    to.family("tidegate_store_errors", MetricKind::Counter, help);
    for (cause, count) in &stats.errors {
        to.sample("_total", &[("kind", cause.name())], *count);
    }
    let help = "Whether a server is asked: always (closed), by a part (closing), or not (open).";
    to.family("tidegate_store_breaker", MetricKind::Gauge, help);
    for (server, state) in &stats.servers {
        for known in BreakerState::ALL {
            let labels = [("server", server.as_str()), ("state", known.name())];
            to.sample("", &labels, u64::from(known == *state));
        }
    }
    let help = "Nodes that count in the store, as far as this one knows.";
    to.family("tidegate_store_nodes", MetricKind::Gauge, help);
    to.sample("", &[], u64::from(stats.nodes));
}

fn distribution(told: &Histogram) -> Distribution {
    Distribution { bounds: told.bounds, counts: told.counts.clone(), sum: told.sum }
}
