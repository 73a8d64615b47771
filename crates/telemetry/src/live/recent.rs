//! Violations on their way to whoever watches: the first few of each step, and how many more there were.

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::violation::RuleViolation;

/// The most that are told each time, and the most of one rule: one that refuses all the time must not hide the others.
const MAX_LISTED: usize = 20;
const MAX_PER_RULE: usize = 5;

/// Some of the violations.
#[derive(Debug, Default)]
pub(crate) struct RecentViolations(Mutex<RecentBuffer>);

#[derive(Debug, Default)]
struct RecentBuffer {
    /// With the places of their rules.
    list: Vec<(u32, RuleViolation)>,
    skipped: u64,
}

impl RecentViolations {
    /// Forgets what nobody heard of.
    pub(crate) fn clear(&self) {
        *self.0.lock() = RecentBuffer::default();
    }

    /// Hears of one of a rule, which is made only if it is told: a decision waits for that.
    pub(crate) fn push(&self, rule: u32, make: impl FnOnce() -> RuleViolation) {
        let mut kept = self.0.lock();
        let of_the_rule = kept.list.iter().filter(|(known, _)| *known == rule).count();
        if kept.list.len() < MAX_LISTED && of_the_rule < MAX_PER_RULE {
            kept.list.push((rule, make()));
        } else {
            kept.skipped += 1;
        }
    }

    /// What came since the last time, if anything did.
    pub(crate) fn take(&self) -> Option<Json> {
        let RecentBuffer { list, skipped } = std::mem::take(&mut *self.0.lock());
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

    fn violation() -> RuleViolation {
        RuleViolation {
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
    fn live_buffer_keeps_few_and_counts_rest() {
        let recent = RecentViolations::default();
        assert_eq!(recent.take(), None);
        for rule in 0..10 {
            recent.push(rule, violation);
        }
        for _ in 0..100 {
            recent.push(7, violation);
        }
        let told = recent.take().unwrap();
        let one_of_each_and_more_of_one = 10 + MAX_PER_RULE - 1;
        assert_eq!(told["list"].as_array().unwrap().len(), one_of_each_and_more_of_one);
        assert_eq!(told["skipped"], 110 - one_of_each_and_more_of_one);
        for rule in 0..100 {
            recent.push(rule, violation);
        }
        recent.push(100, || panic!("what is not told is not made"));
        assert_eq!(recent.take().unwrap()["list"].as_array().unwrap().len(), MAX_LISTED);
        assert_eq!(recent.take(), None);
        recent.push(0, violation);
        recent.clear();
        assert_eq!(recent.take(), None);
    }
}
