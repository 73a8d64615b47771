//! Converts rows of a rule table to rules.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use super::columns::FIELDS;
use crate::compile::ValidationError;
use crate::edit::EntryUpdate;
use crate::entry_value::PositionedRule;
use crate::rule_config::EntryKind;

/// The fields of a row as text, in the order of [`FIELDS`].
pub(super) type TableRow = (
    NullableText,
    NullableText,
    NullableText,
    NullableText,
    NullableText,
    NullableText,
    NullableText,
    NullableText,
);
type NullableText = Option<String>;

/// Maximum decimals of a rate. Floating-point columns have more.
const RATE_DECIMALS: usize = 9;

/// The rules of a table as of one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRules {
    /// The valid rules, in the order of their ids.
    pub entries: Vec<EntryUpdate>,
    /// Errors of the rows that are not valid rules, by `rule_id`.
    pub errors: Vec<ValidationError>,
}

impl TableRules {
    pub(super) fn new(rows: Vec<TableRow>) -> Self {
        let (mut rules, mut seen) = (Self::default(), HashSet::new());
        for (position, row) in (0..).zip(rows) {
            let (id, pattern, scope, rate, burst, plan, is_active, description) = row;
            let id = id.unwrap_or_else(|| derived_id(pattern.as_deref(), plan.as_deref()));
            let fields = [None, pattern, scope, rate, burst, plan, is_active, description];
            let errors_before = rules.errors.len();
            for at in [1, 3, 4] {
                if fields[at].is_none() {
                    rules.errors.push(row_error(&id, FIELDS[at], "must not be NULL", "a value"));
                }
            }
            if !seen.insert(id.clone()) {
                let message = "another row has this rule_id";
                rules.errors.push(row_error(&id, "rule_id", message, "a unique id"));
            }
            if rules.errors.len() == errors_before {
                let rule = rule_json(&id, fields);
                rules.entries.push(EntryUpdate::put(
                    EntryKind::Rule,
                    &id,
                    &PositionedRule { position, rule },
                ));
            }
        }
        rules
    }
}

/// The id of a row without one: SQLite does not fill a `BIGSERIAL` column. A pattern is unique per
/// plan.
fn derived_id(pattern: Option<&str>, plan: Option<&str>) -> String {
    let pattern = pattern.unwrap_or("NULL");
    plan.map_or_else(|| pattern.to_owned(), |plan| format!("{pattern} {plan}"))
}

/// The rule as written in a rules document.
fn rule_json(id: &str, fields: [NullableText; FIELDS.len()]) -> Json {
    let mut rule = Map::from_iter([("id".to_owned(), Json::from(id))]);
    for (name, value) in FIELDS.into_iter().zip(fields) {
        let Some(value) = value else { continue };
        let value = match name {
            "rate_per_second" => normalize_rate(value).into(),
            "burst_capacity" => {
                value.parse::<u64>().map_or_else(|_| value.clone().into(), Json::from)
            }
            "is_active" => parse_is_active(value),
            _ => value.into(),
        };
        rule.insert(name.to_owned(), value);
    }
    Json::Object(rule)
}

/// A rate without exponent, rounded to the decimals that rules support.
fn normalize_rate(text: String) -> String {
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (!plain || decimals > RATE_DECIMALS) => {
            format!("{rate:.RATE_DECIMALS$}")
        }
        _ => text,
    }
}

/// A boolean as PostgreSQL and SQLite write it; anything else is refused at compilation.
fn parse_is_active(text: String) -> Json {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => true.into(),
        "false" | "f" | "0" => false.into(),
        _ => text.into(),
    }
}

fn row_error(id: &str, field: &str, message: &str, hint: &str) -> ValidationError {
    ValidationError {
        entry: Some((EntryKind::Rule, id.to_owned())),
        field: field.to_owned(),
        found: None,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_rate_becomes_decimal() {
        for (text, decimal) in [
            ("10", "10"),
            ("0.5", "0.5"),
            ("10.0", "10.0"),
            ("0.3333333333333333", "0.333333333"),
            ("1e-05", "0.000010000"),
            ("1e+15", "1000000000000000.000000000"),
            ("NaN", "NaN"),
            ("-1", "-1.000000000"),
            ("ten", "ten"),
        ] {
            assert_eq!(normalize_rate(text.to_owned()), decimal);
        }
    }

    #[test]
    fn null_values_and_duplicate_ids_are_errors() {
        let text = |text: &str| Some(text.to_owned());
        let row = |id: NullableText, rate: NullableText| {
            (id, text("ip:{ip}"), None, rate, text("5"), text("free"), text("1"), None)
        };
        let rows = vec![
            row(text("7"), None),
            row(text("8"), text("1")),
            row(text("8"), text("2")),
            row(None, text("3")),
        ];
        let rules = TableRules::new(rows);
        let errors: Vec<String> = rules.errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "rule 7: rate_per_second: must not be NULL; write a value",
                "rule 8: rule_id: another row has this rule_id; write a unique id",
            ]
        );
        let ids: Vec<&str> = rules.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["8", "ip:{ip} free"]);
    }
}
