//! Three processes that share one PostgreSQL and one Redis: a rule change at one node is enforced
//! by all, and every decision uses a committed rule set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use tidegate_testkit::postgres::{PostgresCluster, TestDatabase};
use tidegate_testkit::redis::RedisServer as Redis;
use tidegate_testkit::tmux::TmuxSession;

use super::{
    admin_client, apply_document, is_soak, limits_by_rule, rules_version, start_server,
    wait_for_version,
};
use crate::support::{HttpTestClient, ServerProcess, TestFolder, tidegate_command, wait_for};

const NODES: usize = 3;

/// Processes that share a database and a store.
pub(super) struct ProcessFleet {
    pub(super) folder: TestFolder,
    pub(super) database: TestDatabase,
    pub(super) redis: Redis,
    pub(super) nodes: Vec<ServerProcess>,
}

impl ProcessFleet {
    /// Starts a fleet whose database is seeded from these rules.
    pub(super) fn start(rules: &str) -> Self {
        let database = TestDatabase::create_in(PostgresCluster::start_durable().into());
        let (folder, redis) = (TestFolder::new(), Redis::start());
        folder.write("rules.yaml", rules);
        let mut fleet = Self { folder, database, redis, nodes: Vec::new() };
        fleet.nodes = (0..NODES).map(|at| fleet.start_node(at)).collect();
        fleet
    }

    /// Starts a node with a local copy of the rules.
    pub(super) fn start_node(&self, at: usize) -> ServerProcess {
        let copy = self.folder.path(&format!("copy-{at}"));
        let (database, store) = (self.database.url(), self.redis.url());
        // A machine with two cores may stall for longer than the default deadline.
        let mut args = vec!["--store", &store, "--store-deadline", "2s", "--rules-db", &database];
        args.extend(["--rules-copy", copy.to_str().unwrap()]);
        start_server(&self.folder.path("rules.yaml"), &args)
    }

    pub(super) fn admin_clients(&self) -> Vec<HttpTestClient> {
        self.nodes.iter().map(admin_client).collect()
    }

    /// Waits until a version is active on every node.
    #[track_caller]
    pub(super) fn wait_for_version(&self, version: u64) {
        self.nodes.iter().for_each(|node| wait_for_version(&mut admin_client(node), version));
    }
}

/// Two rules that contain the same number, so that a mixture of two versions is visible.
pub(super) fn paired_rules(number: u64) -> String {
    let limit = 1_000_000 + number;
    format!(
        "facts: [kind]
rules:
  - {{ id: one, match: {{ kind: probe }}, key_by: ip, limit: {{ requests: {limit}, window: 1s }} }}
  - {{ id: two, match: {{ kind: probe }}, key_by: ip, limit: {{ requests: {limit}, window: 1h }} }}\n"
    )
}

/// The number in the rules that are active at a node.
#[track_caller]
pub(super) fn active_pair(client: &mut HttpTestClient) -> u64 {
    let limits = limits_by_rule(client, &json!({"kind": "probe", "ip": "203.0.113.7"}));
    let [(one, first), (two, second)] = &limits[..] else { panic!("half a rule set: {limits:?}") };
    assert_eq!((one.as_str(), two.as_str()), ("one", "two"));
    assert_eq!(first, second, "rules of two versions decided one request");
    first - 1_000_000
}

#[test]
fn joining_and_leaving_nodes_are_logged() {
    let mut fleet = ProcessFleet::start(&paired_rules(0));
    let (first, last) = (fleet.nodes.remove(0), fleet.nodes.remove(1));
    first.wait_for_log("node joined");
    last.stop();
    first.wait_for_log("node left");
    assert!(first.log().contains("it shut down"), "{}", first.log());
}

#[test]
fn rule_change_is_enforced_on_every_node() {
    let limit = |count: u64| {
        format!(
            "rules: [{{ id: r, key_by: api_key, limit: {{ requests: {count}, window: 365d }} }}]"
        )
    };
    let fleet = ProcessFleet::start(&limit(5));
    fleet.wait_for_version(1);
    let facts = json!({"api_key": "k"});
    let admitted = |times: usize| {
        let mut clients: Vec<HttpTestClient> =
            fleet.nodes.iter().map(ServerProcess::client).collect();
        let statuses = (0..times).map(|at| clients[at % NODES].check(&facts).status);
        statuses.filter(|status| *status == 200).count()
    };
    assert_eq!(admitted(12), 5);
    for (at, node) in fleet.nodes.iter().enumerate() {
        let count = 8 + 3 * at as u64;
        let version = apply_document(&mut admin_client(node), &limit(count));
        fleet.wait_for_version(version);
        assert_eq!(admitted(12), 3, "every node still counts the earlier requests");
    }
    let over = json!({"rule": "r", "key": {"api_key": "k"}, "requests": 16}).to_string();
    assert_eq!(admin_client(&fleet.nodes[2]).post("/v1/overrides", &over).status, 201);
    fleet.wait_for_version(5);
    assert_eq!(admitted(9), 2, "16 in total");
    let versions = admin_client(&fleet.nodes[0]).get("/v1/versions").body;
    assert_eq!(
        versions["versions"].as_array().unwrap().len(),
        5,
        "three nodes started, but only one seeded the database"
    );
    for node in &fleet.nodes {
        // The server records the metric after the version is active.
        wait_for("the propagation time of each version", || {
            let metrics = admin_client(node).get("/metrics").body;
            metrics.as_str()?.contains("tidegate_rules_propagation_seconds_count 4\n").then_some(())
        });
    }
}

/// Sends checks to a node until stopped. Every response must come from one committed rule set, and
/// none from an older one than this client has already seen.
fn check_until_stopped(node: &ServerProcess, stop: &AtomicBool) -> u64 {
    let (mut client, mut last, mut requests) = (node.client(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let number = active_pair(&mut client);
        assert!(number >= last, "version {number} was used after {last}");
        (last, requests) = (number, requests + 1);
    }
    requests
}

#[test]
fn every_decision_uses_a_committed_version() {
    let changes = if is_soak() { 1_000 } else { 200 };
    let fleet = ProcessFleet::start(&paired_rules(0));
    fleet.wait_for_version(1);
    let stop = AtomicBool::new(false);
    let requests = thread::scope(|scope| {
        let workers: Vec<_> = fleet
            .nodes
            .iter()
            .map(|node| {
                let stop = &stop;
                scope.spawn(move || check_until_stopped(node, stop))
            })
            .collect();
        let changing = scope.spawn(|| {
            let mut admins = fleet.admin_clients();
            for (number, at) in (1..=changes).zip((0..NODES).cycle()) {
                assert_eq!(apply_document(&mut admins[at], &paired_rules(number)), number + 1);
            }
        });
        let changed = changing.join();
        stop.store(true, Ordering::Relaxed);
        let requests: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        changed.unwrap();
        requests
    });
    println!("{changes} changes; decisions meanwhile at each node: {requests:?}");
    assert!(requests.iter().all(|count| *count > 100), "{requests:?}");
    fleet.wait_for_version(changes + 1);
    for node in &fleet.nodes {
        assert_eq!(active_pair(&mut node.client()), changes);
    }
    let stored = fleet.database.sql("SELECT count(*), max(number) FROM rule_version");
    assert_eq!(stored, format!("{0}|{0}", changes + 1), "one version per change, without gaps");
}

#[test]
fn concurrent_editors_do_not_overwrite() {
    let fleet = ProcessFleet::start(&paired_rules(0));
    fleet.wait_for_version(1);
    let mut admins = fleet.admin_clients();
    let seen = admins[0].get("/v1/document");
    let seen = [("if-match", seen.header("etag").unwrap())];
    assert_eq!(admins[0].request("PUT /v1/document", &seen, &paired_rules(1)).status, 200);
    // The other node may not know the new version yet, but must refuse as well.
    assert_eq!(admins[1].request("PUT /v1/document", &seen, &paired_rules(2)).status, 412);
    fleet.wait_for_version(2);
    assert_eq!((active_pair(&mut fleet.nodes[2].client()), rules_version(&mut admins[1])), (1, 2));
}

/// All nodes as one node reports them: process ID (the end of the name), version, whether it is
/// behind, and whether it is the reporting node.
fn node_statuses(admin: &mut HttpTestClient) -> Vec<(u64, u64, bool, bool)> {
    let body = admin.get("/v1/status").body;
    let nodes = body["nodes"].as_array().unwrap().iter().map(|node| {
        let (_, pid) = node["name"].as_str().unwrap().rsplit_once(':').unwrap();
        let is = |what: &str| node[what].as_bool().unwrap();
        (pid.parse().unwrap(), node["version"].as_u64().unwrap(), is("behind"), is("here"))
    });
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_unstable();
    nodes
}

/// A paused node does not receive a change; the other nodes report that it is behind.
#[test]
fn nodes_report_version_and_lag() {
    let (folder, database) = (TestFolder::new(), TestDatabase::create());
    let file = folder.write("rules.yaml", paired_rules(1));
    let start = |name: &str| {
        let (copy, database) = (folder.path(name), database.url());
        start_server(&file, &["--rules-db", &database, "--rules-copy", copy.to_str().unwrap()])
    };
    let (one, other) = (start("a"), start("b"));
    let [here, there] = [&one, &other].map(|node| u64::from(node.pid()));
    let mut admin_of_one = admin_client(&one);
    let mut wait = |what: &str, [mine, theirs]: [u64; 2], behind: bool| {
        let mut expected = vec![(here, mine, false, true), (there, theirs, behind, false)];
        expected.sort_unstable();
        wait_for(what, || (node_statuses(&mut admin_of_one) == expected).then_some(()));
    };
    wait("both at the first version", [1, 1], false);
    other.signal("STOP");
    apply_document(&mut admin_client(&one), &paired_rules(2));
    wait("the stopped one behind", [2, 1], true);
    let tmux = TmuxSession::start(120, 20);
    let program = tidegate_command();
    let url = format!("http://{}", one.admin_address());
    tmux.run(&[program.get_program().to_str().unwrap(), "top", "--admin", &url]);
    tmux.wait_for_text("2 nodes, 1 behind");
    other.signal("CONT");
    wait("both at the second version", [2, 2], false);
    tmux.wait_until("that no node is behind", |screen| {
        screen.contains("2 nodes") && !screen.contains("behind")
    });
    // A node that shuts down is removed from the list.
    other.stop();
    wait_for("the remaining node alone", || {
        (node_statuses(&mut admin_client(&one)) == [(here, 2, false, true)]).then_some(())
    });
}
