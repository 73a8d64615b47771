//! The defaults of the `Store` trait, the errors of calls that failed or may have run, and grants.

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, GrantTerms, Op, Store, StoreError};
use tidegate_core::time::Timestamp;

/// A store that never answers.
struct SilentStore;

impl Store for SilentStore {
    async fn apply(
        &self,
        _: Op,
        charges: &[Charge<'_>],
        _: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        Err(StoreError::outcome_unknown("silent", charges.len()))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Err(StoreError::not_applied("silent"))
    }
}

#[test]
fn store_is_used_by_one_node_by_default() {
    assert_eq!(SilentStore.node_count(), 1);
}

#[test]
fn unknown_outcome_lists_every_charge() {
    let (unknown, not_applied) =
        (StoreError::outcome_unknown("silent", 3), StoreError::not_applied("silent"));
    assert_eq!((unknown.unknown, unknown.answered), (vec![0, 1, 2], vec![]));
    assert_eq!((not_applied.unknown, not_applied.answered), (vec![], vec![]));
    assert_eq!((unknown.reason, not_applied.reason), ("silent".to_owned(), "silent".to_owned()));
}

#[test]
fn grant_is_share_of_room_within_terms() {
    let units = |part, least, room| GrantTerms { most: 10, leave: 0, part }.units(least, room);
    assert_eq!(units(4, 1, 23), 5, "a quarter, rounded down");
    assert_eq!(units(4, 6, 23), 6, "at least what is of use");
    assert_eq!(units(4, 1, 100), 10, "at most what is wanted");
    assert_eq!([units(1, 1, 7), units(0, 1, 7)], [7, 7], "the whole room");
}
