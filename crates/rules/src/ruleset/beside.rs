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
pub struct Beside(OnceLock<Box<Entry>>);

struct Entry {
    owner: Owner,
    thing: Arc<dyn Any + Send + Sync>,
    next: Beside,
}

/// Somebody who keeps things beside rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// One like no other in this process.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Beside {
    /// What an owner keeps here.
    #[inline]
    #[must_use]
    pub fn get<T: Any>(&self, owner: Owner) -> Option<&T> {
        let mut at = self;
        while let Some(entry) = at.0.get() {
            if entry.owner == owner {
                return entry.thing.downcast_ref();
            }
            at = &entry.next;
        }
        None
    }

    /// Keeps a thing; the first that an owner keeps stays.
    pub fn keep<T: Any + Send + Sync>(&self, owner: Owner, thing: &Arc<T>) {
        let mut at = self;
        loop {
            let entry = at.0.get_or_init(|| {
                let thing = Arc::clone(thing) as Arc<dyn Any + Send + Sync>;
                Box::new(Entry { owner, thing, next: Self::default() })
            });
            if entry.owner == owner {
                return;
            }
            at = &entry.next;
        }
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beside(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_finds_their_own_and_the_first_stays() {
        let (beside, ann, bob, eve) = (Beside::default(), Owner::new(), Owner::new(), Owner::new());
        beside.keep(ann, &Arc::new(1_u8));
        beside.keep(bob, &Arc::new("bob's"));
        beside.keep(ann, &Arc::new(2_u8));
        assert_eq!(beside.get::<u8>(ann), Some(&1));
        assert_eq!(beside.get::<&str>(bob), Some(&"bob's"));
        assert_eq!((beside.get::<u8>(bob), beside.get::<u8>(eve)), (None, None));
    }
}
