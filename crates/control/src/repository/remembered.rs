//! The latest violations where there is no database to keep them in.

use std::collections::VecDeque;

use tidegate_core::time::Timestamp;

use crate::violation::{Batch, Page, ViolationQuery, ViolationRow};

/// The most that are remembered.
const MOST: usize = 10_000;

/// The latest violations, newest first.
#[derive(Default)]
pub(super) struct Remembered {
    rows: VecDeque<ViolationRow>,
    last: u64,
}

impl Remembered {
    /// Remembers a batch; the oldest are forgotten when there are too many.
    pub(super) fn add(&mut self, batch: &Batch) {
        let surplus = batch.violations.len().saturating_sub(MOST);
        self.last += surplus as u64;
        for violation in &batch.violations[surplus..] {
            self.last += 1;
            let row = ViolationRow { number: self.last, violation: violation.clone() };
            self.rows.push_front(row);
        }
        self.rows.truncate(MOST);
    }

    /// A page of them.
    pub(super) fn page(&self, query: &ViolationQuery) -> Page {
        let most = query.most as usize;
        let wanted = self.rows.iter().filter(|row| asked_for(row, query));
        let mut rows: Vec<ViolationRow> = wanted.take(most + 1).cloned().collect();
        let more = rows.len() > most;
        rows.truncate(most);
        let next = rows.last().filter(|_| more).map(|row| row.number);
        Page { rows, next }
    }

    /// Forgets those from before an instant, and the oldest of more than `most`. Tells how many.
    pub(super) fn prune(&mut self, before: Timestamp, most: u64) -> u64 {
        let had = self.rows.len();
        self.rows.retain(|row| row.violation.at >= before);
        self.rows.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        (had - self.rows.len()) as u64
    }
}

fn asked_for(row: &ViolationRow, query: &ViolationQuery) -> bool {
    let ViolationRow { number, violation } = row;
    let same =
        |wanted: &Option<String>, is: Option<&str>| wanted.is_none() || wanted.as_deref() == is;
    same(&query.rule, Some(&violation.rule))
        && same(&query.user_id, violation.user_id.as_deref())
        && same(&query.ip, violation.ip.as_deref())
        && query.since.is_none_or(|since| violation.at >= since)
        && query.until.is_none_or(|until| violation.at < until)
        && query.before.is_none_or(|before| *number < before)
}
