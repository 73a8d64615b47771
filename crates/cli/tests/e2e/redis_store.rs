//! Counters in Redis, as a fleet of real processes has them: exact, and never the outage.

use std::thread;

use serde_json::{Value, json};
use tidegate_testkit::redis::{RedisCluster, RedisServer as Redis};

use crate::support::{
    HttpTestClient, ServerProcess, TestFolder, run_tidegate, utf8_text, wait_for,
};

const NODES: usize = 4;
const CONNECTIONS: usize = 200;
const ATTEMPTS: usize = 3;
const LIMIT: usize = 1_000;

/// Nothing comes back within the test: a bucket takes nine hours for a request, a log keeps an hour.
const RULES: &str = "
rules:
  - { id: bucket, match: { path: /bucket }, key_by: api_key, limit: { requests: 1000, window: 365d } }
  - id: log
    match: { path: /log }
    key_by: api_key
    limit: { requests: 1000, window: 1h, algorithm: sliding_window_log }
  - { id: user, match: { path: /both }, key_by: api_key, limit: { requests: 1000, window: 365d } }
  - { id: address, match: { path: /both }, key_by: ip, limit: { requests: 1000, window: 365d } }
";

/// Nodes on one store, with time for a busy machine.
fn start_fleet(folder: &TestFolder, store: &str) -> Vec<ServerProcess> {
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--store", store, "--store-deadline", "2s"];
    (0..NODES).map(|_| ServerProcess::with_config(&rules, &args)).collect()
}

/// All connections of all nodes ask at once; how many are admitted.
fn count_admitted(fleet: &[ServerProcess], path: &str) -> usize {
    let facts = json!({ "api_key": "somebody", "ip": "203.0.113.7", "path": path });
    thread::scope(|scope| {
        let connections = fleet.iter().flat_map(|node| (0..CONNECTIONS).map(move |_| node));
        let asking: Vec<_> = connections
            .map(|node| {
                let (mut client, facts) = (node.client(), facts.clone());
                let small = thread::Builder::new().stack_size(128 * 1024);
                let ask = move || {
                    let answers = (0..ATTEMPTS).map(|_| client.check(&facts));
                    answers.filter(|answer| admitted_by_store(&answer.body)).count()
                };
                small.spawn_scoped(scope, ask).unwrap()
            })
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).sum()
    })
}

/// Whether a request was admitted; it must be the store, or what it said, that decides.
fn admitted_by_store(body: &Value) -> bool {
    let by = body["answered_by"].as_str().unwrap();
    assert!(matches!(by, "store" | "deny_cache"), "{body}");
    body["allowed"].as_bool().unwrap()
}

#[test]
fn nodes_sharing_redis_admit_exactly_the_limit() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let fleet = start_fleet(&folder, &redis.url());
    assert_eq!(count_admitted(&fleet, "/bucket"), LIMIT);
    assert_eq!(count_admitted(&fleet, "/log"), LIMIT);
    assert_eq!(count_admitted(&fleet, "/both"), LIMIT);
}

#[test]
fn nodes_sharing_cluster_never_exceed_the_limit() {
    let (cluster, folder) = (RedisCluster::start(), TestFolder::new());
    let seeds = cluster.urls().join(",").replace("redis://", "");
    let fleet = start_fleet(&folder, &format!("redis+cluster://{seeds}"));
    assert_eq!(count_admitted(&fleet, "/bucket"), LIMIT);
    let both = count_admitted(&fleet, "/both");
    assert!((1..=LIMIT).contains(&both), "{both}");
}

#[test]
fn outage_uses_on_fail_until_recovery() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let rules = folder.write(
        "rules.yaml",
        "rules:
           - { id: open, match: { path: /open }, key_by: ip, limit: 1000/h, on_fail: allow }
           - { id: shut, match: { path: /shut }, key_by: ip, limit: 1000/h, on_fail: deny }
           - { id: near, match: { path: /near }, key_by: ip, limit: 3/h, on_fail: local }",
    );
    let server = ServerProcess::with_config(&rules, &["--store", &redis.url()]);
    let mut client = server.client();
    let mut ask = |path: &str| client.check(&json!({ "ip": "203.0.113.7", "path": path })).body;
    wait_for("the store to answer", || (ask("/open")["answered_by"] == "store").then_some(()));
    wait_for("it to know of us", || (ask("/near")["answered_by"] == "store").then_some(()));
    redis.process().kill();
    wait_for("the outage", || (ask("/open")["answered_by"] == "fallback").then_some(()));
    server.wait_for_log("the store does not answer");
    let mut probe = server.client();
    let ready = wait_for("degraded", || {
        let ready = probe.get("/readyz");
        (ready.body["status"] == "degraded").then_some(ready)
    });
    assert_eq!(ready.status, 200, "it goes on answering");
    assert!(ready.body["store_error"].as_str().is_some_and(|why| !why.is_empty()));
    for _ in 0..50 {
        assert_eq!(ask("/open")["allowed"], true);
        assert_eq!(ask("/shut")["allowed"], false);
    }
    let near = (0..10).filter(|_| ask("/near")["allowed"] == true).count();
    assert!(near <= 2, "a warm share of three, of which one was used: {near}");
    redis.restart();
    wait_for("the store again", || (ask("/open")["answered_by"] == "store").then_some(()));
    server.wait_for_log("the store answers again");
    wait_for("ready", || (probe.get("/readyz").body["status"] == "ready").then_some(()));
    let told = |words: &str| server.log().matches(words).count();
    assert_eq!(told("the store does not answer"), 1, "{}", server.log());
    assert_eq!(told("the store answers again"), 1, "{}", server.log());
    server.stop();
}

#[test]
fn server_starts_without_store_and_recovers() {
    let redis = Redis::start();
    redis.process().kill();
    let server = ServerProcess::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    let mut client = server.client();
    let answer = client.check(&json!({ "ip": "203.0.113.7" }));
    assert_eq!((answer.status, &answer.body["answered_by"]), (200, &json!("fallback")));
    assert_eq!(client.get("/readyz").body["status"], "degraded");
    redis.restart();
    wait_for("the store", || {
        let answer = client.check(&json!({ "ip": "203.0.113.7" }));
        (answer.body["answered_by"] == "store").then_some(())
    });
}

#[test]
fn store_misconfiguration_is_logged_at_startup() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = ServerProcess::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    server.wait_for_log("its eviction policy is allkeys-lru");
    server.wait_for_log("no --key-secret-file is set");
}

#[test]
fn doctor_reports_store_problems_with_advice() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef");
    let secret = secret.to_str().unwrap();
    let doctor = |url: &str, more: &[&str]| {
        // The deadline is one that a busy machine keeps: the doctor warns of slow decisions.
        let args = ["doctor", "--store", url, "--store-deadline", "2s"];
        let output = run_tidegate(&[&args[..], more].concat());
        (
            output.status.code(),
            format!("{}{}", utf8_text(&output.stdout), utf8_text(&output.stderr)),
        )
    };
    let seconds = redis.command(&["TIME"]).items()[0].text();
    redis.command(&["ZADD", "tg:nodes", &format!("{seconds}000000"), "somebody"]);
    let (code, told) = doctor(&redis.url(), &["--key-secret-file", secret]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(redis.command(&["ZCARD", "tg:nodes"]).integer(), 1, "a node that lives is kept");
    for words in [
        "Redis ",
        "round trip  p50 ",
        "decision    p50 ",
        "noeviction",
        "usable, nothing needs to be changed",
    ] {
        assert!(told.contains(words), "{words} in {told}");
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let (code, told) = doctor(&redis.url(), &["--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["usable"]), (Some(0), &json!(true)), "{told}");
    assert_eq!((&told["errors"], &told["warnings"]), (&json!(0), &json!(2)), "{told}");
    let advice: Vec<&str> =
        told["findings"].as_array().unwrap().iter().filter_map(|f| f["advice"].as_str()).collect();
    assert!(advice.iter().any(|advice| advice.contains("maxmemory-policy noeviction")));
    assert!(advice.iter().any(|advice| advice.contains("head -c 32 /dev/urandom")));
    redis.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~tg:*", "+get", "+ping"]);
    let weak = redis.url().replace("redis://", "redis://weak:pw@");
    let (code, told) = doctor(&weak, &[]);
    assert_eq!(code, Some(1));
    assert!(told.contains("\nnot usable, "), "{told}");
    assert!(told.contains("ACL SETUSER NAME on >PASSWORD ~tg:*"), "{told}");
    let (code, told) = doctor("redis://127.0.0.1:1", &[]);
    assert_eq!(code, Some(1));
    assert!(told.contains("Connection refused") && told.contains("correct --store"), "{told}");
    let (code, told) = doctor("memory", &[]);
    assert_eq!(code, Some(2));
    assert!(told.contains("embedded memory, which needs no doctor"), "{told}");
}

#[test]
fn doctor_detects_replica_and_cluster() {
    let (primary, cluster) = (Redis::start(), RedisCluster::start());
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let told = |url: &str| utf8_text(&run_tidegate(&["doctor", "--store", url]).stdout);
    let replica = told(&replica.url());
    assert!(replica.contains("it is a replica") && replica.contains(&port), "{replica}");
    let node = &cluster.urls()[0];
    let alone = told(node);
    assert!(alone.contains("write --store redis+cluster://127.0.0.1:"), "{alone}");
    let whole = told(&node.replace("redis://", "redis+cluster://"));
    assert_eq!(whole.matches("decision    p50").count(), 3, "{whole}");
}

#[test]
fn hanging_store_does_not_block_clients() {
    let redis = Redis::start();
    let server = ServerProcess::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    let mut client: HttpTestClient = server.client();
    let ask = |client: &mut HttpTestClient| client.check(&json!({ "ip": "203.0.113.7" })).body;
    wait_for("the store", || (ask(&mut client)["answered_by"] == "store").then_some(()));
    redis.process().pause();
    for _ in 0..20 {
        assert_eq!(ask(&mut client)["answered_by"], "fallback");
    }
    redis.process().resume();
    wait_for("the store", || (ask(&mut client)["answered_by"] != "fallback").then_some(()));
}
