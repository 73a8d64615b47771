//! Counters in Redis, shared by a fleet of real processes: limits are exact, and an outage of the
//! store does not stop decisions.

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

/// No quota is restored within the test: the bucket refills one request in nine hours, and the log
/// covers an hour.
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

/// Nodes that share a store, with a deadline for a busy machine.
fn start_fleet(folder: &TestFolder, store: &str) -> Vec<ServerProcess> {
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--store", store, "--store-deadline", "2s"];
    (0..NODES).map(|_| ServerProcess::with_config(&rules, &args)).collect()
}

/// Sends requests on all connections of all nodes at once; returns how many were admitted.
fn count_admitted(fleet: &[ServerProcess], path: &str) -> usize {
    let facts = json!({ "api_key": "somebody", "ip": "203.0.113.7", "path": path });
    thread::scope(|scope| {
        let connections = fleet.iter().flat_map(|node| (0..CONNECTIONS).map(move |_| node));
        let workers: Vec<_> = connections
            .map(|node| {
                let (mut client, facts) = (node.client(), facts.clone());
                let small = thread::Builder::new().stack_size(128 * 1024);
                let send = move || {
                    let responses = (0..ATTEMPTS).map(|_| client.check(&facts));
                    responses.filter(|response| admitted_by_store(&response.body)).count()
                };
                small.spawn_scoped(scope, send).unwrap()
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

/// Whether the request was admitted. Fails unless the store, or a cached refusal of it, decided.
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
fn number_of_nodes_is_logged_when_it_changes() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let rules = folder.write("rules.yaml", RULES);
    let start = || ServerProcess::with_config(&rules, &["--store", &redis.url()]);
    let first = start();
    let second = start();
    first.wait_for_log("a node sharing the store joined");
    second.stop();
    first.wait_for_log("a node sharing the store left");
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
    let mut check = |path: &str| client.check(&json!({ "ip": "203.0.113.7", "path": path })).body;
    wait_for("the store to answer", || (check("/open")["answered_by"] == "store").then_some(()));
    wait_for("the store for /near", || (check("/near")["answered_by"] == "store").then_some(()));
    redis.process().kill();
    wait_for("the outage", || (check("/open")["answered_by"] == "fallback").then_some(()));
    server.wait_for_log("the store does not answer");
    let mut probe = server.client();
    let ready = wait_for("degraded", || {
        let ready = probe.get("/readyz");
        (ready.body["status"] == "degraded").then_some(ready)
    });
    assert_eq!(ready.status, 200, "a degraded node still answers");
    assert!(ready.body["store_error"].as_str().is_some_and(|error| !error.is_empty()));
    for _ in 0..50 {
        assert_eq!(check("/open")["allowed"], true);
        assert_eq!(check("/shut")["allowed"], false);
    }
    let near = (0..10).filter(|_| check("/near")["allowed"] == true).count();
    assert!(near <= 2, "the fallback share of three, of which one was used: {near}");
    redis.restart();
    wait_for("the store again", || (check("/open")["answered_by"] == "store").then_some(()));
    server.wait_for_log("the store answers again");
    wait_for("ready", || (probe.get("/readyz").body["status"] == "ready").then_some(()));
    let count_logged = |words: &str| server.log().matches(words).count();
    assert_eq!(count_logged("the store does not answer"), 1, "{}", server.log());
    assert_eq!(count_logged("the store answers again"), 1, "{}", server.log());
    server.stop();
}

#[test]
fn server_starts_without_store_and_recovers() {
    let redis = Redis::start();
    redis.process().kill();
    let server = ServerProcess::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    let mut client = server.client();
    let response = client.check(&json!({ "ip": "203.0.113.7" }));
    assert_eq!((response.status, &response.body["answered_by"]), (200, &json!("fallback")));
    assert_eq!(client.get("/readyz").body["status"], "degraded");
    redis.restart();
    wait_for("the store", || {
        let response = client.check(&json!({ "ip": "203.0.113.7" }));
        (response.body["answered_by"] == "store").then_some(())
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
        // A deadline that a busy machine can meet: the doctor warns of slow decisions.
        let args = ["doctor", "--store", url, "--store-deadline", "2s"];
        let output = run_tidegate(&[&args[..], more].concat());
        (
            output.status.code(),
            format!("{}{}", utf8_text(&output.stdout), utf8_text(&output.stderr)),
        )
    };
    let seconds = redis.command(&["TIME"]).items()[0].text();
    redis.command(&["ZADD", "tg:nodes", &format!("{seconds}000000"), "somebody"]);
    let (code, report) = doctor(&redis.url(), &["--key-secret-file", secret]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(redis.command(&["ZCARD", "tg:nodes"]).integer(), 1, "a live node is kept");
    for words in [
        "Redis ",
        "round trip  p50 ",
        "decision    p50 ",
        "noeviction",
        "usable, nothing needs to be changed",
    ] {
        assert!(report.contains(words), "{words} in {report}");
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let (code, report) = doctor(&redis.url(), &["--json"]);
    let json: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((code, &json["usable"]), (Some(0), &json!(true)), "{json}");
    assert_eq!((&json["errors"], &json["warnings"]), (&json!(0), &json!(2)), "{json}");
    let advice: Vec<&str> =
        json["findings"].as_array().unwrap().iter().filter_map(|f| f["advice"].as_str()).collect();
    assert!(advice.iter().any(|advice| advice.contains("maxmemory-policy noeviction")));
    assert!(advice.iter().any(|advice| advice.contains("head -c 32 /dev/urandom")));
    redis.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~tg:*", "+get", "+ping"]);
    let weak = redis.url().replace("redis://", "redis://weak:pw@");
    let (code, report) = doctor(&weak, &[]);
    assert_eq!(code, Some(1));
    assert!(report.contains("\nnot usable, "), "{report}");
    assert!(report.contains("ACL SETUSER NAME on >PASSWORD ~tg:*"), "{report}");
    let (code, report) = doctor("redis://127.0.0.1:1", &[]);
    assert_eq!(code, Some(1));
    assert!(
        report.contains("Connection refused") && report.contains("correct --store"),
        "{report}"
    );
    let (code, report) = doctor("memory", &[]);
    assert_eq!(code, Some(2));
    assert!(report.contains("doctor checks only Redis and Valkey"), "{report}");
}

#[test]
fn doctor_detects_replica_and_cluster() {
    let (primary, cluster) = (Redis::start(), RedisCluster::start());
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let run_doctor = |url: &str| utf8_text(&run_tidegate(&["doctor", "--store", url]).stdout);
    let replica = run_doctor(&replica.url());
    assert!(replica.contains("it is a replica") && replica.contains(&port), "{replica}");
    let node = &cluster.urls()[0];
    let alone = run_doctor(node);
    assert!(alone.contains("write --store redis+cluster://127.0.0.1:"), "{alone}");
    let whole = run_doctor(&node.replace("redis://", "redis+cluster://"));
    assert_eq!(whole.matches("decision    p50").count(), 3, "{whole}");
}

#[test]
fn hanging_store_does_not_block_clients() {
    let redis = Redis::start();
    let server = ServerProcess::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    let mut client: HttpTestClient = server.client();
    let check = |client: &mut HttpTestClient| client.check(&json!({ "ip": "203.0.113.7" })).body;
    wait_for("the store", || (check(&mut client)["answered_by"] == "store").then_some(()));
    redis.process().pause();
    for _ in 0..20 {
        assert_eq!(check(&mut client)["answered_by"], "fallback");
    }
    redis.process().resume();
    wait_for("the store", || (check(&mut client)["answered_by"] != "fallback").then_some(()));
}

#[test]
fn async_rule_with_too_many_nodes_is_reported() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let rules = "rules: [{ id: small, key_by: ip, limit: 2/h, consistency: async }]\n";
    let rules = folder.write("rules.yaml", rules);
    let url = redis.url();
    let args = ["--store", &url, "--store-deadline", "2s", "--admin", "127.0.0.1:0"];
    let start = || ServerProcess::with_config(&rules, &args);
    let (first, second) = (start(), start());
    first.wait_for_log("a node sharing the store joined");
    let mut admin = HttpTestClient::connect(&first.admin_address());
    let mut warnings = || admin.get("/readyz").body["warnings"].to_string();
    assert_eq!(warnings(), "null", "two nodes can share two requests");
    let third = start();
    let why = "rule `small` has `consistency: async`, but 3 nodes cannot share 2: the store decides \
               every request";
    wait_for("the warning", || warnings().contains(why).then_some(()));
    first.wait_for_log("but 3 nodes cannot share 2");
    let facts = json!({ "facts": { "ip": "203.0.113.7" } });
    let explained =
        HttpTestClient::connect(&first.address).post("/v1/explain", &facts.to_string()).body;
    let counted = explained["rules"][0]["consistency"].to_string();
    assert!(
        counted.contains("the store decides every request: 3 nodes cannot share 2"),
        "{counted}"
    );
    third.stop();
    wait_for("no warning with two nodes", || (warnings() == "null").then_some(()));
    first.stop();
    second.stop();
}
