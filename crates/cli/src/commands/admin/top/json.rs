//! The snapshot as JSON: rates per second, shares from 0 to 1, times in microseconds.

use serde_json::{Map, Value as Json, json};

use super::api_types::{LiveKey, LiveNode, VerdictTotals};
use super::snapshot::{QUANTILES, RuleActivity, TopSnapshot};
use super::tick_delta::BANDS;

/// Converts a snapshot to JSON.
pub(super) fn to_json(snapshot: &TopSnapshot) -> Json {
    let process = &snapshot.tick.process;
    json!({
        "node": process.node,
        "version": process.version,
        "pid": process.pid,
        "status": process.status.status,
        "trouble": snapshot.server_error(),
        "up_seconds": snapshot.uptime_seconds(),
        "rules_version": snapshot.tick.rule_source.version,
        "store": snapshot.store_summary(),
        "decisions": snapshot.total,
        "decisions_per_second": from_thousandths(snapshot.bands.iter().sum()),
        "per_second": named_values(BANDS, snapshot.bands.map(Some)),
        "refused_share": snapshot.refused.map(from_thousandths),
        "local_share": snapshot.local.map(from_thousandths),
        "took_us": named_values(QUANTILES.map(|(name, _)| name), snapshot.latencies),
        "rules": snapshot.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "keys": snapshot.keys.iter().map(key_json).collect::<Vec<_>>(),
        "nodes": snapshot.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn rule_json(row: &RuleActivity) -> Json {
    let VerdictTotals { allow, deny, shadow_deny, warn, ban } = row.since_start;
    json!({
        "id": row.id,
        "endpoint": row.endpoint,
        "mode": row.mode,
        "consistency": row.consistency,
        "is_active": row.is_active,
        "asked_per_second": from_thousandths(row.requests),
        "refused_per_second": from_thousandths(row.refused),
        "refused_share": row.share.map(from_thousandths),
        "used": row.used.map(from_thousandths),
        "scarce_share": row.near_limit.map(from_thousandths),
        "max_in_window": row.max_in_window,
        "region_share": row.region_share,
        "borrowed": row.borrowed,
        "lent": row.lent,
        "verdicts": {"allow": allow, "deny": deny, "shadow_deny": shadow_deny, "warn": warn, "ban": ban},
    })
}

fn key_json(key: &LiveKey) -> Json {
    let LiveKey { kind, rule, key, client, count, error, spread } = key;
    json!({"kind": kind, "rule": rule, "key": key, "client": client, "count": count, "error": error, "spread": spread})
}

fn node_json(node: &LiveNode) -> Json {
    let LiveNode { name, version, behind, silent } = node;
    json!({"name": name, "version": version, "behind": behind, "silent": silent})
}

fn named_values<const N: usize>(names: [&str; N], values: [Option<u64>; N]) -> Map<String, Json> {
    let values = values.map(|value| json!(value.map(from_thousandths)));
    names.map(str::to_owned).into_iter().zip(values).collect()
}

/// Converts from thousandths, in which rates, shares and times are kept.
fn from_thousandths(thousandths: u64) -> f64 {
    thousandths as f64 / 1_000.0
}
