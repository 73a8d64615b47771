//! What this process tells of itself in `/metrics`, besides what is counted of decisions.

use std::sync::Arc;

use tidegate_control::{Exports, Exposition, MetricKind};
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_memory::Usage;

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
        let help = "Whether the last good rules are in force because newer ones cannot be.";
        to.family("tidegate_rules_degraded", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(self.status.has_reload_error()));
        let help = "Whether the store of the counters answers; each rule's on_fail does otherwise.";
        to.family("tidegate_store_up", MetricKind::Gauge, help);
        to.sample("", &[], u64::from(!self.status.has_store_error()));
        if let Some(Usage { keys, overflow, bytes }) = S::usage(&self.limiter) {
            let help = "Keys with a place of their own in memory.";
            to.family("tidegate_memory_keys", MetricKind::Gauge, help);
            to.sample("", &[], keys as u64);
            let help = "States that keys share for which there was no place.";
            to.family("tidegate_memory_overflow_states", MetricKind::Gauge, help);
            to.sample("", &[], overflow as u64);
            to.family("tidegate_memory_bytes", MetricKind::Gauge, "Bytes that the counters take.");
            to.sample("", &[], bytes);
        }
    }
}
