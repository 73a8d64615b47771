//! Violations on their way to whoever watches: the first few of each step, and how many more there were. While
//! nobody watches, none is kept.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::violation::Violation;

/// The most that are told each time.
const MOST: usize = 20;

/// Some of the violations.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    is_open: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    list: Vec<Violation>,
    skipped: u64,
}

impl Recent {
    /// Keeps violations from now on.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Keeps none any more.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        *self.kept.lock() = Kept::default();
    }

    /// Hears of one, which is made only if it is told: a decision waits for that.
    pub(crate) fn hear(&self, make: impl FnOnce() -> Violation) {
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.list.len() < MOST {
            kept.list.push(make());
        } else {
            kept.skipped += 1;
        }
    }

    /// What came since the last time, if anything did.
    pub(super) fn take(&self) -> Option<Json> {
        let Kept { list, skipped } = std::mem::take(&mut *self.kept.lock());
        if list.is_empty() {
            return None;
        }
        let list: Vec<Json> = list.iter().map(Violation::view).collect();
        Some(json!({"list": list, "skipped": skipped}))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;

    fn violation() -> Violation {
        Violation {
            at: Timestamp::EPOCH,
            rule: "r".to_owned(),
            bucket_key: String::new(),
            user_id: None,
            ip: None,
            endpoint: None,
            remaining: 0,
            enforced: true,
        }
    }

    #[test]
    fn a_few_are_kept_and_the_rest_counted_only_while_somebody_watches() {
        let recent = Recent::default();
        recent.hear(violation);
        assert_eq!(recent.take(), None);
        recent.open();
        for _ in 0..MOST + 5 {
            recent.hear(violation);
        }
        let told = recent.take().unwrap();
        assert_eq!(told["list"].as_array().unwrap().len(), MOST);
        assert_eq!(told["skipped"], 5);
        assert_eq!(recent.take(), None);
        recent.hear(violation);
        recent.close();
        assert_eq!(recent.take(), None);
    }
}
