//! What is told of a store that is elsewhere: well, and gone.

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
    let told = fetch_metrics(&server);
    // One call for each of three checks, but for the one that a remembered refusal may have answered.
    assert!(sample_value(&told, "tidegate_store_batch_requests_count") >= 2.0, "{told}");
    assert!(sample_value(&told, "tidegate_store_round_trip_seconds_count") >= 2.0, "{told}");
    assert!(sample_value(&told, "tidegate_store_round_trip_seconds_sum") > 0.0, "{told}");
    assert_eq!(sample_value(&told, "tidegate_store_nodes"), 1.0);
    let open = breaker_state(&told, "open");
    assert_eq!((breaker_state(&told, "closed"), open), (1.0, 0.0));
    drop(redis);
    wait_for("the loss to be noticed", || {
        send_writes(&server, 1);
        (sample_value(&fetch_metrics(&server), "tidegate_store_up") == 0.0).then_some(())
    });
    send_writes(&server, 2);
    let told = fetch_metrics(&server);
    assert_eq!((breaker_state(&told, "closed"), breaker_state(&told, "open")), (0.0, 1.0));
    assert!(
        sample_value(&told, r#"tidegate_store_errors_total{kind="breaker_open"}"#) >= 2.0,
        "{told}"
    );
    let fallback = r#"tidegate_decisions_total{door="http",answered_by="fallback""#;
    let answered = ["allowed", "refused"]
        .map(|outcome| sample_value(&told, &format!("{fallback},outcome=\"{outcome}\"}}")));
    assert!(answered.iter().sum::<f64>() >= 2.0, "{told}");
}

/// Whether the breaker of the one server is in a state.
#[track_caller]
fn breaker_state(page: &str, state: &str) -> f64 {
    let state = format!("state=\"{state}\"}}");
    let mut lines = page.lines().filter(|line| line.starts_with("tidegate_store_breaker{"));
    let line = lines.find(|line| line.contains(&state)).unwrap();
    sample_value(page, line.rsplit_once(' ').unwrap().0)
}
