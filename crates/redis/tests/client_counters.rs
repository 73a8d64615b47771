//! The counters of one client on Redis: listed as in the memory store, and reset.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

mod common;

use common::{RedisFixture, START};
use tidegate_core::decision::Reading;
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{ManualClock, Micros};
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_testkit::redis::RedisServer;

/// A rule for each algorithm, with conditions that do not depend on the client's address.
const RULES: &str = r#"
rules:
  - { id: bucket, match: { path: /a }, key_by: ip, limit: 9/h }
  - { id: window, match: { path: /a }, key_by: ip, limit: 9/h using fixed_window }
  - { id: log, match: { path: /a }, key_by: ip, limit: 9/h using sliding_window_log }
  - { id: counter, match: { path: /a }, key_by: ip, limit: 9/h using sliding_window_counter }
  - { id: leaky, match: { path: /a }, key_by: ip, limit: 9/h using leaky_bucket }
  - { id: slots, match: { path: /a }, key_by: ip, limit: { concurrent: 9 } }
  - { id: each, match: { endpoint: "GET /a" }, key_by: "ip:endpoint", limit: 9/h }
  - id: warned
    match: { path: /a }
    key_by: ip
    limit: 2/h
    mode: warn
    warn: { allow: 2, period: 1h }
    ban: { after: 1, within: 1m, for: 5m }
"#;

fn rules() -> RuleSet {
    let document = Document::parse("rules.yaml", RULES).expect("a document");
    RuleSet::compile(&document, Secret::UNSET).expect("rules")
}

type CounterList = Vec<(String, Reading)>;

async fn list_counters<S: Store>(limiter: &Limiter<S>) -> CounterList {
    let client: Facts<'_> = [("ip", "203.0.113.7")].into_iter().collect();
    let counters = limiter.counters(&client, None).await;
    counters.iter().map(|(rule, _, reply)| (rule.id().to_owned(), *reply)).collect()
}

/// Uses the client's counters up to a ban, then lists, resets and lists them.
async fn list_before_and_after_reset<S: Store>(
    limiter: Limiter<S>,
    clock: ManualClock,
) -> [CounterList; 2] {
    let request = [("ip", "203.0.113.7"), ("method", "GET"), ("path", "/a")];
    for _ in 0..6 {
        limiter.decide(&request.into_iter().collect(), 1).await;
    }
    clock.advance(Micros::from_secs(60));
    let used = list_counters(&limiter).await;
    limiter.reset(&[("ip", "203.0.113.7")].into_iter().collect(), None).await;
    [used, list_counters(&limiter).await]
}

#[test]
fn client_counters_match_memory_store() {
    let server = RedisServer::start();
    let RedisFixture { store, clock, runtime } = RedisFixture::with_test_clock(&server.url());
    let on_redis =
        runtime.block_on(list_before_and_after_reset(Limiter::new(store, rules()), clock));
    let clock = ManualClock::new(START);
    let memory = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
    let on_memory =
        runtime.block_on(list_before_and_after_reset(Limiter::new(memory, rules()), clock));
    assert_eq!(on_redis, on_memory);
    let [used, reset] = on_redis;
    let used_up: Vec<_> = used.iter().map(|(id, reply)| (id.as_str(), reply.remaining)).collect();
    assert_eq!(used_up.len(), 8, "{used_up:?}");
    assert_eq!((used[7].1.warnings, used[7].1.remaining), (2, 0));
    assert_eq!(used[7].1.verdict.name(), "ban");
    assert!(reset.iter().all(|(_, reply)| reply.remaining == reply.limit && reply.warnings == 0));
    assert_eq!(reset.len(), 7, "an unused counter of an assumed endpoint is not listed");
}
