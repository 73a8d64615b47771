//! Buffer of violations for the live feed: the first few of each flush interval, and the number of
//! the others.

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::violation::RuleViolation;

/// Maximum number of violations in an event.
const MAX_LISTED: usize = 20;

/// Maximum number of violations of one rule in an event, so that a rule that refuses constantly
/// does not hide the others.
const MAX_PER_RULE: usize = 5;

/// The violations since the last flush.
#[derive(Debug, Default)]
pub(crate) struct RecentViolations(Mutex<RecentBuffer>);

#[derive(Debug, Default)]
struct RecentBuffer {
    /// Violations, each with the index of its rule.
    list: Vec<(u32, RuleViolation)>,
    skipped: u64,
}

impl RecentViolations {
    /// Discards all violations.
    pub(crate) fn clear(&self) {
        *self.0.lock() = RecentBuffer::default();
    }

    /// Adds or counts a violation of a rule. Calls `make` only if the violation is listed, because
    /// this runs on the decision path.
    pub(crate) fn push(&self, rule: u32, make: impl FnOnce() -> RuleViolation) {
        let mut buffer = self.0.lock();
        let of_the_rule = buffer.list.iter().filter(|(known, _)| *known == rule).count();
        if buffer.list.len() < MAX_LISTED && of_the_rule < MAX_PER_RULE {
            buffer.list.push((rule, make()));
        } else {
            buffer.skipped += 1;
        }
    }

    /// Takes the violations since the last call as JSON; `None` if there were none.
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
        let taken = recent.take().unwrap();
        let one_of_each_and_more_of_one = 10 + MAX_PER_RULE - 1;
        assert_eq!(taken["list"].as_array().unwrap().len(), one_of_each_and_more_of_one);
        assert_eq!(taken["skipped"], 110 - one_of_each_and_more_of_one);
        for rule in 0..100 {
            recent.push(rule, violation);
        }
        recent.push(100, || panic!("made a violation that is not listed"));
        assert_eq!(recent.take().unwrap()["list"].as_array().unwrap().len(), MAX_LISTED);
        assert_eq!(recent.take(), None);
        recent.push(0, violation);
        recent.clear();
        assert_eq!(recent.take(), None);
    }
}
