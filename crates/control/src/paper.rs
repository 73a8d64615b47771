//! Between a rules document, as people write it, and the entries of a book.

use serde_json::{Map, Number, Value as Json};
use tidegate_core::key::Secret;
use tidegate_rules::decode::Findings;
use tidegate_rules::problem::Problems;
use tidegate_rules::yaml::{self, Node, Value};
use tidegate_rules::{Declarations, RuleSet, SubjectRecord};

use crate::book::{Book, Kind};
use crate::edit::Entry;
use crate::record::{self, Placed, Subject};

/// The fields of a document that are no settings: what is in them has entries of its own, or is the
/// process' and not the rules'.
const APART: [&str; 3] = ["rules", "subjects", "server"];

/// The names that a rule's id goes by.
pub(crate) const IDS: [&str; 3] = ["id", "policy_id", "rule_id"];

/// The entries that a document makes, with limits in shorthand after its rules and with what the
/// command line declared of facts. `compiled` is what they compile to, which tells the ids of rules
/// that have none of their own.
///
/// # Errors
/// What is wrong with the text; nothing is, if it was compiled.
pub fn entries(
    name: &str,
    source: &str,
    shorthands: &[String],
    declared: &Declarations,
    compiled: &RuleSet,
    secret: Secret,
) -> Result<Vec<Entry>, Problems> {
    let findings = Findings::new(name, source);
    let root = yaml::parse(source, &findings);
    findings.finish()?;
    let mut fields = match root.as_ref().map(json) {
        Some(Json::Object(fields)) => fields,
        _ => Map::new(),
    };
    declare(&mut fields, declared);
    let mut entries = Vec::new();
    let rules = match fields.remove("rules") {
        Some(Json::Array(rules)) => rules,
        _ => Vec::new(),
    };
    let rules = rules.into_iter().chain(shorthands.iter().map(|limit| Json::from(limit.as_str())));
    let ids = compiled.rules().iter().map(tidegate_rules::Rule::id);
    entries.extend((0..).zip(rules.zip(ids)).map(|(position, (rule, id))| {
        let rule = named(rule, id);
        Entry::put(Kind::Rule, id, &Placed { position, rule })
    }));
    if let Some(Json::Array(subjects)) = fields.remove("subjects") {
        let by = compiled.identity().tier.as_ref().and_then(|tier| tier.subject.as_deref());
        let subjects = subjects.into_iter().filter_map(|subject| subject_of(subject, by, secret));
        entries.extend(subjects.map(|subject| subject.entry()));
    }
    fields.retain(|name, _| !APART.contains(&name.as_str()));
    entries
        .extend(fields.into_iter().map(|(name, value)| Entry::put(Kind::Setting, &name, &value)));
    Ok(entries)
}

/// Puts into a document what the command line declares, so that other nodes need no flags.
fn declare(fields: &mut Map<String, Json>, declared: &Declarations) {
    if !declared.facts.is_empty() {
        let names = declared.facts.iter().map(|name| Json::from(name.as_str()));
        let mut facts = match fields.remove("facts") {
            Some(Json::Array(facts)) => facts,
            _ => Vec::new(),
        };
        let new: Vec<Json> = names.filter(|name| !facts.contains(name)).collect();
        facts.extend(new);
        fields.insert("facts".to_owned(), Json::Array(facts));
    }
    if let Some(header) = &declared.api_key_header {
        let mut identity = object(fields.remove("identity"));
        let before = object(identity.remove("api_key"));
        let mut key = Map::from_iter([("header".to_owned(), Json::from(header.as_str()))]);
        key.extend(before.into_iter().filter(|(name, _)| name == "unknown"));
        identity.insert("api_key".to_owned(), Json::Object(key));
        fields.insert("identity".to_owned(), Json::Object(identity));
    }
}

fn object(value: Option<Json>) -> Map<String, Json> {
    match value {
        Some(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A rule as a mapping that says its id.
pub(crate) fn named(rule: Json, id: &str) -> Json {
    match rule {
        Json::Object(fields) if IDS.iter().any(|name| fields.contains_key(*name)) => {
            Json::Object(fields)
        }
        Json::Object(fields) => {
            let mut named = Map::from_iter([("id".to_owned(), id.into())]);
            named.extend(fields);
            Json::Object(named)
        }
        // A limit in shorthand.
        limit => Json::Object(Map::from_iter([
            ("id".to_owned(), id.into()),
            ("limit".to_owned(), limit),
        ])),
    }
}

/// The document that a book makes, without what is known besides it.
#[must_use]
pub fn document(book: &Book) -> String {
    let fields = document_fields(book);
    let mut text = serde_json::to_string(&Json::Object(fields)).unwrap_or_default();
    text.push('\n');
    text
}

/// The fields of that document, rules last and in their order.
pub(crate) fn document_fields(book: &Book) -> Map<String, Json> {
    let settings = book.all(Kind::Setting, None);
    let mut fields: Map<String, Json> = settings
        .filter_map(|(name, kept)| Some((name.to_owned(), record::read(&kept.value)?)))
        .collect();
    let rules = rules(book).into_iter().map(|(_, placed)| placed.rule).collect();
    fields.insert("rules".to_owned(), Json::Array(rules));
    fields
}

/// The rules in their order.
pub(crate) fn rules(book: &Book) -> Vec<(&str, Placed)> {
    let all = book.all(Kind::Rule, None);
    let mut rules: Vec<(&str, Placed)> =
        all.filter_map(|(id, kept)| Some((id, record::read(&kept.value)?))).collect();
    rules.sort_by_key(|(_, placed)| placed.position);
    rules
}

/// A subject as a document lists it: one fact that identifies it, and what it brings.
pub(crate) fn subject_of(subject: Json, by: Option<&str>, secret: Secret) -> Option<Subject> {
    let Json::Object(mut facts) = subject else { return None };
    let mut candidates = by.into_iter().chain(["api_key", "user_id"]);
    let fact = candidates.find(|name| facts.contains_key(*name))?.to_owned();
    let value = text(&facts.remove(&fact)?)?;
    let hash = SubjectRecord::hash(secret, &fact, &value).into();
    let brings =
        facts.into_iter().filter_map(|(name, value)| Some((fact_name(name), text(&value)?)));
    let (brings, shown) = (brings.collect(), (fact != "api_key").then_some(value));
    Some(Subject { fact, hash, value: shown, brings })
}

/// The seeds' word for the tier.
fn fact_name(name: String) -> String {
    if name == "plan" { "tier".to_owned() } else { name }
}

fn text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A node as JSON that reads the same.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(fields) => Json::Object(
            fields.iter().map(|field| (field.name.clone(), json(&field.node))).collect(),
        ),
        Value::Scalar { text, quoted: true } => Json::String(text.clone()),
        Value::Scalar { .. } if node.is_null() => Json::Null,
        Value::Scalar { text, .. } => match text.as_str() {
            "true" | "True" | "TRUE" => Json::Bool(true),
            "false" | "False" | "FALSE" => Json::Bool(false),
            text => number(text).map_or_else(|| Json::String(text.to_owned()), Json::Number),
        },
    }
}

/// A number that is written the same again.
fn number(text: &str) -> Option<Number> {
    let digits = text.replace('_', "");
    let whole = text.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let typed = if whole { digits.as_str() } else { text };
    let number: Number = serde_json::from_str(typed).ok()?;
    (number.to_string() == typed).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(yaml: &str) -> String {
        let findings = Findings::new("x", yaml);
        json(&yaml::parse(yaml, &findings).unwrap()).to_string()
    }

    #[test]
    fn scalars_stay_what_they_are() {
        assert_eq!(
            written(
                "[1, 1_000, 0.5, 10.0, 1e400, 007, -3, '10', yes, TRUE, ~, 10/s burst 2, 1.10]"
            ),
            r#"[1,1000,0.5,10.0,"1e400","007",-3,"10","yes",true,null,"10/s burst 2","1.10"]"#
        );
    }

    #[test]
    fn what_the_command_line_declares_becomes_part_of_the_document() {
        let declared = Declarations {
            facts: vec!["a".to_owned(), "b".to_owned()],
            api_key_header: Some("x-k".to_owned()),
            any_fact: false,
        };
        let json = |text: &str| object(serde_json::from_str(text).ok());
        let mut fields = json(
            r#"{"facts": ["a"], "identity": {"ip": {}, "api_key": {"query": "k", "unknown": "ip"}}}"#,
        );
        declare(&mut fields, &declared);
        let expected = r#"{"facts": ["a", "b"], "identity": {"ip": {}, "api_key": {"header": "x-k", "unknown": "ip"}}}"#;
        assert_eq!(fields, json(expected));
        let mut fields = Map::new();
        declare(&mut fields, &declared);
        assert_eq!(
            fields,
            json(r#"{"facts": ["a", "b"], "identity": {"api_key": {"header": "x-k"}}}"#)
        );
    }

    #[test]
    fn rules_get_their_ids_first() {
        let id = |rule: Json| named(rule, "r").to_string();
        assert_eq!(id(serde_json::json!({"limit": "1/s"})), r#"{"id":"r","limit":"1/s"}"#);
        assert_eq!(id(Json::from("1/s by ip")), r#"{"id":"r","limit":"1/s by ip"}"#);
        assert_eq!(id(serde_json::json!({"policy_id": "x"})), r#"{"policy_id":"x"}"#);
    }
}
