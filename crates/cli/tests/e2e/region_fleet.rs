//! Three regions of real nodes, each with a real store, while links between them fail and demand
//! moves. By the nodes' own logs all regions together stay within the rule's bound, and each region
//! uses what the others leave. That no request waits for another region is tested in `regions.rs`.

mod load;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidegate_core::policy::Algorithm;
use tidegate_core::time::{Clock as _, SystemClock};
use tidegate_simulator::LeasedRule;
use tidegate_testkit::proxy::{DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer as Redis;

use crate::leased_fleet::decision_logs::DecisionLogs;
use crate::leases::await_all_counted;
use crate::support::{ServerProcess, TestFolder, tidegate_command, wait_for};
use load::RegionLoad;

const REGIONS: [&str; 3] = ["eu", "us", "ap"];
const EU: usize = 0;
const US: usize = 1;
const AP: usize = 2;

/// Shares in percent.
const SHARES: [u64; 3] = [50, 30, 20];

/// Requests a second that all regions together allow.
const RATE: u64 = 200;

/// The bound of all regions together. A unit lives as long as it may be borrowed.
const RULE: LeasedRule = LeasedRule {
    id: "global",
    algorithm: Algorithm::TokenBucket,
    requests: RATE,
    window_ms: 1_000,
    burst: 2 * RATE,
    ttl_ms: 500,
};

/// From one region to another.
const ONE_WAY: Duration = Duration::from_millis(75);

fn rules_yaml() -> String {
    let LeasedRule { requests, window_ms, burst, ttl_ms, .. } = RULE;
    let [eu, us, ap] = SHARES;
    format!(
        "rules:
  - id: global
    key_by: global
    on_fail: deny
    limit: {{ requests: {requests}, window: {window_ms}ms, burst: {burst} }}
    consistency: leased
    regions:
      shares: {{ eu: {eu}%, us: {us}%, ap: {ap}% }}
      borrow: {{ ttl: {ttl_ms}ms, every: 100ms, keep: 50% }}
"
    )
}

fn wall_clock() -> u64 {
    SystemClock::new().now().as_micros()
}

/// The link from the nodes of one region to the store of another.
struct RegionPath {
    from: usize,
    to: usize,
    proxy: FaultProxy,
}

impl RegionPath {
    fn connect(&self) {
        self.proxy.delay(ONE_WAY, DelayScope::Both);
    }
}

/// The regions under load.
struct RegionFleet {
    paths: Vec<RegionPath>,
    /// Two of each region.
    nodes: Vec<Vec<ServerProcess>>,
    /// What all nodes decided, and what those of each region did.
    all: DecisionLogs,
    by_region: Vec<DecisionLogs>,
    load: RegionLoad,
    _stores: Vec<Redis>,
    _folder: TestFolder,
}

impl RegionFleet {
    fn start() -> Self {
        let folder = TestFolder::new();
        let rules = folder.write("rules.yaml", rules_yaml());
        let stores: Vec<Redis> = REGIONS.iter().map(|_| Redis::start()).collect();
        let paths = region_paths(&stores);
        let logs = |region: usize| -> Vec<PathBuf> {
            (0..2).map(|node| folder.path(&format!("{}-{node}.log", REGIONS[region]))).collect()
        };
        let logs: Vec<Vec<PathBuf>> = (0..REGIONS.len()).map(logs).collect();
        let start = |(region, logs): (usize, &Vec<PathBuf>)| -> Vec<ServerProcess> {
            logs.iter().map(|log| start_node(region, &stores, &paths, &rules, log)).collect()
        };
        let nodes: Vec<Vec<ServerProcess>> = logs.iter().enumerate().map(start).collect();
        nodes.iter().for_each(|nodes| await_all_counted(nodes));
        let addresses: Vec<Vec<String>> = nodes
            .iter()
            .map(|nodes| nodes.iter().map(|node| node.address.clone()).collect())
            .collect();
        let fleet = Self {
            paths,
            nodes,
            all: DecisionLogs::open(&logs.concat(), &[RULE]),
            by_region: logs.iter().map(|logs| DecisionLogs::open(logs, &[RULE])).collect(),
            load: RegionLoad::start(&addresses, 3 * RATE / 2),
            _stores: stores,
            _folder: folder,
        };
        for region in 0..REGIONS.len() {
            fleet.await_usable(region, REGIONS.len() - 1);
        }
        fleet
    }

    /// Waits until the nodes of a region may borrow from this many others.
    fn await_usable(&self, region: usize, others: usize) {
        wait_for(&format!("{} to use {others} regions", REGIONS[region]), || {
            let usable = |node: &ServerProcess| {
                let mut client = crate::support::HttpTestClient::connect(&node.admin_address());
                let status = client.get("/v1/status").body;
                let lenders = status["regions"]["lenders"].as_array().unwrap();
                lenders.iter().filter(|lender| lender["state"] == "usable").count() == others
            };
            self.nodes[region].iter().all(usable).then_some(())
        });
    }

    /// Moves the demand to a region. Waits until, for two seconds, its nodes admit `wanted` a second
    /// after its own burst is spent.
    fn await_use(&mut self, region: usize, wanted: u64) {
        self.load.move_to(region);
        let since = wall_clock() + 2_000_000;
        wait_for(&format!("{wanted} a second in {}", REGIONS[region]), || {
            let logs = &mut self.by_region[region];
            logs.read();
            let ledger = &logs.ledgers[RULE.id];
            let admitted = |from| ledger.admitted_between(from, from + 2_000_000);
            let mut starts = (0..200).map(|tenth| since + tenth * 100_000);
            starts.any(|from| admitted(from) >= 2 * wanted).then_some(())
        });
    }

    /// If the others use nothing, the region can use nearly the whole limit.
    fn await_full_use(&mut self, region: usize) {
        self.await_use(region, RATE * 9 / 10);
    }

    /// Cuts all links of a region.
    fn cut_off(&self, region: usize) {
        self.paths_of(region).for_each(|path| path.proxy.blackhole());
        self.await_usable(region, 0);
    }

    fn heal(&self, region: usize) {
        self.paths_of(region).for_each(RegionPath::connect);
        self.await_usable(region, REGIONS.len() - 1);
    }

    fn paths_of(&self, region: usize) -> impl Iterator<Item = &RegionPath> {
        self.paths.iter().filter(move |path| path.from == region || path.to == region)
    }

    #[track_caller]
    fn stop_and_check(mut self) {
        self.load.stop();
        drop(self.nodes);
        self.all.read();
        assert_eq!(self.all.ledgers[RULE.id].check(), Ok(()));
        let [lease, borrowed, fallback] =
            ["lease", "borrowed", "fallback"].map(|by| self.all.answered_by(by));
        // Three phases of at least two seconds use little but borrowed units.
        assert!(borrowed > 2 * RATE, "{lease} answered by leases, {borrowed} with borrowed units");
        assert_eq!(fallback, 0, "on_fail: deny");
    }
}

/// A delayed link from each region to each other.
fn region_paths(stores: &[Redis]) -> Vec<RegionPath> {
    let pairs = (0..stores.len()).flat_map(|from| (0..stores.len()).map(move |to| (from, to)));
    let path = |(from, to): (usize, usize)| {
        let path = RegionPath { from, to, proxy: FaultProxy::start(stores[to].address()) };
        path.connect();
        path
    };
    pairs.filter(|(from, to)| from != to).map(path).collect()
}

fn start_node(
    region: usize,
    stores: &[Redis],
    paths: &[RegionPath],
    rules: &Path,
    log: &Path,
) -> ServerProcess {
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--admin", "127.0.0.1:0"]);
    command.args(["--log", "json", "--log-level", "debug", "--store-deadline", "2s"]);
    command.args(["--region", REGIONS[region], "--store", &stores[region].url()]);
    for path in paths.iter().filter(|path| path.from == region) {
        let url = format!("{}=redis://{}", REGIONS[path.to], path.proxy.address());
        command.args(["--region-store", &url]);
    }
    command.arg("--config").arg(rules);
    ServerProcess::spawn_logging_to(command, Stdio::from(File::create(log).unwrap()))
}

#[test]
fn moving_demand_keeps_bound_through_partitions() {
    let mut fleet = RegionFleet::start();
    for region in [EU, US, AP] {
        fleet.await_full_use(region);
    }
    // The demand stays where it cannot borrow, then elsewhere, where less is left to borrow.
    fleet.cut_off(AP);
    fleet.await_use(AP, RATE * SHARES[AP] / 100 * 4 / 5);
    fleet.await_use(EU, RATE * SHARES[EU] / 100 * 4 / 5);
    fleet.heal(AP);
    fleet.await_full_use(AP);
    // Units that a killed node holds are lost, not spent twice.
    fleet.nodes[AP][0].signal("KILL");
    fleet.await_full_use(US);
    fleet.stop_and_check();
}
