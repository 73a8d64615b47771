//! One value of a document, read as what it should be.

use tidegate_core::time::Micros;

use super::{Fields, Findings, nearest};
use crate::problem::Remark;
use crate::text::duration;
use crate::yaml::{Node, Span, Value};

/// A value, where it stands, and where to note what is wrong with it. Every reader answers
/// `None` after noting a problem, never silently.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    node: &'a Node,
    path: String,
    findings: &'a Findings<'a>,
}

impl<'a> Field<'a> {
    /// The value at `path`.
    #[must_use]
    pub fn new(node: &'a Node, path: impl Into<String>, findings: &'a Findings<'a>) -> Self {
        Self { node, path: path.into(), findings }
    }

    /// The value itself.
    #[must_use]
    pub const fn node(&self) -> &'a Node {
        self.node
    }

    /// Where it stands.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.node.span
    }

    /// Its path, such as `rules[2].limit`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Notes what is wrong with it.
    pub fn refuse(&self, remark: Remark) {
        self.findings.note(self.span(), &self.path, remark);
    }

    /// The value of a check, or nothing after noting its remark.
    pub fn accept<T>(&self, checked: Result<T, Remark>) -> Option<T> {
        checked.map_err(|remark| self.refuse(remark)).ok()
    }

    /// The scalar's text, without judging it.
    #[must_use]
    pub fn scalar(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() => Some(text),
            _ => None,
        }
    }

    /// Text.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let text = self.scalar();
        if text.is_none() {
            self.wrong_kind("text");
        }
        text
    }

    /// Text that is not empty.
    #[must_use]
    pub fn word(&self) -> Option<&'a str> {
        let text = self.text()?;
        if text.is_empty() {
            self.refuse(Remark::new("this must not be empty").write("a value"));
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
            Value::Scalar { text, quoted: false } => integer(text),
            _ => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Some(number),
            Some(number) => {
                let remark = Remark::new("this number is out of bounds");
                self.refuse(remark.found(&number.to_string()).write(expected()));
                None
            }
            None => {
                self.wrong_kind(&expected());
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
                self.wrong_kind("`true` or `false`");
                None
            }
        }
    }

    /// A duration such as `10s`, not zero.
    #[must_use]
    pub fn duration(&self) -> Option<Micros> {
        let text = self.text()?;
        self.accept(duration::parse(text))
    }

    /// The name of a header, in lower case (a token of RFC 9110, section 5.6.2).
    #[must_use]
    pub fn header_name(&self) -> Option<String> {
        let name = self.word()?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(token) {
            let remark = Remark::new("this is not the name of a header").found(name);
            self.refuse(remark.write("letters, digits and dashes, such as `x-cost`"));
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
                None => one_of(&names),
            };
            self.refuse(Remark::new("unknown value").found(text).write(hint));
        }
        known.map(|(_, value)| *value)
    }

    /// The items of a list that is not empty; a single value is a list of itself.
    #[must_use]
    pub fn one_or_more(&self) -> Vec<Self> {
        let Value::List(items) = &self.node.value else {
            return vec![self.clone()];
        };
        if items.is_empty() {
            self.refuse(Remark::new("the list is empty").write("at least one value"));
        }
        self.numbered(items)
    }

    /// The items of a list, which may be empty.
    #[must_use]
    pub fn list(&self) -> Option<Vec<Self>> {
        if let Value::List(items) = &self.node.value {
            return Some(self.numbered(items));
        }
        self.wrong_kind("a list");
        None
    }

    /// The fields of a mapping.
    #[must_use]
    pub fn fields(&self) -> Option<Fields<'a>> {
        if let Value::Map(entries) = &self.node.value {
            return Some(Fields::new(entries, self.span(), self.path.clone(), self.findings));
        }
        self.wrong_kind("a mapping of `name: value`");
        None
    }

    /// Notes that something else should stand here.
    pub fn wrong_kind(&self, expected: &str) {
        let scalar = |text: &str| Remark::new(format!("expected {expected}")).found(text);
        self.refuse(match &self.node.value {
            Value::Scalar { text, quoted: true } => scalar(&format!("\"{text}\"")),
            Value::Scalar { .. } if self.node.is_null() => scalar("null"),
            Value::Scalar { text, .. } => scalar(text),
            Value::List(_) => Remark::new(format!("expected {expected}, found a list")),
            Value::Map(_) => Remark::new(format!("expected {expected}, found a mapping")),
        });
    }

    fn numbered(&self, items: &'a [Node]) -> Vec<Self> {
        let path = |i| format!("{}[{i}]", self.path);
        items.iter().enumerate().map(|(i, node)| Self::new(node, path(i), self.findings)).collect()
    }
}

/// A whole number; underscores may group its digits.
fn integer(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
