//! Metrics of a remote store, while it is healthy and while it is down.

use tidegate_testkit::redis::RedisServer as Redis;

use super::{RULES, fetch_metrics, sample_value, send_writes};
use crate::support::{ServerProcess, TestFolder, wait_for};

#[test]
fn store_metrics_cover_calls_and_outage() {
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--admin", "127.0.0.1:0", "--store", &redis.url(), "--store-deadline", "2s"];
    let server = ServerProcess::with_config(&rules, &args);
    send_writes(&server, 3);
    let metrics = fetch_metrics(&server);
    // One call per check, except for one that a cached refusal may have answered.
    assert!(sample_value(&metrics, "tidegate_store_batch_requests_count") >= 2.0, "{metrics}");
    assert!(sample_value(&metrics, "tidegate_store_round_trip_seconds_count") >= 2.0, "{metrics}");
    assert!(sample_value(&metrics, "tidegate_store_round_trip_seconds_sum") > 0.0, "{metrics}");
    assert_eq!(sample_value(&metrics, "tidegate_store_nodes"), 1.0);
    let open = breaker_state(&metrics, "open");
    assert_eq!((breaker_state(&metrics, "closed"), open), (1.0, 0.0));
    drop(redis);
    wait_for("the outage to be noticed", || {
        send_writes(&server, 1);
        (sample_value(&fetch_metrics(&server), "tidegate_store_up") == 0.0).then_some(())
    });
    // Until the cached refusals expire, the deny cache answers without asking the store.
    let metrics = wait_for("calls to fail at the open breaker", || {
        send_writes(&server, 1);
        let metrics = fetch_metrics(&server);
        let failed = r#"tidegate_store_errors_total{kind="breaker_open"}"#;
        (sample_value(&metrics, failed) >= 2.0).then_some(metrics)
    });
    assert_eq!((breaker_state(&metrics, "closed"), breaker_state(&metrics, "open")), (0.0, 1.0));
    let fallback = r#"tidegate_decisions_total{api="http",answered_by="fallback""#;
    let answered = ["allowed", "refused"]
        .map(|outcome| sample_value(&metrics, &format!("{fallback},outcome=\"{outcome}\"}}")));
    assert!(answered.iter().sum::<f64>() >= 2.0, "{metrics}");
}

/// 1 if the breaker of the only server is in this state, else 0.
#[track_caller]
fn breaker_state(page: &str, state: &str) -> f64 {
    let state = format!("state=\"{state}\"}}");
    let mut lines = page.lines().filter(|line| line.starts_with("tidegate_store_breaker{"));
    let line = lines.find(|line| line.contains(&state)).unwrap();
    sample_value(page, line.rsplit_once(' ').unwrap().0)
}
