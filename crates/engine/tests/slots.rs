//! Slots: held until the response ends, renewed while it lasts, freed by their lease when nobody does.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use common::flaky::{Fault, Node, alone, fleet};
use common::{clock, facts, limiter, ready, rules, told};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_engine::{Decision, Slots};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];
const LEASE: Micros = Micros::from_secs(30);
const TICK: Micros = Micros::new(1);

const TWO: &str = "rules: [{ id: r, key_by: ip, limit: { concurrent: 2 } }]";
const LOCAL: &str = "rules: [{ id: r, key_by: ip, limit: { concurrent: 4 }, on_fail: local }]";

fn decide(node: &Node) -> Decision {
    ready(node.limiter.decide(&facts(IP), 1))
}

/// Takes a slot that is there.
fn take(node: &Node) -> Slots {
    let mut decision = decide(node);
    assert!(decision.is_allowed(), "{:?}", told(&decision));
    decision.take_slots().unwrap()
}

fn peek(node: &Node) -> Vec<String> {
    told(&ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn a_slot_is_held_until_it_is_released() {
    let node = alone(TWO, &clock());
    let (one, other) = (take(&node), take(&node));
    let refused = decide(&node);
    let (rule, reading) = refused.tightest().unwrap();
    assert_eq!((rule.id(), reading.retry()), ("r", Retry::After(Micros::from_secs(1))));
    assert_eq!((refused.holds_slots(), told(&refused)), (None, vec!["r deny 0".to_owned()]));
    ready(node.limiter.release(one));
    assert_eq!(peek(&node), ["r allow 1"], "just one");
    ready(node.limiter.release(other));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn a_slot_lapses_when_its_lease_ends_unless_it_is_renewed() {
    let clock = clock();
    let node = alone(TWO, &clock);
    let (mut kept, dropped) = (take(&node), take(&node));
    assert_eq!(kept.lease(), LEASE);
    drop(dropped);
    clock.advance(Micros::from_secs(20));
    ready(node.limiter.renew(&mut kept));
    clock.advance(Micros::new(9_999_999));
    assert_eq!(peek(&node), ["r deny 0"], "a microsecond before the lease ends");
    clock.advance(TICK);
    assert_eq!(peek(&node), ["r allow 1"], "the dropped one has lapsed, the other is held");
    ready(node.limiter.release(kept));
    assert_eq!(peek(&node), ["r allow 2"]);
}

/// Its response is still under way, whatever kept it from renewing.
#[test]
fn a_slot_that_is_renewed_too_late_is_held_all_the_same() {
    let clock = clock();
    let node = alone(TWO, &clock);
    let mut late = take(&node);
    clock.advance(LEASE);
    let others = [take(&node), take(&node)];
    ready(node.limiter.renew(&mut late));
    for slots in others {
        ready(node.limiter.release(slots));
    }
    assert_eq!(peek(&node), ["r allow 1"], "three were under way, one still is");
    ready(node.limiter.release(late));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn only_slots_come_back_when_the_response_ends() {
    let (limiter, _) = limiter(
        "rules:
           - { id: hourly, key_by: ip, limit: 10/h using fixed_window }
           - { id: slots, key_by: ip, limit: { concurrent: 3, lease: 1m } }
           - { id: heavy, key_by: global, cost: 2, limit: { concurrent: 5, lease: 10s } }
           - { id: watched, key_by: ip, mode: shadow, limit: { concurrent: 1 } }",
    );
    let mut decision = ready(limiter.decide(&facts(IP), 1));
    assert_eq!(decision.holds_slots(), Some(Micros::from_secs(10)), "the shortest lease");
    let charged_at = decision.charged_at();
    let slots = decision.take_slots().unwrap();
    assert!(decision.holds_slots().is_none() && decision.take_slots().is_none(), "taken once");
    assert_eq!(decision.charged_at(), charged_at);
    let left = || told(&ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(
        left(),
        ["hourly allow 9", "slots allow 2", "heavy allow 3", "watched shadow_deny 0"]
    );
    ready(limiter.release(slots));
    let after = ["hourly allow 9", "slots allow 3", "heavy allow 5", "watched allow 1"];
    assert_eq!(left(), after);
    ready(limiter.give_back(decision));
    assert_eq!(left()[0], "hourly allow 10", "the receipt has what is left of it");
}

#[test]
fn a_decision_that_is_given_back_whole_frees_its_slots() {
    let node = alone(TWO, &clock());
    ready(node.limiter.give_back(decide(&node)));
    assert_eq!(peek(&node), ["r allow 2"]);
}

#[test]
fn a_request_that_another_rule_refuses_takes_no_slot() {
    let (limiter, _) = limiter(
        "rules:
           - { id: slots, key_by: ip, limit: { concurrent: 3 } }
           - { id: narrow, key_by: ip, limit: 1/h using fixed_window }",
    );
    let mut first = ready(limiter.decide(&facts(IP), 1));
    let held = first.take_slots();
    for _ in 0..5 {
        let refused = ready(limiter.decide(&facts(IP), 1));
        assert!(!refused.is_allowed() && refused.holds_slots().is_none());
    }
    let left = told(&ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left, ["slots allow 2", "narrow deny 0"]);
    assert!(held.is_some());
    // And the other way round: no slot, no charge.
    let taken = ready(limiter.force(&facts(IP), Some("slots"), 2));
    assert!(taken.is_allowed());
    ready(limiter.reset(&facts(IP), Some("narrow")));
    assert!(!ready(limiter.decide(&facts(IP), 1)).is_allowed());
    let left = told(&ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left, ["slots deny 0", "narrow allow 1"]);
}

#[test]
fn requests_without_such_a_rule_hold_nothing() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 10/s }]");
    let mut decision = ready(limiter.decide(&facts(IP), 1));
    assert!(decision.holds_slots().is_none() && decision.take_slots().is_none());
}

/// A counter of another algorithm under the same id is another counter.
#[test]
fn slots_and_a_log_of_the_same_name_and_span_do_not_meet() {
    let (limiter, _) = limiter(
        "rules: [{ id: r, key_by: ip, limit: { requests: 2, window: 30s, algorithm: sliding_window_log } }]",
    );
    let key = || ready(limiter.explain(&facts(IP), 1)).rules[0].fingerprint;
    let log = key();
    for _ in 0..2 {
        assert!(ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    ready(limiter.install(rules(TWO))).unwrap();
    assert_ne!(key(), log);
    assert_eq!(told(&ready(limiter.peek(&facts(IP), None, 1))), ["r allow 2"]);
}

#[test]
fn slots_stay_held_over_a_change_of_the_limit_and_are_released_under_the_old_one() {
    let clock = clock();
    let node = alone(TWO, &clock);
    let (mut one, other) = (take(&node), take(&node));
    let five = "rules: [{ id: r, key_by: ip, limit: { concurrent: 5 } }]";
    ready(node.limiter.install(rules(five))).unwrap();
    assert_eq!(peek(&node), ["r allow 3"]);
    clock.advance(Micros::from_secs(20));
    ready(node.limiter.renew(&mut one));
    ready(node.limiter.release(other));
    assert_eq!(peek(&node), ["r allow 4"]);
    ready(node.limiter.release(one));
    assert_eq!(peek(&node), ["r allow 5"]);
}

#[test]
fn while_the_store_is_gone_open_rules_hold_nothing_and_closed_ones_refuse() {
    for (on_fail, passes) in [("allow", true), ("deny", false)] {
        let source = format!(
            "rules: [{{ id: r, key_by: ip, limit: {{ concurrent: 1 }}, on_fail: {on_fail} }}]"
        );
        let node = alone(&source, &clock());
        node.store.fault(Fault::Gone);
        for _ in 0..3 {
            let mut decision = decide(&node);
            assert_eq!(decision.is_allowed(), passes, "{on_fail}");
            assert!(decision.take_slots().is_none());
        }
        node.store.fault(Fault::None);
        assert_eq!(peek(&node), ["r allow 1"]);
    }
}

#[test]
fn a_slot_of_a_local_share_is_released_there() {
    let nodes = fleet(LOCAL, 2, &clock());
    let node = &nodes[0];
    node.store.fault(Fault::Gone);
    let (one, other) = (take(node), take(node));
    let refused = decide(node);
    assert_eq!((refused.answered_by(), refused.is_allowed()), (AnsweredBy::Fallback, false));
    ready(node.limiter.release(one));
    assert_eq!(peek(node), ["r allow 1"], "of a share of 2");
    node.store.fault(Fault::None);
    node.store.asked();
    ready(node.limiter.release(other));
    assert_eq!(node.store.asked(), [], "the store never had it");
    assert!(!node.limiter.owes());
    assert_eq!(peek(node), ["r allow 4"]);
}

/// Written to the store by a settlement, nobody would release it.
#[test]
fn a_slot_of_a_local_share_moves_to_the_store_when_it_is_renewed() {
    let clock = clock();
    let node = alone(LOCAL, &clock);
    node.store.fault(Fault::Gone);
    let (mut slots, short) = (take(&node), take(&node));
    assert!(!node.limiter.owes(), "slots are not settled");
    clock.advance(Micros::from_secs(10));
    ready(node.limiter.renew(&mut slots));
    clock.advance(Micros::from_secs(25));
    assert_eq!(peek(&node), ["r allow 3"], "renewed on the share; the other has lapsed there");
    drop(short);
    node.store.fault(Fault::None);
    assert_eq!(peek(&node), ["r allow 4"], "the store does not know of it yet");
    ready(node.limiter.renew(&mut slots));
    assert_eq!(peek(&node), ["r allow 3"]);
    ready(node.limiter.release(slots));
    assert_eq!(peek(&node), ["r allow 4"]);
    node.store.fault(Fault::Gone);
    assert_eq!(peek(&node), ["r allow 4"], "nor is it left on the share");
}

/// What the store holds counts towards the share, for as long as it is renewed.
#[test]
fn a_share_knows_of_the_slots_that_the_store_holds() {
    let clock = clock();
    let node = alone(LOCAL, &clock);
    let (mut slots, dropped) = (take(&node), take(&node));
    drop(dropped);
    clock.advance(Micros::from_secs(20));
    ready(node.limiter.renew(&mut slots));
    clock.advance(Micros::from_secs(20));
    node.store.fault(Fault::Gone);
    assert_eq!(peek(&node), ["r allow 3"]);
    ready(node.limiter.renew(&mut slots));
    clock.advance(Micros::from_secs(20));
    assert_eq!(peek(&node), ["r allow 3"], "held on here, though the store is gone");
    node.store.fault(Fault::None);
    assert_eq!(peek(&node), ["r allow 4"], "there it has lapsed");
    ready(node.limiter.renew(&mut slots));
    assert_eq!(peek(&node), ["r allow 3"], "and is taken again");
    node.store.fault(Fault::Gone);
    ready(node.limiter.release(slots));
    assert_eq!(peek(&node), ["r allow 4"]);
    node.store.fault(Fault::None);
    assert_eq!(peek(&node), ["r allow 3"], "released while the store was gone");
    clock.advance(LEASE);
    assert_eq!(peek(&node), ["r allow 4"], "so it lapses");
}

/// The answer is lost, so the holder does not know the new time: it counts twice for one lease.
#[test]
fn a_renewal_that_was_not_answered_is_too_strict_for_one_lease() {
    let clock = clock();
    let node = alone("rules: [{ id: r, key_by: ip, limit: { concurrent: 3 } }]", &clock);
    let mut slots = take(&node);
    clock.advance(Micros::from_secs(10));
    node.store.fault(Fault::Mute);
    ready(node.limiter.renew(&mut slots));
    node.store.fault(Fault::None);
    clock.advance(Micros::from_secs(10));
    ready(node.limiter.renew(&mut slots));
    assert_eq!(peek(&node), ["r allow 1"]);
    clock.advance(Micros::from_secs(20));
    assert_eq!(peek(&node), ["r allow 2"]);
    ready(node.limiter.release(slots));
    assert_eq!(peek(&node), ["r allow 3"]);
}

/// The parts of a cluster fail by themselves.
#[test]
fn slots_that_a_part_of_the_store_holds_are_renewed_there() {
    let clock = clock();
    let node = alone(
        "rules:
           - { id: kept, key_by: ip, limit: { concurrent: 2 } }
           - { id: lost, key_by: ip, limit: { concurrent: 2 } }",
        &clock,
    );
    let mut slots = take(&node);
    clock.advance(Micros::from_secs(20));
    node.store.fault(Fault::Without(&["lost"]));
    ready(node.limiter.renew(&mut slots));
    node.store.fault(Fault::None);
    clock.advance(Micros::from_secs(15));
    assert_eq!(peek(&node), ["kept allow 1", "lost allow 2"]);
    node.store.asked();
    ready(node.limiter.renew(&mut slots));
    let asked: Vec<usize> = node.store.asked().iter().map(|(_, charges)| *charges).collect();
    assert_eq!(asked, [1, 1], "each by the time it is known by");
    ready(node.limiter.release(slots));
    assert_eq!(peek(&node), ["kept allow 2", "lost allow 2"]);
}

#[test]
fn one_call_renews_and_one_releases_all_slots_of_a_request() {
    let node = alone(
        "rules:
           - { id: a, key_by: ip, limit: { concurrent: 2 } }
           - { id: b, key_by: ip, limit: { concurrent: 2 } }",
        &clock(),
    );
    let mut slots = take(&node);
    node.store.asked();
    ready(node.limiter.renew(&mut slots));
    ready(node.limiter.release(slots));
    let asked = node.store.asked();
    assert!(matches!(asked[..], [(Op::Renew { .. }, 2), (Op::Refund { .. }, 2)]), "{asked:?}");
}

#[test]
fn an_explanation_says_what_is_held_and_not_when_it_is_free() {
    let (limiter, _) = limiter(TWO);
    for _ in 0..2 {
        assert!(ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    let explained = ready(limiter.explain(&facts(IP), 1));
    assert_eq!(explained.rules[0].limit, "2 at once, each held for 30s unless renewed");
    let why =
        "refused by r: over the limit (0 of 2 left, 1 asked for, fits when others have ended)";
    assert_eq!(explained.why, why);
}
