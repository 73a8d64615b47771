//! `on_fail: local` during outages of a real Redis: each node admits its share of the limit, and
//! afterwards the store learns what was admitted.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_core::time::{Clock as _, SystemClock};
use tidegate_testkit::redis::RedisServer as Redis;

use crate::support::{HttpTestClient, ServerProcess, TestFolder, now, wait_for};

const LIMIT: usize = 12;

/// A rule that restores no quota within a test.
fn rule_yaml(id: &str) -> String {
    let limit = format!("{{ requests: {LIMIT}, window: 365d }}");
    let matched = format!("match: {{ path: /{id} }}, key_by: ip");
    format!("  - {{ id: {id}, {matched}, limit: {limit}, on_fail: local }}\n")
}

/// Sends requests until one is refused; returns how many were admitted.
fn exhaust_limit(client: &mut HttpTestClient, path: &str) -> usize {
    let facts = json!({ "ip": "203.0.113.7", "path": path });
    (0..).take_while(|_| client.check(&facts).body["allowed"] == true).count()
}

/// Exhausts the limit on all nodes; returns how many requests they admitted together.
fn exhaust_limit_on_all(nodes: &[ServerProcess], path: &str) -> usize {
    nodes.iter().map(|node| exhaust_limit(&mut node.client(), path)).sum()
}

fn wait_for_status(node: &ServerProcess, status: &str) {
    let mut probe = node.client();
    wait_for(status, || (probe.get("/readyz").body["status"] == status).then_some(()));
}

#[test]
fn local_fallback_shares_limit_and_settles() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let rules = folder.write("rules.yaml", format!("rules:\n{}", rule_yaml("first")));
    let args = ["--store", &redis.url(), "--store-deadline", "2s", "--admin", "127.0.0.1:0"];
    let nodes: Vec<ServerProcess> =
        (0..3).map(|_| ServerProcess::with_config(&rules, &args)).collect();
    for node in &nodes {
        let mut admin = HttpTestClient::connect(&node.admin_address());
        wait_for("the node to count three nodes", || {
            let metrics = admin.get("/metrics").body;
            metrics.as_str().unwrap().contains("tidegate_store_nodes 3").then_some(())
        });
    }
    let reload = |ids: &[&str]| {
        let all: String = ids.iter().map(|id| rule_yaml(id)).collect();
        folder.replace_atomically("rules.yaml", format!("rules:\n{all}"));
        nodes.iter().for_each(|node| node.signal("HUP"));
        let added = format!("added {}", ids[ids.len() - 1]);
        nodes.iter().for_each(|node| node.wait_for_log(&added));
    };
    reload(&["first", "before"]);
    redis.process().kill();
    nodes.iter().for_each(|node| wait_for_status(node, "degraded"));
    assert_eq!(exhaust_limit_on_all(&nodes, "/first"), LIMIT);
    assert_eq!(
        exhaust_limit_on_all(&nodes, "/before"),
        LIMIT,
        "a rule added by a reload before the outage"
    );
    reload(&["first", "before", "during"]);
    let during = exhaust_limit_on_all(&nodes, "/during");
    assert_eq!(during, LIMIT, "a rule added by a reload during the outage");
    redis.restart();
    for path in ["/first", "/before", "/during"] {
        let peek = json!({ "facts": { "ip": "203.0.113.7", "path": path } }).to_string();
        wait_for("the settlement with the store", || {
            let body = nodes[0].client().post("/v1/peek", &peek).body;
            let used_up = body["answered_by"] == "store" && body["allowed"] == false;
            used_up.then_some(())
        });
        assert_eq!(exhaust_limit_on_all(&nodes, path), 0, "the limit is used up");
    }
}

#[test]
fn on_fail_refusal_is_timestamped_everywhere() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    redis.process().kill();
    let source = "rules: [{ id: shut, key_by: ip, limit: 5/h, on_fail: deny }]";
    let rules = folder.write("rules.yaml", source);
    let args = ["--store", &redis.url(), "--admin", "127.0.0.1:0", "--log", "json"];
    let server = ServerProcess::with_config(&rules, &args);
    let before = unix_now();
    let refused = server.client().check(&json!({ "ip": "203.0.113.7" }));
    assert_eq!((refused.status, &refused.body["answered_by"]), (429, &json!("fallback")));
    let after = unix_now();
    let reset: u64 = refused.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((before..=after + 2).contains(&reset), "{before} {reset} {after}");
    let mut admin = HttpTestClient::connect(&server.admin_address());
    let row = wait_for("the recorded violation", || {
        let body = admin.get("/v1/violations?limit=1").body;
        body["violations"].get(0).cloned()
    });
    let at = row["at_us"].as_u64().unwrap() / 1_000_000;
    assert!((before..=after).contains(&at), "{before} {row} {after}");
    let line = wait_for("the line in the log", || {
        let log = server.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["target"] == "tidegate::violation")
    });
    assert_eq!(line["at"], row["at"], "{line}");
}

fn unix_now() -> u64 {
    SystemClock::new().now().as_micros() / 1_000_000
}

/// A single node with a bucket of 20 that refills 2 per second, in outages: it never admits more.
struct SingleNodeOutage {
    redis: Redis,
    node: ServerProcess,
    client: HttpTestClient,
    started: Instant,
    admitted: u64,
}

impl SingleNodeOutage {
    const BURST: u64 = 20;
    const PER_SECOND: u64 = 2;

    fn new(folder: &TestFolder, redis: Redis) -> Self {
        let rules = folder.write(
            "rules.yaml",
            format!(
                "rules: [{{ id: r, key_by: ip, limit: {}/s burst {}, on_fail: local }}]",
                Self::PER_SECOND,
                Self::BURST
            ),
        );
        let args = ["--store", &redis.url(), "--store-deadline", "2s"];
        let node = ServerProcess::with_config(&rules, &args);
        let client = node.client();
        Self { redis, node, client, started: now(), admitted: 0 }
    }

    /// Sends one request; returns what answered it and whether it was admitted.
    fn check_once(&mut self) -> (String, bool) {
        let body = self.client.check(&json!({ "ip": "203.0.113.7" })).body;
        let passes = body["allowed"] == true;
        self.admitted += u64::from(passes);
        (body["answered_by"].as_str().unwrap().to_owned(), passes)
    }

    fn exhaust_limit(&mut self) {
        while self.check_once().1 {}
    }

    /// Sends requests until the node admits one without the store.
    fn wait_for_local_admission(&mut self) {
        wait_for("the node to admit locally", || {
            (self.check_once() == ("fallback".to_owned(), true)).then_some(())
        });
    }

    /// Runs several outages, either with constant traffic or with the node idle while the store
    /// recovers.
    fn run_outages(&mut self, traffic: bool) {
        self.exhaust_limit();
        for _ in 0..3 {
            self.redis.process().kill();
            self.wait_for_local_admission();
            self.redis.restart();
            if traffic {
                wait_for("the store", || (self.check_once().0 == "store").then_some(()));
            } else {
                wait_for_status(&self.node, "ready");
            }
            self.exhaust_limit();
        }
        let elapsed = self.started.elapsed() + Duration::from_secs(1);
        let most = Self::BURST + Self::PER_SECOND * elapsed.as_secs();
        assert!(self.admitted <= most, "{} > {most} in {elapsed:?}", self.admitted);
    }
}

#[test]
fn single_node_limit_survives_durable_store_outages() {
    let (folder, redis) = (TestFolder::new(), Redis::start_with(&["--appendonly", "yes"]));
    let mut outage = SingleNodeOutage::new(&folder, redis);
    outage.run_outages(false);
    outage.run_outages(true);
}

#[test]
fn single_node_limit_survives_data_loss() {
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let mut outage = SingleNodeOutage::new(&folder, redis);
    outage.run_outages(false);
    outage.run_outages(true);
}
