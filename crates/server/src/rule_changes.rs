//! The difference between two rule sets, by rule id.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;
use tidegate_rules::{Rule, RuleLimit, RuleMode, RuleSet};

/// Rules that a new rule set adds, removes or changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleChanges {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

impl RuleChanges {
    /// Compares two rule sets.
    pub(crate) fn compare(before: &RuleSet, after: &RuleSet) -> Self {
        let (before, after) = (comparable_rules(before), comparable_rules(after));
        let mut changes = Self::default();
        for (id, meaning) in &after {
            match before.get(id) {
                None => changes.added.push((*id).to_owned()),
                Some(known) if known != meaning => changes.changed.push((*id).to_owned()),
                Some(_) => {}
            }
        }
        let removed = before.keys().filter(|id| !after.contains_key(*id));
        changes.removed = removed.map(|id| (*id).to_owned()).collect();
        changes
    }
}

impl fmt::Display for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists =
            [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let parts: Vec<String> = lists
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(what, ids)| format!("{what} {}", shorten_ids(ids)))
            .collect();
        f.write_str(if parts.is_empty() { "no rule changed" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

/// Limits the ids in one log line.
const MAX_SHOWN_IDS: usize = 20;

fn shorten_ids(ids: &[String]) -> String {
    let shown = ids[..ids.len().min(MAX_SHOWN_IDS)].join(", ");
    match ids.len().saturating_sub(MAX_SHOWN_IDS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn comparable_rules(rules: &RuleSet) -> BTreeMap<&str, String> {
    rules.rules().iter().map(|rule| (rule.id(), comparable_text(rule, rules))).collect()
}

/// Everything a rule defines, as comparable text. The time since which a policy is effective is
/// left out.
fn comparable_text(rule: &Rule, rules: &RuleSet) -> String {
    let without_time = |policy: &Policy| policy.with_effective_since(Timestamp::EPOCH);
    // A rule set that is not active yet may not count for a shared store.
    let limit = match rule.document_limit() {
        RuleLimit::Policy(policy) => RuleLimit::Policy(without_time(&policy)),
        other => other,
    };
    let mode = match rule.mode() {
        RuleMode::Warn(policy) => RuleMode::Warn(without_time(policy)),
        other => *other,
    };
    let (key, conditions) = (rule.key_by(), rule.conditions());
    let applies_to = (key.collect::<Vec<_>>(), conditions.collect::<Vec<_>>(), rule.is_active());
    let consistency = rule.consistency().to_string();
    let regions = rule.regional().map(|regional| regional.shares().to_string());
    let counted = (rule.ban(), rule.on_change(), rule.generation(), consistency, regions);
    let effect = (limit, rule.cost(), mode, rule.on_fail(), rule.charge(), counted);
    let replaced: Vec<&str> = rule
        .replaces()
        .iter()
        .filter_map(|at| Some(rules.rules().get(*at as usize)?.id()))
        .collect();
    format!("{applies_to:?} {effect:?} {replaced:?} {:?}", rule.description())
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    use super::*;

    fn compile_rules(source: &str) -> RuleSet {
        RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
    }

    #[test]
    fn reload_reports_changed_consistency() {
        let load =
            |mode: &str| compile_rules(&format!("rules: [{{id: a, limit: 1000/s, {mode}}}]"));
        let leased = "consistency: leased";
        let active = load(leased).for_shared_store();
        let unchanged = RuleChanges::compare(&active, &load(leased));
        assert_eq!(unchanged.to_string(), "no rule changed", "not shared yet");
        for mode in ["consistency: leased, lease: { ttl: 50ms }", "consistency: async", "split: 4"]
        {
            let changes = RuleChanges::compare(&active, &load(mode));
            assert_eq!(changes.to_string(), "changed a", "{mode}");
        }
    }

    #[test]
    fn reload_reports_added_removed_changed_rules() {
        let before =
            compile_rules("rules: [{id: a, limit: 1/s}, {id: b, limit: 1/s}, {id: c, limit: 1/s}]");
        let after =
            compile_rules("rules: [{id: d, limit: 1/s}, {id: c, limit: 2/s}, {id: b, limit: 1/s}]");
        let now = Timestamp::from_micros(7);
        let changes = RuleChanges::compare(&before, &after.inherit_from(&before, now));
        assert_eq!(changes.to_string(), "added d; removed a; changed c");
        assert_eq!(RuleChanges::compare(&before, &before).to_string(), "no rule changed");
    }
}
