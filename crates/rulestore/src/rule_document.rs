//! Converts between rules documents and configuration entries.

use serde_json::{Map, Number, Value as Json};
use tidegate_core::key::Secret;
use tidegate_rules::decode::Diagnostics;
use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::yaml::{self, YamlNode, YamlValue};
use tidegate_rules::{FactDeclarations, RuleSet, SubjectRecord};

use crate::edit::EntryUpdate;
use crate::entry_value::{self, PositionedRule, StoredSubject};
use crate::rule_config::{EntryKind, RuleConfig};

/// Document fields that are not settings: they become separate entries, or configure the process
/// rather than the rules.
const NON_SETTING_FIELDS: [&str; 3] = ["rules", "subjects", "server"];

/// The field names accepted for a rule's id.
pub const ID_FIELDS: [&str; 3] = ["id", "policy_id", "rule_id"];

/// The entries of a document. Shorthand limits are appended to its rules, and fact declarations of
/// the command line are merged in. `compiled` is the resulting rule set; it supplies the generated
/// ids of rules without one.
///
/// # Errors
/// Syntax errors; none if the document has been compiled.
pub fn document_entries(
    name: &str,
    source: &str,
    shorthands: &[String],
    declared: &FactDeclarations,
    compiled: &RuleSet,
    secret: Secret,
) -> Result<Vec<EntryUpdate>, DocumentError> {
    let diagnostics = Diagnostics::new(name, source);
    let root = yaml::parse(source, &diagnostics);
    diagnostics.finish()?;
    let mut fields = match root.as_ref().map(yaml_to_json) {
        Some(Json::Object(fields)) => fields,
        _ => Map::new(),
    };
    apply_declarations(&mut fields, declared);
    let mut entries = Vec::new();
    let rules = match fields.remove("rules") {
        Some(Json::Array(rules)) => rules,
        _ => Vec::new(),
    };
    let rules = rules.into_iter().chain(shorthands.iter().map(|limit| Json::from(limit.as_str())));
    let ids = compiled.rules().iter().map(tidegate_rules::Rule::id);
    entries.extend((0..).zip(rules.zip(ids)).map(|(position, (rule, id))| {
        let rule = with_rule_id(rule, id);
        EntryUpdate::put(EntryKind::Rule, id, &PositionedRule { position, rule })
    }));
    if let Some(Json::Array(subjects)) = fields.remove("subjects") {
        let by = compiled.identity().tier.as_ref().and_then(|tier| tier.subject.as_deref());
        let subjects =
            subjects.into_iter().filter_map(|subject| parse_subject(subject, by, secret));
        entries.extend(subjects.map(|subject| subject.to_update()));
    }
    fields.retain(|name, _| !NON_SETTING_FIELDS.contains(&name.as_str()));
    entries.extend(
        fields.into_iter().map(|(name, value)| EntryUpdate::put(EntryKind::Setting, &name, &value)),
    );
    Ok(entries)
}

/// Adds the declarations of the command line to a document, so that other nodes do not need the
/// flags.
fn apply_declarations(fields: &mut Map<String, Json>, declared: &FactDeclarations) {
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
        let mut identity = into_object(fields.remove("identity"));
        let before = into_object(identity.remove("api_key"));
        let mut key = Map::from_iter([("header".to_owned(), Json::from(header.as_str()))]);
        key.extend(before.into_iter().filter(|(name, _)| name == "unknown"));
        identity.insert("api_key".to_owned(), Json::Object(key));
        fields.insert("identity".to_owned(), Json::Object(identity));
    }
}

fn into_object(value: Option<Json>) -> Map<String, Json> {
    match value {
        Some(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The rule as a mapping that includes its id.
pub fn with_rule_id(rule: Json, id: &str) -> Json {
    match rule {
        Json::Object(fields) if ID_FIELDS.iter().any(|name| fields.contains_key(*name)) => {
            Json::Object(fields)
        }
        Json::Object(fields) => {
            let mut named = Map::from_iter([("id".to_owned(), id.into())]);
            named.extend(fields);
            Json::Object(named)
        }
        // A limit in shorthand notation.
        limit => Json::Object(Map::from_iter([
            ("id".to_owned(), id.into()),
            ("limit".to_owned(), limit),
        ])),
    }
}

/// Renders a configuration as a document, without subjects and overrides.
#[must_use]
pub fn render_document(config: &RuleConfig) -> String {
    let fields = document_fields(config);
    let mut text = serde_json::to_string(&Json::Object(fields)).unwrap_or_default();
    text.push('\n');
    text
}

/// The fields of that document; rules come last, ordered by position.
pub fn document_fields(config: &RuleConfig) -> Map<String, Json> {
    let settings = config.entries(EntryKind::Setting, None);
    let mut fields: Map<String, Json> = settings
        .filter_map(|(name, entry)| {
            Some((name.to_owned(), entry_value::parse_value(&entry.value)?))
        })
        .collect();
    let rules = ordered_rules(config).into_iter().map(|(_, positioned)| positioned.rule).collect();
    fields.insert("rules".to_owned(), Json::Array(rules));
    fields
}

/// The rules, ordered by position.
pub fn ordered_rules(config: &RuleConfig) -> Vec<(&str, PositionedRule)> {
    let all = config.entries(EntryKind::Rule, None);
    let mut rules: Vec<(&str, PositionedRule)> =
        all.filter_map(|(id, entry)| Some((id, entry_value::parse_value(&entry.value)?))).collect();
    rules.sort_by_key(|(_, positioned)| positioned.position);
    rules
}

/// Parses a subject of a document: one identifying fact, and the facts attached to it.
pub fn parse_subject(subject: Json, by: Option<&str>, secret: Secret) -> Option<StoredSubject> {
    let Json::Object(mut facts) = subject else { return None };
    let mut candidates = by.into_iter().chain(["api_key", "user_id"]);
    let fact = candidates.find(|name| facts.contains_key(*name))?.to_owned();
    let value = scalar_text(&facts.remove(&fact)?)?;
    let hash = SubjectRecord::hash(secret, &fact, &value).into();
    let set_facts = facts
        .into_iter()
        .filter_map(|(name, value)| Some((canonical_fact_name(name), scalar_text(&value)?)));
    let (facts, shown) = (set_facts.collect(), (fact != "api_key").then_some(value));
    Some(StoredSubject { fact, hash, value: shown, facts })
}

/// Renames the imported fact `plan` to `tier`.
fn canonical_fact_name(name: String) -> String {
    if name == "plan" { "tier".to_owned() } else { name }
}

fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Converts a YAML node to JSON with the same meaning.
fn yaml_to_json(node: &YamlNode) -> Json {
    match &node.value {
        YamlValue::List(items) => items.iter().map(yaml_to_json).collect(),
        YamlValue::Map(fields) => Json::Object(
            fields.iter().map(|field| (field.name.clone(), yaml_to_json(&field.node))).collect(),
        ),
        YamlValue::Scalar { text, quoted: true } => Json::String(text.clone()),
        YamlValue::Scalar { .. } if node.is_null() => Json::Null,
        YamlValue::Scalar { text, .. } => match text.as_str() {
            "true" | "True" | "TRUE" => Json::Bool(true),
            "false" | "False" | "FALSE" => Json::Bool(false),
            text => exact_number(text).map_or_else(|| Json::String(text.to_owned()), Json::Number),
        },
    }
}

/// A number, if it is printed the same way it was written.
fn exact_number(text: &str) -> Option<Number> {
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

    fn parse_to_json(yaml: &str) -> String {
        let diagnostics = Diagnostics::new("x", yaml);
        yaml_to_json(&yaml::parse(yaml, &diagnostics).unwrap()).to_string()
    }

    #[test]
    fn yaml_scalars_keep_their_json_type() {
        assert_eq!(
            parse_to_json(
                "[1, 1_000, 0.5, 10.0, 1e400, 007, -3, '10', yes, TRUE, ~, 10/s burst 2, 1.10]"
            ),
            r#"[1,1000,0.5,10.0,"1e400","007",-3,"10","yes",true,null,"10/s burst 2","1.10"]"#
        );
    }

    #[test]
    fn command_line_declarations_join_the_document() {
        let declared = FactDeclarations {
            facts: vec!["a".to_owned(), "b".to_owned()],
            api_key_header: Some("x-k".to_owned()),
            any_fact: false,
        };
        let json = |text: &str| into_object(serde_json::from_str(text).ok());
        let mut fields = json(
            r#"{"facts": ["a"], "identity": {"ip": {}, "api_key": {"query": "k", "unknown": "ip"}}}"#,
        );
        apply_declarations(&mut fields, &declared);
        let expected = r#"{"facts": ["a", "b"], "identity": {"ip": {}, "api_key": {"header": "x-k", "unknown": "ip"}}}"#;
        assert_eq!(fields, json(expected));
        let mut fields = Map::new();
        apply_declarations(&mut fields, &declared);
        assert_eq!(
            fields,
            json(r#"{"facts": ["a", "b"], "identity": {"api_key": {"header": "x-k"}}}"#)
        );
    }

    #[test]
    fn rule_id_is_added_as_first_field() {
        let id = |rule: Json| with_rule_id(rule, "r").to_string();
        assert_eq!(id(serde_json::json!({"limit": "1/s"})), r#"{"id":"r","limit":"1/s"}"#);
        assert_eq!(id(Json::from("1/s by ip")), r#"{"id":"r","limit":"1/s by ip"}"#);
        assert_eq!(id(serde_json::json!({"policy_id": "x"})), r#"{"policy_id":"x"}"#);
    }
}
