//! Examples of every decision that a lease makes, at its exact limits in time and number.

use tidegate_core::quota::Quota;
use tidegate_core::store::GrantTerms;

use super::super::*;

const TTL: u64 = 32_000;
const HALF: u64 = TTL / 2;

/// The time of the lease clock at which each test starts.
fn at(after: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000 + after)
}

/// The store's time at the start of each test, at the start of a second.
fn store_at(after: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + after)
}

/// 1 000 in an hour: nothing drains during a test.
fn slow_policy(algorithm: Algorithm) -> Policy {
    Policy::new(algorithm, Quota::new(1_000, Micros::from_secs(3_600))).unwrap()
}

/// 1 000 in a second: one unit drains in a millisecond.
fn fast_policy(algorithm: Algorithm) -> Policy {
    Policy::new(algorithm, Quota::new(1_000, Micros::from_secs(1))).unwrap()
}

fn new_lease(policy: Policy, requests: u32) -> CounterLease {
    CounterLease::new(policy, Micros::new(TTL), BugSwitch::default(), requests, 0, at(0))
}

/// A lease of a counter that has had 19 requests. With the next one, it asks for 30 units.
fn hot_lease(policy: Policy) -> CounterLease {
    new_lease(policy, 19)
}

fn grant(granted: u32, remaining: u64, now: Timestamp) -> Reading {
    let reset_after = Micros::new(100_000);
    Reading { limit: 1_000, granted, remaining, reset_after, now, ..Reading::default() }
}

/// A lease of twelve units, which were asked for and granted at the start.
fn lease_of_twelve(policy: Policy) -> CounterLease {
    let mut lease = hot_lease(policy);
    assert_eq!(lease.take(1, 1, at(0)), Take::Wait(1));
    lease.on_answer(1, Some(grant(12, 988, store_at(0))), at(0));
    lease
}

/// The number of the question in flight.
fn asked(lease: &CounterLease) -> Option<u64> {
    lease.question().map(|question| question.number)
}

#[test]
fn question_asks_for_half_more_than_demand() {
    for (nodes, part) in [(1, 2), (3, 6)] {
        let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
        assert_eq!(lease.take(1, nodes, at(5)), Take::Wait(1));
        let terms = GrantTerms { most: 30, leave: 0, part };
        let nodes = nodes.into();
        let question = Question { number: 1, asked_at: at(5), least: 1, terms, wanted: 30, nodes };
        assert_eq!(lease.question(), Some(&question));
    }
}

#[test]
fn only_warm_counter_stays_leased() {
    let policy = slow_policy(Algorithm::TokenBucket);
    assert_eq!(new_lease(policy, WARM_REQUESTS - 2).take(1, 1, at(0)), Take::Direct);
    assert_eq!(new_lease(policy, WARM_REQUESTS - 1).take(1, 1, at(0)), Take::Wait(1));
    assert_eq!(hot_lease(policy).take(1_001, 1, at(0)), Take::Direct, "it never fits");
    assert_eq!(hot_lease(policy).take(1_000, 1, at(0)), Take::Wait(1));
}

#[test]
fn lost_answer_sends_requests_to_store_for_half_lease() {
    let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
    assert_eq!(lease.take(1, 1, at(0)), Take::Wait(1));
    lease.on_answer(1, None, at(10));
    assert_eq!(lease.take(1, 1, at(HALF - 1)), Take::Direct);
    assert_eq!(lease.take(1, 1, at(HALF)), Take::Wait(2));
}

#[test]
fn lease_is_renewed_when_quarter_is_left() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    assert_eq!(lease.take(5, 1, at(1)), Take::Spent(store_at(0)));
    assert_eq!(lease.take(3, 1, at(1)), Take::Spent(store_at(0)));
    assert_eq!((lease.units_left(), asked(&lease)), (4, None));
    assert_eq!(lease.take(1, 1, at(1)), Take::Spent(store_at(0)));
    assert_eq!((lease.units_left(), asked(&lease)), (3, Some(2)));
    assert_eq!(lease.take(1, 1, at(1)), Take::Spent(store_at(0)));
    assert_eq!(asked(&lease), Some(2), "one question at a time");
    assert_eq!(lease.take(3, 1, at(1)), Take::Wait(2));
}

#[test]
fn lost_renewal_is_not_repeated_for_half_lease() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    lease.take(9, 1, at(100));
    assert_eq!(asked(&lease), Some(2));
    lease.on_answer(2, None, at(200));
    assert_eq!(lease.take(1, 1, at(100 + HALF - 1)), Take::Spent(store_at(0)));
    assert_eq!(asked(&lease), None);
    assert_eq!(lease.take(1, 1, at(100 + HALF)), Take::Spent(store_at(0)));
    assert_eq!(asked(&lease), Some(3));
}

/// A lease that ends with its window cannot be renewed before that.
#[test]
fn lease_is_renewed_in_its_last_eighth() {
    for (algorithm, renewed) in [(Algorithm::TokenBucket, Some(2)), (Algorithm::FixedWindow, None)]
    {
        let mut lease = lease_of_twelve(slow_policy(algorithm));
        lease.take(1, 1, at(TTL / 8 * 7 - 1));
        assert_eq!(asked(&lease), None, "{algorithm}");
        lease.take(1, 1, at(TTL / 8 * 7));
        assert_eq!(asked(&lease), renewed, "{algorithm}");
    }
}

#[test]
fn refused_question_is_repeated_after_half_lease() {
    let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
    assert_eq!(lease.take(5, 1, at(0)), Take::Wait(1));
    lease.on_answer(1, Some(grant(0, 4, store_at(0))), at(10));
    assert_eq!(lease.take(5, 1, at(10)), Take::Refused);
    assert_eq!(lease.take(6, 1, at(HALF - 1)), Take::Refused);
    assert_eq!(lease.take(4, 1, at(HALF - 1)), Take::Wait(2), "it asks for less");
    lease.on_answer(2, Some(grant(0, 3, store_at(0))), at(HALF));
    assert_eq!(lease.take(5, 1, at(2 * HALF - 2)), Take::Refused);
    assert_eq!(lease.take(5, 1, at(2 * HALF - 1)), Take::Wait(3));
}

/// A bucket that fills sooner than a lease ends is asked more often.
#[test]
fn small_bucket_is_asked_before_it_is_full() {
    let quota = Quota::new(1_000, Micros::from_secs(1)).with_burst(10);
    let mut lease = hot_lease(Policy::new(Algorithm::TokenBucket, quota).unwrap());
    lease.take(1, 1, at(0));
    lease.on_answer(1, Some(grant(0, 0, store_at(0))), at(0));
    assert_eq!(lease.take(1, 1, at(4_999)), Take::Refused);
    assert_eq!(lease.take(1, 1, at(5_000)), Take::Wait(2));
}

#[test]
fn fixed_window_is_asked_again_when_it_ends() {
    for (next_after, until) in [(5_000, 5_010), (50_000, HALF)] {
        let mut lease = hot_lease(slow_policy(Algorithm::FixedWindow));
        lease.take(1, 1, at(0));
        let next_after = Micros::new(next_after);
        lease.on_answer(1, Some(Reading { next_after, ..grant(0, 0, store_at(0)) }), at(10));
        assert_eq!(lease.take(1, 1, at(until - 1)), Take::Refused);
        assert_eq!(lease.take(1, 1, at(until)), Take::Wait(2));
    }
}

/// The store is short if it granted less than was wanted, and has less than four times as much for
/// each node.
#[test]
fn node_pauses_only_while_store_is_short() {
    for (granted, remaining, nodes, is_short) in [
        (12, 107, 1, true),
        (12, 108, 1, false),
        (30, 0, 1, false),
        (12, 347, 3, true),
        (12, 348, 3, false),
        (12, 60, 3, true),
    ] {
        let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
        lease.take(1, nodes, at(0));
        lease.on_answer(1, Some(grant(granted, remaining, store_at(0))), at(0));
        lease.take(u64::from(granted), nodes, at(1));
        assert_eq!(asked(&lease).is_none(), is_short, "no renewal in a pause");
        let next = lease.take(1, nodes, at(2));
        assert_eq!(next == Take::Refused, is_short, "{granted} {remaining} {nodes}");
    }
}

#[test]
fn units_return_to_their_live_lease_only() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    lease.take(3, 1, at(1));
    assert!(!lease.give_back(3, store_at(1), at(2)), "another lease");
    assert!(lease.give_back(3, store_at(0), at(TTL - 1)));
    assert_eq!(lease.units_left(), 12);
    assert!(lease.give_back(3, store_at(0), at(TTL - 1)));
    assert_eq!(lease.units_left(), 12, "never more than was granted");
    assert!(!lease.give_back(1, store_at(0), at(TTL)));
    assert!(lease.is_live(store_at(0), at(TTL - 1)));
    assert!(!lease.is_live(store_at(0), at(TTL)) && !lease.is_live(store_at(1), at(1)));
}

#[test]
fn request_that_is_taken_back_is_no_demand() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    let before = lease.demand.wanted_units(false, at(1));
    lease.take(8, 1, at(1));
    assert!(lease.demand.wanted_units(false, at(1)) > before);
    lease.give_back(8, store_at(0), at(1));
    assert_eq!(lease.demand.wanted_units(false, at(1)), before);
}

#[test]
fn grants_of_one_instant_are_one_lease() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    lease.take(9, 1, at(100));
    lease.on_answer(2, Some(grant(7, 900, store_at(0))), at(200));
    assert_eq!(lease.units_left(), 3 + 7);
    assert!(lease.give_back(9, store_at(0), at(200)));
    assert_eq!(lease.units_left(), 12 + 7);
    lease.give_back(1, store_at(0), at(200));
    assert_eq!(lease.units_left(), 12 + 7);
    assert!(!lease.is_live(store_at(0), at(TTL)), "it ends with the first of them");
}

#[test]
fn later_grant_is_another_lease() {
    let mut lease = lease_of_twelve(slow_policy(Algorithm::TokenBucket));
    lease.take(9, 1, at(100));
    lease.on_answer(2, Some(grant(7, 900, store_at(200))), at(200));
    assert_eq!(lease.take(3, 1, at(201)), Take::Spent(store_at(0)), "the soonest end first");
    assert_eq!(lease.take(1, 1, at(201)), Take::Spent(store_at(200)));
    assert!(lease.is_live(store_at(200), at(TTL + 99)));
    assert!(!lease.is_live(store_at(200), at(TTL + 100)));
}

#[test]
fn idle_counter_returns_its_units_once() {
    let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
    lease.take(1, 1, at(HALF - 1));
    lease.on_answer(1, Some(grant(12, 900, store_at(0))), at(HALF - 1));
    assert!(lease.sweep(at(2 * HALF - 1)), "there were requests in the last slot");
    assert_eq!(lease.units_left(), 12);
    assert!(!lease.sweep(at(2 * HALF)));
    let unspent = UnspentUnits { units: 12, origin: UnitOrigin::own(store_at(0)) };
    assert_eq!((lease.units_left(), lease.take_unspent().as_slice()), (0, &[unspent][..]));
    assert!(lease.take_unspent().is_empty());
}

#[test]
fn counter_in_use_survives_sweep() {
    let policy = slow_policy(Algorithm::TokenBucket);
    assert!(hot_lease(policy).sweep(at(0)), "it is hot");
    assert!(!new_lease(policy, 1).sweep(at(0)));
    let mut waiting = hot_lease(policy);
    waiting.take(1, 1, at(0));
    assert!(waiting.sweep(at(10 * TTL)), "an answer will come");
    let mut holding = hot_lease(policy);
    holding.take(1, 1, at(HALF - 1));
    holding.on_answer(1, Some(grant(12, 900, store_at(0))), at(HALF - 1));
    holding.take(1, 1, at(HALF));
    assert!(holding.sweep(at(2 * HALF)), "it is cold, but holds units");
    assert_eq!(holding.units_left(), 11);
}

/// One unit drains in a millisecond: after twelve, nothing is left to return.
#[test]
fn drained_units_are_not_returned() {
    for (after, returned) in [(0, true), (11_000, true), (11_001, false)] {
        let mut lease = lease_of_twelve(fast_policy(Algorithm::TokenBucket));
        lease.retire(at(after));
        assert_eq!(
            (lease.units_left(), !lease.take_unspent().is_empty()),
            (0, returned),
            "{after}"
        );
    }
}

#[test]
fn reading_counts_units_of_store_and_node() {
    let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
    let unknown = Reading { limit: 1_000, ..Reading::default() };
    assert_eq!(lease.reading(1, false, at(0)), unknown);
    lease.take(1, 1, at(0));
    lease.on_answer(1, Some(grant(12, 20, store_at(0))), at(0));
    let known = Reading {
        limit: 1_000,
        remaining: 32,
        reset_after: Micros::new(99_990),
        now: store_at(10),
        ..Reading::default()
    };
    assert_eq!(lease.reading(1, false, at(10)), known);
    // The next question is asked half a lease after the last.
    let retry = |micros| Retry::After(Micros::new(micros));
    let refused = Reading { verdict: Verdict::Deny, retry: retry(HALF - 10), ..known };
    assert_eq!(lease.reading(1, true, at(10)), refused);
    assert_eq!(lease.reading(1, true, at(HALF)).retry, retry(1), "not at once");
}

#[test]
fn refusal_waits_as_long_as_store_says() {
    let mut lease = hot_lease(slow_policy(Algorithm::TokenBucket));
    lease.take(1, 1, at(0));
    let retry = Retry::After(Micros::new(20_000));
    lease.on_answer(1, Some(Reading { retry, ..grant(0, 0, store_at(0)) }), at(0));
    assert_eq!(lease.reading(1, true, at(10)).retry, Retry::After(Micros::new(19_990)));
}

/// The store's own wait is for a cost up to the one that it refused. Of a window that granted
/// units, the next that leave make room for one more; in debt it may not.
#[test]
fn wait_is_estimated_beyond_stores_answer() {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter] {
        let policy = slow_policy(algorithm);
        let [next_after, reset_after, wait] = [5, 50, 7].map(Micros::new);
        let reading = Reading {
            remaining: 2,
            next_after,
            reset_after,
            retry: Retry::After(wait),
            ..grant(0, 2, store_at(0))
        };
        let view = LastReading { reading, at: at(0) };
        let wait_for = |least, granted, cost| {
            LastAnswer { view, least, granted, had_room: granted > 0 }.wait_for(&policy, cost)
        };
        assert_eq!([wait_for(3, 0, 2), wait_for(3, 0, 3)], [wait, wait]);
        assert_eq!([wait_for(2, 0, 3), wait_for(2, 1, 3)], [reset_after, next_after]);
    }
}

/// In half a lease of 16 ms, 16 units become available.
#[test]
fn part_leaves_units_for_other_nodes() {
    let last = |remaining| LastAnswer {
        view: LastReading { reading: grant(0, remaining, store_at(250_000)), at: at(0) },
        least: 1,
        granted: 0,
        had_room: false,
    };
    let part_of = |algorithm, remaining, after| {
        let mut lease = hot_lease(fast_policy(algorithm));
        lease.last = Some(last(remaining));
        lease.part(50, at(after))
    };
    assert_eq!(part_of(Algorithm::TokenBucket, 850, 0), 850 / 17);
    assert_eq!(part_of(Algorithm::TokenBucket, 850, 34_000), 884 / 17, "some have become free");
    assert_eq!(part_of(Algorithm::TokenBucket, 990, 34_000), 1_000 / 17, "at most the limit");
    assert_eq!(part_of(Algorithm::TokenBucket, 0, 0), 1);
    // A window must last until it ends: 750 ms are 46 times 16 ms.
    assert_eq!(part_of(Algorithm::FixedWindow, 850, 0), 46);
    assert_eq!(part_of(Algorithm::FixedWindow, 850, 740_000), 1);
    let mut lease = hot_lease(fast_policy(Algorithm::TokenBucket));
    lease.last = Some(last(850));
    assert_eq!(lease.part(4, at(0)), 8, "at most two parts for each node");
}

/// First 12, then 14 units are needed in half a lease. The rest of a bucket's lease is lost.
#[test]
fn few_units_of_short_bucket_leave_no_rest() {
    for (algorithm, most) in [(Algorithm::TokenBucket, 13), (Algorithm::SlidingWindowLog, 15)] {
        let mut lease = new_lease(slow_policy(algorithm), 11);
        lease.take(1, 1, at(0));
        assert_eq!(lease.question().unwrap().terms.most, 13, "{algorithm}");
        lease.on_answer(1, Some(grant(1, 0, store_at(0))), at(0));
        lease.take(1, 1, at(HALF - 1));
        lease.take(1, 1, at(HALF));
        assert_eq!(lease.question().unwrap().terms.most, most, "{algorithm}");
    }
}

/// It granted the 13 units that were asked for; 15 are needed by each node. A bucket of 20 that is
/// half full is not short.
#[test]
fn store_without_room_for_all_nodes_is_short() {
    let slow = slow_policy(Algorithm::TokenBucket);
    let quota = Quota::new(20, Micros::from_secs(3_600));
    let small = Policy::new(Algorithm::TokenBucket, quota).unwrap();
    for (policy, nodes, remaining, is_short) in [
        (slow, 1, 1, true),
        (slow, 1, 2, false),
        (slow, 3, 31, true),
        (slow, 3, 32, false),
        (small, 3, 0, false),
    ] {
        let mut lease = new_lease(policy, 11);
        lease.take(1, nodes, at(0));
        lease.on_answer(1, Some(grant(1, 0, store_at(0))), at(0));
        (0..2).for_each(|_| assert_ne!(lease.take(1, nodes, at(HALF)), Take::Direct));
        let most = lease.question().unwrap().terms.most;
        lease.on_answer(2, Some(grant(most, remaining, store_at(HALF))), at(HALF));
        lease.take(most.into(), nodes, at(HALF));
        assert_eq!(
            lease.take(1, nodes, at(HALF)) == Take::Refused,
            is_short,
            "{nodes} {remaining}"
        );
    }
}

#[test]
fn lease_of_three_units_is_not_renewed_early() {
    for (granted, renewed) in [(3, None), (4, Some(2))] {
        let mut lease = hot_lease(slow_policy(Algorithm::SlidingWindowCounter));
        lease.take(1, 1, at(0));
        lease.on_answer(1, Some(grant(granted, 900, store_at(0))), at(0));
        lease.take(granted.into(), 1, at(1));
        assert_eq!(asked(&lease), renewed, "{granted}");
        assert_eq!(lease.take(1, 1, at(1)), Take::Wait(2));
    }
}

/// Room of a log that no node takes is lost, so a node takes what it needs once it was refused.
#[test]
fn short_log_is_asked_without_parts() {
    let mut lease = hot_lease(slow_policy(Algorithm::SlidingWindowLog));
    lease.take(1, 5, at(0));
    assert_eq!(lease.question().unwrap().terms.part, 10);
    lease.on_answer(1, Some(grant(10, 95, store_at(0))), at(0));
    lease.take(10, 5, at(HALF));
    lease.take(1, 5, at(HALF));
    assert_eq!(lease.question().unwrap().terms.part, 1);
}
