//! Decodes a single value of a document into the expected type.

use tidegate_core::time::Micros;

use super::{Diagnostics, FieldMap, nearest};
use crate::diagnostic::FieldError;
use crate::value_syntax::duration;
use crate::yaml::{SourceSpan, YamlNode, YamlValue};

/// A value, its location, and the collection for its errors. A reader that returns `None` has
/// reported an error.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    node: &'a YamlNode,
    path: String,
    diagnostics: &'a Diagnostics<'a>,
}

impl<'a> Field<'a> {
    /// The value at `path`.
    #[must_use]
    pub fn new(
        node: &'a YamlNode,
        path: impl Into<String>,
        diagnostics: &'a Diagnostics<'a>,
    ) -> Self {
        Self { node, path: path.into(), diagnostics }
    }

    /// The YAML node.
    #[must_use]
    pub const fn node(&self) -> &'a YamlNode {
        self.node
    }

    /// The location in the source.
    #[must_use]
    pub const fn span(&self) -> SourceSpan {
        self.node.span
    }

    /// Its path, such as `rules[2].limit`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Hides this value in all errors, because it may be a secret.
    pub(crate) fn hide_value(&self) {
        self.diagnostics.hide_value(self.node, &self.path);
    }

    /// Reports an error of this value.
    pub fn report(&self, error: FieldError) {
        self.diagnostics.report(self.span(), &self.path, error);
    }

    /// The checked value, or `None` after reporting the error.
    pub fn ok_or_report<T>(&self, checked: Result<T, FieldError>) -> Option<T> {
        checked.map_err(|error| self.report(error)).ok()
    }

    /// The text of a scalar, without reporting an error.
    #[must_use]
    pub fn scalar(&self) -> Option<&'a str> {
        match &self.node.value {
            YamlValue::Scalar { text, .. } if !self.node.is_null() => Some(text),
            _ => None,
        }
    }

    /// Text.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let text = self.scalar();
        if text.is_none() {
            self.report_wrong_kind("text");
        }
        text
    }

    /// Text that is not empty.
    #[must_use]
    pub fn non_empty_text(&self) -> Option<&'a str> {
        let text = self.text()?;
        if text.is_empty() {
            self.report(FieldError::new("this must not be empty").with_hint("a value"));
            return None;
        }
        Some(text)
    }

    /// A whole number within bounds.
    #[must_use]
    pub fn integer(&self, least: u64, most: u64) -> Option<u64> {
        let expected = || match (least, most) {
            (0, u64::MAX) => "a whole number".to_owned(),
            (least, u64::MAX) => format!("a whole number of at least {least}"),
            (least, most) => format!("a whole number from {least} to {most}"),
        };
        let number = match &self.node.value {
            YamlValue::Scalar { text, quoted: false } => parse_integer(text),
            _ => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Some(number),
            Some(number) => {
                let error = FieldError::new("this number is out of bounds");
                self.report(error.with_found(&number.to_string()).with_hint(expected()));
                None
            }
            None => {
                self.report_wrong_kind(&expected());
                None
            }
        }
    }

    /// `true` or `false`.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match self.scalar() {
            Some("true" | "True" | "TRUE") => Some(true),
            Some("false" | "False" | "FALSE") => Some(false),
            _ => {
                self.report_wrong_kind("`true` or `false`");
                None
            }
        }
    }

    /// A duration such as `10s`, not zero.
    #[must_use]
    pub fn duration(&self) -> Option<Micros> {
        let text = self.text()?;
        self.ok_or_report(duration::parse(text))
    }

    /// The name of a header, in lower case (a token of RFC 9110, section 5.6.2).
    #[must_use]
    pub fn header_name(&self) -> Option<String> {
        let name = self.non_empty_text()?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(token) {
            let error = FieldError::new("this is not the name of a header").with_found(name);
            self.report(error.with_hint("letters, digits and dashes, such as `x-cost`"));
            return None;
        }
        Some(name.to_ascii_lowercase())
    }

    /// One of a few words, in any case.
    #[must_use]
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let known = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if known.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let hint = match nearest(text, names.iter().copied()) {
                Some(name) => format!("`{name}`"),
                None => format_choices(&names),
            };
            self.report(FieldError::new("unknown value").with_found(text).with_hint(hint));
        }
        known.map(|(_, value)| *value)
    }

    /// The items of a list that is not empty; a single value counts as a list with one item.
    #[must_use]
    pub fn non_empty_items(&self) -> Vec<Self> {
        let YamlValue::List(items) = &self.node.value else {
            return vec![self.clone()];
        };
        if items.is_empty() {
            self.report(FieldError::new("the list is empty").with_hint("at least one value"));
        }
        self.indexed_items(items)
    }

    /// The items of a list, which may be empty.
    #[must_use]
    pub fn list(&self) -> Option<Vec<Self>> {
        if let YamlValue::List(items) = &self.node.value {
            return Some(self.indexed_items(items));
        }
        self.report_wrong_kind("a list");
        None
    }

    /// The fields of a mapping.
    #[must_use]
    pub fn fields(&self) -> Option<FieldMap<'a>> {
        if let YamlValue::Map(entries) = &self.node.value {
            return Some(FieldMap::new(entries, self.span(), self.path.clone(), self.diagnostics));
        }
        self.report_wrong_kind("a mapping of `name: value`");
        // Perhaps a field without its colon: the text may contain a secret value.
        if self.scalar().is_some() {
            self.hide_value();
        }
        None
    }

    /// Reports that the value has the wrong type.
    pub fn report_wrong_kind(&self, expected: &str) {
        let scalar = |text: &str| FieldError::new(format!("expected {expected}")).with_found(text);
        self.report(match &self.node.value {
            YamlValue::Scalar { text, quoted: true } => scalar(&format!("\"{text}\"")),
            YamlValue::Scalar { .. } if self.node.is_null() => scalar("null"),
            YamlValue::Scalar { text, .. } => scalar(text),
            YamlValue::List(_) => FieldError::new(format!("expected {expected}, found a list")),
            YamlValue::Map(_) => FieldError::new(format!("expected {expected}, found a mapping")),
        });
    }

    fn indexed_items(&self, items: &'a [YamlNode]) -> Vec<Self> {
        let path = |i| format!("{}[{i}]", self.path);
        items
            .iter()
            .enumerate()
            .map(|(i, node)| Self::new(node, path(i), self.diagnostics))
            .collect()
    }
}

/// A whole number; underscores may group its digits.
fn parse_integer(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn format_choices(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
