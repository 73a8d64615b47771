//! Regions that borrow from each other: a store for each, and 150 ms for a call between them.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;

use common::node::SharingNode;
use common::poll_ready;
use common::region::{AMERICA, ASIA, Continent, EUROPE, LIMIT, REGIONS, RTT, regional_rules, user};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::time::{Clock as _, Micros};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_limiter::{
    BorrowBatch, BorrowedUnits, Decision, DecisionQuery, LeaseClock, Limiter, QueryAction,
    RuleBorrowing,
};

const SECOND: Micros = Micros::from_secs(1);

/// What Europe has borrowed.
fn borrowed(world: &Continent) -> BorrowedUnits {
    let stats = world.stats(EUROPE);
    stats.rules.get("r").map(RuleBorrowing::total).unwrap_or_default()
}

/// A world in which Europe holds borrowed units.
fn borrowing_world(source: &str) -> Continent {
    let mut world = Continent::new(source, 1);
    world.run(SECOND, &[(EUROPE, 2)]);
    while borrowed(&world).held < 20 {
        world.run(Micros::from_millis(1), &[(EUROPE, 2)]);
    }
    world
}

/// The next request of Europe that is decided with borrowed units.
fn borrowed_decision(world: &mut Continent) -> Decision {
    let mut decision = world.request(EUROPE);
    while decision.answered_by() != AnsweredBy::Borrowed {
        decision = world.request(EUROPE);
    }
    decision
}

#[test]
fn demand_in_one_region_uses_whole_limit() {
    for nodes in [1, 3] {
        let mut world = Continent::new(LIMIT, nodes);
        world.run(Micros::from_secs(2), &[(EUROPE, 2)]);
        let admitted = world.run(Micros::from_secs(6), &[(EUROPE, 2)]);
        assert!(admitted >= 5_700, "{nodes}: {admitted} of 6000");
        assert!(world.most_used <= 2_000.0, "{nodes}: {}", world.most_used);
        assert!(world.by["borrowed"] > 2_500, "{nodes}: {:?}", world.by);
        // Two regions, at most every 100 ms after a round trip.
        let per_second = world.batches[&EUROPE] / 8 / usize::try_from(nodes).unwrap();
        assert!(per_second <= 10, "{nodes}: {per_second} batches a second and node");
    }
}

/// A lender first refills what it keeps: half of its burst, at its rate.
#[test]
fn whole_limit_is_used_soon_after_demand_moves() {
    let mut world = Continent::new(LIMIT, 2);
    for region in [EUROPE, AMERICA, ASIA, EUROPE] {
        world.run(Micros::from_secs(3), &[(region, 2)]);
        let admitted = world.run(Micros::from_secs(4), &[(region, 2)]);
        assert!(admitted >= 3_800, "{}: {admitted} of 4000", REGIONS[region]);
    }
    assert!(world.most_used <= 2_000.0, "{}", world.most_used);
}

#[test]
fn busy_regions_keep_their_shares() {
    let mut world = Continent::new(LIMIT, 2);
    let everywhere = [(EUROPE, 2), (AMERICA, 2), (ASIA, 2)];
    world.run(Micros::from_secs(2), &everywhere);
    let before = world.admitted.clone();
    world.run(Micros::from_secs(4), &everywhere);
    let shares = [2_000, 1_200, 800];
    for (region, share) in shares.into_iter().enumerate() {
        let admitted = world.admitted[region] - before[region];
        assert!(admitted.abs_diff(share) <= share / 50, "{}: {admitted}", REGIONS[region]);
    }
    assert!(world.most_used <= 2_000.0, "{}", world.most_used);
}

/// Windows do not refill: one that is full gives nothing before it ends.
#[test]
fn windows_lend_what_they_do_not_keep() {
    for algorithm in ["fixed_window", "sliding_window_log", "sliding_window_counter"] {
        let limit = format!("limit: {{ requests: 10000, window: 10s, algorithm: {algorithm} }}");
        let source = LIMIT.replace("limit: 1000/s burst 2000", &limit);
        let mut world = Continent::new(&source, 2);
        let admitted = world.run(Micros::from_secs(10), &[(EUROPE, 4)]);
        // The share of 5000, and half of what two others of 3000 and 2000 lend.
        assert!((7_000..=7_500).contains(&admitted), "{algorithm}: {admitted}");
    }
}

#[test]
fn region_keeps_its_share_while_links_are_cut() {
    let mut world = borrowing_world(LIMIT);
    world.set_remote_fault(&StoreFault::RequestLost);
    world.run(SECOND, &[(EUROPE, 2)]);
    assert_eq!(borrowed(&world).held, 0, "all leases have ended");
    let cut = world.run(Micros::from_secs(2), &[(EUROPE, 2)]);
    assert!((980..=1_000).contains(&cut), "{cut} of 1000");
    let stats = world.stats(EUROPE);
    assert!(stats.lenders.iter().all(|it| it.unanswered > 3 && it.since_answer > Some(SECOND)));
    world.set_remote_fault(&StoreFault::None);
    world.run(SECOND, &[(EUROPE, 2)]);
    let healed = world.run(Micros::from_secs(2), &[(EUROPE, 2)]);
    assert!(healed >= 1_900, "{healed} of 2000");
    assert!(world.most_used <= 2_000.0);
}

/// The answers that are lost were grants: those units are gone.
#[test]
fn lost_answers_only_lose_units() {
    let mut world = borrowing_world(LIMIT);
    world.set_remote_fault(&StoreFault::AnswerLost);
    world.run(Micros::from_secs(3), &[(EUROPE, 2), (AMERICA, 1)]);
    world.set_remote_fault(&StoreFault::None);
    world.run(Micros::from_secs(3), &[(EUROPE, 2), (AMERICA, 1)]);
    assert!(world.most_used <= 2_000.0, "{}", world.most_used);
}

#[test]
fn borrowed_units_are_spent_last_and_returned_first() {
    let source = LIMIT.replace("1000/s", "3600000/h");
    let mut world = borrowing_world(&source);
    let before = borrowed(&world);
    // The own share now suffices: it gives 500 in a second.
    world.run(Micros::from_millis(100), &[]);
    for _ in 0..20 {
        assert_ne!(world.request(EUROPE).answered_by(), AnsweredBy::Borrowed);
    }
    assert_eq!(borrowed(&world).spent(), before.spent());
    world.run(Micros::from_millis(100), &[]);
    let after = borrowed(&world);
    assert_eq!((after.held, after.spent()), (0, before.spent()), "{after:?}");
}

#[test]
fn refund_goes_into_live_lease_or_to_lender() {
    // Nothing drains during the test.
    let source = LIMIT.replace("1000/s burst 2000", "2000/h");
    let mut world = borrowing_world(&source);
    let (first, second) = (borrowed_decision(&mut world), borrowed_decision(&mut world));
    let before = borrowed(&world);
    let own_left = world.left(EUROPE);
    let limiter = &world.nodes[EUROPE][0].limiter;
    poll_ready(limiter.refund(&user(), None, 1, first.charged_at()));
    assert_eq!(world.left(EUROPE), own_left, "its date restores nothing here");
    poll_ready(world.nodes[EUROPE][0].limiter.refund_decision(first));
    assert_eq!((borrowed(&world).held, world.left(EUROPE)), (before.held + 1, own_left));
    // Its units end, and what is left of them is returned.
    world.run(Micros::from_millis(1_000), &[]);
    let (lent, returned) = (world.left(AMERICA) + world.left(ASIA), borrowed(&world).returned);
    poll_ready(world.nodes[EUROPE][0].limiter.refund_decision(second));
    world.run(Micros::from_millis(300), &[]);
    assert_eq!(borrowed(&world).returned, returned + 1);
    assert_eq!(world.left(AMERICA) + world.left(ASIA), lent + 1);
    assert_eq!(world.left(EUROPE), own_left);
}

#[test]
fn refusal_by_other_rule_spends_no_borrowed_unit() {
    let source = format!("{LIMIT}\n  - {{ id: small, key_by: user_id, limit: 1900/h }}");
    let mut world = borrowing_world(&source);
    let is_small = |decision: &Decision| {
        !decision.is_allowed() && decision.tightest().unwrap().0.id() == "small"
    };
    while !is_small(&world.request(EUROPE)) {
        world.run(Micros::from_millis(1), &[]);
    }
    while borrowed(&world).held < 20 {
        world.run(Micros::from_millis(1), &[(EUROPE, 2)]);
    }
    let before = borrowed(&world);
    assert!((0..40).all(|_| is_small(&world.request(EUROPE))));
    assert_eq!(borrowed(&world), before);
}

/// Paths on which the node and the store decide together: with an exact rule, and in a batch.
#[test]
fn every_decision_path_spends_borrowed_units() {
    let source = format!("{LIMIT}\n  - {{ id: exact, key_by: user_id, limit: 9000/s }}");
    let mut world = borrowing_world(&source);
    let decision = borrowed_decision(&mut world);
    assert_eq!(decision.charged_cost(decision.readings().nth(1).unwrap().1), 1);
    let facts = user();
    let query = DecisionQuery { facts: &facts, action: QueryAction::Charge(1), inline_limit: None };
    let before = borrowed(&world).spent();
    let node = &world.nodes[EUROPE][0];
    let decisions = poll_ready(node.limiter.decide_batch(&[query, query])).unwrap();
    assert!(decisions.iter().all(|it| it.answered_by() == AnsweredBy::Borrowed));
    assert_eq!(borrowed(&world).spent(), before + 2);
}

#[test]
fn new_shares_give_borrowed_units_back() {
    let source = LIMIT.replace("1000/s", "3600000/h");
    let mut world = borrowing_world(&source);
    let before = borrowed(&world);
    let edited = source.replace("us: 30%, ap: 20%", "us: 20%, ap: 30%");
    for region in [EUROPE, AMERICA, ASIA] {
        for node in &world.nodes[region] {
            let rules = regional_rules(&edited, REGIONS[region]);
            poll_ready(node.limiter.install(rules)).unwrap();
        }
    }
    let after = borrowed(&world);
    assert_eq!((after.held, after.spent()), (0, before.spent()), "{after:?}");
    world.run(Micros::from_secs(3), &[(EUROPE, 2)]);
    let admitted = world.run(Micros::from_secs(2), &[(EUROPE, 2)]);
    assert!(admitted >= 1_900, "{admitted} of 2000");
    assert!(world.most_used <= 2_000.0, "{}", world.most_used);
    let edited = edited.replace("borrow: {}", "borrow: { keep: 100% }");
    let rules = regional_rules(&edited, "eu");
    poll_ready(world.nodes[EUROPE][0].limiter.install(rules)).unwrap();
    // What was asked before arrives, and is returned.
    world.run(RTT, &[(EUROPE, 2)]);
    let before = borrowed(&world);
    world.run(SECOND, &[(EUROPE, 2)]);
    let after = borrowed(&world);
    assert_eq!((after.granted, after.spent()), (before.granted, before.spent()), "all is kept");
}

#[test]
fn lender_that_must_not_be_used_is_not_asked() {
    let mut world = borrowing_world(LIMIT);
    let limiter = &world.nodes[EUROPE][0].limiter;
    limiter.set_lender_usable("us", false);
    limiter.set_lender_usable("ap", false);
    assert!(borrowed(&world).held >= 20, "what it holds stays");
    world.run(RTT, &[(EUROPE, 2)]);
    let asked = |world: &Continent| world.stats(EUROPE).lenders.iter().map(|it| it.questions).sum();
    let before: u64 = asked(&world);
    let admitted = world.run(Micros::from_secs(2), &[(EUROPE, 2)]);
    assert_eq!(asked(&world), before);
    assert!(admitted <= 1_000 + 100, "{admitted}");
    world.nodes[EUROPE][0].limiter.set_lender_usable("us", true);
    world.run(SECOND, &[(EUROPE, 2)]);
    assert!(asked(&world) > before && !world.stats(EUROPE).lenders[1].is_usable);
}

#[test]
fn node_that_stops_returns_borrowed_units() {
    let source = LIMIT.replace("1000/s burst 2000", "2000/h");
    let mut world = borrowing_world(&source);
    let (held, before) = (borrowed(&world).held, borrowed(&world));
    let lent = world.left(AMERICA) + world.left(ASIA);
    world.nodes[EUROPE][0].limiter.retire_leases();
    let after = borrowed(&world);
    assert_eq!((after.held, after.returned), (0, before.returned + held));
    world.run(SECOND, &[]);
    // Also what was on its way when the node stopped.
    assert!(world.left(AMERICA) + world.left(ASIA) >= lent + held);
}

/// A key with too few requests for a lease: its store decides each request.
#[test]
fn rarely_used_key_borrows_after_refusals() {
    let mut world = Continent::new(&LIMIT.replace("1000/s burst 2000", "20/s burst 40"), 1);
    // Of 25 a second, the own share admits 10.
    let mut admitted = 0;
    for _ in 0..250 {
        admitted += u64::from(world.request(EUROPE).is_allowed());
        world.run(Micros::from_millis(40), &[]);
    }
    assert!(world.by["borrowed"] >= 30, "{:?}", world.by);
    assert!(admitted >= 150, "{admitted} of 250");
}

#[test]
fn retry_time_of_refusal_is_sound() {
    let mut world = borrowing_world(LIMIT);
    for _ in 0..20 {
        let mut decision = world.request(EUROPE);
        while decision.is_allowed() {
            decision = world.request(EUROPE);
        }
        let Retry::After(wait) = decision.tightest().unwrap().1.retry() else { panic!() };
        let node = &world.nodes[EUROPE][0];
        world.clock.advance(wait);
        assert!(node.decide_waiting(&user(), 1).is_allowed(), "after {wait}");
        world.run(Micros::from_millis(7), &[(EUROPE, 2)]);
    }
}

#[test]
fn remaining_includes_borrowed_units() {
    let mut world = borrowing_world(LIMIT);
    let held = borrowed(&world).held;
    let decision = borrowed_decision(&mut world);
    let left = decision.tightest().unwrap().1.numbers.unwrap().remaining;
    assert!((held - 5..=held + 5).contains(&left), "{left} of {held}");
    let explained = poll_ready(world.nodes[EUROPE][0].limiter.explain(&user(), 1));
    assert_eq!(explained.rules[0].units, Some(borrowed(&world).held));
}

#[test]
fn refusals_are_counted_while_another_region_has_room() {
    let mut world = Continent::new(LIMIT, 1);
    world.run(Micros::from_millis(800), &[(EUROPE, 4)]);
    let counted = world.stats(EUROPE).rules["r"].refused_with_room;
    assert!(counted > 0);
    let limiter = &world.nodes[EUROPE][0].limiter;
    assert_eq!(limiter.borrow_interval(), Some(Micros::from_millis(100)));
    let alone = Continent::new("rules: [{ id: r, limit: 9/s }]", 1);
    assert_eq!(alone.nodes[0][0].limiter.borrow_interval(), None);
}

#[test]
fn batch_has_bounded_number_of_counters() {
    let source = LIMIT.replace("1000/s burst 2000", "40/h burst 40");
    let world = Continent::new(&source, 1);
    let node = &world.nodes[EUROPE][0];
    let users: Vec<String> = (0..1_600).map(|user| user.to_string()).collect();
    for name in &users {
        let facts = [("user_id", &**name)].into_iter().collect();
        let admitted = (0..30).filter(|_| node.decide_waiting(&facts, 1).is_allowed()).count();
        assert!(admitted <= 20, "the share is 20");
    }
    assert!(node.limiter.pop_borrow_batch("mars").is_none());
    let mut batches: Vec<_> = std::iter::from_fn(|| node.limiter.pop_borrow_batch("us")).collect();
    assert_eq!(batches.iter().map(BorrowBatch::len).collect::<Vec<_>>(), [256; 4]);
    assert!(node.limiter.pop_full_borrow_batch("us").is_none(), "as many as may be in flight");
    let run = |batch: BorrowBatch| {
        let report =
            poll_ready(node.limiter.run_borrow_batch(batch, &world.nodes[AMERICA][0].store));
        assert_eq!(report.answered, report.asked);
        // Of 11 that America lends for each, it keeps 5, and gives half of the rest.
        assert_eq!(report.granted, 3 * u64::try_from(report.asked).unwrap());
    };
    run(batches.remove(0));
    batches.extend(node.limiter.pop_full_borrow_batch("us"));
    assert_eq!(batches.last().map(BorrowBatch::len), Some(256));
    batches.into_iter().for_each(run);
    let full = node.limiter.pop_full_borrow_batch("us").unwrap();
    assert_eq!(full.len(), 256);
    assert!(node.limiter.pop_full_borrow_batch("us").is_none(), "few wait for the next interval");
    assert_eq!(node.limiter.pop_borrow_batch("us").map(|batch| batch.len()), Some(64));
    let facts = [("user_id", "7")].into_iter().collect();
    assert_eq!(node.decide_waiting(&facts, 1).answered_by(), AnsweredBy::Borrowed);
}

/// Borrowing takes memory, but only of counters whose share does not suffice.
#[test]
fn only_counters_that_borrow_take_more_memory() {
    let counters = |limit: &str, lenders: &[&'static str]| {
        let source = LIMIT.replace("1000/s burst 2000", limit);
        let clock = common::clock();
        let lease_clock = clock.clone();
        let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
        let limiter = Limiter::new(store.clone(), regional_rules(&source, "eu"))
            .with_leases(LeaseClock::new(move || lease_clock.now()), 600_000)
            .with_lenders(lenders.iter().copied());
        let node = SharingNode { limiter, store };
        for user in (0..1_000).map(|user| user.to_string()) {
            let facts = [("user_id", &*user)].into_iter().collect();
            (0..12).for_each(|_| _ = node.decide_waiting(&facts, 1));
        }
        node.limiter.lease_stats().unwrap().counters
    };
    let (most, few) = ("1000/s burst 2000", "10/h burst 20");
    let without = counters(most, &[]);
    assert_eq!(counters(most, &["us", "ap"]), without, "no counter borrows");
    assert_eq!(counters(few, &[]), without, "there are no lenders");
    let with = counters(few, &["us", "ap"]);
    assert!(with * 3 <= without * 2 && with >= 64, "{with} of {without}");
}
