//! What changes, by rule and field, as people read it: `+` comes, `-` goes, `~` is another.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tidegate_control::yaml_text::flow;
use tidegate_edge::date::rfc3339;

use super::pages::ListedRule;
use crate::output::{BAD, GOOD, printable};

const OTHER: Style = AnsiColor::Yellow.on_default().bold();

/// One entry as it was and will be; null where there is none.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Change {
    kind: String,
    id: String,
    before: Json,
    after: Json,
}

/// Everything that changes.
#[derive(Debug)]
pub(super) struct Diff {
    /// Entries that say something else.
    changes: Vec<Change>,
    /// How many rules stand elsewhere among those that stay.
    moved: usize,
}

impl Diff {
    /// What changes of rules that are in this order. A rule whose number alone is another, because one before it
    /// came or went, is none of them.
    pub(super) fn of(changes: Vec<Change>, rules: &[ListedRule]) -> Self {
        let moved = moved(&changes, rules);
        let changes = changes.into_iter().map(|change| Change {
            before: shown(&change.kind, &change.before),
            after: shown(&change.kind, &change.after),
            ..change
        });
        Self { changes: changes.filter(|change| change.before != change.after).collect(), moved }
    }

    /// Whether everything stays.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.moved == 0
    }

    /// All of it, a line for each field.
    pub(super) fn rendered(&self) -> String {
        let mut text: String = self.changes.iter().map(Change::rendered).collect();
        if self.moved > 0 {
            let (rules, stand) =
                if self.moved == 1 { ("rule", "stands") } else { ("rules", "stand") };
            text.push_str(&format!(
                "{OTHER}~{OTHER:#} order: {} {rules} {stand} elsewhere\n",
                self.moved
            ));
        }
        text
    }
}

impl Change {
    fn rendered(&self) -> String {
        let what = format!("{} {}", self.kind, printable(&self.id));
        match (&self.before, &self.after) {
            (Json::Null, after) => {
                format!("{GOOD}+{GOOD:#} {what}\n{}", fields(&Json::Null, after))
            }
            (_, Json::Null) => format!("{BAD}-{BAD:#} {what}\n"),
            (before, after) => format!("{OTHER}~{OTHER:#} {what}\n{}", fields(before, after)),
        }
    }
}

/// What differs between two values, by field.
fn fields(before: &Json, after: &Json) -> String {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    leaves("", before, &mut old);
    leaves("", after, &mut new);
    let was: BTreeMap<&str, &Json> =
        old.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    let is: BTreeMap<&str, &Json> =
        new.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    let mut text = String::new();
    for (path, value) in &old {
        if !is.contains_key(path.as_str()) {
            text.push_str(&format!("    {BAD}-{BAD:#} {}\n", field(path, &flow(value))));
        }
    }
    for (path, value) in &new {
        let value = flow(value);
        match was.get(path.as_str()).map(|before| flow(before)) {
            None => text.push_str(&format!("    {GOOD}+{GOOD:#} {}\n", field(path, &value))),
            Some(before) if before != value => {
                let told = field(path, &format!("{before} -> {value}"));
                text.push_str(&format!("    {OTHER}~{OTHER:#} {told}\n"));
            }
            Some(_) => {}
        }
    }
    text
}

fn field(path: &str, value: &str) -> String {
    let path = printable(path);
    if path.is_empty() { value.to_owned() } else { format!("{path}: {value}") }
}

/// The values that are no mappings, by their paths and in their order.
fn leaves<'v>(path: &str, value: &'v Json, into: &mut Vec<(String, &'v Json)>) {
    match value {
        Json::Object(inner) if !inner.is_empty() => {
            for (name, value) in inner {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{name}"), value, into);
            }
        }
        Json::Null if path.is_empty() => {}
        value => into.push((path.to_owned(), value)),
    }
}

/// An entry without what only the office needs: places of rules, hashes.
fn shown(kind: &str, value: &Json) -> Json {
    let Json::Object(entry) = value else { return value.clone() };
    match kind {
        "rule" => {
            let mut rule = entry.get("rule").cloned().unwrap_or(Json::Null);
            // It stands beside it.
            rule.as_object_mut().and_then(|fields| fields.shift_remove("id"));
            rule
        }
        "subject" | "override" => {
            let mut entry: Map<String, Json> = entry.clone();
            entry.retain(|name, _| !["hash", "key_by"].contains(&name.as_str()));
            if let Some(until) = entry.shift_remove("until_us").and_then(|until| until.as_u64()) {
                entry.insert("until".to_owned(), rfc3339(until / 1_000_000).into());
            }
            Json::Object(entry)
        }
        _ => value.clone(),
    }
}

/// How many of the rules that stay have another place among them.
fn moved(changes: &[Change], rules: &[ListedRule]) -> usize {
    let changed: BTreeMap<&str, &Json> = changes
        .iter()
        .filter(|change| change.kind == "rule")
        .map(|change| (change.id.as_str(), &change.after))
        .collect();
    let mut stay: Vec<(&str, u64, u64)> = rules
        .iter()
        .filter_map(|rule| {
            let after = match changed.get(rule.id.as_str()) {
                Some(after) => after.get("position")?.as_u64()?,
                None => rule.position,
            };
            Some((rule.id.as_str(), rule.position, after))
        })
        .collect();
    stay.sort_by_key(|(_, before, _)| *before);
    let before: Vec<&str> = stay.iter().map(|(id, ..)| *id).collect();
    stay.sort_by_key(|(_, _, after)| *after);
    stay.iter().zip(before).filter(|((id, ..), before)| id != before).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(ids: &[&str]) -> Vec<ListedRule> {
        let listed = |(position, id): (u64, &&str)| ListedRule {
            id: (*id).to_owned(),
            position,
            rule: json!({}),
        };
        (0..).zip(ids).map(listed).collect()
    }

    fn rule(id: &str, before: Option<u64>, after: Option<u64>) -> Change {
        let placed = |at: Option<u64>| {
            at.map_or(Json::Null, |at| json!({"position": at, "rule": {"id": id}}))
        };
        Change { kind: "rule".into(), id: id.into(), before: placed(before), after: placed(after) }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_rule_that_comes_or_goes_moves_nobody() {
        let shifted = vec![rule("a", Some(0), None), rule("b", Some(1), Some(0))];
        let diff = Diff::of(shifted, &rules(&["a", "b"]));
        assert_eq!(plain(&diff.rendered()), "- rule a\n");
        let renumbered = Diff::of(vec![rule("b", Some(5), Some(1))], &rules(&["a"]));
        assert!(renumbered.is_empty());
    }

    #[test]
    fn rules_that_change_places_are_counted() {
        let swapped = vec![rule("a", Some(0), Some(2)), rule("c", Some(2), Some(0))];
        let diff = Diff::of(swapped, &rules(&["a", "b", "c"]));
        assert_eq!(plain(&diff.rendered()), "~ order: 2 rules stand elsewhere\n");
    }

    #[test]
    fn fields_are_told_one_by_one_and_hostile_text_is_not_obeyed() {
        let before =
            json!({"id": "r", "limit": {"requests": 10, "window": "1s"}, "mode": "shadow"});
        let after = json!({"id": "r", "limit": {"requests": 20, "window": "1s"}, "description": "a\u{1b}[2Jb"});
        let text = plain(&fields(&before, &after));
        assert_eq!(
            text,
            "    - mode: shadow\n    ~ limit.requests: 10 -> 20\n    + description: \"a\\U0000001B[2Jb\"\n"
        );
    }
}
