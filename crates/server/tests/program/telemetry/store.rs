//! What is told of a store that is elsewhere: well, and gone.

use tidegate_testkit::redis::Server as Redis;

use super::{RULES, page, sample, traffic};
use crate::support::{Folder, Server, wait_for};

#[test]
fn calls_batches_and_nodes_are_told_and_a_store_that_is_gone_by_kind() {
    let (folder, redis) = (Folder::new(), Redis::start());
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--admin", "127.0.0.1:0", "--store", &redis.url(), "--store-deadline", "2s"];
    let server = Server::with_config(&rules, &args);
    traffic(&server, 3);
    let told = page(&server);
    // One call for each of three checks, but for the one that a remembered refusal may have answered.
    assert!(sample(&told, "tidegate_store_batch_requests_count") >= 2.0, "{told}");
    assert!(sample(&told, "tidegate_store_round_trip_seconds_count") >= 2.0, "{told}");
    assert!(sample(&told, "tidegate_store_round_trip_seconds_sum") > 0.0, "{told}");
    assert_eq!(sample(&told, "tidegate_store_nodes"), 1.0);
    let open = breaker(&told, "open");
    assert_eq!((breaker(&told, "closed"), open), (1.0, 0.0));
    drop(redis);
    wait_for("the loss to be noticed", || {
        traffic(&server, 1);
        (sample(&page(&server), "tidegate_store_up") == 0.0).then_some(())
    });
    traffic(&server, 2);
    let told = page(&server);
    assert_eq!((breaker(&told, "closed"), breaker(&told, "open")), (0.0, 1.0));
    assert!(sample(&told, r#"tidegate_store_errors_total{kind="breaker_open"}"#) >= 2.0, "{told}");
    let fallback = r#"tidegate_decisions_total{door="http",answered_by="fallback""#;
    let answered = ["allowed", "refused"]
        .map(|outcome| sample(&told, &format!("{fallback},outcome=\"{outcome}\"}}")));
    assert!(answered.iter().sum::<f64>() >= 2.0, "{told}");
}

/// Whether the breaker of the one server is in a state.
#[track_caller]
fn breaker(page: &str, state: &str) -> f64 {
    let state = format!("state=\"{state}\"}}");
    let mut lines = page.lines().filter(|line| line.starts_with("tidegate_store_breaker{"));
    let line = lines.find(|line| line.contains(&state)).unwrap();
    sample(page, line.rsplit_once(' ').unwrap().0)
}
