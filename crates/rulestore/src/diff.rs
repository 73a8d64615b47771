//! Differences between two rule configurations.

use crate::edit::VersionChange;
use crate::rule_config::{EntryKind, RuleConfig};

/// The changes that turn `before` into `after`, ordered by kind and id.
pub fn diff_configs(before: &RuleConfig, after: &RuleConfig) -> Vec<VersionChange> {
    let mut changes = Vec::new();
    for kind in EntryKind::ALL {
        let old =
            before.entries(kind, None).map(|(id, entry)| (id, Some(entry), after.get(kind, id)));
        let new = after.entries(kind, None).filter(|(id, _)| before.get(kind, id).is_none());
        let new = new.map(|(id, entry)| (id, None, Some(entry)));
        let differs = old.chain(new).filter_map(|(id, old, new)| {
            let value = |entry: Option<&crate::rule_config::StoredEntry>| {
                entry.map(|entry| entry.value.clone())
            };
            let (before, after) = (value(old), value(new));
            let (version, id) = (new.map_or(0, |entry| entry.version), id.to_owned());
            (before != after).then_some(VersionChange { version, kind, id, before, after })
        });
        changes.extend(differs);
    }
    changes
}

/// The net effect of an ordered list of changes: one change per entry.
pub fn net_changes(changes: impl IntoIterator<Item = VersionChange>) -> Vec<VersionChange> {
    let mut net: std::collections::BTreeMap<(EntryKind, String), VersionChange> =
        Default::default();
    for change in changes {
        let key = (change.kind, change.id.clone());
        match net.get_mut(&key) {
            Some(merged) => (merged.after, merged.version) = (change.after, change.version),
            None => drop(net.insert(key, change)),
        }
    }
    net.into_values().filter(|change| change.before != change.after).collect()
}
