//! Rule changes while requests run: counters are kept, and every decision sees one complete rule
//! set.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_core::time::Micros;
use tidegate_fixtures::server::compile_rules;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

fn peek(
    limiter: &tidegate_limiter::Limiter<tidegate_fixtures::server::ManualMemoryStore>,
) -> Vec<String> {
    reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)))
}

/// APISIX includes the configuration's version in its keys, so that any edit resets all usage.
#[test]
fn edited_limit_keeps_usage() {
    let (limiter, _) = limiter(
        "rules:
           - { id: edited, key_by: ip, limit: 10/h using fixed_window }
           - { id: untouched, key_by: ip, limit: 10/h using fixed_window }",
    );
    for _ in 0..4 {
        poll_ready(limiter.decide(&facts(IP), 1));
    }
    poll_ready(limiter.install(compile_rules(
        "rules:
           - { id: new, key_by: ip, limit: 3/h using fixed_window }
           - { id: untouched, key_by: ip, limit: 10/h using fixed_window }
           - { id: edited, key_by: ip, limit: 6/h using fixed_window }",
    )))
    .unwrap();
    assert_eq!(peek(&limiter), ["new allow 3", "untouched allow 6", "edited allow 2"]);
}

#[test]
fn bucket_switches_drain_rate_at_edit() {
    let rule = |rate: u64| format!("rules: [{{ id: r, key_by: ip, limit: {rate}/m burst 100 }}]");
    let (limiter, clock) = limiter(&rule(60));
    poll_ready(limiter.decide(&facts(IP), 100));
    clock.advance(Micros::from_secs(10));
    poll_ready(limiter.install(compile_rules(&rule(600)))).unwrap();
    assert_eq!(peek(&limiter), ["r allow 10"], "10 s at 1 per second");
    clock.advance(Micros::from_secs(5));
    assert_eq!(peek(&limiter), ["r allow 60"], "plus 5 s at 10 per second");
    // Installing the same rules again changes nothing.
    poll_ready(limiter.install(compile_rules(&rule(600)))).unwrap();
    assert_eq!(peek(&limiter), ["r allow 60"]);
}

/// Any change of algorithm or window keeps the usage, and counts it once.
#[test]
fn on_change_keep_migrates_usage() {
    let forms = [
        "10/h using fixed_window",
        "10/h using sliding_window_log",
        "10/h using sliding_window_counter",
        "10/h",
        "10/d using fixed_window",
        "10/d using leaky_bucket",
    ];
    let rule = |limit: &str| {
        compile_rules(&format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_change: keep }}]"))
    };
    for from in forms {
        for to in forms.into_iter().filter(|to| *to != from) {
            let (limiter, clock) = limiter("rules: []");
            poll_ready(limiter.install(rule(from))).unwrap();
            poll_ready(limiter.decide(&facts(IP), 7));
            poll_ready(limiter.install(rule(to))).unwrap();
            assert_eq!(peek(&limiter), ["r allow 3"], "{from} to {to}");
            assert_eq!(peek(&limiter), ["r allow 3"], "{from} to {to}");
            poll_ready(limiter.decide(&facts(IP), 1));
            assert_eq!(peek(&limiter), ["r allow 2"], "{from} to {to}");
            // Another install in between keeps the usage.
            poll_ready(limiter.install(rule(to))).unwrap();
            assert_eq!(peek(&limiter), ["r allow 2"], "{from} to {to}");
            clock.advance(Micros::from_secs(4 * 86_400));
            assert_eq!(peek(&limiter), ["r allow 10"], "{from} to {to}");
        }
    }
}

#[test]
fn late_client_usage_is_still_migrated() {
    let rule = |limit: &str| {
        compile_rules(&format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_change: keep }}]"))
    };
    let (limiter, clock) = limiter("rules: []");
    poll_ready(limiter.install(rule("10/h using sliding_window_log"))).unwrap();
    poll_ready(limiter.decide(&facts(IP), 7));
    poll_ready(limiter.install(rule("10/d using fixed_window"))).unwrap();
    clock.advance(Micros::from_secs(1_800));
    assert_eq!(peek(&limiter), ["r allow 3"], "the old hourly log still contains it");
    let (limiter, clock) = common::limiter("rules: []");
    poll_ready(limiter.install(rule("10/h using sliding_window_log"))).unwrap();
    poll_ready(limiter.decide(&facts(IP), 7));
    poll_ready(limiter.install(rule("10/d using fixed_window"))).unwrap();
    clock.advance(Micros::from_secs(3_601));
    assert_eq!(peek(&limiter), ["r allow 10"], "the old hourly log has expired");
}

#[test]
fn changed_algorithm_or_window_resets_counter() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 5/h using fixed_window }]");
    poll_ready(limiter.decide(&facts(IP), 5));
    poll_ready(
        limiter.install(compile_rules(
            "rules: [{ id: r, key_by: ip, limit: 5/d using fixed_window }]",
        )),
    )
    .unwrap();
    assert_eq!(peek(&limiter), ["r allow 5"]);
}

#[test]
fn concurrent_reloads_are_atomic_and_refill_nothing() {
    let set = |version: u32| {
        format!(
            "rules:
               - {{ id: a{version}, key_by: ip, limit: 1000000/h }}
               - {{ id: kept, key_by: ip, limit: 5000/d using fixed_window }}
               - {{ id: b{version}, key_by: ip, limit: 1000000/h }}"
        )
    };
    let (limiter, _) = limiter(&set(0));
    let (done, decided) = (AtomicBool::new(false), AtomicUsize::new(0));
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut admitted = 0;
                    while !done.load(Ordering::Relaxed) {
                        let decision = poll_ready(limiter.decide(&facts(IP), 1));
                        let ids: Vec<_> =
                            decision.readings().map(|(rule, _)| rule.id().to_owned()).collect();
                        assert_eq!(ids.len(), 3);
                        assert_eq!(
                            ids[0][1..],
                            ids[2][1..],
                            "decision mixes two rule sets: {ids:?}"
                        );
                        admitted += usize::from(decision.is_allowed());
                        decided.fetch_add(1, Ordering::Relaxed);
                    }
                    admitted
                })
            })
            .collect();
        for version in 1..=200 {
            poll_ready(limiter.install(compile_rules(&set(version)))).unwrap();
            // Every set is active for some decisions before the next one is installed.
            let before = decided.load(Ordering::Relaxed);
            while decided.load(Ordering::Relaxed) < before + 20 {
                std::thread::yield_now();
            }
        }
        // Use up the limit, whatever the threads did during the changes.
        let mut here = 0;
        while poll_ready(limiter.decide(&facts(IP), 1)).is_allowed() {
            here += 1;
        }
        done.store(true, Ordering::Relaxed);
        here + threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
    });
    assert_eq!(admitted, 5_000);
}
