//! What others keep beside a rule set, for as long as it is in use: counters of its rules, lists of its keys.
//!
//! Whoever decides has the rule set in hand. What is kept beside it is then found by a look at one pointer; a
//! table of its own behind a lock or a swap would cost each decision more than what it counts there.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Things by owner. One can be added, none is ever taken away.
#[derive(Default)]
pub struct RuleSetExtensions(OnceLock<Box<ExtensionNode>>);

struct ExtensionNode {
    key: ExtensionKey,
    value: Arc<dyn Any + Send + Sync>,
    next: RuleSetExtensions,
}

/// Somebody who keeps things beside rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionKey(u64);

impl ExtensionKey {
    /// One like no other in this process.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl RuleSetExtensions {
    /// What an owner keeps here.
    #[inline]
    #[must_use]
    pub fn get<T: Any>(&self, owner: ExtensionKey) -> Option<&T> {
        let mut at = self;
        while let Some(entry) = at.0.get() {
            if entry.key == owner {
                return entry.value.downcast_ref();
            }
            at = &entry.next;
        }
        None
    }

    /// Keeps a thing; the first that an owner keeps stays.
    pub fn insert<T: Any + Send + Sync>(&self, owner: ExtensionKey, thing: &Arc<T>) {
        let mut at = self;
        loop {
            let entry = at.0.get_or_init(|| {
                let thing = Arc::clone(thing) as Arc<dyn Any + Send + Sync>;
                Box::new(ExtensionNode { key: owner, value: thing, next: Self::default() })
            });
            if entry.key == owner {
                return;
            }
            at = &entry.next;
        }
    }
}

impl fmt::Debug for RuleSetExtensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleSetExtensions(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_keep_first_value_per_key() {
        let (beside, ann, bob, eve) = (
            RuleSetExtensions::default(),
            ExtensionKey::new(),
            ExtensionKey::new(),
            ExtensionKey::new(),
        );
        beside.insert(ann, &Arc::new(1_u8));
        beside.insert(bob, &Arc::new("bob's"));
        beside.insert(ann, &Arc::new(2_u8));
        assert_eq!(beside.get::<u8>(ann), Some(&1));
        assert_eq!(beside.get::<&str>(bob), Some(&"bob's"));
        assert_eq!((beside.get::<u8>(bob), beside.get::<u8>(eve)), (None, None));
    }
}
