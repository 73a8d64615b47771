//! What is counted of decisions, and that it does not grow with clients.

#![expect(clippy::unwrap_used, reason = "what a test did not expect fails it")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_control::{Exports as _, Exposition, Metrics};
use tidegate_core::key::Secret;
use tidegate_core::time::Timestamp;
use tidegate_engine::{Limiter, Observer};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, RuleSet};

fn rules(source: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
}

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision on memory waits for nothing"),
    }
}

fn limiter(source: &str) -> (Limiter<MemoryStore>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(1, Arc::new(|| Timestamp::EPOCH)));
    let limiter = Limiter::new(MemoryStore::new(), rules(source));
    (limiter.observed_by(Arc::clone(&metrics) as Arc<dyn Observer>), metrics)
}

fn decide(limiter: &Limiter<MemoryStore>, ip: &str) {
    let facts: Facts<'_> = [("ip", ip), ("method", "GET"), ("path", "/a")].into_iter().collect();
    ready(limiter.decide(&facts, 1));
}

fn page(metrics: &Metrics) -> String {
    let mut page = Exposition::new(false);
    metrics.export(&mut page);
    page.finish()
}

/// The samples whose value is not 0.
fn told(metrics: &Metrics) -> Vec<String> {
    let page = page(metrics);
    let samples = page.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    samples.map(str::to_owned).collect()
}

const WATCHED: &str = "rules:
  - { id: a, match: { endpoint: 'GET /a' }, key_by: ip, limit: 4/h using fixed_window }
  - { id: b, key_by: ip, limit: 1/h using fixed_window, mode: shadow }";

#[test]
fn decisions_are_counted_by_rule_verdict_and_headroom() {
    let (limiter, metrics) = limiter(WATCHED);
    (0..5).for_each(|_| decide(&limiter, "192.0.2.1"));
    let verdicts = |rule: &str| {
        let name = format!("tidegate_rule_verdicts_total{{rule=\"{rule}\"");
        told(&metrics).into_iter().filter(|line| line.starts_with(&name)).collect::<Vec<_>>()
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
    let all = told(&metrics);
    for sample in [
        "tidegate_decisions_total{door=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 4",
        "tidegate_decisions_total{door=\"in_process\",answered_by=\"store\",outcome=\"refused\"} 1",
        // 3/4, 2/4, 1/4, 0 and 0 left.
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.0\"} 2",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.25\"} 3",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"0.75\"} 5",
        "tidegate_rule_headroom_ratio_bucket{rule=\"a\",le=\"+Inf\"} 5",
        "tidegate_rule_headroom_ratio_sum{rule=\"a\"} 1.5",
        "tidegate_rule_headroom_ratio_count{rule=\"a\"} 5",
    ] {
        assert!(all.iter().any(|line| line == sample), "{sample} is not in {all:#?}");
    }
}

#[test]
fn a_rule_that_keeps_its_id_goes_on_with_its_counters() {
    let (limiter, metrics) = limiter("rules: [{ id: a, key_by: ip, limit: 4/h }]");
    decide(&limiter, "192.0.2.1");
    let edited = "rules: [{ id: new, key_by: ip, limit: 9/h }, { id: a, key_by: ip, limit: 5/h }]";
    ready(limiter.install(rules(edited))).unwrap();
    decide(&limiter, "192.0.2.1");
    let allowed: Vec<String> =
        told(&metrics).into_iter().filter(|line| line.contains("verdict=\"allow\"")).collect();
    let line = |rule: &str, count: u64| {
        let labels = format!("rule=\"{rule}\",endpoint=\"*\",mode=\"enforce\",verdict=\"allow\"");
        format!("tidegate_rule_verdicts_total{{{labels}}} {count}")
    };
    assert_eq!(allowed, [line("a", 2), line("new", 1)]);
}

#[test]
fn a_million_clients_leave_the_page_as_long_as_it_was() {
    let (limiter, metrics) = limiter(WATCHED);
    decide(&limiter, "192.0.2.1");
    let lines = page(&metrics).lines().count();
    for client in 0..1_000_000_u32 {
        decide(&limiter, &std::net::Ipv4Addr::from(client).to_string());
    }
    assert_eq!(page(&metrics).lines().count(), lines);
    let counted = "tidegate_decisions_total{door=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 1000001";
    assert!(told(&metrics).iter().any(|line| line == counted));
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
    let all = told(&metrics);
    for sample in [
        "tidegate_decisions_total{door=\"in_process\",answered_by=\"store\",outcome=\"allowed\"} 1",
        "tidegate_decisions_total{door=\"in_process\",answered_by=\"store\",outcome=\"refused\"} 11999",
    ] {
        assert!(all.iter().any(|line| line == sample), "{sample} is not in {all:#?}");
    }
}
