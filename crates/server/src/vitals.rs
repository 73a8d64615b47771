//! How this process and its store are, for whoever watches the dashboard.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tidegate_control::live::Tells;
use tidegate_core::time::Timestamp;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_memory::Usage;
use tidegate_redis::Stats;

use crate::node;
use crate::store::Tended;

/// The process and its store.
pub(crate) struct Vitals<S: Tended> {
    pub(crate) limiter: Arc<Limiter<S, S::Local>>,
    pub(crate) status: Arc<Status>,
    /// Where the counters are, in words.
    pub(crate) store: String,
    /// When the process began to serve.
    pub(crate) started: Timestamp,
}

impl<S: Tended> Tells for Vitals<S> {
    fn tell(&self) -> (&'static str, Json) {
        let told = json!({
            "status": self.status.told(),
            "store": self.store,
            "servers": S::stats(&self.limiter).as_ref().map(servers),
            "memory": S::usage(&self.limiter).as_ref().map(memory),
            "node": node::name(),
            "started_us": self.started.as_micros(),
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
        });
        ("process", told)
    }
}

fn memory(usage: &Usage) -> Json {
    let Usage { keys, overflow, bytes, max_bytes, .. } = usage;
    json!({"keys": keys, "overflow": overflow, "bytes": bytes, "limit": max_bytes})
}

fn servers(stats: &Stats) -> Json {
    let breakers = stats
        .servers
        .iter()
        .map(|(server, state)| json!({"server": server, "breaker": state.name()}));
    let errors: Map<String, Json> = stats
        .errors
        .iter()
        .map(|(cause, count)| (cause.name().to_owned(), (*count).into()))
        .collect();
    json!({
        "breakers": breakers.collect::<Vec<_>>(),
        "nodes": stats.nodes,
        "errors": errors,
        "round_trip_us": {"sum": stats.round_trip_us.sum, "count": stats.round_trip_us.counts.iter().sum::<u64>()},
    })
}
