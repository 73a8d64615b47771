//! Renders rules as a table, one line per rule.

use serde_json::Value as Json;
use tidegate_rules::yaml_writer::render_flow;

use super::pagination::ListedRule;
use crate::table::format_table;
use tidegate_server::output::escape_unprintable;

/// Fields that the limit column omits: they have separate columns, or do not affect decisions.
const EXCLUDED_FIELDS: [&str; 8] =
    ["id", "policy_id", "rule_id", "match", "key_by", "is_active", "mode", "description"];

/// Renders the table.
pub(super) fn render_table(rules: &[ListedRule]) -> String {
    if rules.is_empty() {
        return "no rules: every request passes\n".to_owned();
    }
    let mut rows = vec![["rule", "state", "by", "limit", "match"].map(str::to_owned).to_vec()];
    rows.extend(rules.iter().map(|ListedRule { id, rule, .. }| {
        vec![
            escape_unprintable(id),
            state_column(rule),
            key_column(rule),
            limit_column(rule),
            match_column(rule),
        ]
    }));
    format_table(0, &rows)
}

fn state_column(rule: &Json) -> String {
    if rule.get("is_active") == Some(&Json::Bool(false)) {
        return "disabled".to_owned();
    }
    rule.get("mode").and_then(Json::as_str).map_or_else(|| "enforce".to_owned(), escape_unprintable)
}

fn key_column(rule: &Json) -> String {
    match rule.get("key_by") {
        Some(Json::Array(parts)) => parts.iter().map(render_flow).collect::<Vec<_>>().join(":"),
        Some(Json::String(key)) => escape_unprintable(key),
        Some(other) => render_flow(other),
        None => "-".to_owned(),
    }
}

/// The limit, and all fields of the rule without a column.
fn limit_column(rule: &Json) -> String {
    let Json::Object(fields) = rule else { return render_flow(rule) };
    let rest = fields.iter().filter(|(name, _)| !EXCLUDED_FIELDS.contains(&name.as_str()));
    let cells = rest.map(|(name, value)| match (name.as_str(), value) {
        ("limit", Json::String(limit)) => escape_unprintable(limit),
        ("limit", Json::Object(limit)) => {
            let parts = limit.iter().map(|(name, value)| format_pair(name, value));
            parts.collect::<Vec<_>>().join(" ")
        }
        (name, value) => format_pair(name, value),
    });
    cells.collect::<Vec<_>>().join(" ")
}

fn match_column(rule: &Json) -> String {
    match rule.get("match") {
        Some(Json::Object(facts)) => {
            facts.iter().map(|(name, value)| format_pair(name, value)).collect::<Vec<_>>().join(" ")
        }
        Some(other) => render_flow(other),
        None => "everything".to_owned(),
    }
}

fn format_pair(name: &str, value: &Json) -> String {
    format!(
        "{}={}",
        escape_unprintable(name),
        value.as_str().map_or_else(|| render_flow(value), escape_unprintable)
    )
}
