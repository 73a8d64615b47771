//! Status of this process and its store for the dashboard's live feed.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tidegate_core::time::Timestamp;
use tidegate_limiter::{HeldCounters, LeaseStats, Limiter, NodeHoldings};
use tidegate_memory::StoreUsage;
use tidegate_redis::Stats;
use tidegate_telemetry::live_feed::LiveSource;
use tidegate_web::ProcessStatus;

use crate::node;
use crate::regions::RegionStatus;
use crate::store::ManagedStore;

/// Reads the status of the process and its store.
pub(crate) struct LiveStatusSource<S: ManagedStore> {
    pub(crate) limiter: Arc<Limiter<S, S::Local>>,
    pub(crate) status: Arc<ProcessStatus>,
    pub(crate) regions: RegionStatus<S, S::Local>,
    /// The store's address as shown to people.
    pub(crate) store: String,
    /// When the process started serving.
    pub(crate) started: Timestamp,
}

impl<S: ManagedStore> LiveSource for LiveStatusSource<S> {
    fn live_data(&self) -> (&'static str, Json) {
        let data = json!({
            "status": self.status.ready_view(),
            "store": self.store,
            "servers": S::stats(&self.limiter).as_ref().map(servers_json),
            "memory": S::usage(&self.limiter).as_ref().map(memory_json),
            "leases": self.limiter.lease_stats().as_ref().map(leases_json),
            "holdings": self.limiter.holdings().as_ref().map(holdings_json),
            "regions": self.regions.to_json(),
            "node": node::name(),
            "started_us": self.started.as_micros(),
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
        });
        ("process", data)
    }
}

fn memory_json(usage: &StoreUsage) -> Json {
    let StoreUsage { keys, overflow, bytes, max_bytes, .. } = usage;
    json!({"keys": keys, "overflow": overflow, "bytes": bytes, "limit": max_bytes})
}

fn leases_json(stats: &LeaseStats) -> Json {
    let LeaseStats { counters, units_held, units_granted, units_spent, .. } = stats;
    let LeaseStats { units_returned, units_expired, .. } = stats;
    json!({
        "counters": counters,
        "units_held": units_held,
        "units_granted": units_granted,
        "units_spent": units_spent,
        "units_returned": units_returned,
        "units_expired": units_expired,
        "grants": stats.questions,
        "refused": stats.refused,
    })
}

/// What this node holds of the counters of each rule.
fn holdings_json(holdings: &NodeHoldings) -> Json {
    let json = |held: &HeldCounters| json!({"counters": held.counters, "units": held.units});
    let rules: Map<String, Json> =
        holdings.rules.iter().map(|(rule, held)| (rule.clone(), json(held))).collect();
    json!({"leased": json(&holdings.leased), "async": json(&holdings.unflushed), "rules": rules})
}

fn servers_json(stats: &Stats) -> Json {
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
