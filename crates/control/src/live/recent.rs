//! Violations on their way to whoever watches: the first few of each step, and how many more there were.

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::violation::Violation;

/// The most that are told each time, and the most of one rule: one that refuses all the time must not hide the others.
const MOST: usize = 20;
const MOST_OF_A_RULE: usize = 5;

/// Some of the violations.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// With the places of their rules.
    list: Vec<(u32, Violation)>,
    skipped: u64,
}

impl Recent {
    /// Forgets what nobody heard of.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Kept::default();
    }

    /// Hears of one of a rule, which is made only if it is told: a decision waits for that.
    pub(crate) fn hear(&self, rule: u32, make: impl FnOnce() -> Violation) {
        let mut kept = self.0.lock();
        let of_the_rule = kept.list.iter().filter(|(known, _)| *known == rule).count();
        if kept.list.len() < MOST && of_the_rule < MOST_OF_A_RULE {
            kept.list.push((rule, make()));
        } else {
            kept.skipped += 1;
        }
    }

    /// What came since the last time, if anything did.
    pub(crate) fn take(&self) -> Option<Json> {
        let Kept { list, skipped } = std::mem::take(&mut *self.0.lock());
        if list.is_empty() {
            return None;
        }
        let list: Vec<Json> = list.iter().map(|(_, violation)| violation.view()).collect();
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
    fn a_few_are_kept_and_the_rest_counted() {
        let recent = Recent::default();
        assert_eq!(recent.take(), None);
        for rule in 0..10 {
            recent.hear(rule, violation);
        }
        for _ in 0..100 {
            recent.hear(7, violation);
        }
        let told = recent.take().unwrap();
        let one_of_each_and_more_of_one = 10 + MOST_OF_A_RULE - 1;
        assert_eq!(told["list"].as_array().unwrap().len(), one_of_each_and_more_of_one);
        assert_eq!(told["skipped"], 110 - one_of_each_and_more_of_one);
        for rule in 0..100 {
            recent.hear(rule, violation);
        }
        recent.hear(100, || panic!("what is not told is not made"));
        assert_eq!(recent.take().unwrap()["list"].as_array().unwrap().len(), MOST);
        assert_eq!(recent.take(), None);
        recent.hear(0, violation);
        recent.clear();
        assert_eq!(recent.take(), None);
    }
}
