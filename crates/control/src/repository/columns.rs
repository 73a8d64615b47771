//! The tables of entries, and what their columns for people say: derived from the JSON that is the
//! authority.
//!
//! Nothing here can fail. What a column cannot say is left out of it; whether a rule is well-formed
//! is judged where rules are compiled.

use serde_json::{Value as Json, json};
use tidegate_core::key::{KeyHasher, Secret};
use tidegate_rules::{Declarations, Document, Limit, Rule, RuleSet};

use super::database::stored;
use crate::book::Kind;

/// The longest text in a column that is part of an index.
const INDEXED: usize = 256;

/// Where entries of a kind are.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The column of the id.
    pub(super) id: &'static str,
    /// The column of what the entry says.
    pub(super) value: &'static str,
    /// The columns for people, with their types, in the order of [`derived`].
    pub(super) columns: &'static [(&'static str, &'static str)],
}

const RULE: Table = Table {
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

const SETTING: Table = Table { name: "rule_setting", id: "name", value: "value", columns: &[] };

const SUBJECT: Table = Table {
    name: "subject",
    id: "subject_id",
    value: "value",
    columns: &[("fact", "text"), ("key_hash", "text"), ("user_id", "text"), ("tier", "text")],
};

const OVERRIDE: Table = Table {
    name: "rate_override",
    id: "override_id",
    value: "value",
    columns: &[("rule_id", "text"), ("key_hash", "text"), ("until", "text")],
};

/// The table of a kind.
pub(super) const fn table(kind: Kind) -> &'static Table {
    match kind {
        Kind::Setting => &SETTING,
        Kind::Rule => &RULE,
        Kind::Subject => &SUBJECT,
        Kind::Override => &OVERRIDE,
    }
}

/// What the columns for people say of an entry.
pub(super) fn derived(kind: Kind, id: &str, value: &str) -> Vec<Json> {
    let value: Json = serde_json::from_str(value).unwrap_or_default();
    match kind {
        Kind::Setting => Vec::new(),
        Kind::Rule => rule(&value),
        Kind::Subject => {
            let (fact, hash) = parts(id);
            let user = text(&value["user_id"]).or(text(&value["user"]));
            vec![json!(fact), json!(hash), json!(user), json!(text(&value["tier"]))]
        }
        Kind::Override => {
            let (rule, hash) = parts(id);
            let number = value["until"].as_i64().map(|at| at.to_string());
            let until = text(&value["until"]).map(str::to_owned).or(number);
            vec![json!(rule), json!(hash), json!(until)]
        }
    }
}

fn rule(value: &Json) -> Vec<Json> {
    let (rule, short) = (&value["rule"], |text: &&str| text.len() <= INDEXED);
    let compiled = compiled(rule);
    let (algorithm, window, rate, burst) = compiled.as_ref().map_or_else(Default::default, numbers);
    let plan = text(&rule["plan"]).or(text(&rule["match"]["tier"]));
    let mode = text(&rule["mode"]).or(compiled.as_ref().map(|_| "enforce"));
    vec![
        json!(value["position"].as_i64()),
        json!(text(&rule["key_pattern"]).filter(short)),
        json!(text(&rule["scope"]).or(text(&rule["key_by"]))),
        json!(rate.or(rule["rate_per_second"].as_f64())),
        json!(burst.or(rule["burst_capacity"].as_i64())),
        json!(plan.filter(short)),
        json!(rule["is_active"].as_bool().or(compiled.as_ref().map(Rule::is_active))),
        json!(text(&rule["description"])),
        json!(compiled.as_ref().map(digest)),
        json!(algorithm),
        json!(window),
        json!(mode),
    ]
}

type Numbers = (Option<&'static str>, Option<i64>, Option<f64>, Option<i64>);

/// Algorithm, window, requests a second, and what may come at once.
fn numbers(rule: &Rule) -> Numbers {
    match rule.limit() {
        Limit::Policy(policy) => {
            let quota = policy.quota();
            let window = stored(quota.window.get());
            let rate = quota.requests as f64 * 1e6 / quota.window.get() as f64;
            (
                Some(policy.algorithm().name()),
                Some(window),
                Some(rate),
                Some(stored(policy.limit())),
            )
        }
        Limit::Unlimited => (Some("unlimited"), Some(0), None, None),
        Limit::Deny => (Some("deny"), Some(0), None, None),
    }
}

/// The rule as the rules crate understands it, so that all its forms are read in one place.
fn compiled(rule: &Json) -> Option<Rule> {
    let document = json!({ "rules": [rule] }).to_string();
    // The facts that its document declares are not known here.
    let declared = Declarations { any_fact: true, ..Declarations::default() };
    let (document, ()) = Document::parse_with("rule", &document, &declared, |_| ()).ok()?;
    RuleSet::compile(&document, Secret::UNSET).ok()?.rules().first().cloned()
}

/// Tells rules of one pattern apart that match other requests.
fn digest(rule: &Rule) -> String {
    let mut conditions: Vec<String> = rule.conditions().collect();
    conditions.sort_unstable();
    let mut hasher = KeyHasher::new(Secret::UNSET);
    conditions.iter().for_each(|condition| hasher.part(condition.as_bytes()));
    hasher.finish().hex()
}

/// A text that a column can hold: JSON may say NUL, PostgreSQL may not.
fn text(value: &Json) -> Option<&str> {
    value.as_str().filter(|text| !text.contains('\0'))
}

/// Whose, and the hash: an id is both with one character between them that is in no hash.
fn parts(id: &str) -> (Option<&str>, Option<&str>) {
    id.rsplit_once(|c: char| !c.is_ascii_alphanumeric()).unzip()
}
