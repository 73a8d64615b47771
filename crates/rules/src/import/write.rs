//! Writes a rules document, rule by rule, no longer than one may be.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::document::MAX_DOCUMENT_BYTES;
use crate::yaml::quoted;

/// A document that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    text: String,
    /// Facts that rules name and that callers bring.
    facts: BTreeSet<String>,
    /// How many rules there are.
    pub(super) rules: usize,
    /// How many rules did not fit.
    pub(super) left_out: usize,
}

/// One rule, its parts as YAML.
#[derive(Debug)]
pub(super) struct RuleText<'r> {
    pub(super) id: &'r str,
    /// The inside of `match: { … }`.
    pub(super) matched: &'r str,
    pub(super) key_by: Option<String>,
    pub(super) limit: Allows,
    pub(super) conduct: Conduct,
    pub(super) replaces: Vec<&'r str>,
}

/// What a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allows {
    Everything,
    Nothing,
    /// So much in each window, aligned to the epoch.
    Windows {
        requests: u64,
        window: Window,
    },
}

/// A window as it is written: a number and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(pub(super) u64, pub(super) &'static str);

/// What a rule does besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Usual,
    /// It charges refused requests too.
    ChargesAlways,
    /// It never refuses.
    Shadow,
}

impl Writer {
    /// A document that begins with these lines.
    pub(super) fn new(head: &str) -> Self {
        Self { text: format!("{head}rules:\n"), facts: BTreeSet::new(), rules: 0, left_out: 0 }
    }

    /// Adds a rule if there is room; after one that had none, no other has.
    pub(super) fn rule(&mut self, rule: &RuleText<'_>) {
        // Looked at first: a beginning that many rules share is not to be written for each of them.
        let room = MAX_DOCUMENT_BYTES.saturating_sub(self.text.len());
        let text = (self.left_out == 0 && rule.matched.len() < room).then(|| rule.text());
        match text.filter(|text| text.len() <= room) {
            Some(text) => {
                self.text.push_str(&text);
                self.rules += 1;
            }
            None => self.left_out += 1,
        }
    }

    /// Notes facts that rules name and that callers bring.
    pub(super) fn declare<'f>(&mut self, facts: impl IntoIterator<Item = &'f str>) {
        self.facts.extend(facts.into_iter().map(str::to_owned));
    }

    pub(super) fn finish(mut self) -> String {
        if self.rules == 0 {
            self.text.truncate(self.text.trim_end().len());
            self.text.push_str(" []\n");
        }
        if !self.facts.is_empty() {
            let line = format!("facts: {}\n", list(&Vec::from_iter(&self.facts)));
            // All rules here name a domain, so they are valid without it too.
            if line.len() + self.text.len() <= MAX_DOCUMENT_BYTES {
                self.text.insert_str(0, &line);
            }
        }
        self.text
    }
}

impl RuleText<'_> {
    fn text(&self) -> String {
        let mut text = format!("  - id: {}\n    match: {{ {} }}\n", scalar(self.id), self.matched);
        let mut line = |name: &str, value: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "    {name}: {value}");
        };
        if let Some(key_by) = &self.key_by {
            line("key_by", key_by);
        }
        line("limit", &self.limit.text());
        match self.conduct {
            Conduct::ChargesAlways if self.limit.counts() => line("charge", "always"),
            Conduct::Shadow => line("mode", "shadow"),
            Conduct::Usual | Conduct::ChargesAlways => {}
        }
        if !self.replaces.is_empty() {
            line("replaces", &list(&self.replaces));
        }
        text
    }
}

impl Allows {
    const fn counts(self) -> bool {
        matches!(self, Self::Windows { .. })
    }

    fn text(self) -> String {
        match self {
            Self::Everything => "{ requests: unlimited }".to_owned(),
            Self::Nothing => "{ requests: deny }".to_owned(),
            Self::Windows { requests, window: Window(count, unit) } => {
                format!(
                    "{{ requests: {requests}, window: {count}{unit}, algorithm: fixed_window }}"
                )
            }
        }
    }
}

/// A list of texts.
pub(super) fn list(texts: &[impl AsRef<str>]) -> String {
    let items: Vec<_> = texts.iter().map(|text| scalar(text.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// Text as a scalar that reads as the same text, also inside brackets and braces.
pub(super) fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./=-".contains(c);
    let word = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain);
    let said =
        matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false" | "yes" | "no");
    if word && !said {
        return text.to_owned();
    }
    quoted(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::Findings;
    use crate::yaml::{self, Value};

    fn read_back(text: &str) -> String {
        let source = format!("[{}]", scalar(text));
        let findings = Findings::new("t", &source);
        let Some(Value::List(items)) = yaml::parse(&source, &findings).map(|node| node.value)
        else {
            panic!("{source}");
        };
        match &items[..] {
            [item] if !item.is_null() => match &item.value {
                Value::Scalar { text, .. } => text.clone(),
                other => panic!("{source}: {other:?}"),
            },
            other => panic!("{source}: {other:?}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn every_text_reads_as_itself(text in any::<String>()) {
            prop_assert_eq!(read_back(&text), text);
        }
    }

    #[test]
    fn odd_texts_read_as_themselves() {
        for text in [
            "",
            "null",
            "~",
            "- a",
            "a: b",
            "#",
            "a #b",
            "[",
            "'",
            "\"",
            "\\",
            "\0\u{85}\u{FEFF}",
            "{a}",
            "*a",
            "&a",
            "a,b",
            "\u{202E}x",
            "10",
            "-1",
            "=",
            "%",
        ] {
            assert_eq!(read_back(text), text);
        }
    }
}
