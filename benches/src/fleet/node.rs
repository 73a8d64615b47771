//! Nodes of a fleet in this process, with the limiter and the tasks of `tidegate serve`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::Store as _;
use tidegate_limiter::Limiter;
use tidegate_memory::FastClock;
use tidegate_redis::{RedisAddress, RedisOptions};
use tidegate_rules::RuleSet;
use tidegate_server::store::{
    EmbeddedStore, SharedStore, StoreCallMetrics, shared_limiter, spawn_limiter_tasks,
};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::rules::compile;

/// The limiter of a node.
pub type NodeLimiter = Limiter<SharedStore, EmbeddedStore>;

/// Long enough that no decision of a busy machine is left to `on_fail`.
const DEADLINE: Duration = Duration::from_secs(5);

/// Memory for the counters that `on_fail: local` would need; the rules do not use it.
const LOCAL_BYTES: u64 = 1 << 20;

/// A node, whose tasks stop when it is dropped.
#[derive(Debug)]
pub struct FleetNode {
    /// Its limiter.
    pub limiter: Arc<NodeLimiter>,
    pub(crate) tasks: JoinSet<()>,
}

/// Starts `count` nodes that share counters under `name`, and waits until they know of each other.
///
/// # Panics
/// When the server does not answer, or the rules are invalid.
#[must_use]
pub fn start_nodes(
    runtime: &Runtime,
    server: &RedisServer,
    name: &str,
    count: u32,
    rules: &str,
) -> Vec<FleetNode> {
    let options = node_options(server, &format!("{name}:"));
    let _in_runtime = runtime.enter();
    let start = |_| FleetNode::start(&options, compile(rules), &[]);
    let nodes: Vec<FleetNode> = (0..count).map(start).collect();
    nodes.iter().for_each(|node| node.await_counted(runtime, count));
    nodes
}

/// How nodes connect to their store, and the prefix of their keys.
///
/// # Panics
/// When the URL is invalid.
#[must_use]
pub fn node_options(server: &RedisServer, prefix: &str) -> RedisOptions {
    let address = RedisAddress::parse(&server.url()).expect("parse the Redis URL");
    let prefix = prefix.to_owned();
    RedisOptions { deadline: DEADLINE, prefix, ..RedisOptions::new(address) }
}

impl FleetNode {
    /// Starts a node whose rules may borrow from the regions `lenders`. Must be called inside a
    /// tokio runtime.
    #[must_use]
    pub fn start(options: &RedisOptions, rules: RuleSet, lenders: &[&str]) -> Self {
        let local = EmbeddedStore::with_clock(FastClock::new(), LOCAL_BYTES);
        let mut limiter = shared_limiter(SharedStore::start(options), local, rules);
        if !lenders.is_empty() {
            limiter = limiter.with_lenders(lenders.iter().copied());
        }
        let (limiter, mut tasks) = (Arc::new(limiter), JoinSet::new());
        spawn_limiter_tasks(&limiter, &Arc::new(StoreCallMetrics::default()), &mut tasks);
        Self { limiter, tasks }
    }

    /// Waits until the node knows that `count` nodes share its store.
    ///
    /// # Panics
    /// When the store does not answer.
    pub fn await_counted(&self, runtime: &Runtime, count: u32) {
        let store = self.limiter.store();
        let ready = runtime.block_on(store.wait_ready(DEADLINE));
        assert!(ready, "{:?}", store.unavailable_reason());
        eventually("the node knows of the others", || store.node_count() == count);
    }

    /// The requests that the node has sent to the store.
    #[must_use]
    pub fn store_requests(&self) -> u64 {
        self.limiter.store().stats().batch.sum
    }
}
