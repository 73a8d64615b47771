//! The latest violations, kept in memory when there is no database.

use std::collections::VecDeque;

use tidegate_core::time::Timestamp;

use tidegate_telemetry::{ViolationBatch, ViolationPage, ViolationQuery, ViolationRow};

/// Maximum number of violations kept.
const MAX_VIOLATIONS: usize = 10_000;

/// The latest violations, newest first.
#[derive(Default)]
pub(super) struct InMemoryViolations {
    rows: VecDeque<ViolationRow>,
    last: u64,
}

impl InMemoryViolations {
    /// Adds a batch; drops the oldest violations above the maximum.
    pub(super) fn add(&mut self, batch: &ViolationBatch) {
        let surplus = batch.violations.len().saturating_sub(MAX_VIOLATIONS);
        self.last += surplus as u64;
        for violation in &batch.violations[surplus..] {
            self.last += 1;
            let row = ViolationRow { number: self.last, violation: violation.clone() };
            self.rows.push_front(row);
        }
        self.rows.truncate(MAX_VIOLATIONS);
    }

    /// A page of matching violations.
    pub(super) fn page(&self, query: &ViolationQuery) -> ViolationPage {
        let limit = query.limit as usize;
        let matching = self.rows.iter().filter(|row| matches_query(row, query));
        let mut rows: Vec<ViolationRow> = matching.take(limit + 1).cloned().collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.number);
        ViolationPage { rows, next }
    }

    /// Removes violations from before `before`, and the oldest above `max_rows`. Returns how many.
    pub(super) fn prune(&mut self, before: Timestamp, max_rows: u64) -> u64 {
        let count_before = self.rows.len();
        self.rows.retain(|row| row.violation.at >= before);
        self.rows.truncate(usize::try_from(max_rows).unwrap_or(usize::MAX));
        (count_before - self.rows.len()) as u64
    }
}

fn matches_query(row: &ViolationRow, query: &ViolationQuery) -> bool {
    let ViolationRow { number, violation } = row;
    let same = |wanted: &Option<String>, actual: Option<&str>| {
        wanted.is_none() || wanted.as_deref() == actual
    };
    same(&query.rule, Some(&violation.rule))
        && same(&query.user_id, violation.user_id.as_deref())
        && same(&query.ip, violation.ip.as_deref())
        && query.since.is_none_or(|since| violation.at >= since)
        && query.until.is_none_or(|until| violation.at < until)
        && query.before.is_none_or(|before| *number < before)
}
