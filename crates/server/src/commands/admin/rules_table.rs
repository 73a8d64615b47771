//! Rules as a table: what each says in a line, as it was typed.

use serde_json::Value as Json;
use tidegate_control::yaml_text::flow;

use super::pages::ListedRule;
use crate::output::{self, printable};

/// Fields that have columns of their own or are for people.
const APART: [&str; 8] =
    ["id", "policy_id", "rule_id", "match", "key_by", "is_active", "mode", "description"];

/// The table.
pub(super) fn rendered(rules: &[ListedRule]) -> String {
    if rules.is_empty() {
        return "no rules: every request passes\n".to_owned();
    }
    let mut rows = vec![["rule", "state", "by", "limit", "match"].map(str::to_owned).to_vec()];
    rows.extend(rules.iter().map(|ListedRule { id, rule, .. }| {
        vec![printable(id), state(rule), by(rule), limit(rule), matches(rule)]
    }));
    output::table(0, &rows)
}

fn state(rule: &Json) -> String {
    if rule.get("is_active") == Some(&Json::Bool(false)) {
        return "disabled".to_owned();
    }
    rule.get("mode").and_then(Json::as_str).map_or_else(|| "enforce".to_owned(), printable)
}

fn by(rule: &Json) -> String {
    match rule.get("key_by") {
        Some(Json::Array(parts)) => parts.iter().map(flow).collect::<Vec<_>>().join(":"),
        Some(Json::String(key)) => printable(key),
        Some(other) => flow(other),
        None => "-".to_owned(),
    }
}

/// The limit, and whatever else the rule says.
fn limit(rule: &Json) -> String {
    let Json::Object(fields) = rule else { return flow(rule) };
    let rest = fields.iter().filter(|(name, _)| !APART.contains(&name.as_str()));
    let said = rest.map(|(name, value)| match (name.as_str(), value) {
        ("limit", Json::String(limit)) => printable(limit),
        ("limit", Json::Object(limit)) => {
            let parts = limit.iter().map(|(name, value)| pair(name, value));
            parts.collect::<Vec<_>>().join(" ")
        }
        (name, value) => pair(name, value),
    });
    said.collect::<Vec<_>>().join(" ")
}

fn matches(rule: &Json) -> String {
    match rule.get("match") {
        Some(Json::Object(facts)) => {
            facts.iter().map(|(name, value)| pair(name, value)).collect::<Vec<_>>().join(" ")
        }
        Some(other) => flow(other),
        None => "everything".to_owned(),
    }
}

fn pair(name: &str, value: &Json) -> String {
    format!("{}={}", printable(name), value.as_str().map_or_else(|| flow(value), printable))
}
