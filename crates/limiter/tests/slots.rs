//! Concurrency slots: held until the response ends, renewed while it lasts, and expired after their
//! hold time if the holder does neither.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod common;

use common::{clock, facts, limiter, poll_ready, reading_summary};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, fleet, single_node};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{Decision, HeldSlots};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];
const HOLD: Micros = Micros::from_secs(30);
const TICK: Micros = Micros::new(1);

const TWO_SLOTS: &str = "rules: [{ id: r, key_by: ip, limit: { concurrent: 2 } }]";
const FOUR_LOCAL_SLOTS: &str =
    "rules: [{ id: r, key_by: ip, limit: { concurrent: 4 }, on_fail: local }]";

fn decide(node: &TestNode) -> Decision {
    poll_ready(node.limiter.decide(&facts(IP), 1))
}

/// Takes a slot, which must be free.
fn take_slots(node: &TestNode) -> HeldSlots {
    let mut decision = decide(node);
    assert!(decision.is_allowed(), "{:?}", reading_summary(&decision));
    decision.take_slots().unwrap()
}

fn peek(node: &TestNode) -> Vec<String> {
    reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn slot_is_held_until_released() {
    let node = single_node(TWO_SLOTS, &clock());
    let (one, other) = (take_slots(&node), take_slots(&node));
    let refused = decide(&node);
    let (rule, reading) = refused.tightest().unwrap();
    assert_eq!((rule.id(), reading.retry()), ("r", Retry::After(Micros::from_secs(1))));
    assert_eq!(
        (refused.shortest_hold(), reading_summary(&refused)),
        (None, vec!["r deny 0".to_owned()])
    );
    poll_ready(node.limiter.release_slots(one));
    assert_eq!(peek(&node), ["r allow 1"], "only one was released");
    poll_ready(node.limiter.release_slots(other));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn slot_expires_with_hold_time_unless_renewed() {
    let clock = clock();
    let node = single_node(TWO_SLOTS, &clock);
    let (mut kept, dropped) = (take_slots(&node), take_slots(&node));
    assert_eq!(kept.hold(), HOLD);
    drop(dropped);
    clock.advance(Micros::from_secs(20));
    poll_ready(node.limiter.renew_slots(&mut kept));
    clock.advance(Micros::new(9_999_999));
    assert_eq!(peek(&node), ["r deny 0"], "1 µs before the hold time expires");
    clock.advance(TICK);
    assert_eq!(peek(&node), ["r allow 1"], "the dropped slot has expired, the other is held");
    poll_ready(node.limiter.release_slots(kept));
    assert_eq!(peek(&node), ["r allow 2"]);
}

/// The response is still in progress, whatever delayed the renewal.
#[test]
fn late_renewal_still_holds_slot() {
    let clock = clock();
    let node = single_node(TWO_SLOTS, &clock);
    let mut late = take_slots(&node);
    clock.advance(HOLD);
    let others = [take_slots(&node), take_slots(&node)];
    poll_ready(node.limiter.renew_slots(&mut late));
    for slots in others {
        poll_ready(node.limiter.release_slots(slots));
    }
    assert_eq!(peek(&node), ["r allow 1"], "three were in progress, one still is");
    poll_ready(node.limiter.release_slots(late));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn release_returns_only_slots() {
    let (limiter, _) = limiter(
        "rules:
           - { id: hourly, key_by: ip, limit: 10/h using fixed_window }
           - { id: slots, key_by: ip, limit: { concurrent: 3, hold: 1m } }
           - { id: heavy, key_by: global, cost: 2, limit: { concurrent: 5, hold: 10s } }
           - { id: watched, key_by: ip, mode: shadow, limit: { concurrent: 1 } }",
    );
    let mut decision = poll_ready(limiter.decide(&facts(IP), 1));
    assert_eq!(decision.shortest_hold(), Some(Micros::from_secs(10)), "the shortest hold time");
    let charged_at = decision.charged_at();
    let slots = decision.take_slots().unwrap();
    assert!(decision.shortest_hold().is_none() && decision.take_slots().is_none(), "taken once");
    assert_eq!(decision.charged_at(), charged_at);
    let left = || reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(
        left(),
        ["hourly allow 9", "slots allow 2", "heavy allow 3", "watched shadow_deny 0"]
    );
    poll_ready(limiter.release_slots(slots));
    let after = ["hourly allow 9", "slots allow 3", "heavy allow 5", "watched allow 1"];
    assert_eq!(left(), after);
    poll_ready(limiter.refund_decision(decision));
    assert_eq!(left()[0], "hourly allow 10", "the receipt still covers the other charges");
}

#[test]
fn refunded_decision_releases_its_slots() {
    let node = single_node(TWO_SLOTS, &clock());
    poll_ready(node.limiter.refund_decision(decide(&node)));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn refused_request_takes_no_slot() {
    let (limiter, _) = limiter(
        "rules:
           - { id: slots, key_by: ip, limit: { concurrent: 3 } }
           - { id: narrow, key_by: ip, limit: 1/h using fixed_window }",
    );
    let mut first = poll_ready(limiter.decide(&facts(IP), 1));
    let held = first.take_slots();
    for _ in 0..5 {
        let refused = poll_ready(limiter.decide(&facts(IP), 1));
        assert!(!refused.is_allowed() && refused.shortest_hold().is_none());
    }
    let left = reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left, ["slots allow 2", "narrow deny 0"]);
    assert!(held.is_some());
    // Conversely: without a free slot, nothing is charged.
    let taken = poll_ready(limiter.force(&facts(IP), Some("slots"), 2));
    assert!(taken.is_allowed());
    poll_ready(limiter.reset(&facts(IP), Some("narrow")));
    assert!(!poll_ready(limiter.decide(&facts(IP), 1)).is_allowed());
    let left = reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left, ["slots deny 0", "narrow allow 1"]);
}

#[test]
fn request_without_concurrency_rule_holds_nothing() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 10/s }]");
    let mut decision = poll_ready(limiter.decide(&facts(IP), 1));
    assert!(decision.shortest_hold().is_none() && decision.take_slots().is_none());
}

/// A rule with the same ID but another algorithm uses another counter.
#[test]
fn slots_and_log_use_separate_counters() {
    let (limiter, _) = limiter(
        "rules: [{ id: r, key_by: ip, limit: { requests: 2, window: 30s, algorithm: sliding_window_log } }]",
    );
    let key = || poll_ready(limiter.explain(&facts(IP), 1)).rules[0].fingerprint;
    let log = key();
    for _ in 0..2 {
        assert!(poll_ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    poll_ready(limiter.install(compile_rules(TWO_SLOTS))).unwrap();
    assert_ne!(key(), log);
    assert_eq!(reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1))), ["r allow 2"]);
}

#[test]
fn slots_survive_limit_change() {
    let clock = clock();
    let node = single_node(TWO_SLOTS, &clock);
    let (mut one, other) = (take_slots(&node), take_slots(&node));
    let five = "rules: [{ id: r, key_by: ip, limit: { concurrent: 5 } }]";
    poll_ready(node.limiter.install(compile_rules(five))).unwrap();
    assert_eq!(peek(&node), ["r allow 3"]);
    clock.advance(Micros::from_secs(20));
    poll_ready(node.limiter.renew_slots(&mut one));
    poll_ready(node.limiter.release_slots(other));
    assert_eq!(peek(&node), ["r allow 4"]);
    poll_ready(node.limiter.release_slots(one));
    assert_eq!(peek(&node), ["r allow 5"]);
}

#[test]
fn outage_slots_follow_on_fail() {
    for (on_fail, passes) in [("allow", true), ("deny", false)] {
        let source = format!(
            "rules: [{{ id: r, key_by: ip, limit: {{ concurrent: 1 }}, on_fail: {on_fail} }}]"
        );
        let node = single_node(&source, &clock());
        node.store.set_fault(StoreFault::Unreachable);
        for _ in 0..3 {
            let mut decision = decide(&node);
            assert_eq!(decision.is_allowed(), passes, "{on_fail}");
            assert!(decision.take_slots().is_none());
        }
        node.store.set_fault(StoreFault::None);
        assert_eq!(peek(&node), ["r allow 1"]);
    }
}

#[test]
fn local_slot_is_released_locally() {
    let nodes = fleet(FOUR_LOCAL_SLOTS, 2, &clock());
    let node = &nodes[0];
    node.store.set_fault(StoreFault::Unreachable);
    let (one, other) = (take_slots(node), take_slots(node));
    let refused = decide(node);
    assert_eq!((refused.answered_by(), refused.is_allowed()), (AnsweredBy::Fallback, false));
    poll_ready(node.limiter.release_slots(one));
    assert_eq!(peek(node), ["r allow 1"], "one of the share's 2 slots");
    node.store.set_fault(StoreFault::None);
    node.store.take_recorded_calls();
    poll_ready(node.limiter.release_slots(other));
    assert_eq!(node.store.take_recorded_calls(), [], "the store never had it");
    assert!(!node.limiter.has_unsettled());
    assert_eq!(peek(node), ["r allow 4"]);
}

/// If settlement wrote the slot to the store, no request would release it there.
#[test]
fn local_slot_moves_to_store_on_renewal() {
    let clock = clock();
    let node = single_node(FOUR_LOCAL_SLOTS, &clock);
    node.store.set_fault(StoreFault::Unreachable);
    let (mut slots, short) = (take_slots(&node), take_slots(&node));
    assert!(!node.limiter.has_unsettled(), "slots are not settled");
    clock.advance(Micros::from_secs(10));
    poll_ready(node.limiter.renew_slots(&mut slots));
    clock.advance(Micros::from_secs(25));
    assert_eq!(peek(&node), ["r allow 3"], "renewed on the share; the other slot has expired");
    drop(short);
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node), ["r allow 4"], "the store does not hold the slot yet");
    poll_ready(node.limiter.renew_slots(&mut slots));
    assert_eq!(peek(&node), ["r allow 3"]);
    poll_ready(node.limiter.release_slots(slots));
    assert_eq!(peek(&node), ["r allow 4"]);
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(peek(&node), ["r allow 4"], "released on the share too");
}

/// Slots that the store holds count towards the local share while they are renewed.
#[test]
fn store_slots_count_against_local_share() {
    let clock = clock();
    let node = single_node(FOUR_LOCAL_SLOTS, &clock);
    let (mut slots, dropped) = (take_slots(&node), take_slots(&node));
    drop(dropped);
    clock.advance(Micros::from_secs(20));
    poll_ready(node.limiter.renew_slots(&mut slots));
    clock.advance(Micros::from_secs(20));
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(peek(&node), ["r allow 3"]);
    poll_ready(node.limiter.renew_slots(&mut slots));
    clock.advance(Micros::from_secs(20));
    assert_eq!(peek(&node), ["r allow 3"], "renewed locally while the store is unreachable");
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node), ["r allow 4"], "expired in the store");
    poll_ready(node.limiter.renew_slots(&mut slots));
    assert_eq!(peek(&node), ["r allow 3"], "the renewal takes it again");
    node.store.set_fault(StoreFault::Unreachable);
    poll_ready(node.limiter.release_slots(slots));
    assert_eq!(peek(&node), ["r allow 4"]);
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node), ["r allow 3"], "the release did not reach the store");
    clock.advance(HOLD);
    assert_eq!(peek(&node), ["r allow 4"], "so it expires with its hold time");
}

/// The response is lost, so the holder does not know the new time, and the slot counts twice for
/// one hold time.
#[test]
fn unanswered_renewal_double_counts_one_hold_time() {
    let clock = clock();
    let node = single_node("rules: [{ id: r, key_by: ip, limit: { concurrent: 3 } }]", &clock);
    let mut slots = take_slots(&node);
    clock.advance(Micros::from_secs(10));
    node.store.set_fault(StoreFault::AnswerLost);
    poll_ready(node.limiter.renew_slots(&mut slots));
    node.store.set_fault(StoreFault::None);
    clock.advance(Micros::from_secs(10));
    poll_ready(node.limiter.renew_slots(&mut slots));
    assert_eq!(peek(&node), ["r allow 1"]);
    clock.advance(Micros::from_secs(20));
    assert_eq!(peek(&node), ["r allow 2"]);
    poll_ready(node.limiter.release_slots(slots));
    assert_eq!(peek(&node), ["r allow 3"]);
}

/// The nodes of a cluster fail independently.
#[test]
fn partial_outage_renews_reachable_slots() {
    let clock = clock();
    let node = single_node(
        "rules:
           - { id: kept, key_by: ip, limit: { concurrent: 2 } }
           - { id: lost, key_by: ip, limit: { concurrent: 2 } }",
        &clock,
    );
    let mut slots = take_slots(&node);
    clock.advance(Micros::from_secs(20));
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    poll_ready(node.limiter.renew_slots(&mut slots));
    node.store.set_fault(StoreFault::None);
    clock.advance(Micros::from_secs(15));
    assert_eq!(peek(&node), ["kept allow 1", "lost allow 2"]);
    node.store.take_recorded_calls();
    poll_ready(node.limiter.renew_slots(&mut slots));
    let batch_sizes: Vec<usize> =
        node.store.take_recorded_calls().iter().map(|(_, charges)| *charges).collect();
    assert_eq!(batch_sizes, [1, 1], "one call per charge time");
    poll_ready(node.limiter.release_slots(slots));
    assert_eq!(peek(&node), ["kept allow 2", "lost allow 2"]);
}

#[test]
fn one_call_renews_or_releases_all_slots() {
    let node = single_node(
        "rules:
           - { id: a, key_by: ip, limit: { concurrent: 2 } }
           - { id: b, key_by: ip, limit: { concurrent: 2 } }",
        &clock(),
    );
    let mut slots = take_slots(&node);
    node.store.take_recorded_calls();
    poll_ready(node.limiter.renew_slots(&mut slots));
    poll_ready(node.limiter.release_slots(slots));
    let calls = node.store.take_recorded_calls();
    assert!(matches!(calls[..], [(Op::Renew { .. }, 2), (Op::Refund { .. }, 2)]), "{calls:?}");
}

#[test]
fn explanation_reports_held_slots_without_wait() {
    let (limiter, _) = limiter(TWO_SLOTS);
    for _ in 0..2 {
        assert!(poll_ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    let explained = poll_ready(limiter.explain(&facts(IP), 1));
    assert_eq!(explained.rules[0].limit, "2 at once, each held for 30s unless renewed");
    let why =
        "refused by r: over the limit (0 of 2 left, 1 requested, retry when other requests end)";
    assert_eq!(explained.why, why);
}
