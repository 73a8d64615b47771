//! What differs between two books.

use crate::book::{Book, Kind};
use crate::edit::Change;

/// What has to change in `before` to make it `after`, by kind and id.
pub(crate) fn between(before: &Book, after: &Book) -> Vec<Change> {
    let mut changes = Vec::new();
    for kind in Kind::ALL {
        let old = before.all(kind, None).map(|(id, kept)| (id, Some(kept), after.get(kind, id)));
        let new = after.all(kind, None).filter(|(id, _)| before.get(kind, id).is_none());
        let new = new.map(|(id, kept)| (id, None, Some(kept)));
        let differs = old.chain(new).filter_map(|(id, old, new)| {
            let value = |kept: Option<&crate::book::Kept>| kept.map(|kept| kept.value.clone());
            let (before, after) = (value(old), value(new));
            let (version, id) = (new.map_or(0, |kept| kept.version), id.to_owned());
            (before != after).then_some(Change { version, kind, id, before, after })
        });
        changes.extend(differs);
    }
    changes
}

/// The net effect of changes in order, each entry once.
pub(crate) fn net(changes: impl IntoIterator<Item = Change>) -> Vec<Change> {
    let mut net: std::collections::BTreeMap<(Kind, String), Change> = Default::default();
    for change in changes {
        let key = (change.kind, change.id.clone());
        match net.get_mut(&key) {
            Some(known) => (known.after, known.version) = (change.after, change.version),
            None => drop(net.insert(key, change)),
        }
    }
    net.into_values().filter(|change| change.before != change.after).collect()
}
