//! The picture of one instant for programs: rates a second, shares of 1, times in microseconds.

use serde_json::{Map, Value as Json, json};

use super::api_types::{LiveKey, LiveNode, VerdictTotals};
use super::snapshot::{QUANTILES, RuleActivity, TopSnapshot};
use super::tick_delta::BANDS;

/// All of it.
pub(super) fn to_json(picture: &TopSnapshot) -> Json {
    let process = &picture.tick.process;
    json!({
        "node": process.node,
        "version": process.version,
        "pid": process.pid,
        "status": process.status.status,
        "trouble": picture.server_error(),
        "up_seconds": picture.uptime_seconds(),
        "rules_version": picture.tick.office.version,
        "store": picture.store_summary(),
        "decisions": picture.total,
        "decisions_per_second": from_thousandths(picture.bands.iter().sum()),
        "per_second": named_values(BANDS, picture.bands.map(Some)),
        "refused_share": picture.refused.map(from_thousandths),
        "took_us": named_values(QUANTILES.map(|(name, _)| name), picture.latencies),
        "rules": picture.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "keys": picture.keys.iter().map(key_json).collect::<Vec<_>>(),
        "nodes": picture.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn rule_json(row: &RuleActivity) -> Json {
    let VerdictTotals { allow, deny, shadow_deny, warn, ban } = row.since_start;
    json!({
        "id": row.id,
        "endpoint": row.endpoint,
        "mode": row.mode,
        "is_active": row.is_active,
        "asked_per_second": from_thousandths(row.requests),
        "refused_per_second": from_thousandths(row.refused),
        "refused_share": row.share.map(from_thousandths),
        "used": row.used.map(from_thousandths),
        "scarce_share": row.near_limit.map(from_thousandths),
        "most_in_window": row.most_in_window,
        "verdicts": {"allow": allow, "deny": deny, "shadow_deny": shadow_deny, "warn": warn, "ban": ban},
    })
}

fn key_json(key: &LiveKey) -> Json {
    let LiveKey { kind, rule, key, who, count, error, spread } = key;
    json!({"kind": kind, "rule": rule, "key": key, "who": who, "count": count, "error": error, "spread": spread})
}

fn node_json(node: &LiveNode) -> Json {
    let LiveNode { name, version, behind, silent } = node;
    json!({"name": name, "version": version, "behind": behind, "silent": silent})
}

fn named_values<const N: usize>(names: [&str; N], values: [Option<u64>; N]) -> Map<String, Json> {
    let values = values.map(|value| json!(value.map(from_thousandths)));
    names.map(str::to_owned).into_iter().zip(values).collect()
}

/// What is kept in thousandths.
fn from_thousandths(thousandths: u64) -> f64 {
    thousandths as f64 / 1_000.0
}
