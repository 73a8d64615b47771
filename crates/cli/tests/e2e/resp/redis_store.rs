//! The RESP listener with a real Redis as store: shared buckets, and an outage.

use tidegate_testkit::redis::RedisServer as Redis;

use super::run_redis_cli;
use crate::support::{HttpTestClient, ServerProcess, wait_for};
use crate::telemetry::{fetch_metrics, sample_value};

const THROTTLE_COMMAND: &str = "CL.THROTTLE shared 99 1 3600\r\n";

fn start_node(redis: &Redis) -> ServerProcess {
    ServerProcess::start(&[
        "--limit",
        "5/h by api_key",
        "--store",
        &redis.url(),
        "--store-deadline",
        "2s",
    ])
}

/// Sends a pipeline of `count` commands; returns how many were admitted.
fn count_admitted(node: &ServerProcess, count: usize) -> usize {
    let client = HttpTestClient::connect(&node.resp);
    let replies = client
        .send_and_read_to_end(format!("{}QUIT\r\n", THROTTLE_COMMAND.repeat(count)).as_bytes());
    assert_eq!(replies.matches("*5\r\n").count(), count, "{replies}");
    replies.matches("*5\r\n:0\r\n").count()
}

#[test]
fn nodes_sharing_redis_admit_exactly_the_bucket() {
    let redis = Redis::start();
    let nodes = [start_node(&redis), start_node(&redis)];
    let passed: usize = std::thread::scope(|scope| {
        let pipelines: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let node = &nodes[n % 2];
                    move || count_admitted(node, 40)
                })
            })
            .collect();
        pipelines.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100, "of 320");
    let keys = redis.command(&["KEYS", "tg::*"]);
    assert_eq!(keys.items().len(), 1, "one bucket, outside the namespace of rules");
    assert!(!keys.items()[0].text().contains("shared"), "the key's name is hashed");
    let peek = run_redis_cli(&nodes[0], &["CL.THROTTLE", "shared", "99", "1", "3600", "0"]);
    assert_eq!(peek.lines().take(4).collect::<Vec<_>>(), ["0", "100", "0", "-1"]);
}

#[test]
fn store_outage_fails_throttle_but_not_rules() {
    let redis = Redis::start();
    let server = ServerProcess::start(&["--limit", "5/h by api_key", "--store", &redis.url()]);
    let throttle = || run_redis_cli(&server, &["CL.THROTTLE", "k", "5", "1", "60"]);
    wait_for("the store", || throttle().starts_with('0').then_some(()));
    redis.process().kill();
    let reply =
        wait_for("the outage", || Some(throttle()).filter(|reply| reply.starts_with("TRYAGAIN")));
    assert_eq!(reply, "TRYAGAIN the store is unavailable");
    let check = run_redis_cli(&server, &["TIDEGATE.CHECK", "api_key", "k"]);
    assert!(
        check.starts_with("allowed\n1\n") && check.ends_with("answered_by\nfallback"),
        "{check}"
    );
    assert_eq!(run_redis_cli(&server, &["PING"]), "PONG");
    redis.restart();
    wait_for("the store again", || throttle().starts_with('0').then_some(()));
}

#[test]
fn pipelined_commands_share_store_calls() {
    let redis = Redis::start();
    let args = ["--store", &redis.url(), "--store-deadline", "2s", "--admin", "127.0.0.1:0"];
    let server = ServerProcess::start(&[&["--limit", "5/h by api_key"], &args[..]].concat());
    wait_for("the store", || (count_admitted(&server, 1) == 1).then_some(()));
    // Counted by the node, because at startup it sends other commands to Redis too.
    let calls = || sample_value(&fetch_metrics(&server), "tidegate_store_batch_requests_count");
    let before = calls();
    assert_eq!(count_admitted(&server, 90), 90);
    let used = calls() - before;
    assert!(used <= 20.0, "{used} calls for 90 commands");
}
