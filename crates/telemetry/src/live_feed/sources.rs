//! The data that metrics and the violation log add to each `tick` event.

use serde_json::{Value as Json, json};

use super::LiveSource;
use crate::metrics::DecisionMetrics;
use crate::violation_log::ViolationLog;

impl LiveSource for ViolationLog {
    fn live_data(&self) -> (&'static str, Json) {
        ("violations", json!(self.counts()))
    }
}

impl LiveSource for DecisionMetrics {
    fn live_data(&self) -> (&'static str, Json) {
        ("counts", json!(self.counts()))
    }
}
