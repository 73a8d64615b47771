//! The parts of a document that no problem may quote: all that stands below `subjects`, and the values
//! of fields that hold keys, tokens or passwords.
//!
//! Problems go to logs, probes and error bodies. Each still says which line and which field is wrong.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::decode::nearest;
use crate::problem::Problem;
use crate::yaml::{Entry, Node, Span, Value};

/// The section whose names are secret too: a key may have been typed as one.
const SUBJECTS: &str = "subjects";

/// Fields whose values are not quoted, wherever they stand. A slip in such a name changes nothing.
const SECRET_FIELDS: [&str; 8] =
    ["api_key", "user_id", "store", "rules_db", "rules_table", "password", "token", "secret"];

/// Where the secrets of a document stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// The lines that hold some of one.
    lines: HashSet<usize>,
    /// The line and column where each begins, and the field that may be named for it.
    fields: HashMap<(usize, usize), Arc<str>>,
}

impl Secrets {
    /// The secrets of a document.
    pub(crate) fn of(root: &Node) -> Self {
        let mut secrets = Self::default();
        secrets.find(root, "");
        secrets
    }

    /// Takes every secret out of a problem.
    pub(crate) fn redact(&self, problem: &mut Problem) {
        if self.lines.contains(&problem.line) {
            problem.excerpt = None;
        }
        if let Some(field) = self.fields.get(&(problem.line, problem.column)) {
            problem.found = None;
            problem.field = field.to_string();
        }
    }

    fn find(&mut self, node: &Node, path: &str) {
        match &node.value {
            Value::Scalar { text, .. } if has_credentials(text) => self.hide(node, &path.into()),
            Value::Scalar { .. } => {}
            Value::List(items) => (0..).zip(items).for_each(|(at, item): (usize, _)| {
                self.find(item, &format!("{path}[{at}]"));
            }),
            Value::Map(entries) => entries.iter().for_each(|entry| self.find_in(entry, path)),
        }
    }

    fn find_in(&mut self, entry: &Entry, path: &str) {
        let Entry { name, node, .. } = entry;
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let subjects = name == SUBJECTS || (path.is_empty() && nearest(name, [SUBJECTS]).is_some());
        match &node.value {
            Value::List(items) if subjects => (0..).zip(items).for_each(|(at, item)| {
                let at: usize = at;
                self.hide(item, &format!("{field}[{at}]").into());
            }),
            // Where a key is found is no key.
            Value::Map(_) if path == "identity" => self.find(node, &field),
            _ if subjects || is_secret_field(name) => self.hide(node, &field.into()),
            // A slip has joined the field's name and other text, which may be its value.
            _ if has_secret_field(name) => {
                self.hide_at(entry.name_span, entry.name_span.line, &path.into());
                self.hide(node, &path.into());
            }
            _ => self.find(node, &field),
        }
    }

    /// Hides a node with all that is below it.
    fn hide(&mut self, node: &Node, field: &Arc<str>) {
        self.hide_at(node.span, node.last_line, field);
        match &node.value {
            Value::Scalar { .. } => {}
            Value::List(items) => items.iter().for_each(|item| self.hide(item, field)),
            Value::Map(entries) => entries.iter().for_each(|entry| {
                self.hide_at(entry.name_span, entry.name_span.line, field);
                self.hide(&entry.node, field);
            }),
        }
    }

    fn hide_at(&mut self, span: Span, last_line: usize, field: &Arc<str>) {
        self.lines.extend(span.line..=last_line);
        self.fields.insert((span.line, span.column), Arc::clone(field));
    }
}

/// Whether the values of a field are not quoted.
pub(crate) fn is_secret_field(name: &str) -> bool {
    nearest(name, SECRET_FIELDS).is_some()
}

/// Whether the name of a secret field is part of a longer text.
fn has_secret_field(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| {
        is_secret_field(word) || SECRET_FIELDS.iter().any(|field| word.ends_with(field))
    })
}

/// Whether a text is an address with a user or a password, or one with a slip in it.
fn has_credentials(text: &str) -> bool {
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let port = host.split_once(':').map_or("", |(_, rest)| rest);
    text.contains('@') || port.starts_with(|c: char| !c.is_ascii_digit())
}
