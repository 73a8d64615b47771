//! Fleets of real nodes with leased rules on a real store, while the store and nodes fail. The
//! demand is twice the limit and moves from node to node. By the nodes' own logs, no interval
//! contains more than the bound of a rule allows, and after each fault the limit is used again.

pub(crate) mod decision_logs;
mod listeners;
mod load;

use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::time::{Clock as _, SystemClock};
use tidegate_simulator::LeasedRule;
use tidegate_testkit::proxy::FaultProxy;
use tidegate_testkit::redis::{RedisCluster, RedisServer as Redis, SentinelGroup, slot_of};

use crate::control_plane::is_soak;
use crate::leases::await_all_counted;
use crate::support::{ServerProcess, TestFolder, now, tidegate_command, wait_for};
use decision_logs::DecisionLogs;
use load::FleetLoad;

/// Requests a second that each rule allows.
const RATE: u64 = 80;

const RULES: [LeasedRule; 5] = [
    leased_rule("token_bucket", Algorithm::TokenBucket, 2 * RATE, 400),
    leased_rule("leaky_bucket", Algorithm::LeakyBucket(LeakMode::Police), RATE, 200),
    leased_rule("fixed_window", Algorithm::FixedWindow, 0, 200),
    leased_rule("sliding_window_log", Algorithm::SlidingWindowLog, 0, 200),
    leased_rule("sliding_window_counter", Algorithm::SlidingWindowCounter, 0, 400),
];

const fn leased_rule(
    id: &'static str,
    algorithm: Algorithm,
    burst: u64,
    ttl_ms: u64,
) -> LeasedRule {
    LeasedRule { id, algorithm, requests: RATE, window_ms: 1_000, burst, ttl_ms }
}

/// A request that only this rule matches. Each rule has another key, so that a cluster spreads
/// their counters.
fn facts_of(rule: &str) -> Value {
    let number = RULES.iter().position(|known| known.id == rule).unwrap();
    json!({ "path": format!("/{rule}"), "ip": format!("203.0.113.{number}") })
}

fn rules_yaml() -> String {
    let mut yaml = "rules:\n".to_owned();
    for LeasedRule { id, algorithm, requests, window_ms, burst, ttl_ms } in RULES {
        let burst = if algorithm.is_bucket() { format!(", burst: {burst}") } else { String::new() };
        writeln!(
            yaml,
            "- {{ id: {id}, match: {{ path: /{id} }}, key_by: ip, on_fail: deny, limit: {{ \
             requests: {requests}, window: {window_ms}ms, algorithm: {algorithm}{burst} }}, \
             consistency: leased, lease: {{ ttl: {ttl_ms}ms }} }}"
        )
        .unwrap();
    }
    yaml
}

/// The machine's clock, which nodes and stores read too.
fn wall_clock() -> u64 {
    SystemClock::new().now().as_micros()
}

/// When something happened.
fn time_of(event: impl FnOnce()) -> Range<u64> {
    let from = wall_clock();
    event();
    from..wall_clock()
}

/// A fleet under load.
struct LoadedFleet {
    nodes: Vec<ServerProcess>,
    logs: DecisionLogs,
    load: Option<FleetLoad>,
    _folder: TestFolder,
}

impl LoadedFleet {
    /// Starts a node for each of these URLs of the store, without load.
    fn start(stores: &[&str]) -> Self {
        let folder = TestFolder::new();
        let rules = folder.write("rules.yaml", rules_yaml());
        let paths: Vec<PathBuf> =
            (0..stores.len()).map(|node| folder.path(&format!("{node}.log"))).collect();
        let start = |(log, store): (&PathBuf, &&str)| {
            let mut command = tidegate_command();
            command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off"]);
            command.args(["--admin", "127.0.0.1:0", "--log", "json", "--log-level", "debug"]);
            command.args(["--store", store, "--store-deadline", "2s", "--config"]).arg(&rules);
            ServerProcess::spawn_logging_to(command, Stdio::from(File::create(log).unwrap()))
        };
        let nodes: Vec<ServerProcess> = paths.iter().zip(stores).map(start).collect();
        await_all_counted(&nodes);
        Self { nodes, logs: DecisionLogs::open(&paths, &RULES), load: None, _folder: folder }
    }

    /// Begins to send twice the limit of each rule, and waits until the limits are used.
    fn start_load(&mut self) {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        self.load = Some(FleetLoad::start(&addresses, 2 * RATE * RULES.len() as u64));
        self.await_full_use();
    }

    /// Waits until each rule has admitted, for two seconds, four fifths of what the store can lend,
    /// and nodes decide on leases again.
    fn await_full_use(&mut self) {
        let (since, leased) = (wall_clock(), self.logs.answered_by("lease"));
        for rule in RULES {
            wait_for(&format!("full use of {}", rule.id), || {
                self.logs.read();
                let ledger = &self.logs.ledgers[rule.id];
                let wanted = 2 * ledger.lent_per_second() * 4 / 5;
                let is_full = |from| ledger.admitted_between(from, from + 2_000_000) >= wanted;
                (0..60).map(|half| since + half * 500_000).any(is_full).then_some(())
            });
        }
        wait_for("decisions on leases", || {
            self.logs.read();
            (self.logs.answered_by("lease") > leased + 50).then_some(())
        });
    }

    /// Lets the store lose the state of these rules.
    fn lose_state(&mut self, rules: &[&'static str], fault: impl FnOnce()) {
        let ended = time_of(fault);
        for rule in rules {
            self.logs.ledgers.get_mut(rule).unwrap().lose_state(ended.clone());
        }
    }

    /// Steps the store's clock.
    fn step_clock(&mut self, redis: &Redis, seconds: i64) {
        let ended = time_of(|| redis.step_clock(seconds));
        for ledger in self.logs.ledgers.values_mut() {
            ledger.step_clock(seconds * 1_000_000, ended.clone());
        }
    }

    /// Checks every interval since the start.
    #[track_caller]
    fn stop_and_check_bounds(mut self) {
        self.load.into_iter().for_each(FleetLoad::stop);
        drop(self.nodes);
        self.logs.read();
        for ledger in self.logs.ledgers.values() {
            assert_eq!(ledger.check(), Ok(()));
        }
        let [lease, store] = ["lease", "store"].map(|by| self.logs.answered_by(by));
        // A request that waited for a lease was answered by the store.
        assert!(lease > store / 10, "{lease} answered by leases, {store} by the store");
        assert_eq!(self.logs.answered_by("fallback"), 0, "on_fail: deny");
    }
}

/// Lets a fault last longer than any lease lives.
fn outlast_leases() {
    let end =
        now() + 3 * Duration::from_millis(RULES.map(|rule| rule.ttl_ms).into_iter().max().unwrap());
    wait_for("leases to end", || (now() >= end).then_some(()));
}

fn all_rules() -> Vec<&'static str> {
    RULES.iter().map(|rule| rule.id).collect()
}

/// How often the faults of a test are repeated.
fn rounds() -> usize {
    if is_soak() { 6 } else { 1 }
}

#[test]
fn eight_nodes_keep_bounds_through_faults() {
    let redis = Redis::start();
    let link = FaultProxy::start(redis.address());
    let (store, linked) = (redis.url(), format!("redis://{}", link.address()));
    let mut fleet =
        LoadedFleet::start(&[&[linked.as_str()], [store.as_str(); 7].as_slice()].concat());
    fleet.start_load();
    for _ in 0..rounds() {
        // One node is cut off from the store, and others stop.
        link.blackhole();
        fleet.nodes[1..4].iter().for_each(|node| node.signal("STOP"));
        outlast_leases();
        link.pass();
        fleet.nodes[1..4].iter().for_each(|node| node.signal("CONT"));
        fleet.await_full_use();
        // The store stops, and loses nothing.
        redis.process().pause();
        outlast_leases();
        redis.process().resume();
        fleet.await_full_use();
        for _ in 0..2 {
            fleet.lose_state(&all_rules(), || redis.restart());
            fleet.await_full_use();
        }
    }
    fleet.nodes[7].signal("KILL");
    fleet.await_full_use();
    fleet.stop_and_check_bounds();
}

#[test]
fn four_nodes_keep_bounds_on_cluster() {
    let cluster = RedisCluster::start();
    let hosts: Vec<String> =
        cluster.nodes()[..3].iter().map(|node| node.address().to_string()).collect();
    let mut fleet =
        LoadedFleet::start(&[format!("redis+cluster://{}", hosts.join(",")).as_str(); 4]);
    let slots = find_slots(&fleet.nodes[0], &cluster);
    fleet.start_load();
    for _ in 0..rounds() {
        let primary = cluster.primary_of(slots[0].1);
        let is_lost =
            |(_, slot): &&(&'static str, u16)| cluster.primary_of(*slot).port() == primary.port();
        let lost: Vec<&'static str> = slots.iter().filter(is_lost).map(|(rule, _)| *rule).collect();
        fleet.lose_state(&lost, || _ = cluster.fail_over(primary));
        fleet.await_full_use();
        primary.restart();
        cluster.await_replica(primary);
    }
    fleet.stop_and_check_bounds();
}

/// The cluster slot of each rule's counter. Its key contains a hash, so it is found by a request.
fn find_slots(node: &ServerProcess, cluster: &RedisCluster) -> Vec<(&'static str, u16)> {
    let mut slots: Vec<(&'static str, u16)> = Vec::new();
    for rule in all_rules() {
        let slot = wait_for("the counter of a rule", || {
            node.client().check(&facts_of(rule));
            let keys = cluster.nodes()[..3].iter().map(|node| node.command(&["KEYS", "tg:*{*"]));
            let mut found = keys.flat_map(|keys| {
                keys.items().iter().map(|key| slot_of(key.text())).collect::<Vec<u16>>()
            });
            found.find(|slot| slots.iter().all(|(_, known)| known != slot))
        });
        slots.push((rule, slot));
    }
    slots
}

#[test]
fn three_nodes_keep_bounds_on_sentinel() {
    let sentinels = SentinelGroup::start();
    let mut fleet = LoadedFleet::start(&[sentinel_url(&sentinels).as_str(); 3]);
    fleet.start_load();
    // Replication is asynchronous, so the new primary may not have the last charges.
    fleet.lose_state(&all_rules(), || {
        let old = sentinels.kill_primary();
        sentinels.await_failover(old);
    });
    fleet.await_full_use();
    fleet.stop_and_check_bounds();
}

#[test]
fn store_clock_steps_keep_bounds() {
    let redis = Redis::start_with_fake_clock();
    let mut fleet = LoadedFleet::start(&[redis.url().as_str(); 3]);
    fleet.start_load();
    for seconds in [10, -10] {
        fleet.step_clock(&redis, seconds);
        fleet.await_full_use();
    }
    fleet.stop_and_check_bounds();
}

fn sentinel_url(sentinels: &SentinelGroup) -> String {
    let hosts: Vec<String> =
        sentinels.sentinels().iter().map(|each| each.address().to_string()).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name())
}
