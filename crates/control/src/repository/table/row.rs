//! Rows of a rule table, and the rules that they say.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use super::columns::FIELDS;
use crate::book::Kind;
use crate::compile::Flaw;
use crate::edit::Entry;
use crate::record::Placed;

/// The fields of a row as text, in the order of [`FIELDS`].
pub(super) type TableRow = (Text, Text, Text, Text, Text, Text, Text, Text);
type Text = Option<String>;

/// Decimals that a rate can have. A column of floating point numbers has more.
const RATE_DECIMALS: usize = 9;

/// What a table said when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRules {
    /// The rules, in the order of their ids.
    pub entries: Vec<Entry>,
    /// What is wrong with rows that are no rules, by `rule_id`.
    pub flaws: Vec<Flaw>,
}

impl TableRules {
    pub(super) fn new(rows: Vec<TableRow>) -> Self {
        let (mut rules, mut seen) = (Self::default(), HashSet::new());
        for (position, row) in (0..).zip(rows) {
            let (id, pattern, scope, rate, burst, plan, is_active, description) = row;
            let id = id.unwrap_or_else(|| derived_id(pattern.as_deref(), plan.as_deref()));
            let fields = [None, pattern, scope, rate, burst, plan, is_active, description];
            let flaws_before = rules.flaws.len();
            for at in [1, 3, 4] {
                if fields[at].is_none() {
                    rules.flaws.push(flaw(&id, FIELDS[at], "this is NULL", "a value"));
                }
            }
            if !seen.insert(id.clone()) {
                let message = "another row has this rule_id";
                rules.flaws.push(flaw(&id, "rule_id", message, "an id that is there once"));
            }
            if rules.flaws.len() == flaws_before {
                let rule = rule(&id, fields);
                rules.entries.push(Entry::put(Kind::Rule, &id, &Placed { position, rule }));
            }
        }
        rules
    }
}

/// The id of a row without one: SQLite makes none for a `BIGSERIAL`. A pattern is there once for each
/// plan.
fn derived_id(pattern: Option<&str>, plan: Option<&str>) -> String {
    let pattern = pattern.unwrap_or("NULL");
    plan.map_or_else(|| pattern.to_owned(), |plan| format!("{pattern} {plan}"))
}

/// A rule as a document writes it.
fn rule(id: &str, fields: [Text; FIELDS.len()]) -> Json {
    let mut rule = Map::from_iter([("id".to_owned(), Json::from(id))]);
    for (name, value) in FIELDS.into_iter().zip(fields) {
        let Some(value) = value else { continue };
        let value = match name {
            "rate_per_second" => rate(value).into(),
            "burst_capacity" => {
                value.parse::<u64>().map_or_else(|_| value.clone().into(), Json::from)
            }
            "is_active" => is_active(value),
            _ => value.into(),
        };
        rule.insert(name.to_owned(), value);
    }
    Json::Object(rule)
}

/// A rate with as many decimals as rules have, and without an exponent.
fn rate(text: String) -> String {
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (!plain || decimals > RATE_DECIMALS) => {
            format!("{rate:.RATE_DECIMALS$}")
        }
        _ => text,
    }
}

/// A truth value as PostgreSQL and SQLite write it; anything else is refused when it is compiled.
fn is_active(text: String) -> Json {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => true.into(),
        "false" | "f" | "0" => false.into(),
        _ => text.into(),
    }
}

fn flaw(id: &str, field: &str, message: &str, hint: &str) -> Flaw {
    Flaw {
        of: Some((Kind::Rule, id.to_owned())),
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
    fn rates_of_floating_point_columns_become_decimals() {
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
            assert_eq!(rate(text.to_owned()), decimal);
        }
    }

    #[test]
    fn rows_without_values_and_ids_twice_are_flaws_by_id() {
        let text = |text: &str| Some(text.to_owned());
        let row = |id: Text, rate: Text| {
            (id, text("ip:{ip}"), None, rate, text("5"), text("free"), text("1"), None)
        };
        let rows = vec![
            row(text("7"), None),
            row(text("8"), text("1")),
            row(text("8"), text("2")),
            row(None, text("3")),
        ];
        let rules = TableRules::new(rows);
        let flaws: Vec<String> = rules.flaws.iter().map(ToString::to_string).collect();
        assert_eq!(
            flaws,
            [
                "rule 7: rate_per_second: this is NULL; write a value",
                "rule 8: rule_id: another row has this rule_id; write an id that is there once",
            ]
        );
        let ids: Vec<&str> = rules.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["8", "ip:{ip} free"]);
    }
}
