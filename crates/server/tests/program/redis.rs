//! Counters in Redis, as a fleet of real processes has them: exact, and never the outage.

use std::thread;

use serde_json::{Value, json};
use tidegate_testkit::redis::{Cluster, Server as Redis};

use crate::support::{Client, Folder, Server, run, text, wait_for};

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
fn fleet(folder: &Folder, store: &str) -> Vec<Server> {
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--store", store, "--store-deadline", "2s"];
    (0..NODES).map(|_| Server::with_config(&rules, &args)).collect()
}

/// All connections of all nodes ask at once; how many are admitted.
fn admitted(fleet: &[Server], path: &str) -> usize {
    let facts = json!({ "api_key": "somebody", "ip": "203.0.113.7", "path": path });
    thread::scope(|scope| {
        let connections = fleet.iter().flat_map(|node| (0..CONNECTIONS).map(move |_| node));
        let asking: Vec<_> = connections
            .map(|node| {
                let (mut client, facts) = (node.client(), facts.clone());
                let small = thread::Builder::new().stack_size(128 * 1024);
                let ask = move || {
                    let answers = (0..ATTEMPTS).map(|_| client.check(&facts));
                    answers.filter(|answer| told_by_store(&answer.body)).count()
                };
                small.spawn_scoped(scope, ask).unwrap()
            })
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).sum()
    })
}

/// Whether a request was admitted; it must be the store, or what it said, that decides.
fn told_by_store(body: &Value) -> bool {
    let by = body["answered_by"].as_str().unwrap();
    assert!(matches!(by, "store" | "deny_cache"), "{body}");
    body["allowed"].as_bool().unwrap()
}

#[test]
fn four_nodes_on_one_redis_admit_exactly_the_limit() {
    let (redis, folder) = (Redis::start(), Folder::new());
    let fleet = fleet(&folder, &redis.url());
    assert_eq!(admitted(&fleet, "/bucket"), LIMIT);
    assert_eq!(admitted(&fleet, "/log"), LIMIT);
    assert_eq!(admitted(&fleet, "/both"), LIMIT);
}

#[test]
fn four_nodes_on_a_cluster_admit_exactly_the_limit_and_never_more_over_several_slots() {
    let (cluster, folder) = (Cluster::start(), Folder::new());
    let seeds = cluster.urls().join(",").replace("redis://", "");
    let fleet = fleet(&folder, &format!("redis+cluster://{seeds}"));
    assert_eq!(admitted(&fleet, "/bucket"), LIMIT);
    let both = admitted(&fleet, "/both");
    assert!((1..=LIMIT).contains(&both), "{both}");
}

#[test]
fn an_outage_is_answered_by_on_fail_told_once_and_over_when_it_is_over() {
    let (redis, folder) = (Redis::start(), Folder::new());
    let rules = folder.write(
        "rules.yaml",
        "rules:
           - { id: open, match: { path: /open }, key_by: ip, limit: 1000/h, on_fail: allow }
           - { id: shut, match: { path: /shut }, key_by: ip, limit: 1000/h, on_fail: deny }
           - { id: near, match: { path: /near }, key_by: ip, limit: 3/h, on_fail: local }",
    );
    let server = Server::with_config(&rules, &["--store", &redis.url()]);
    let mut client = server.client();
    let mut ask = |path: &str| client.check(&json!({ "ip": "203.0.113.7", "path": path })).body;
    wait_for("the store to answer", || (ask("/open")["answered_by"] == "store").then_some(()));
    wait_for("it to know of us", || (ask("/near")["answered_by"] == "store").then_some(()));
    redis.process().kill();
    wait_for("the outage", || (ask("/open")["answered_by"] == "fallback").then_some(()));
    server.wait_log("the store does not answer");
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
    server.wait_log("the store answers again");
    wait_for("ready", || (probe.get("/readyz").body["status"] == "ready").then_some(()));
    let told = |words: &str| server.log().matches(words).count();
    assert_eq!(told("the store does not answer"), 1, "{}", server.log());
    assert_eq!(told("the store answers again"), 1, "{}", server.log());
    server.stop();
}

#[test]
fn it_starts_without_its_store_and_finds_it_later() {
    let redis = Redis::start();
    redis.process().kill();
    let server = Server::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
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
fn what_is_wrong_with_the_store_is_told_at_the_start() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = Server::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    server.wait_log("its eviction policy is allkeys-lru");
    server.wait_log("no --key-secret-file is set");
}

#[test]
fn the_doctor_tells_what_to_change() {
    let (redis, folder) = (Redis::start(), Folder::new());
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef");
    let secret = secret.to_str().unwrap();
    let doctor = |url: &str, more: &[&str]| {
        // The deadline is one that a busy machine keeps: the doctor warns of slow decisions.
        let args = ["doctor", "--store", url, "--store-deadline", "2s"];
        let output = run(&[&args[..], more].concat());
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
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
fn the_doctor_knows_a_replica_and_a_cluster() {
    let (primary, cluster) = (Redis::start(), Cluster::start());
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let told = |url: &str| text(&run(&["doctor", "--store", url]).stdout);
    let replica = told(&replica.url());
    assert!(replica.contains("it is a replica") && replica.contains(&port), "{replica}");
    let node = &cluster.urls()[0];
    let alone = told(node);
    assert!(alone.contains("write --store redis+cluster://127.0.0.1:"), "{alone}");
    let whole = told(&node.replace("redis://", "redis+cluster://"));
    assert_eq!(whole.matches("decision    p50").count(), 3, "{whole}");
}

#[test]
fn a_client_is_not_kept_waiting_by_a_store_that_hangs() {
    let redis = Redis::start();
    let server = Server::start(&["--limit", "5/h by ip", "--store", &redis.url()]);
    let mut client: Client = server.client();
    let ask = |client: &mut Client| client.check(&json!({ "ip": "203.0.113.7" })).body;
    wait_for("the store", || (ask(&mut client)["answered_by"] == "store").then_some(()));
    redis.process().pause();
    for _ in 0..20 {
        assert_eq!(ask(&mut client)["answered_by"], "fallback");
    }
    redis.process().resume();
    wait_for("the store", || (ask(&mut client)["answered_by"] != "fallback").then_some(()));
}
