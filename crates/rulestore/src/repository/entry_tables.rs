//! Tables of the entries, and their readable columns. The columns are derived from the JSON value,
//! which is authoritative.
//!
//! Nothing here can fail. A value that a column cannot represent becomes NULL; compilation decides
//! whether a rule is well-formed.

use serde_json::{Value as Json, json};
use tidegate_core::key::{KeyHasher, Secret};
use tidegate_rules::{Document, FactDeclarations, Rule, RuleLimit, RuleSet};

use super::database::to_stored;
use crate::rule_config::EntryKind;

/// Maximum text length in an indexed column.
const MAX_INDEXED_BYTES: usize = 256;

/// The table that holds the entries of one kind.
pub(super) struct EntryTable {
    pub(super) name: &'static str,
    /// Name of the id column.
    pub(super) id: &'static str,
    /// Name of the column with the JSON value.
    pub(super) value: &'static str,
    /// The derived columns with their types, in the order of [`column_values`].
    pub(super) columns: &'static [(&'static str, &'static str)],
}

const RULE: EntryTable = EntryTable {
    name: "rate_limit_rule",
    id: "rule_id",
    value: "definition",
    columns: &[
        ("position", "bigint"),
        ("key_pattern", "text"),
        ("scope", "text"),
        ("rate_per_second", "double precision"),
        ("burst_capacity", "bigint"),
        ("plan", "text"),
        ("is_active", "boolean"),
        ("description", "text"),
        ("match_digest", "text"),
        ("algorithm", "text"),
        ("window_us", "bigint"),
        ("mode", "text"),
    ],
};

const SETTING: EntryTable =
    EntryTable { name: "rule_setting", id: "name", value: "value", columns: &[] };

const SUBJECT: EntryTable = EntryTable {
    name: "subject",
    id: "subject_id",
    value: "value",
    columns: &[("fact", "text"), ("key_hash", "text"), ("user_id", "text"), ("tier", "text")],
};

const OVERRIDE: EntryTable = EntryTable {
    name: "rate_override",
    id: "override_id",
    value: "value",
    columns: &[("rule_id", "text"), ("key_hash", "text"), ("until", "text")],
};

/// The table of a kind.
pub(super) const fn table(kind: EntryKind) -> &'static EntryTable {
    match kind {
        EntryKind::Setting => &SETTING,
        EntryKind::Rule => &RULE,
        EntryKind::Subject => &SUBJECT,
        EntryKind::Override => &OVERRIDE,
    }
}

/// The values of an entry's derived columns.
pub(super) fn column_values(kind: EntryKind, id: &str, value: &str) -> Vec<Json> {
    let value: Json = serde_json::from_str(value).unwrap_or_default();
    match kind {
        EntryKind::Setting => Vec::new(),
        EntryKind::Rule => rule_columns(&value),
        EntryKind::Subject => {
            let (fact, hash) = split_id(id);
            let user = column_text(&value["user_id"]).or(column_text(&value["user"]));
            vec![json!(fact), json!(hash), json!(user), json!(column_text(&value["tier"]))]
        }
        EntryKind::Override => {
            let (rule, hash) = split_id(id);
            let number = value["until"].as_i64().map(|at| at.to_string());
            let until = column_text(&value["until"]).map(str::to_owned).or(number);
            vec![json!(rule), json!(hash), json!(until)]
        }
    }
}

fn rule_columns(value: &Json) -> Vec<Json> {
    let (rule, short) = (&value["rule"], |text: &&str| text.len() <= MAX_INDEXED_BYTES);
    let compiled = compile_rule(rule);
    let (algorithm, window, rate, burst) =
        compiled.as_ref().map_or_else(Default::default, limit_columns);
    let plan = column_text(&rule["plan"]).or(column_text(&rule["match"]["tier"]));
    let mode = column_text(&rule["mode"]).or(compiled.as_ref().map(|_| "enforce"));
    vec![
        json!(value["position"].as_i64()),
        json!(column_text(&rule["key_pattern"]).filter(short)),
        json!(column_text(&rule["scope"]).or(column_text(&rule["key_by"]))),
        json!(rate.or(rule["rate_per_second"].as_f64())),
        json!(burst.or(rule["burst_capacity"].as_i64())),
        json!(plan.filter(short)),
        json!(rule["is_active"].as_bool().or(compiled.as_ref().map(Rule::is_active))),
        json!(column_text(&rule["description"])),
        json!(compiled.as_ref().map(match_digest)),
        json!(algorithm),
        json!(window),
        json!(mode),
    ]
}

type LimitColumns = (Option<&'static str>, Option<i64>, Option<f64>, Option<i64>);

/// Algorithm, window, requests per second and burst size of a rule's limit.
fn limit_columns(rule: &Rule) -> LimitColumns {
    match rule.limit() {
        RuleLimit::Policy(policy) => {
            let quota = policy.quota();
            let window = to_stored(quota.window.get());
            let rate = quota.requests as f64 * 1e6 / quota.window.get() as f64;
            (
                Some(policy.algorithm().name()),
                Some(window),
                Some(rate),
                Some(to_stored(policy.limit())),
            )
        }
        RuleLimit::Unlimited => (Some("unlimited"), Some(0), None, None),
        RuleLimit::Deny { .. } => (Some("deny"), Some(0), None, None),
    }
}

/// Compiles a single rule, so that only the rules crate has to know every notation.
fn compile_rule(rule: &Json) -> Option<Rule> {
    let document = json!({ "rules": [rule] }).to_string();
    // The facts declared by the rule's own document are unknown here, so accept any fact.
    let declared = FactDeclarations { any_fact: true, ..FactDeclarations::default() };
    let (document, ()) = Document::parse_with("rule", &document, &declared, |_| ()).ok()?;
    RuleSet::compile(&document, Secret::UNSET).ok()?.rules().first().cloned()
}

/// Digest of a rule's conditions; distinguishes rules that share a key pattern but match different
/// requests.
fn match_digest(rule: &Rule) -> String {
    let mut conditions: Vec<String> = rule.conditions().collect();
    conditions.sort_unstable();
    let mut hasher = KeyHasher::new(Secret::UNSET);
    conditions.iter().for_each(|condition| hasher.write_part(condition.as_bytes()));
    hasher.finish().to_hex()
}

/// A text that a column can hold: JSON strings may contain NUL, PostgreSQL text may not.
fn column_text(value: &Json) -> Option<&str> {
    value.as_str().filter(|text| !text.contains('\0'))
}

/// Splits an id into owner and hash. The separator is one character that never occurs in a hash.
fn split_id(id: &str) -> (Option<&str>, Option<&str>) {
    id.rsplit_once(|c: char| !c.is_ascii_alphanumeric()).unzip()
}
