//! A fleet of nodes on one Redis server or cluster: a limit of L admits exactly L requests,
//! whichever node they reach.
//!
//! Each node is a separate store with many concurrent callers. The deadline is generous: with a
//! short one, a scheduler stall on a small machine would count as an outage.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_redis::{RedisAddress, RedisOptions, RedisStore};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::{RedisCluster, RedisServer};
use tokio::runtime::Runtime;

const NODES: u64 = 4;
const CALLERS: u64 = 12;
const REQUESTS_PER_CALLER: u64 = 15;
const LIMIT: u64 = 300;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

struct RedisFleet {
    runtime: Runtime,
    stores: Vec<Arc<RedisStore>>,
}

impl RedisFleet {
    fn connect(url: &str) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let address = RedisAddress::parse(url).expect("an address");
        let deadline = Duration::from_secs(2);
        let options = RedisOptions { deadline, ..RedisOptions::new(address) };
        let start = |_| {
            let _inside = runtime.enter();
            Arc::new(RedisStore::start(&options))
        };
        let stores: Vec<_> = (0..NODES).map(start).collect();
        for store in &stores {
            let ready = runtime.block_on(store.wait_ready(Duration::from_secs(10)));
            assert!(ready, "{:?}", store.unavailable_reason());
        }
        Self { runtime, stores }
    }

    /// All callers charge the same counters. Returns the number of admitted requests.
    fn charge_concurrently(&self, counters: &[FleetCounter]) -> u64 {
        let callers: Vec<_> = (0..NODES * CALLERS)
            .map(|caller| {
                let node = usize::try_from(caller % NODES).expect("small");
                let (store, counters) = (Arc::clone(&self.stores[node]), counters.to_vec());
                self.runtime.spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..REQUESTS_PER_CALLER {
                        let reply = apply(&store, Op::Charge, &counters).await;
                        admitted += u64::from(!reply.iter().any(|reply| reply.verdict.refuses()));
                    }
                    admitted
                })
            })
            .collect();
        let reply = callers.into_iter().map(|one| self.runtime.block_on(one).expect("no panic"));
        reply.sum()
    }

    /// The used quota of each counter.
    fn used(&self, counters: &[FleetCounter]) -> Vec<u64> {
        let reply = self.runtime.block_on(apply(&self.stores[0], Op::Peek, counters));
        reply.iter().map(|reply| reply.limit - reply.remaining).collect()
    }
}

/// A counter and its limit. Its window starts before the test and ends after it, and a bucket
/// refills nothing in that time, so exactly L requests can be admitted.
#[derive(Clone, Copy)]
struct FleetCounter {
    number: u64,
    policy: Policy,
}

impl FleetCounter {
    fn new(number: u64, algorithm: Algorithm, limit: u64) -> Self {
        let quota = Quota::new(limit, Micros::from_secs(300 * 86_400));
        Self { number, policy: Policy::new(algorithm, quota).expect("a policy") }
    }

    fn charge(&self) -> Charge<'_> {
        // Spread the keys, so that adjacent ones do not share a slot.
        let hi = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = Key::without_namespace("fleet", Fingerprint { hi, lo: self.number });
        let policy = &self.policy;
        Charge::plain(key, policy, 1)
    }
}

async fn apply(store: &RedisStore, op: Op, counters: &[FleetCounter]) -> Vec<Reading> {
    let charges: Vec<Charge<'_>> = counters.iter().map(FleetCounter::charge).collect();
    let mut reply = vec![Reading::default(); charges.len()];
    store.apply(op, &charges, &mut reply).await.expect("the store answers");
    reply
}

/// Checks each algorithm separately.
fn check_exact_limit(fleet: &RedisFleet) {
    for (number, algorithm) in (0..).zip(ALGORITHMS) {
        let counter = [FleetCounter::new(number, algorithm, LIMIT)];
        assert_eq!(fleet.charge_concurrently(&counter), LIMIT, "{}", algorithm.name());
        assert_eq!(fleet.used(&counter), [LIMIT], "{}", algorithm.name());
    }
}

#[test]
fn fleet_on_one_server_admits_exactly_limit() {
    let server = RedisServer::start();
    let fleet = RedisFleet::connect(&server.url());
    check_exact_limit(&fleet);
    let together: Vec<FleetCounter> = (10..)
        .zip(ALGORITHMS)
        .map(|(number, algorithm)| FleetCounter::new(number, algorithm, LIMIT + number))
        .collect();
    assert_eq!(
        fleet.charge_concurrently(&together),
        LIMIT + 10,
        "the smallest of five limits decides"
    );
    assert_eq!(fleet.used(&together), [LIMIT + 10; 5], "a refusal charges nothing");
}

#[test]
fn fleet_on_cluster_never_exceeds_limit() {
    let cluster = RedisCluster::start();
    let hosts: Vec<String> =
        cluster.nodes()[..3].iter().map(|node| node.address().to_string()).collect();
    let fleet = RedisFleet::connect(&format!("redis+cluster://{}", hosts.join(",")));
    check_exact_limit(&fleet);
    for (round, tightest) in (0..).zip(ALGORITHMS) {
        // The smallest limit is charged together with larger ones.
        let several: Vec<FleetCounter> = (0..)
            .zip(ALGORITHMS)
            .map(|(number, algorithm)| {
                let limit = if algorithm == tightest { LIMIT / 3 } else { LIMIT };
                FleetCounter::new(20 + 10 * round + number, algorithm, limit)
            })
            .collect();
        let admitted = fleet.charge_concurrently(&several);
        assert!(admitted <= LIMIT / 3, "{admitted} admitted");
        // Two concurrent requests may refuse each other; only then is quota left over.
        assert!(admitted >= LIMIT / 6, "{admitted} admitted");
        eventually("only what was admitted is charged", || fleet.used(&several) == [admitted; 5]);
    }
    let busy = cluster.nodes()[..3]
        .iter()
        .filter(|node| !node.command(&["KEYS", "tg:fleet:*"]).items().is_empty());
    assert_eq!(busy.count(), 3, "counters were on all primaries");
}
