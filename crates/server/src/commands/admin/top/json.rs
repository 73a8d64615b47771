//! The picture of one instant for programs: rates a second, shares of 1, times in microseconds.

use serde_json::{Map, Value as Json, json};

use super::picture::{Picture, QUANTILES, RuleRow};
use super::step::BANDS;
use super::tick::{Key, Node, Verdicts};

/// All of it.
pub(super) fn of(picture: &Picture) -> Json {
    let process = &picture.tick.process;
    json!({
        "node": process.node,
        "version": process.version,
        "pid": process.pid,
        "status": process.status.status,
        "trouble": picture.trouble(),
        "up_seconds": picture.up(),
        "rules_version": picture.tick.office.version,
        "store": picture.store(),
        "decisions": picture.total,
        "decisions_per_second": whole(picture.bands.iter().sum()),
        "per_second": named(BANDS, picture.bands.map(Some)),
        "refused_share": picture.refused.map(whole),
        "took_us": named(QUANTILES.map(|(name, _)| name), picture.times),
        "rules": picture.rules.iter().map(rule).collect::<Vec<_>>(),
        "keys": picture.keys.iter().map(key).collect::<Vec<_>>(),
        "nodes": picture.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

fn rule(row: &RuleRow) -> Json {
    let Verdicts { allow, deny, shadow_deny, warn, ban } = row.since_start;
    json!({
        "id": row.id,
        "endpoint": row.endpoint,
        "mode": row.mode,
        "is_active": row.is_active,
        "asked_per_second": whole(row.asked),
        "refused_per_second": whole(row.refused),
        "refused_share": row.share.map(whole),
        "used": row.used.map(whole),
        "scarce_share": row.scarce.map(whole),
        "most_in_window": row.most_in_window,
        "verdicts": {"allow": allow, "deny": deny, "shadow_deny": shadow_deny, "warn": warn, "ban": ban},
    })
}

fn key(key: &Key) -> Json {
    let Key { kind, rule, key, who, count, error, spread } = key;
    json!({"kind": kind, "rule": rule, "key": key, "who": who, "count": count, "error": error, "spread": spread})
}

fn node(node: &Node) -> Json {
    let Node { name, version, behind, silent } = node;
    json!({"name": name, "version": version, "behind": behind, "silent": silent})
}

fn named<const N: usize>(names: [&str; N], values: [Option<u64>; N]) -> Map<String, Json> {
    let values = values.map(|value| json!(value.map(whole)));
    names.map(str::to_owned).into_iter().zip(values).collect()
}

/// What is kept in thousandths.
fn whole(thousandths: u64) -> f64 {
    thousandths as f64 / 1_000.0
}
