//! Split rules on a real server and on a cluster: the parts are on different shards, and all nodes
//! together admit what the limit admits.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{TEST_TIMEOUT, options};
use tidegate_core::key::Secret;
use tidegate_core::policy::Algorithm;
use tidegate_limiter::{Decision, Limiter};
use tidegate_redis::RedisStore;
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::{RedisCluster, RedisServer, slot_of};
use tokio::runtime::Runtime;

const NODES: usize = 3;
const CALLERS: usize = 24;
const LIMIT: u64 = 403;
const PARTS: usize = 8;

/// Rules whose windows begin before the test and end after it.
fn rules(keyed_limit: u64) -> RuleSet {
    let rule = |algorithm: Algorithm| {
        let limit = format!("{{ requests: {LIMIT}, window: 300d, algorithm: {algorithm} }}");
        format!(
            "  - {{ id: {algorithm}, match: {{ path: /{algorithm} }}, key_by: global, \
             limit: {limit}, split: {PARTS} }}\n"
        )
    };
    let split: String = Algorithm::ALL.into_iter().map(rule).collect();
    let keyed = format!(
        "  - {{ id: keyed, match: {{ path: /both }}, key_by: user_id, \
         limit: {keyed_limit}/300d using fixed_window, split: {PARTS} }}\n"
    );
    let beside = "  - { id: beside, match: { path: /both }, key_by: ip, \
                  limit: 5000/300d using fixed_window }\n";
    let document = Document::parse("rules.yaml", &format!("rules:\n{split}{keyed}{beside}"));
    let set = RuleSet::compile(&document.expect("a document"), Secret::UNSET).expect("rules");
    set.for_shared_store()
}

fn facts(path: &str) -> Facts<'static> {
    let path = format!("/{path}");
    [("path", path.as_str()), ("user_id", "ann"), ("ip", "203.0.113.7")]
        .map(|(name, value)| (name, value.to_owned()))
        .into_iter()
        .collect()
}

/// Nodes with a deny cache each.
struct Fleet {
    runtime: Runtime,
    nodes: Vec<Arc<Limiter<RedisStore>>>,
}

impl Fleet {
    fn connect(url: &str) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let options = tidegate_redis::RedisOptions { deny_cache: true, ..options(url) };
        let node = |number: u64| {
            let _inside = runtime.enter();
            let limiter = Limiter::new(RedisStore::start(&options), rules(LIMIT));
            Arc::new(limiter.with_part_seed(number))
        };
        let nodes: Vec<_> = (0..NODES as u64).map(node).collect();
        for node in &nodes {
            let ready = runtime.block_on(node.store().wait_ready(TEST_TIMEOUT));
            assert!(ready, "{:?}", node.store().unavailable_reason());
        }
        Self { runtime, nodes }
    }

    fn decide(&self, node: usize, path: &str, cost: u32) -> Decision {
        self.runtime.block_on(self.nodes[node % NODES].decide(&facts(path), cost))
    }

    /// All callers send requests with costs of 1 to 3. Returns the cost that was admitted.
    fn decide_concurrently(&self, path: &'static str, requests: u32) -> u64 {
        let caller = |number: usize| {
            let node = Arc::clone(&self.nodes[number % NODES]);
            self.runtime.spawn(async move {
                let mut admitted = 0;
                for i in 0..requests {
                    let cost = 1 + i % 3;
                    let decision = node.decide(&facts(path), cost).await;
                    admitted += if decision.is_allowed() { u64::from(cost) } else { 0 };
                }
                admitted
            })
        };
        let callers: Vec<_> = (0..CALLERS).map(caller).collect();
        callers.into_iter().map(|one| self.runtime.block_on(one).expect("no panic")).sum()
    }

    /// Requests of cost 1, until every part has refused some. Returns how many were admitted.
    fn use_up(&self, path: &str) -> u64 {
        (0..300).map(|i| u64::from(self.decide(i, path, 1).is_allowed())).sum()
    }

    /// What is left of each rule, over all parts.
    fn remaining(&self, path: &str) -> Vec<u64> {
        let decision = self.runtime.block_on(self.nodes[0].peek(&facts(path), None, 1));
        let left = |(_, reading): (_, &tidegate_limiter::RuleReading)| {
            reading.numbers.expect("a counter").remaining
        };
        decision.readings().map(left).collect()
    }

    fn check_exact_limits(&self) {
        for algorithm in Algorithm::ALL.map(Algorithm::name) {
            let admitted = self.decide_concurrently(algorithm, 20);
            assert!(admitted <= LIMIT, "{algorithm}: {admitted}");
            // Each refused request saw two parts that have less left than its cost.
            assert!(admitted >= LIMIT - 2 * PARTS as u64, "{algorithm}: {admitted}");
            assert_eq!(self.remaining(algorithm), [LIMIT - admitted], "{algorithm}");
            assert_eq!(admitted + self.use_up(algorithm), LIMIT, "{algorithm}");
            assert_eq!(self.remaining(algorithm), [0], "{algorithm}");
        }
    }

    /// A reload does not change which part was charged.
    fn check_refunds(&self) {
        let node = &self.nodes[0];
        for limit in [LIMIT, LIMIT + 9] {
            let charged: Vec<Decision> = (0..40).map(|_| self.decide(0, "both", 2)).collect();
            assert!(charged.iter().all(Decision::is_allowed));
            self.runtime.block_on(node.install(rules(limit))).expect("the store's time");
            for decision in charged {
                self.runtime.block_on(node.refund_decision(decision));
            }
            assert_eq!(self.remaining("both"), [limit, 5_000]);
        }
        self.runtime.block_on(node.install(rules(LIMIT))).expect("the store's time");
    }

    fn check_reset(&self) {
        let path = facts("token_bucket");
        let reset = self.nodes[1].reset(&path, Some("token_bucket"));
        self.runtime.block_on(reset);
        assert_eq!(self.remaining("token_bucket"), [LIMIT]);
    }
}

#[test]
fn split_fleet_on_one_server_admits_limit() {
    let server = RedisServer::start();
    let fleet = Fleet::connect(&server.url());
    fleet.check_exact_limits();
    fleet.check_reset();
    fleet.check_refunds();
}

#[test]
fn split_fleet_on_cluster_admits_limit_across_shards() {
    let cluster = RedisCluster::start();
    let hosts: Vec<String> =
        cluster.nodes()[..3].iter().map(|node| node.address().to_string()).collect();
    let fleet = Fleet::connect(&format!("redis+cluster://{}", hosts.join(",")));
    let mut slots = BTreeSet::new();
    fleet.decide_concurrently("token_bucket", 2);
    for primary in &cluster.nodes()[..3] {
        let keys = primary.command(&["KEYS", "tg:{*"]);
        let count = keys.items().len();
        assert!((2..=3).contains(&count), "{count} of {PARTS} parts on one of three shards");
        slots.extend(keys.items().iter().map(|key| slot_of(key.text())));
    }
    assert_eq!(slots.len(), PARTS, "each part is in its own slot");
    fleet.runtime.block_on(fleet.nodes[0].reset(&facts("token_bucket"), Some("token_bucket")));
    fleet.check_exact_limits();
    fleet.check_reset();
    fleet.check_refunds();
    // With a rule beside it, whose counter is in another slot.
    let admitted = fleet.decide_concurrently("both", 20);
    assert!(admitted <= LIMIT, "{admitted}");
    let left = [LIMIT - admitted, 5_000 - admitted];
    eventually("only what was admitted is charged", || fleet.remaining("both") == left);
}
