//! Formats a rules document as readable YAML, with one line per field.

use crate::yaml::quote_scalar;
use serde_json::{Map, Value as Json};

/// Formats a document.
#[must_use]
pub fn render_yaml(document: &Json) -> String {
    let mut text = String::new();
    let Json::Object(fields) = document else { return text };
    for (name, value) in fields {
        match value {
            Json::Array(items) if name == "rules" && !items.is_empty() => {
                text.push_str("rules:\n");
                items.iter().for_each(|rule| write_rule(rule, &mut text));
            }
            Json::Object(inner) if !inner.is_empty() => {
                text.push_str(&format!("{}:\n", render_scalar(name)));
                write_fields(inner, "  ", "  ", &mut text);
            }
            other => text.push_str(&format!("{}: {}\n", render_scalar(name), render_flow(other))),
        }
    }
    text
}

/// Writes a rule, one field per line.
fn write_rule(rule: &Json, text: &mut String) {
    match rule {
        Json::Object(fields) if !fields.is_empty() => write_fields(fields, "  - ", "    ", text),
        other => text.push_str(&format!("  - {}\n", render_flow(other))),
    }
}

fn write_fields(fields: &Map<String, Json>, first: &str, indent: &str, text: &mut String) {
    for (at, (name, value)) in fields.iter().enumerate() {
        let before = if at == 0 { first } else { indent };
        text.push_str(&format!("{before}{}: {}\n", render_scalar(name), render_flow(value)));
    }
}

/// Formats a value on one line.
#[must_use]
pub fn render_flow(value: &Json) -> String {
    match value {
        Json::String(text) => render_scalar(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(render_flow).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", render_scalar(name), render_flow(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Formats text so that it parses as the same text.
fn render_scalar(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "_./- ".contains(c);
    let lower = text.to_ascii_lowercase();
    let reserved =
        matches!(lower.as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off");
    let rate = |text: &str| text.contains('/') && text.starts_with(|c: char| c.is_ascii_digit());
    let span = text.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = (begins || rate(text) || span) && !reserved && !text.ends_with(' ');
    if plain && text.chars().all(word) {
        return text.to_owned();
    }
    quote_scalar(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn document_is_written_as_block_yaml() {
        let document = json!({
            "identity": {"ip": {"trusted_proxies": ["10.0.0.0/8"]}, "api_key": {"header": "x-api-key"}},
            "on_fail": "allow",
            "rules": [
                {"id": "free", "match": {"tier": "free", "endpoint": "POST /api/*"}, "key_by": "api_key",
                 "limit": {"requests": 10, "window": "1s", "burst": 20}, "is_active": false},
                {"id": "7", "limit": "10/s burst 20"},
            ],
        });
        let text = "identity:
  ip: { trusted_proxies: [10.0.0.0/8] }
  api_key: { header: x-api-key }
on_fail: allow
rules:
  - id: free
    match: { tier: free, endpoint: \"POST /api/*\" }
    key_by: api_key
    limit: { requests: 10, window: 1s, burst: 20 }
    is_active: false
  - id: \"7\"
    limit: 10/s burst 20
";
        assert_eq!(render_yaml(&document), text);
        assert_eq!(render_yaml(&json!({"rules": []})), "rules: []\n");
    }

    #[test]
    fn hostile_text_is_quoted() {
        for text in
            ["true", "10", "1.5", "- a", "a: b", "#x", "", " ", "~", "*", "{", "a\u{202E}", "1e3"]
        {
            assert!(render_scalar(text).starts_with('"'), "{text}");
        }
    }
}
