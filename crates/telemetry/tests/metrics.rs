//! Tests of the decision metrics and their history. The number of series must not grow with the
//! number of clients.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use serde_json::Value as Json;
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_limiter::{DecisionObserver, DecisionTimer, Limiter};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_telemetry::live_feed::{DecisionHistory, RULES_PER_STEP, STEPS};
use tidegate_telemetry::{
    DecisionMetrics, Exposition, IdentityPolicy, MetricsExporter as _, TopKeys, TopQuery,
    Visibility,
};

fn rules(source: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
}

fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision of the memory store is pending"),
    }
}

/// A limiter with metrics. By its clock, each decision takes 7 µs.
fn limiter(source: &str) -> (Limiter<MemoryStore>, Arc<DecisionMetrics>) {
    limiter_timing_one_in(source, 1)
}

fn limiter_timing_one_in(
    source: &str,
    one_in: u32,
) -> (Limiter<MemoryStore>, Arc<DecisionMetrics>) {
    let ticks = AtomicU64::new(0);
    let clock = move || Timestamp::from_micros(ticks.fetch_add(7, Ordering::Relaxed));
    let metrics = Arc::new(DecisionMetrics::new(one_in, Arc::new(clock)));
    let limiter = Limiter::new(MemoryStore::new(), rules(source))
        .with_observer(Arc::clone(&metrics) as Arc<dyn DecisionObserver>)
        .with_timer(Arc::clone(&metrics) as Arc<dyn DecisionTimer>);
    (limiter, metrics)
}

fn decide(limiter: &Limiter<MemoryStore>, ip: &str) {
    let facts: Facts<'_> = [("ip", ip), ("method", "GET"), ("path", "/a")].into_iter().collect();
    poll_ready(limiter.decide(&facts, 1));
}

fn render_metrics(metrics: &DecisionMetrics) -> String {
    let mut page = Exposition::new(false);
    metrics.export(&mut page);
    page.finish()
}

/// The samples whose value is not 0.
fn nonzero_samples(metrics: &DecisionMetrics) -> Vec<String> {
    let page = render_metrics(metrics);
    let samples = page.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    samples.map(str::to_owned).collect()
}

const WATCHED: &str = "rules:
  - { id: a, match: { endpoint: 'GET /a' }, key_by: ip, limit: 4/h using fixed_window }
  - { id: b, key_by: ip, limit: 1/h using fixed_window, mode: shadow }";

#[test]
fn decisions_count_by_rule_verdict_and_headroom() {
    let (limiter, metrics) = limiter(WATCHED);
    (0..5).for_each(|_| decide(&limiter, "192.0.2.1"));
    let verdicts = |rule: &str| {
        let name = format!("tidegate_rule_verdicts_total{{rule=\"{rule}\"");
        nonzero_samples(&metrics)
            .into_iter()
            .filter(|line| line.starts_with(&name))
            .collect::<Vec<_>>()
    };
    let line = |rule: &str, rest: &str| {
        format!("tidegate_rule_verdicts_total{{rule=\"{rule}\",endpoint={rest}")
    };
    assert_eq!(
        verdicts("a"),
        [
            line("a", "\"GET /a\",mode=\"enforce\",verdict=\"allow\"} 4"),
            line("a", "\"GET /a\",mode=\"enforce\",verdict=\"deny\"} 1"),
        ]
    );
    assert_eq!(
        verdicts("b"),
        [
            line("b", "\"*\",mode=\"shadow\",verdict=\"allow\"} 1"),
            line("b", "\"*\",mode=\"shadow\",verdict=\"shadow_deny\"} 4"),
        ]
    );
    let all = nonzero_samples(&metrics);
    for sample in [
        "tidegate_decisions_total{api=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 4",
        "tidegate_decisions_total{api=\"in_process\",answered_by=\"store\",outcome=\"refused\"} 1",
        // Remaining quota: 3/4, 2/4, 1/4, 0 and 0.
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.0\"} 2",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.25\"} 3",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.75\"} 5",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"+Inf\"} 5",
        "tidegate_rule_headroom_ratio_sum{rule=\"a\"} 1.5",
        "tidegate_rule_headroom_ratio_count{rule=\"a\"} 5",
    ] {
        assert!(all.iter().any(|line| line == sample), "missing {sample} in {all:#?}");
    }
}

#[test]
fn edited_rule_keeps_its_counters() {
    let (limiter, metrics) = limiter("rules: [{ id: a, key_by: ip, limit: 4/h }]");
    decide(&limiter, "192.0.2.1");
    let edited = "rules: [{ id: new, key_by: ip, limit: 9/h }, { id: a, key_by: ip, limit: 5/h }]";
    poll_ready(limiter.install(rules(edited))).unwrap();
    decide(&limiter, "192.0.2.1");
    let allowed: Vec<String> = nonzero_samples(&metrics)
        .into_iter()
        .filter(|line| line.contains("verdict=\"allow\""))
        .collect();
    let line = |rule: &str, count: u64| {
        let labels = format!("rule=\"{rule}\",endpoint=\"*\",mode=\"enforce\",verdict=\"allow\"");
        format!("tidegate_rule_verdicts_total{{{labels}}} {count}")
    };
    assert_eq!(allowed, [line("a", 2), line("new", 1)]);
}

#[test]
fn metrics_size_is_independent_of_clients() {
    let (limiter, metrics) = limiter(WATCHED);
    let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
    let top = Arc::new(TopKeys::new(identities, Arc::new(|| Timestamp::EPOCH)));
    let limiter = limiter.with_observer(Arc::clone(&top) as Arc<dyn DecisionObserver>);
    let names = || {
        let mut whole = Exposition::new(false);
        metrics.export(&mut whole);
        top.export(&mut whole);
        let whole = whole.finish();
        let name = |line: &str| line.rsplit_once(' ').map(|(name, _)| name.to_owned());
        whole.lines().filter_map(name).collect::<Vec<_>>()
    };
    decide(&limiter, "192.0.2.1");
    let before = names();
    for client in 0..1_000_000_u32 {
        decide(&limiter, &std::net::Ipv4Addr::from(client).to_string());
    }
    assert_eq!(names(), before);
    // 2 rules, 2 lists each, one generation.
    let all = TopQuery { kind: None, rule: None, limit: usize::MAX, visibility: Visibility::Clear };
    assert!(top.query(&all).len() <= 2 * 2 * 64);
    let counted = "tidegate_decisions_total{api=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 1000001";
    assert!(nonzero_samples(&metrics).iter().any(|line| line == counted));
}

#[test]
fn threads_lose_no_count() {
    let (limiter, metrics) =
        limiter("rules: [{ id: a, key_by: ip, limit: 1/h using fixed_window }]");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| (0..1_000).for_each(|_| decide(&limiter, "192.0.2.1")));
        }
    });
    let all = nonzero_samples(&metrics);
    for sample in [
        "tidegate_decisions_total{api=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 1",
        "tidegate_decisions_total{api=\"in_process\",answered_by=\"store\",outcome=\"refused\"} 11999",
    ] {
        assert!(all.iter().any(|line| line == sample), "missing {sample} in {all:#?}");
    }
}

#[test]
fn metrics_follow_installed_rules() {
    let (limiter, metrics) = limiter(WATCHED);
    let rule_counts = |metrics: &DecisionMetrics| {
        let rules = metrics.counts().rules.into_iter();
        rules.map(|rule| (rule.id, rule.endpoint, rule.mode, rule.verdicts.allow)).collect()
    };
    let rule =
        |id: &str, endpoint: &str, mode, allow| (id.to_owned(), endpoint.to_owned(), mode, allow);
    let before: Vec<_> = rule_counts(&metrics);
    assert_eq!(before, [rule("a", "GET /a", "enforce", 0), rule("b", "*", "shadow", 0)]);
    decide(&limiter, "192.0.2.1");
    let edited = "rules: [{ id: b, match: { endpoint: '/b/*' }, key_by: ip, limit: 9/h }]";
    poll_ready(limiter.install(rules(edited))).unwrap();
    let after: Vec<_> = rule_counts(&metrics);
    assert_eq!(after, [rule("b", "/b/*", "enforce", 1)], "rule a is removed, rule b is edited");
    assert!(!render_metrics(&metrics).contains("GET /a"), "the pattern of rule a is removed");
}

#[test]
fn request_counts_at_longest_endpoint_pattern() {
    let (limiter, metrics) = limiter(
        "rules:
  - { id: all, key_by: ip, limit: 5/h using fixed_window }
  - { id: a, match: { endpoint: '/a/*' }, key_by: ip, limit: 4/h using fixed_window }
  - { id: ab, match: { endpoint: 'GET /a/b' }, key_by: ip, limit: 1/h using fixed_window }",
    );
    for path in ["/a/b", "/a/b", "/a/c", "/d"] {
        let facts: Facts<'_> =
            [("ip", "192.0.2.1"), ("method", "GET"), ("path", path)].into_iter().collect();
        poll_ready(limiter.decide(&facts, 1));
    }
    let endpoints = metrics.counts().endpoints.into_iter();
    let endpoints: Vec<_> = endpoints.map(|one| (one.endpoint, one.allowed, one.refused)).collect();
    let count = |pattern: &str, allowed, refused| (pattern.to_owned(), allowed, refused);
    assert_eq!(endpoints, [count("GET /a/b", 1, 1), count("/a/*", 1, 0), count("*", 1, 0)]);
}

#[test]
fn decision_timing_honors_sample_rate() {
    let (limiter, metrics) = limiter(WATCHED);
    (0..5).for_each(|_| decide(&limiter, "192.0.2.1"));
    let durations = metrics.counts().duration_us;
    // 7 µs are in the second bucket, above 5 and up to 10.
    let summary = (durations.counts[0], durations.counts[1], durations.count(), durations.sum);
    assert_eq!(summary, (0, 5, 5, 35));
    let name = "tidegate_decision_duration_seconds";
    let page = render_metrics(&metrics);
    for sample in
        ["_bucket{le=\"0.00001\"} 5", "_bucket{le=\"0.1\"} 5", "_sum 0.000035", "_count 5"]
    {
        assert!(page.contains(&format!("{name}{sample}\n")), "missing {sample} in {page}");
    }
    // On a new thread, because this thread's countdown to the next timed decision has started.
    let (limiter, metrics) = limiter_timing_one_in(WATCHED, 16);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..160).for_each(|_| decide(&limiter, "192.0.2.1")));
    });
    assert_eq!(metrics.counts().duration_us.count(), 10);
}

#[test]
fn window_bound_is_exported_per_rule() {
    let (_, metrics) = limiter(
        "rules:
  - { id: bucket, key_by: ip, limit: 10/m burst 25 }
  - { id: counter, key_by: ip, limit: 10/m using sliding_window_counter }
  - { id: fixed, key_by: ip, limit: 10/m using fixed_window }
  - { id: log, key_by: ip, limit: 10/m using sliding_window_log }
  - { id: none, key_by: ip, limit: { requests: unlimited } }",
    );
    let rules = metrics.counts().rules.into_iter();
    let bounds: Vec<_> = rules.map(|rule| rule.max_in_window).collect();
    assert_eq!(bounds, [Some(35), Some(20), Some(20), Some(10), None]);
}

#[test]
fn metrics_snapshot_serializes_to_json() {
    let (limiter, metrics) = limiter(WATCHED);
    decide(&limiter, "192.0.2.1");
    let snapshot = serde_json::to_value(metrics.counts()).unwrap();
    assert_eq!(snapshot["rules"][0]["verdicts"]["allow"], 1);
    assert_eq!(snapshot["duration_us"]["bounds"][0], 5);
    let decisions = snapshot["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 72);
}

/// A history with its first sample, and its clock, which starts at 100 s.
fn history(metrics: &Arc<DecisionMetrics>) -> (DecisionHistory, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(100_000_000));
    let read = clock.clone();
    let history = DecisionHistory::new(Arc::clone(metrics), Arc::new(move || read.now()));
    history.sample();
    (history, clock)
}

fn steps(history: &DecisionHistory) -> Vec<Json> {
    history.steps()["steps"].as_array().unwrap().clone()
}

#[test]
fn history_keeps_two_minutes_of_deltas() {
    let (limiter, metrics) = limiter(WATCHED);
    let (history, clock) = history(&metrics);
    assert_eq!(steps(&history), [Json::Null; 0]);
    for second in 0..STEPS + 10 {
        (0..second % 3).for_each(|_| decide(&limiter, "192.0.2.1"));
        clock.advance(Micros::from_secs(1));
        history.sample();
    }
    let steps = steps(&history);
    assert_eq!(steps.len(), STEPS);
    let (first, last) = (&steps[0], &steps[STEPS - 1]);
    let at = |second: u64| Json::from((100 + second) * 1_000_000);
    assert_eq!((&first["at_us"], &last["at_us"]), (&at(11), &at(STEPS as u64 + 10)));
    assert_eq!(last["span_us"], 1_000_000);
    // Second 129 has no decisions. Second 128 has two, refused by rule `a` and reported by rule
    // `b`.
    assert_eq!(
        (&last["allowed"], &last["refused"], &last["rules"]),
        (&0.into(), &0.into(), &Json::Array(vec![]))
    );
    let before = &steps[STEPS - 2];
    assert_eq!((&before["allowed"], &before["refused"]), (&0.into(), &2.into()));
    assert_eq!(
        (&before["verdicts"]["deny"], &before["verdicts"]["shadow_deny"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        (&before["rules"][0]["id"], &before["rules"][0]["verdicts"]["deny"]),
        (&"a".into(), &2.into())
    );
    assert_eq!(before["rules"][0]["headroom"][0], 2);
    let durations = before["durations"].as_array().unwrap();
    assert_eq!(
        durations.len(),
        history.steps()["duration_bounds_us"].as_array().unwrap().len() + 1
    );
    assert_eq!(durations.iter().filter_map(Json::as_u64).sum::<u64>(), 2, "each one is timed");
}

#[test]
fn history_step_names_only_busiest_rules() {
    let rules: String = (0..RULES_PER_STEP + 6)
        .map(|rule| {
            format!("  - {{ id: r{rule}, match: {{ path: /a }}, key_by: ip, limit: 5/h }}\n")
        })
        .collect();
    let (limiter, metrics) =
        limiter(&format!("rules:\n{rules}  - {{ id: z-busy, key_by: ip, limit: 5/h }}\n"));
    let (history, clock) = history(&metrics);
    decide(&limiter, "192.0.2.1");
    let other: Facts<'_> = [("ip", "192.0.2.1"), ("path", "/b")].into_iter().collect();
    poll_ready(limiter.decide(&other, 1));
    clock.advance(Micros::from_secs(1));
    history.sample();
    let steps = steps(&history);
    assert_eq!(steps[0]["rules"].as_array().unwrap().len(), RULES_PER_STEP);
    assert_eq!(steps[0]["rules"][0]["id"], "z-busy", "the busiest rule comes first");
    assert_eq!(steps[0]["verdicts"]["allow"], RULES_PER_STEP + 6 + 2, "totals include all rules");
}

#[test]
fn history_skips_step_on_clock_rollback() {
    let (limiter, metrics) = limiter(WATCHED);
    let (history, clock) = history(&metrics);
    decide(&limiter, "192.0.2.1");
    clock.set(Timestamp::from_micros(50_000_000));
    history.sample();
    assert!(steps(&history).is_empty());
    decide(&limiter, "192.0.2.1");
    clock.advance(Micros::from_secs(2));
    history.sample();
    let steps = steps(&history);
    assert_eq!(
        (steps.len(), &steps[0]["span_us"], &steps[0]["allowed"]),
        (1, &2_000_000.into(), &1.into())
    );
}

#[test]
fn disabled_rule_counts_as_inactive() {
    let rules = "rules: [{ id: off, key_by: ip, limit: 5/h, is_active: false }, { id: on, key_by: ip, limit: 5/h }]";
    let (_limiter, metrics) = limiter(rules);
    let active: Vec<_> =
        metrics.counts().rules.into_iter().map(|rule| (rule.id, rule.is_active)).collect();
    assert_eq!(active, [("off".to_owned(), false), ("on".to_owned(), true)]);
}
