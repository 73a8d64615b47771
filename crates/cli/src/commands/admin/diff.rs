//! Renders changes by entry and field: `+` added, `-` removed, `~` changed.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tidegate_rules::yaml_writer::render_flow;
use tidegate_web::date::format_rfc3339;

use super::pagination::ListedRule;
use tidegate_server::output::{BAD, GOOD, escape_unprintable};

const CHANGED_STYLE: Style = AnsiColor::Yellow.on_default().bold();

/// One entry before and after the change; null if it does not exist.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct EntryChange {
    kind: String,
    id: String,
    before: Json,
    after: Json,
}

/// All changes.
#[derive(Debug)]
pub(super) struct RulesDiff {
    /// Entries that were added, removed or changed.
    changes: Vec<EntryChange>,
    /// How many of the remaining rules change their order.
    moved: usize,
}

impl RulesDiff {
    /// Computes the difference from the current `rules`. A rule whose position changes only because
    /// another rule was added or removed does not count as changed.
    pub(super) fn new(changes: Vec<EntryChange>, rules: &[ListedRule]) -> Self {
        let moved = count_moved(&changes, rules);
        let changes = changes.into_iter().map(|change| EntryChange {
            before: visible_entry(&change.kind, &change.before),
            after: visible_entry(&change.kind, &change.after),
            ..change
        });
        Self { changes: changes.filter(|change| change.before != change.after).collect(), moved }
    }

    /// Whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.moved == 0
    }

    /// The difference as text, one line per field.
    pub(super) fn render(&self) -> String {
        let mut text: String = self.changes.iter().map(EntryChange::render).collect();
        if self.moved > 0 {
            let rules = if self.moved == 1 { "rule" } else { "rules" };
            text.push_str(&format!(
                "{CHANGED_STYLE}~{CHANGED_STYLE:#} order: {} {rules} moved\n",
                self.moved
            ));
        }
        text
    }
}

impl EntryChange {
    fn render(&self) -> String {
        let what = format!("{} {}", self.kind, escape_unprintable(&self.id));
        match (&self.before, &self.after) {
            (Json::Null, after) => {
                format!("{GOOD}+{GOOD:#} {what}\n{}", render_fields(&Json::Null, after))
            }
            (_, Json::Null) => format!("{BAD}-{BAD:#} {what}\n"),
            (before, after) => format!(
                "{CHANGED_STYLE}~{CHANGED_STYLE:#} {what}\n{}",
                render_fields(before, after)
            ),
        }
    }
}

/// The differences between two values, one line per field.
fn render_fields(before: &Json, after: &Json) -> String {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    flatten_leaves("", before, &mut old);
    flatten_leaves("", after, &mut new);
    let was: BTreeMap<&str, &Json> =
        old.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    let is: BTreeMap<&str, &Json> =
        new.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    let mut text = String::new();
    for (path, value) in &old {
        if !is.contains_key(path.as_str()) {
            text.push_str(&format!(
                "    {BAD}-{BAD:#} {}\n",
                render_field(path, &render_flow(value))
            ));
        }
    }
    for (path, value) in &new {
        let value = render_flow(value);
        match was.get(path.as_str()).map(|before| render_flow(before)) {
            None => text.push_str(&format!("    {GOOD}+{GOOD:#} {}\n", render_field(path, &value))),
            Some(before) if before != value => {
                let field = render_field(path, &format!("{before} -> {value}"));
                text.push_str(&format!("    {CHANGED_STYLE}~{CHANGED_STYLE:#} {field}\n"));
            }
            Some(_) => {}
        }
    }
    text
}

fn render_field(path: &str, value: &str) -> String {
    let path = escape_unprintable(path);
    if path.is_empty() { value.to_owned() } else { format!("{path}: {value}") }
}

/// Collects all values that are not mappings, with their paths, in document order.
fn flatten_leaves<'v>(path: &str, value: &'v Json, into: &mut Vec<(String, &'v Json)>) {
    match value {
        Json::Object(inner) if !inner.is_empty() => {
            for (name, value) in inner {
                let dot = if path.is_empty() { "" } else { "." };
                flatten_leaves(&format!("{path}{dot}{name}"), value, into);
            }
        }
        Json::Null if path.is_empty() => {}
        value => into.push((path.to_owned(), value)),
    }
}

/// The fields of an entry to show; internal fields, such as positions and hashes, are left out.
fn visible_entry(kind: &str, value: &Json) -> Json {
    let Json::Object(entry) = value else { return value.clone() };
    match kind {
        "rule" => {
            let mut rule = entry.get("rule").cloned().unwrap_or(Json::Null);
            // The ID is in the headline of the entry.
            rule.as_object_mut().and_then(|fields| fields.shift_remove("id"));
            rule
        }
        "subject" | "override" => {
            let mut entry: Map<String, Json> = entry.clone();
            entry.retain(|name, _| !["hash", "key_by"].contains(&name.as_str()));
            if let Some(until) = entry.shift_remove("until_us").and_then(|until| until.as_u64()) {
                entry.insert("until".to_owned(), format_rfc3339(until / 1_000_000).into());
            }
            Json::Object(entry)
        }
        _ => value.clone(),
    }
}

/// Counts the remaining rules whose order among themselves changes.
fn count_moved(changes: &[EntryChange], rules: &[ListedRule]) -> usize {
    let changed: BTreeMap<&str, &Json> = changes
        .iter()
        .filter(|change| change.kind == "rule")
        .map(|change| (change.id.as_str(), &change.after))
        .collect();
    let mut remaining: Vec<(&str, u64, u64)> = rules
        .iter()
        .filter_map(|rule| {
            let after = match changed.get(rule.id.as_str()) {
                Some(after) => after.get("position")?.as_u64()?,
                None => rule.position,
            };
            Some((rule.id.as_str(), rule.position, after))
        })
        .collect();
    remaining.sort_by_key(|(_, before, _)| *before);
    let before: Vec<&str> = remaining.iter().map(|(id, ..)| *id).collect();
    remaining.sort_by_key(|(_, _, after)| *after);
    remaining.iter().zip(before).filter(|((id, ..), before)| id != before).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed_rules(ids: &[&str]) -> Vec<ListedRule> {
        let listed = |(position, id): (u64, &&str)| ListedRule {
            id: (*id).to_owned(),
            position,
            rule: json!({}),
        };
        (0..).zip(ids).map(listed).collect()
    }

    fn rule_change(id: &str, before: Option<u64>, after: Option<u64>) -> EntryChange {
        let placed = |at: Option<u64>| {
            at.map_or(Json::Null, |at| json!({"position": at, "rule": {"id": id}}))
        };
        EntryChange {
            kind: "rule".into(),
            id: id.into(),
            before: placed(before),
            after: placed(after),
        }
    }

    fn strip_ansi(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn added_or_removed_rule_moves_none() {
        let shifted = vec![rule_change("a", Some(0), None), rule_change("b", Some(1), Some(0))];
        let diff = RulesDiff::new(shifted, &listed_rules(&["a", "b"]));
        assert_eq!(strip_ansi(&diff.render()), "- rule a\n");
        let renumbered =
            RulesDiff::new(vec![rule_change("b", Some(5), Some(1))], &listed_rules(&["a"]));
        assert!(renumbered.is_empty());
    }

    #[test]
    fn swapped_rules_count_as_moved() {
        let swapped = vec![rule_change("a", Some(0), Some(2)), rule_change("c", Some(2), Some(0))];
        let diff = RulesDiff::new(swapped, &listed_rules(&["a", "b", "c"]));
        assert_eq!(strip_ansi(&diff.render()), "~ order: 2 rules moved\n");
    }

    #[test]
    fn field_diff_escapes_control_characters() {
        let before =
            json!({"id": "r", "limit": {"requests": 10, "window": "1s"}, "mode": "shadow"});
        let after = json!({"id": "r", "limit": {"requests": 20, "window": "1s"}, "description": "a\u{1b}[2Jb"});
        let text = strip_ansi(&render_fields(&before, &after));
        assert_eq!(
            text,
            "    - mode: shadow\n    ~ limit.requests: 10 -> 20\n    + description: \"a\\U0000001B[2Jb\"\n"
        );
    }
}
