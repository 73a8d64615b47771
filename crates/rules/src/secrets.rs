//! Redacts secrets in the errors of a document: everything below `subjects`, and the values of
//! fields that contain keys, tokens or passwords.
//!
//! A typo can damage the name of such a field. So these are not quoted either: the values of unknown
//! fields and of facts that only a document defines, the name of a field without a value, and text
//! where fields are expected (a field that has lost its colon).
//!
//! Errors appear in logs, probes and response bodies. A redacted error still names its line and
//! field.

use std::collections::HashMap;
use std::sync::Arc;

use crate::decode::nearest;
use crate::diagnostic::{Diagnostic, shorten};
use crate::regions::is_region_name;
use crate::yaml::{SourceSpan, YamlEntry, YamlNode, YamlValue};

/// The section whose field names are secret too: a user may have written a key as a field name.
const SUBJECTS: &str = "subjects";

/// The section with the stores of other regions: URLs, or mappings with one.
const REGION_STORES: &str = "region_stores";

/// The URL in such a mapping.
const STORE_URL: &str = "url";

/// Fields whose values are redacted at any level. Misspelled names are recognized too.
const SECRET_FIELDS: [&str; 9] = [
    "api_key",
    "user_id",
    "store",
    REGION_STORES,
    "rules_db",
    "rules_table",
    "password",
    "token",
    "secret",
];

/// Locations of the secrets in a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretSpans {
    /// The lines that contain a part of a secret, and the column from which they are not quoted.
    lines: HashMap<usize, usize>,
    /// The line and column of each secret, with the field name that may be shown for it.
    fields: HashMap<(usize, usize), Arc<str>>,
}

impl SecretSpans {
    /// Locates the secrets of a document.
    pub(crate) fn locate(root: &YamlNode) -> Self {
        let mut secrets = Self::default();
        secrets.visit_node(root, "");
        secrets
    }

    /// Removes all secrets from an error.
    pub(crate) fn redact(&self, problem: &mut Diagnostic) {
        if let Some(hidden_from) = self.lines.get(&problem.line) {
            let shown = hidden_from.saturating_sub(problem.column);
            let excerpt = problem.excerpt.take().filter(|_| shown > 0);
            problem.excerpt = excerpt.map(|excerpt| excerpt.truncate_marked(shown));
        }
        if let Some(field) = self.fields.get(&(problem.line, problem.column)) {
            let found = problem.found.take().unwrap_or_default();
            let quotes = |hint: &mut String| !found.is_empty() && hint.contains(&found);
            problem.hint.take_if(quotes);
            problem.field = field.to_string();
        }
    }

    fn visit_node(&mut self, node: &YamlNode, path: &str) {
        match &node.value {
            _ if is_secret_text(node) => self.mark_node(node, &path.into()),
            YamlValue::Scalar { .. } => {}
            // An error about an item may be reported at the list.
            YamlValue::List(items) if items.iter().any(is_secret_text) => {
                self.mark_node(node, &path.into());
            }
            YamlValue::List(items) => (0..).zip(items).for_each(|(at, item): (usize, _)| {
                self.visit_node(item, &format!("{path}[{at}]"));
            }),
            YamlValue::Map(entries) => {
                entries.iter().for_each(|entry| self.visit_entry(entry, path));
            }
        }
    }

    fn visit_entry(&mut self, entry: &YamlEntry, path: &str) {
        let YamlEntry { name, node, .. } = entry;
        let shown = shorten(name);
        let field = if path.is_empty() { shown } else { format!("{path}.{shown}") };
        let subjects = name == SUBJECTS || (path.is_empty() && nearest(name, [SUBJECTS]).is_some());
        match &node.value {
            YamlValue::List(items) if subjects => (0..).zip(items).for_each(|(at, item)| {
                let at: usize = at;
                self.mark_node(item, &format!("{field}[{at}]").into());
            }),
            YamlValue::Map(regions) if name == REGION_STORES => {
                regions.iter().for_each(|region| self.visit_region_store(region, &field));
            }
            // `identity.api_key` describes where a key is found and is not a key itself.
            YamlValue::Map(_) if path == "identity" => self.visit_node(node, &field),
            _ if subjects || is_secret_field(name) => self.mark_node(node, &field.into()),
            // A typo has joined the field's name with other text, which may be its value; perhaps
            // it has removed the colon and a part of the name, too.
            _ if has_secret_field(name) || is_left_out(node) => {
                self.mark_span(entry.name_span, entry.name_span.line, &path.into());
                self.mark_node(node, &path.into());
            }
            _ => self.visit_node(node, &field),
        }
    }

    /// Marks the URL of a region's store, which may have a password. Its other settings are shown,
    /// so that an error about one of them can name it.
    fn visit_region_store(&mut self, region: &YamlEntry, path: &str) {
        let YamlEntry { name, node, name_span } = region;
        let field = format!("{path}.{name}");
        match &node.value {
            // A typo has joined the name with other text, which may be a part of the URL.
            _ if !is_region_name(name) || is_left_out(node) => {
                self.mark_span(*name_span, name_span.line, &path.into());
                self.mark_node(node, &path.into());
            }
            YamlValue::Map(settings) => {
                for entry in settings {
                    match nearest(&entry.name, [STORE_URL]) {
                        Some(_) => {
                            self.mark_node(&entry.node, &format!("{field}.{STORE_URL}").into());
                        }
                        None => self.visit_entry(entry, &field),
                    }
                }
            }
            _ => self.mark_node(node, &field.into()),
        }
    }

    /// Hides a value, but not the text before it in its line.
    pub(crate) fn hide_value(&mut self, node: &YamlNode, field: &str) {
        let SourceSpan { line, column, .. } = node.span;
        let hidden_from = self.lines.get(&line).map_or(column, |known| column.min(*known));
        self.mark_node(node, &field.into());
        self.lines.insert(line, hidden_from);
    }

    /// Marks a node and everything below it as secret.
    fn mark_node(&mut self, node: &YamlNode, field: &Arc<str>) {
        self.mark_span(node.span, node.last_line, field);
        match &node.value {
            YamlValue::Scalar { .. } => {}
            YamlValue::List(items) => items.iter().for_each(|item| self.mark_node(item, field)),
            YamlValue::Map(entries) => entries.iter().for_each(|entry| {
                self.mark_span(entry.name_span, entry.name_span.line, field);
                self.mark_node(&entry.node, field);
            }),
        }
    }

    fn mark_span(&mut self, span: SourceSpan, last_line: usize, field: &Arc<str>) {
        self.lines.extend((span.line..=last_line).map(|line| (line, 0)));
        // The first mark may name less of the field.
        self.fields.entry((span.line, span.column)).or_insert_with(|| Arc::clone(field));
    }
}

/// Whether the values of a field are redacted.
pub(crate) fn is_secret_field(name: &str) -> bool {
    nearest(name, SECRET_FIELDS).is_some()
}

/// Whether the text contains the name of a secret field.
fn has_secret_field(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| {
        is_secret_field(word) || SECRET_FIELDS.iter().any(|field| word.ends_with(field))
    })
}

/// Whether no value is written.
fn is_left_out(node: &YamlNode) -> bool {
    matches!(&node.value, YamlValue::Scalar { text, quoted: false } if text.is_empty())
}

/// Whether a node is a text that contains a secret.
fn is_secret_text(node: &YamlNode) -> bool {
    match &node.value {
        YamlValue::Scalar { text, .. } => has_credentials(text) || has_secret_value(text),
        _ => false,
    }
}

/// Whether a text has a value after the name of a secret field: `api_key=…`, or a word that does
/// not belong to a limit such as `5/min by api_key burst 20`.
fn has_secret_value(text: &str) -> bool {
    const LIMIT_WORDS: [&str; 2] = ["burst", "using"];
    let names_secret = |text: &str| {
        let word = text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        word.is_some_and(is_secret_field)
    };
    let is_value = |(at, separator): (usize, &str)| {
        let (before, after) = (text[..at].trim_end(), text[at..].trim_start());
        let word = after.split_whitespace().next().unwrap_or_default();
        names_secret(before)
            && match separator {
                "=" => after.len() > 1,
                _ => word.starts_with(char::is_alphanumeric) && !LIMIT_WORDS.contains(&word),
            }
    };
    text.match_indices(['=', ' ']).any(is_value)
}

/// Whether a text is a URL with a user or password, possibly with a typo.
fn has_credentials(text: &str) -> bool {
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let port = host.split_once(':').map_or("", |(_, rest)| rest);
    text.contains('@') || port.starts_with(|c: char| !c.is_ascii_digit())
}
