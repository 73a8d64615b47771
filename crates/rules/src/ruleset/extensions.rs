//! Data that other components attach to a rule set for as long as it is in use, such as counters
//! per rule.
//!
//! The decision path already holds the rule set, so it finds the data with one pointer lookup. A
//! separate table behind a lock or an atomic swap would cost each decision more than the counting
//! itself.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An append-only list of values by key.
#[derive(Default)]
pub struct RuleSetExtensions(OnceLock<Box<ExtensionNode>>);

struct ExtensionNode {
    key: ExtensionKey,
    value: Arc<dyn Any + Send + Sync>,
    next: RuleSetExtensions,
}

/// Identifies a component that attaches data to rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionKey(u64);

impl ExtensionKey {
    /// A key that is unique in this process.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl RuleSetExtensions {
    /// The value attached under this key.
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

    /// Attaches a value. If the key already has one, the existing value stays.
    pub fn insert<T: Any + Send + Sync>(&self, owner: ExtensionKey, value: &Arc<T>) {
        let mut at = self;
        loop {
            let entry = at.0.get_or_init(|| {
                let value = Arc::clone(value) as Arc<dyn Any + Send + Sync>;
                Box::new(ExtensionNode { key: owner, value, next: Self::default() })
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
        let (extensions, first, second, unused) = (
            RuleSetExtensions::default(),
            ExtensionKey::new(),
            ExtensionKey::new(),
            ExtensionKey::new(),
        );
        extensions.insert(first, &Arc::new(1_u8));
        extensions.insert(second, &Arc::new("second's"));
        extensions.insert(first, &Arc::new(2_u8));
        assert_eq!(extensions.get::<u8>(first), Some(&1));
        assert_eq!(extensions.get::<&str>(second), Some(&"second's"));
        assert_eq!((extensions.get::<u8>(second), extensions.get::<u8>(unused)), (None, None));
    }
}
