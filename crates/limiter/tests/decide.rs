//! Decisions: all rules or none, modes, bans, the tightest rule, refunds.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_core::decision::Retry;
use tidegate_core::key::Secret;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::server::compile_rules_with_secret;
use tidegate_limiter::{Decision, Limiter, QueueDelay};
use tidegate_memory::MemoryStore;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

fn seconds(count: u64) -> Micros {
    Micros::from_secs(count)
}

/// Guards against a defect of caddy, APISIX, Kong and Envoy: they charge the first rule even if a
/// later one refuses.
#[test]
fn refused_request_charges_no_rule() {
    let (limiter, _) = limiter(
        "rules:
           - { id: wide, key_by: ip, limit: 100/h using fixed_window }
           - { id: narrow, key_by: ip, limit: 2/h using sliding_window_log }
           - { id: other, key_by: global, limit: 50/h using sliding_window_counter }",
    );
    let passed = (0..10).filter(|_| poll_ready(limiter.decide(&facts(IP), 1)).is_allowed()).count();
    assert_eq!(passed, 2);
    let after = poll_ready(limiter.peek(&facts(IP), None, 1));
    assert_eq!(reading_summary(&after), ["wide allow 98", "narrow deny 0", "other allow 48"]);
}

#[test]
fn tightest_rule_follows_wait_then_remaining() {
    let (limiter, clock) = limiter(
        "rules:
           - { id: minute, key_by: ip, limit: 2/m using fixed_window }
           - { id: hour, key_by: ip, limit: 2/h using fixed_window }
           - { id: day, key_by: ip, limit: 5/d using fixed_window }",
    );
    let first = poll_ready(limiter.decide(&facts(IP), 1));
    assert_eq!(first.tightest().unwrap().0.id(), "minute", "equals go by document order");
    assert!(poll_ready(limiter.decide(&facts(IP), 1)).is_allowed());
    let refused = poll_ready(limiter.decide(&facts(IP), 1));
    let (rule, reading) = refused.tightest().unwrap();
    assert_eq!(rule.id(), "hour");
    let Retry::After(wait) = reading.retry() else { panic!("{reading:?}") };
    clock.advance(Micros::new(wait.get() - 1));
    assert!(!poll_ready(limiter.decide(&facts(IP), 1)).is_allowed(), "tight");
    clock.advance(Micros::new(1));
    assert!(poll_ready(limiter.decide(&facts(IP), 1)).is_allowed(), "sound");
}

#[test]
fn cost_above_limit_is_never_admitted() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 10/s burst 20 }]");
    let decision = poll_ready(limiter.decide(&facts(IP), 21));
    assert_eq!(decision.tightest().unwrap().1.retry(), Retry::Never);
    assert_eq!(reading_summary(&decision), ["r deny 20"]);
    assert!(poll_ready(limiter.decide(&facts(IP), 20)).is_allowed());
}

#[test]
fn request_without_rules_is_allowed() {
    let (limiter, _) = limiter("rules: [{ id: r, match: { tier: free }, key_by: ip, limit: 1/s }]");
    let decision = poll_ready(limiter.decide(&facts(IP), 1));
    assert!(decision.is_allowed() && decision.tightest().is_none());
    assert_eq!(decision.readings().len(), 0);
}

#[test]
fn unlimited_allows_and_deny_refuses_uncharged() {
    let (limiter, _) = limiter(
        "rules:
           - { id: free, key_by: ip, limit: { requests: unlimited } }
           - { id: counted, key_by: ip, limit: 5/h using fixed_window }
           - { id: closed, match: { path: /internal }, key_by: ip, limit: { requests: deny } }",
    );
    let decision =
        poll_ready(limiter.decide(&facts(&[("ip", "203.0.113.7"), ("path", "/internal")]), 1));
    assert_eq!(reading_summary(&decision), ["free allow -", "counted allow 5", "closed deny -"]);
    assert_eq!(decision.tightest().unwrap().1.retry(), Retry::Never);
    assert_eq!(
        reading_summary(&poll_ready(limiter.decide(&facts(IP), 1))),
        ["free allow -", "counted allow 4"]
    );
}

#[test]
fn shadow_rule_reports_without_refusing() {
    let (limiter, _) = limiter(
        "rules:
           - { id: candidate, mode: shadow, key_by: ip, limit: 1/h using fixed_window }
           - { id: live, key_by: ip, limit: 3/h using fixed_window }",
    );
    poll_ready(limiter.decide(&facts(IP), 1));
    let second = poll_ready(limiter.decide(&facts(IP), 1));
    assert!(second.is_allowed());
    assert_eq!(reading_summary(&second), ["candidate shadow_deny 0", "live allow 1"]);
    assert_eq!(second.tightest().unwrap().0.id(), "live");
    poll_ready(limiter.decide(&facts(IP), 1));
    let refused = poll_ready(limiter.decide(&facts(IP), 1));
    assert!(!refused.is_allowed());
    assert_eq!(reading_summary(&refused), ["candidate shadow_deny 0", "live deny 0"]);
}

#[test]
fn warn_mode_refuses_repeated_violations() {
    let (limiter, clock) = limiter(
        "rules:
           - id: r
             mode: warn
             warn: { allow: 2, period: 10s }
             key_by: ip
             limit: 1/h using fixed_window
           - { id: other, key_by: ip, limit: 100/h using fixed_window }",
    );
    let verdicts = |count: usize| -> Vec<String> {
        (0..count)
            .map(|_| reading_summary(&poll_ready(limiter.decide(&facts(IP), 1)))[0].clone())
            .collect()
    };
    assert_eq!(verdicts(5), ["r allow 0", "r warn 0", "r warn 0", "r deny 0", "r deny 0"]);
    let warned = poll_ready(limiter.peek(&facts(IP), Some("other"), 1));
    assert_eq!(
        reading_summary(&warned),
        ["other allow 97"],
        "a request that passes with a warning is charged"
    );
    clock.advance(seconds(10));
    assert_eq!(verdicts(3), ["r warn 0", "r warn 0", "r deny 0"]);
    assert!(poll_ready(limiter.peek(&facts(IP), None, 1)).warnings().next().is_none());
}

#[test]
fn repeated_refusals_escalate_bans() {
    let (limiter, clock) = limiter(
        "rules:
           - id: login
             key_by: ip
             limit: 2/s using fixed_window
             ban: { after: 3, within: 1m, for: 10s, factor: 2, max: 15s }",
    );
    let attempt = || {
        let decision = poll_ready(limiter.decide(&facts(IP), 1));
        let (_, reading) = decision.tightest().unwrap();
        (reading.verdict.name(), reading.retry())
    };
    for _ in 0..2 {
        assert_eq!(attempt().0, "allow");
    }
    for _ in 0..3 {
        assert_eq!(attempt().0, "deny");
    }
    assert_eq!(attempt(), ("ban", Retry::After(seconds(10))), "without the ban it would be 1 s");
    clock.advance(seconds(10));
    for _ in 0..2 {
        assert_eq!(attempt().0, "allow");
    }
    for _ in 0..3 {
        assert_eq!(attempt().0, "deny");
    }
    assert_eq!(attempt(), ("ban", Retry::After(seconds(15))), "twice as long, but at most 15 s");
    poll_ready(limiter.reset(&facts(IP), None));
    assert_eq!(attempt().0, "allow", "a reset also lifts the ban");
}

/// Envoy's post-response charges arrive as ordinary calls with a large cost, and must count.
#[test]
fn always_charged_rule_caps_debt_at_limit() {
    let (limiter, clock) = limiter(
        "rules:
           - { id: tokens, key_by: ip, charge: always, limit: 100/m burst 100 }
           - { id: calls, key_by: ip, limit: 10/m using fixed_window }",
    );
    assert!(poll_ready(limiter.decide(&facts(IP), 9)).is_allowed());
    let over = poll_ready(limiter.decide(&facts(IP), 95));
    assert_eq!(reading_summary(&over), ["tokens deny 0", "calls deny 1"]);
    poll_ready(limiter.force(&facts(IP), Some("tokens"), 1_000_000));
    clock.advance(seconds(60));
    assert_eq!(
        reading_summary(&poll_ready(limiter.peek(&facts(IP), Some("tokens"), 1))),
        ["tokens deny 0"]
    );
    clock.advance(seconds(60));
    assert_eq!(
        reading_summary(&poll_ready(limiter.peek(&facts(IP), Some("tokens"), 1))),
        ["tokens allow 100"]
    );
}

#[test]
fn decision_refunds_exactly_its_charges() {
    let (limiter, clock) = limiter(
        "rules:
           - { id: bucket, key_by: ip, limit: 60/m }
           - { id: window, key_by: ip, cost: 3, limit: 100/m using fixed_window }",
    );
    let first = poll_ready(limiter.decide(&facts(IP), 10));
    assert_eq!(reading_summary(&first), ["bucket allow 50", "window allow 70"]);
    clock.advance(seconds(4));
    poll_ready(limiter.refund_decision(first));
    // Four of the ten have already drained: refunding them too would over-admit.
    let after = poll_ready(limiter.peek(&facts(IP), None, 1));
    assert_eq!(reading_summary(&after), ["bucket allow 60", "window allow 100"]);
    let refused = poll_ready(limiter.decide(&facts(IP), 61));
    poll_ready(limiter.refund_decision(refused));
    assert_eq!(
        reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1))),
        ["bucket allow 60", "window allow 100"]
    );
}

#[test]
fn queue_assigns_increasing_delays() {
    let (limiter, _) = limiter(
        "rules: [{ id: q, key_by: ip, limit: { requests: 10, window: 1s, burst: 3, algorithm: leaky_bucket, queue: true } }]",
    );
    let delays: Vec<_> = (0..4)
        .map(|_| {
            let decision = poll_ready(limiter.decide(&facts(IP), 1));
            (decision.is_allowed(), decision.delay().get())
        })
        .collect();
    assert_eq!(delays, [(true, 0), (true, 100_000), (true, 200_000), (false, 0)]);
}

#[test]
fn explain_names_deciding_rule_uncharged() {
    let (limiter, _) = limiter(
        "identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }
subjects: [{ api_key: demo-paid, tier: paid }]
rules:
  - { id: free, match: { tier: free }, key_by: api_key, limit: 1/h using fixed_window }
  - { id: paid, match: { tier: paid }, key_by: api_key, limit: 2/h using fixed_window }
  - { id: all, key_by: global, limit: 100/h using fixed_window }",
    );
    let request = facts(&[("api_key", "demo-paid"), ("ip", "203.0.113.7")]);
    for _ in 0..2 {
        assert!(poll_ready(limiter.decide(&request, 1)).is_allowed());
    }
    let explained = poll_ready(limiter.explain(&request, 1));
    assert_eq!(explained.deciding.as_deref(), Some("paid"));
    let why = "refused by paid: over the limit (0 of 2 left, 1 requested, retry in 1 h)";
    assert_eq!(explained.why, why);
    assert!(explained.facts.contains(&("tier".to_owned(), "paid".to_owned())));
    let paid = &explained.rules[0];
    assert_eq!(paid.key, [("api_key".to_owned(), "demo-paid".to_owned())]);
    assert_eq!(paid.matched, ["tier=paid"]);
    assert_eq!(reading_summary(&poll_ready(limiter.peek(&request, None, 1)))[1], "all allow 98");
}

#[test]
fn explain_reports_admission_bound_per_rule() {
    let (limiter, _) = limiter(
        "rules:
  - { id: bucket, key_by: ip, limit: 10/m burst 25 }
  - { id: fixed, key_by: ip, limit: 10/m using fixed_window }
  - { id: log, key_by: ip, limit: 10/m using sliding_window_log, mode: shadow }
  - { id: slots, key_by: ip, limit: { concurrent: 4, hold: 30s } }
  - { id: free, key_by: ip, limit: { requests: unlimited } }
  - { id: never, key_by: ip, limit: { requests: deny } }
  - { id: seen, key_by: ip, limit: { requests: deny }, mode: shadow }",
    );
    let explained = poll_ready(limiter.explain(&facts(IP), 1));
    let bounds = explained.rules.iter().map(|rule| (rule.max_in_window, rule.bound.as_str()));
    assert_eq!(
        bounds.collect::<Vec<_>>(),
        [
            (Some(35), "at most 35 in any 1m"),
            (Some(20), "at most 20 in any 1m"),
            (Some(10), "at most 10 in any 1m, if enforced"),
            (Some(4), "at most 4 at once"),
            (None, "none"),
            (None, "nothing passes"),
            (None, "nothing passes, if enforced"),
        ]
    );
}

/// An attacker could derive the secret from a fingerprint, and then choose keys that share a
/// counter.
#[test]
fn fingerprint_with_process_secret_is_hidden() {
    let source = "rules: [{id: one, key_by: ip, limit: 1/s}]";
    let request = facts(IP);
    for (secret, shown) in [(Secret::UNSET, true), (Secret::random(), false)] {
        let limiter = Limiter::new(MemoryStore::new(), compile_rules_with_secret(source, secret));
        assert!(poll_ready(limiter.decide(&request, 1)).is_allowed());
        assert!(!poll_ready(limiter.decide(&request, 1)).is_allowed());
        let explained = poll_ready(limiter.explain(&request, 1));
        assert_eq!(explained.rules[0].fingerprint.is_some(), shown);
    }
}

#[test]
fn decision_reports_store_time_and_charged_cost() {
    let rules = "rules:
           - { id: two, key_by: ip, limit: 5/h using fixed_window, cost: 2 }
           - { id: one, key_by: ip, limit: 9/h using fixed_window }";
    let (untimed, _) = limiter(rules);
    assert_eq!(poll_ready(untimed.decide(&facts(IP), 1)).store_time(), None);
    let (timed, _) = limiter(rules);
    // The clock is read twice: before the store call and after it.
    let reads = AtomicU64::new(0);
    let clock = move || Timestamp::from_micros(reads.fetch_add(70, Ordering::Relaxed));
    let timed = timed.with_store_clock(Arc::new(clock));
    let charged = |decision: &Decision| -> Vec<u64> {
        decision.readings().map(|(_, reading)| decision.charged_cost(reading)).collect()
    };
    let passed = poll_ready(timed.decide(&facts(IP), 1));
    assert_eq!((passed.store_time(), charged(&passed)), (Some(Micros::new(70)), vec![2, 1]));
    let refused = poll_ready(timed.decide(&facts(IP), 2));
    assert_eq!((refused.is_allowed(), charged(&refused)), (false, vec![0, 0]));
    assert_eq!(refused.store_time(), Some(Micros::new(70)));
}

#[test]
fn shadow_deny_rule_lets_request_pass() {
    let (limiter, _) =
        limiter("rules: [{ id: d, mode: shadow, key_by: ip, limit: { requests: deny } }]");
    let decision = poll_ready(limiter.decide(&facts(&[("ip", "203.0.113.7")]), 1));
    assert!(decision.is_allowed());
    assert_eq!(decision.readings().next().unwrap().1.verdict.name(), "shadow_deny");
}

#[test]
fn queue_delay_names_queue_and_spacing() {
    let (limiter, _) = limiter(
        "rules:
           - { id: plain, key_by: ip, limit: 100/h }
           - { id: q, key_by: ip, limit: { requests: 10, window: 1s, burst: 3, algorithm: leaky_bucket, queue: true } }",
    );
    let ip = facts(&[("ip", "203.0.113.7")]);
    let delays = [1, 2].map(|cost| poll_ready(limiter.decide(&ip, cost)).queue_delay().unwrap());
    let millis = |delay: QueueDelay| (delay.delay, delay.spacing);
    assert_eq!(
        delays.map(millis),
        [
            (Micros::ZERO, Micros::from_millis(100)),
            (Micros::from_millis(100), Micros::from_millis(200)),
        ]
    );
    assert_eq!(delays[0].queue, delays[1].queue);
    let refused = poll_ready(limiter.decide(&ip, 1));
    assert!(!refused.is_allowed() && refused.queue_delay().is_none());
}

#[test]
fn operation_on_one_rule_leaves_others() {
    let (limiter, _) = limiter(
        "rules:
           - { id: a, key_by: ip, limit: 10/h using fixed_window }
           - { id: b, key_by: ip, limit: 10/h using fixed_window }",
    );
    let ip = facts(&[("ip", "203.0.113.7")]);
    poll_ready(limiter.decide(&ip, 5));
    poll_ready(limiter.refund(&ip, Some("a"), 2, None));
    poll_ready(limiter.force(&ip, Some("b"), 1));
    let left = |rule| reading_summary(&poll_ready(limiter.peek(&ip, rule, 1)));
    assert_eq!([left(Some("a")), left(Some("b"))], [["a allow 7"], ["b allow 4"]]);
    assert_eq!(left(Some("unknown")), Vec::<String>::new());
}
