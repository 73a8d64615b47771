//! The counters of one client: listing and resetting them by their key parts, without a request.

mod common;

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::Limiter;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];
const LOGIN: &[(&str, &str)] =
    &[("ip", "203.0.113.7"), ("method", "POST"), ("path", "/login"), ("tier", "free")];

const RULES: &str = "
identity: { tier: { default: guest } }
rules:
  - id: login
    match: { endpoint: POST /login, tier: free }
    key_by: ip
    limit: 2/h using fixed_window
    ban: { after: 1, within: 1m, for: 5m }
  - { id: paid, match: { tier: paid }, key_by: ip, limit: 9/h using fixed_window }
  - { id: users, key_by: user_id, limit: 7/h using fixed_window }
  - { id: all, key_by: global, limit: 100/h using fixed_window }
  - { id: tiers, key_by: tier, limit: 50/h using fixed_window }
  - { id: off, key_by: ip, limit: 5/h, is_active: false }
  - { id: open, key_by: ip, limit: { requests: unlimited } }";

/// `rule key used` of each counter.
fn list_counters(
    limiter: &Limiter<ManualMemoryStore>,
    pairs: &'static [(&str, &str)],
) -> Vec<String> {
    let counters = poll_ready(limiter.counters(&facts(pairs), None));
    let counters = counters.iter().map(|(rule, key, reading)| {
        let key: Vec<_> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {} {}", rule.id(), key.join(","), reading.limit - reading.remaining)
    });
    counters.collect()
}

#[test]
fn reset_by_rule_and_key_clears_ban() {
    let (limiter, _) = limiter(RULES);
    for _ in 0..4 {
        poll_ready(limiter.decide(&facts(LOGIN), 1));
    }
    assert_eq!(
        reading_summary(&poll_ready(limiter.peek(&facts(IP), Some("login"), 1))),
        ["login ban 0"]
    );
    assert_eq!(
        reading_summary(&poll_ready(limiter.reset(&facts(IP), Some("login")))),
        ["login allow 2"]
    );
    assert_eq!(reading_summary(&poll_ready(limiter.decide(&facts(LOGIN), 1)))[0], "login allow 1");
    assert_eq!(
        list_counters(&limiter, IP)[2],
        "users ip=203.0.113.7 3",
        "other rules are not reset"
    );
}

#[test]
fn client_counters_are_listed_and_reset() {
    let (limiter, _) = limiter(RULES);
    for _ in 0..2 {
        poll_ready(limiter.decide(&facts(LOGIN), 1));
    }
    // A request without a user ID is counted by address. Counters shared with other clients are not
    // listed.
    let all = ["login ip=203.0.113.7 2", "paid ip=203.0.113.7 0", "users ip=203.0.113.7 2"];
    assert_eq!(list_counters(&limiter, IP), all);
    assert_eq!(
        list_counters(&limiter, LOGIN),
        [all[0], all[2], "tiers tier=free 2"],
        "the tier is not paid"
    );
    assert_eq!(list_counters(&limiter, &[("ip", "203.0.113.8")])[0], "login ip=203.0.113.8 0");
    let reset = poll_ready(limiter.reset(&facts(IP), None));
    assert_eq!(reading_summary(&reset), ["login allow 2", "paid allow 9", "users allow 7"]);
    let left = reading_summary(&poll_ready(limiter.peek(&facts(LOGIN), None, 1)));
    assert_eq!(left[..4], ["login allow 2", "users allow 7", "all allow 98", "tiers allow 48"]);
}

#[test]
fn named_rule_may_be_inactive_or_global() {
    let (limiter, _) = limiter(RULES);
    poll_ready(limiter.decide(&facts(LOGIN), 1));
    assert_eq!(
        reading_summary(&poll_ready(limiter.reset(&facts(&[]), Some("all")))),
        ["all allow 100"]
    );
    assert_eq!(
        reading_summary(&poll_ready(limiter.reset(&facts(IP), Some("off")))),
        ["off allow 5"]
    );
    assert_eq!(
        reading_summary(&poll_ready(limiter.reset(&facts(IP), Some("open")))),
        Vec::<String>::new()
    );
    let rules = limiter.rules();
    assert_eq!(rules.missing_key_facts("login", &facts(&[("user_id", "7")])), ["ip"]);
    assert_eq!(rules.missing_key_facts("users", &facts(&[("user_id", "7")])), Vec::<String>::new());
}

#[test]
fn endpoint_key_lists_all_declared_endpoints() {
    let (limiter, _) = limiter(
        r#"
rules:
  - { id: each, key_by: "ip:endpoint", limit: 5/h using fixed_window }
  - { id: some, match: { endpoint: "GET /users/*" }, key_by: "ip:endpoint", limit: 6/h }
  - { id: orders, match: { endpoint: ["POST|PUT /orders/{id}", "/items/*"] }, key_by: global, limit: 99/h }"#,
    );
    let request = |method, path| {
        let facts = [("ip", "203.0.113.7"), ("method", method), ("path", path)];
        poll_ready(limiter.decide(&facts.into_iter().collect(), 1));
    };
    request("PUT", "/orders/7");
    request("PUT", "/orders/8");
    request("GET", "/users/7");
    request("PURGE", "/items/7");
    assert_eq!(
        list_counters(&limiter, IP),
        [
            "each ip=203.0.113.7,endpoint=PUT /orders/{id} 2",
            "each ip=203.0.113.7,endpoint=GET /users/* 1",
            "some ip=203.0.113.7,endpoint=GET /users/* 1",
        ],
        "an uncommon method that no pattern names is not tried"
    );
    const ORDERS: &[(&str, &str)] = &[("ip", "203.0.113.7"), ("path", "/orders/9")];
    assert_eq!(
        list_counters(&limiter, ORDERS),
        ["each ip=203.0.113.7,endpoint=PUT /orders/{id} 2"]
    );
    const PUTS: &[(&str, &str)] = &[("ip", "203.0.113.7"), ("method", "PUT")];
    assert_eq!(list_counters(&limiter, PUTS), ["each ip=203.0.113.7,endpoint=PUT /orders/{id} 2"]);
    assert_eq!(
        reading_summary(&poll_ready(limiter.reset(&facts(IP), None))),
        ["each allow 5", "some allow 6"]
    );
    assert!(list_counters(&limiter, IP).is_empty());
}

#[test]
fn listing_includes_warnings_and_ban_end() {
    let (limiter, clock) = limiter(
        "rules:
           - id: r
             key_by: ip
             limit: 1/h using fixed_window
             mode: warn
             warn: { allow: 2, period: 10m }
             ban: { after: 1, within: 1m, for: 5m }",
    );
    for _ in 0..4 {
        poll_ready(limiter.decide(&facts(IP), 1));
    }
    clock.advance(Micros::from_secs(60));
    let counters = poll_ready(limiter.counters(&facts(IP), None));
    let (_, _, reading) = counters.iter().next().unwrap();
    assert_eq!((reading.limit, reading.remaining, reading.warnings), (1, 0, 2));
    assert_eq!(
        reading.retry,
        Retry::After(Micros::from_secs(240)),
        "the end of the ban, not of the window"
    );
    poll_ready(limiter.reset(&facts(IP), None));
    let counters = poll_ready(limiter.counters(&facts(IP), None));
    let (_, _, reading) = counters.iter().next().unwrap();
    assert_eq!((reading.remaining, reading.warnings, reading.retry), (1, 0, Retry::Now));
}

#[test]
fn descriptor_counter_is_found_by_open_values() {
    let (limiter, _) = limiter(
        "rules:
           - id: path
             match: { domain: edge, descriptor: [{ key: route, value: login }, remote_address] }
             key_by: descriptor
             limit: 5/h",
    );
    let counters = poll_ready(limiter.counters(&facts(&[("remote_address", "192.0.2.1")]), None));
    let keys: Vec<_> = counters.iter().map(|(_, key, _)| key[0].1.clone()).collect();
    assert_eq!(keys, ["route=login, remote_address=192.0.2.1"]);
    assert_eq!(
        poll_ready(limiter.counters(&facts(IP), None)).iter().count(),
        1,
        "found by the address too"
    );
    let missing = limiter.rules().missing_key_facts("path", &facts(&[("user_id", "7")]));
    assert_eq!(missing, ["remote_address"]);
}

#[test]
fn reset_clears_usage_of_previous_algorithm() {
    let rule = |limit: &str| {
        let fields = "match: { path: /a }, key_by: ip, on_change: keep";
        compile_rules(&format!("rules: [{{ id: r, limit: {limit}, {fields} }}]"))
    };
    let (limiter, _) = limiter("rules: []");
    poll_ready(limiter.install(rule("10/h using fixed_window"))).unwrap();
    const A: &[(&str, &str)] = &[("ip", "203.0.113.7"), ("path", "/a")];
    poll_ready(limiter.decide(&facts(A), 7));
    poll_ready(limiter.install(rule("10/h using sliding_window_log"))).unwrap();
    assert_eq!(list_counters(&limiter, IP), ["r ip=203.0.113.7 7"]);
    poll_ready(limiter.reset(&facts(IP), None));
    assert_eq!(reading_summary(&poll_ready(limiter.peek(&facts(A), None, 1))), ["r allow 10"]);
}

#[test]
fn new_generation_abandons_old_counters() {
    let rule = |generation: &str| {
        let r = format!("{{ id: r, key_by: ip, limit: 5/h, on_change: keep{generation} }}");
        compile_rules(&format!("rules: [{r}, {{ id: other, key_by: ip, limit: 50/h }}]"))
    };
    let (limiter, _) = limiter("rules: []");
    let left = || reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    poll_ready(limiter.install(rule(""))).unwrap();
    poll_ready(limiter.decide(&facts(IP), 3));
    poll_ready(limiter.install(rule(", generation: 1"))).unwrap();
    assert_eq!(left(), ["r allow 2", "other allow 47"], "a missing generation means generation 1");
    let receipt = poll_ready(limiter.decide(&facts(IP), 1));
    poll_ready(limiter.install(rule(", generation: 2"))).unwrap();
    assert_eq!(left(), ["r allow 5", "other allow 46"]);
    poll_ready(limiter.decide(&facts(IP), 2));
    poll_ready(limiter.refund_decision(receipt));
    assert_eq!(
        left(),
        ["r allow 3", "other allow 45"],
        "old charges are not refunded to the new counter"
    );
    poll_ready(limiter.install(rule(", generation: 3"))).unwrap();
    assert_eq!(left()[0], "r allow 5");
}

#[test]
fn listing_says_whether_store_answered() {
    let limiter = Limiter::new(FaultyStore::unreachable(), compile_rules(RULES));
    let by = || poll_ready(limiter.counters(&facts(IP), None)).answered_by();
    assert_eq!(by(), AnsweredBy::Fallback);
    limiter.store().set_fault(StoreFault::None);
    assert_eq!(by(), AnsweredBy::Store);
}
