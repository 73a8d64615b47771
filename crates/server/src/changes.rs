//! What a reload changed, by rule id.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;
use tidegate_rules::{Limit, Mode, Rule, RuleSet};

/// Which rules a rule set has that its predecessor had not, lost, or has otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

impl Changes {
    /// The difference between two rule sets.
    pub(crate) fn between(before: &RuleSet, after: &RuleSet) -> Self {
        let (before, after) = (meanings(before), meanings(after));
        let mut changes = Self::default();
        for (id, meaning) in &after {
            match before.get(id) {
                None => changes.added.push((*id).to_owned()),
                Some(known) if known != meaning => changes.changed.push((*id).to_owned()),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|id| !after.contains_key(*id));
        changes.removed = gone.map(|id| (*id).to_owned()).collect();
        changes
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists =
            [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let told: Vec<String> = lists
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(what, ids)| format!("{what} {}", shortened(ids)))
            .collect();
        f.write_str(if told.is_empty() { "no rule changed" } else { "" })?;
        f.write_str(&told.join("; "))
    }
}

/// More ids than this in one log line help nobody.
const SHOWN: usize = 20;

fn shortened(ids: &[String]) -> String {
    let shown = ids[..ids.len().min(SHOWN)].join(", ");
    match ids.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn meanings(rules: &RuleSet) -> BTreeMap<&str, String> {
    rules.rules().iter().map(|rule| (rule.id(), meaning(rule, rules))).collect()
}

/// Everything a rule says, as text that is equal when it says the same. Since when a policy is in
/// force is not part of what it says.
fn meaning(rule: &Rule, rules: &RuleSet) -> String {
    let timeless = |policy: &Policy| policy.in_force_since(Timestamp::EPOCH);
    let limit = match rule.limit() {
        Limit::Policy(policy) => Limit::Policy(timeless(policy)),
        other => *other,
    };
    let mode = match rule.mode() {
        Mode::Warn(policy) => Mode::Warn(timeless(policy)),
        other => *other,
    };
    let (key, conditions) = (rule.key_by(), rule.conditions());
    let who = (key.collect::<Vec<_>>(), conditions.collect::<Vec<_>>(), rule.is_active());
    let counted = (rule.ban(), rule.on_change(), rule.generation());
    let what = (limit, rule.cost(), mode, rule.on_fail(), rule.charge(), counted);
    let replaced: Vec<&str> = rule
        .replaces()
        .iter()
        .filter_map(|at| Some(rules.rules().get(*at as usize)?.id()))
        .collect();
    format!("{who:?} {what:?} {replaced:?} {:?}", rule.description())
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    use super::*;

    fn rules(source: &str) -> RuleSet {
        RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
    }

    #[test]
    fn added_removed_and_changed_rules_are_told_apart() {
        let before =
            rules("rules: [{id: a, limit: 1/s}, {id: b, limit: 1/s}, {id: c, limit: 1/s}]");
        let after = rules("rules: [{id: d, limit: 1/s}, {id: c, limit: 2/s}, {id: b, limit: 1/s}]");
        let now = Timestamp::from_micros(7);
        let changes = Changes::between(&before, &after.following(&before, now));
        assert_eq!(changes.to_string(), "added d; removed a; changed c");
        assert_eq!(Changes::between(&before, &before).to_string(), "no rule changed");
    }
}
