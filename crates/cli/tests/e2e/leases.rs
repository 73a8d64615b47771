//! `consistency: leased` with real nodes on a real Redis: local decisions that never exceed the
//! limit. Windows are so long that nothing refills during a test, so totals are exact.

use std::thread;

use serde_json::json;
use tidegate_testkit::redis::RedisServer as Redis;

use crate::support::external_programs::run_h2load;
use crate::support::{
    HttpTestClient, ServerProcess, TestFolder, run_tidegate, utf8_text, wait_for,
};

const LIMIT: u64 = 3_000;

/// A fleet on one Redis, with a leased rule.
struct LeasedFleet {
    nodes: Vec<ServerProcess>,
    redis: Redis,
    folder: TestFolder,
}

impl LeasedFleet {
    fn start(nodes: usize, algorithm: &str) -> Self {
        let (redis, folder) = (Redis::start(), TestFolder::new());
        let limit = format!("{{ requests: {LIMIT}, window: 365d, algorithm: {algorithm} }}");
        let rule = format!("{{ id: leased, key_by: ip, limit: {limit}, on_fail: deny,");
        let lease = "consistency: leased, lease: { ttl: 50ms } }";
        let rules = folder.write("rules.yaml", format!("rules:\n  - {rule} {lease}\n"));
        let url = redis.url();
        let args = ["--store", &url, "--store-deadline", "2s", "--admin", "127.0.0.1:0"];
        let start = |_| ServerProcess::with_config(&rules, &args);
        let nodes: Vec<ServerProcess> = (0..nodes).map(start).collect();
        let fleet = Self { nodes, redis, folder };
        await_all_counted(&fleet.nodes);
        fleet
    }

    /// Sends requests to all nodes at once; returns how many were admitted.
    fn send_load(&self, requests: &[u64]) -> u64 {
        let body = self.folder.write("body", r#"{"facts":{"ip":"203.0.113.7"}}"#);
        thread::scope(|scope| {
            let load = |(node, count): (&ServerProcess, &u64)| {
                let url = format!("http://{}/v1/check", node.address);
                let (count, body) = (count.to_string(), body.to_str().unwrap().to_owned());
                scope.spawn(move || {
                    let args = ["--h1", "-n", &count, "-c", "8", "-d", &body, &url];
                    let report = run_h2load(&args);
                    assert_eq!((report.errors, report.failed), (0, 0), "{report:?}");
                    report.passed
                })
            };
            let running: Vec<_> = self
                .nodes
                .iter()
                .zip(requests)
                .filter(|(_, count)| **count > 0)
                .map(load)
                .collect();
            running.into_iter().map(|load| load.join().unwrap()).sum()
        })
    }

    /// Sends requests to one node until it refuses one; returns how many were admitted. That takes
    /// longer than a lease.
    fn send_until_refused(&self, node: usize) -> u64 {
        let (mut client, mut admitted) = (self.nodes[node].client(), 0);
        let facts = json!({ "ip": "203.0.113.7" });
        wait_for("a refusal", || {
            let allowed = client.check(&facts).body["allowed"] == true;
            admitted += u64::from(allowed);
            (!allowed).then_some(())
        });
        admitted
    }

    /// Sends single requests to all nodes until `expected` were admitted. Units that a node holds
    /// and does not need return to the store meanwhile.
    fn use_up(&self, mut admitted: u64, expected: u64) {
        let mut clients: Vec<HttpTestClient> =
            self.nodes.iter().map(ServerProcess::client).collect();
        let facts = json!({ "ip": "203.0.113.7" });
        wait_for("all units to be spent", || {
            for client in &mut clients {
                admitted += u64::from(client.check(&facts).body["allowed"] == true);
            }
            assert!(admitted <= expected, "{admitted} of {expected} admitted");
            (admitted == expected).then_some(())
        });
        for client in &mut clients {
            assert_eq!(client.check(&facts).body["allowed"], false);
        }
    }
}

/// Waits until each node knows how many there are.
pub fn await_all_counted(nodes: &[ServerProcess]) {
    let counted = format!("tidegate_store_nodes {}", nodes.len());
    for node in nodes {
        wait_for("the nodes to count each other", || {
            metrics(node).contains(&counted).then_some(())
        });
    }
}

fn metrics(node: &ServerProcess) -> String {
    let mut admin = HttpTestClient::connect(&node.admin_address());
    admin.get("/metrics").body.as_str().unwrap().to_owned()
}

/// The value of a metric; 0 if there is none.
pub fn metric(node: &ServerProcess, series: &str) -> u64 {
    let metrics = metrics(node);
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

#[test]
fn leased_fleet_admits_exactly_limit() {
    for algorithm in ["fixed_window", "sliding_window_log", "sliding_window_counter"] {
        let fleet = LeasedFleet::start(3, algorithm);
        // The counter's lending limit is ⌊L·W/(W + ttl)⌋, one request less.
        let limit = if algorithm == "sliding_window_counter" { LIMIT - 1 } else { LIMIT };
        let admitted = fleet.send_load(&[1_500, 1_500, 300]);
        assert!(admitted <= limit, "{algorithm}: {admitted}");
        fleet.use_up(admitted, limit);
    }
}

#[test]
fn leased_node_decides_most_requests_locally() {
    let fleet = LeasedFleet::start(2, "fixed_window");
    let admitted = fleet.send_load(&[1_000, 1_000]);
    for node in &fleet.nodes {
        let by = |by| {
            let series = |outcome| {
                let labels = format!(r#"api="http",answered_by="{by}",outcome="{outcome}""#);
                metric(node, &format!("tidegate_decisions_total{{{labels}}}"))
            };
            series("allowed") + series("refused")
        };
        let grants = metric(node, "tidegate_lease_grants_total");
        assert!(by("lease") > by("store"), "{} {}", by("lease"), by("store"));
        assert!(0 < grants && grants < 500, "{grants} calls for 1000 requests");
    }
    let server = format!("http://{}", fleet.nodes[0].address);
    let output = run_tidegate(&["explain", "--server", &server, "ip=203.0.113.7"]);
    let text = utf8_text(&output.stdout);
    for expected in ["leased (ttl 50ms, bound exact)", "at most 6000 in any"] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    fleet.use_up(admitted, LIMIT);
}

/// A leased rule and an asynchronous one, whose leases and views outlast the test.
const LONG_LEASES: &str = "rules:
  - { id: lent, key_by: ip, limit: 1000/h burst 500, consistency: leased, lease: { ttl: 30s } }
  - { id: soft, key_by: ip, limit: 1000/h, consistency: async, flush: 10s }\n";

#[test]
fn holdings_metrics_and_logs_agree() {
    let (redis, folder) = (Redis::start(), TestFolder::new());
    let (rules, url) = (folder.write("rules.yaml", LONG_LEASES), redis.url());
    let args = ["--store", &url, "--store-deadline", "2s", "--admin", "127.0.0.1:0"];
    let node = ServerProcess::with_config(&rules, &[&args[..], &["--log-level", "debug"]].concat());
    let (mut client, facts) = (node.client(), json!({ "ip": "203.0.113.7" }));
    (0..60).for_each(|_| assert_eq!(client.check(&facts).body["allowed"], true));
    node.wait_for_log("units leased");

    let mut admin = HttpTestClient::connect(&node.admin_address());
    let held = wait_for("the same numbers twice", || {
        let held = metric(&node, "tidegate_lease_units_held ");
        let rule = admin.get("/v1/rules/lent").body["consistency"].clone();
        (rule["node"]["units"] == held).then_some((held, rule))
    });
    let (held, rule) = held;
    let units =
        |event: &str| metric(&node, &format!("tidegate_lease_units_total{{event=\"{event}\"}}"));
    let [granted, spent] = ["granted", "spent"].map(units);
    assert_eq!((granted, units("returned"), units("expired")), (spent + held, 0, 0));
    assert!(held > 0 && spent > 20, "{held} held, {spent} spent");
    assert_eq!((&rule["mode"], &rule["node"]["counters"]), (&json!("leased"), &json!(1)));
    assert_eq!(
        (&rule["bound"], &rule["max_in_window"]),
        (&json!("at most 1500 in any 1h"), &json!(1500))
    );
    let status = admin.get("/v1/status").body["holdings"].clone();
    assert_eq!(status["leased"], json!({"counters": 1, "units": held}));
    let open = metric(&node, "tidegate_async_units_open ");
    assert_eq!(status["async"], json!({"counters": 1, "units": open}));

    // Each grant is in both histograms, and in the log with its latency and size.
    let grants = metric(&node, "tidegate_lease_grants_total ");
    for histogram in ["tidegate_lease_grant_duration_seconds", "tidegate_lease_grant_units"] {
        assert_eq!(metric(&node, &format!("{histogram}_count ")), grants, "{histogram}");
    }
    assert_eq!(metric(&node, "tidegate_lease_grant_units_sum "), granted);
    let log = node.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("units leased")).collect();
    assert_eq!(lines.len() as u64, grants, "{log}");
    for field in ["lent", "most", "granted", "took_us"] {
        assert!(lines[0].contains(field), "{field}: {}", lines[0]);
    }
    node.signal("TERM");
    node.wait_for_log("stopped");
}

/// When the load ends, nodes hold unspent units, so less than the burst is admitted.
#[test]
fn leased_bucket_admits_at_most_its_burst() {
    let fleet = LeasedFleet::start(3, "token_bucket");
    let admitted = fleet.send_load(&[1_500, 1_500, 1_500]);
    // What refills in one lease is rounded up to one request.
    assert!((LIMIT / 2..LIMIT).contains(&admitted), "{admitted}");
}

#[test]
fn stopped_node_spends_no_ended_lease() {
    let fleet = LeasedFleet::start(2, "fixed_window");
    let mut admitted = fleet.send_load(&[800, 0]);
    fleet.nodes[0].signal("STOP");
    admitted += fleet.send_until_refused(1);
    fleet.nodes[0].signal("CONT");
    fleet.use_up(admitted, LIMIT);
}

#[test]
fn restarted_store_adds_at_most_one_limit() {
    let fleet = LeasedFleet::start(2, "fixed_window");
    let before = fleet.send_load(&[700, 700]);
    fleet.redis.process().kill();
    fleet.redis.restart();
    let mut client = fleet.nodes[0].client();
    let facts = json!({ "ip": "203.0.113.9" });
    wait_for("the store to answer again", || {
        (client.check(&facts).body["allowed"] == true).then_some(())
    });
    let after = fleet.send_load(&[4_000, 4_000]);
    assert!(after <= LIMIT + before, "{after} after {before}");
    assert!(after > LIMIT / 2, "{after}: the fleet uses the limit again");
}
