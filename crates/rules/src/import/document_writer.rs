//! Writes a rules document, rule by rule, up to the maximum size of a document.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::document::MAX_DOCUMENT_BYTES;
use crate::yaml::quote_scalar;

/// A document in progress.
#[derive(Debug)]
pub(super) struct DocumentWriter {
    text: String,
    /// Facts that rules name and API callers send.
    facts: BTreeSet<String>,
    /// Number of rules written.
    pub(super) rules: usize,
    /// Number of rules that did not fit.
    pub(super) skipped: usize,
}

/// One rule, with its parts as YAML.
#[derive(Debug)]
pub(super) struct RuleYaml<'r> {
    pub(super) id: &'r str,
    /// The inside of `match: { … }`.
    pub(super) match_body: &'r str,
    pub(super) key_by: Option<String>,
    pub(super) limit: ImportedLimit,
    pub(super) behavior: RuleBehavior,
    pub(super) replaces: Vec<&'r str>,
}

/// The limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImportedLimit {
    Unlimited,
    /// None in each window.
    DenyAll {
        window: WindowText,
    },
    /// This many requests in each window, aligned to the epoch.
    FixedWindow {
        requests: u64,
        window: WindowText,
    },
}

/// A window as written: a number and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowText(pub(super) u64, pub(super) &'static str);

/// How a rule charges and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleBehavior {
    Standard,
    /// Charges refused requests too.
    ChargeAlways,
    /// Never refuses.
    Shadow,
}

impl DocumentWriter {
    /// Starts a document with these lines.
    pub(super) fn new(head: &str) -> Self {
        Self { text: format!("{head}rules:\n"), facts: BTreeSet::new(), rules: 0, skipped: 0 }
    }

    /// Appends a rule if there is room. After the first rule that does not fit, all others are
    /// skipped.
    pub(super) fn push_rule(&mut self, rule: &RuleYaml<'_>) {
        // Check the size first: rules may share a long prefix that would be formatted for each of
        // them.
        let room = MAX_DOCUMENT_BYTES.saturating_sub(self.text.len());
        let text = (self.skipped == 0 && rule.match_body.len() < room).then(|| rule.to_yaml());
        match text.filter(|text| text.len() <= room) {
            Some(text) => {
                self.text.push_str(&text);
                self.rules += 1;
            }
            None => self.skipped += 1,
        }
    }

    /// Adds facts that rules name and API callers send.
    pub(super) fn declare_facts<'f>(&mut self, facts: impl IntoIterator<Item = &'f str>) {
        self.facts.extend(facts.into_iter().map(str::to_owned));
    }

    pub(super) fn finish(mut self) -> String {
        if self.rules == 0 {
            self.text.truncate(self.text.trim_end().len());
            self.text.push_str(" []\n");
        }
        if !self.facts.is_empty() {
            let line = format!("facts: {}\n", yaml_list(&Vec::from_iter(&self.facts)));
            // All rules here match a domain, so they are valid without the declaration too.
            if line.len() + self.text.len() <= MAX_DOCUMENT_BYTES {
                self.text.insert_str(0, &line);
            }
        }
        self.text
    }
}

impl RuleYaml<'_> {
    fn to_yaml(&self) -> String {
        let mut text =
            format!("  - id: {}\n    match: {{ {} }}\n", yaml_scalar(self.id), self.match_body);
        let mut line = |name: &str, value: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "    {name}: {value}");
        };
        if let Some(key_by) = &self.key_by {
            line("key_by", key_by);
        }
        line("limit", &self.limit.to_yaml());
        match self.behavior {
            RuleBehavior::ChargeAlways if self.limit.counts() => line("charge", "always"),
            RuleBehavior::Shadow => line("mode", "shadow"),
            RuleBehavior::Standard | RuleBehavior::ChargeAlways => {}
        }
        if !self.replaces.is_empty() {
            line("replaces", &yaml_list(&self.replaces));
        }
        text
    }
}

impl ImportedLimit {
    const fn counts(self) -> bool {
        matches!(self, Self::FixedWindow { .. })
    }

    fn to_yaml(self) -> String {
        match self {
            Self::Unlimited => "{ requests: unlimited }".to_owned(),
            Self::DenyAll { window: WindowText(count, unit) } => {
                format!("{{ requests: deny, window: {count}{unit} }}")
            }
            Self::FixedWindow { requests, window: WindowText(count, unit) } => {
                format!(
                    "{{ requests: {requests}, window: {count}{unit}, algorithm: fixed_window }}"
                )
            }
        }
    }
}

/// Formats a list of texts.
pub(super) fn yaml_list(texts: &[impl AsRef<str>]) -> String {
    let items: Vec<_> = texts.iter().map(|text| yaml_scalar(text.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// Formats text as a scalar that parses as the same text, also inside brackets and braces.
pub(super) fn yaml_scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./=-".contains(c);
    let word = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain);
    let reserved =
        matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false" | "yes" | "no");
    if word && !reserved {
        return text.to_owned();
    }
    quote_scalar(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::Diagnostics;
    use crate::yaml::{self, YamlValue};

    fn read_back(text: &str) -> String {
        let source = format!("[{}]", yaml_scalar(text));
        let diagnostics = Diagnostics::new("t", &source);
        let Some(YamlValue::List(items)) =
            yaml::parse(&source, &diagnostics).map(|node| node.value)
        else {
            panic!("{source}");
        };
        match &items[..] {
            [item] if !item.is_null() => match &item.value {
                YamlValue::Scalar { text, .. } => text.clone(),
                other => panic!("{source}: {other:?}"),
            },
            other => panic!("{source}: {other:?}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn every_scalar_round_trips(text in any::<String>()) {
            prop_assert_eq!(read_back(&text), text);
        }
    }

    #[test]
    fn special_scalars_round_trip() {
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
