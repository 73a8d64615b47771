//! A cluster that loses a primary, migrates slots, or is mostly down when the node starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Op, Store as _, StoreError};
use tidegate_redis::RedisStore;
use tidegate_testkit::process::{eventually, poll_until};
use tidegate_testkit::proxy::FaultProxy;
use tidegate_testkit::redis::{RedisCluster, RedisServer, slot_of};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::load::LoadGenerator;
use crate::node::{
    AMPLE_LIMIT, LimiterNode, MAX_RECOVERY_TIME, assert_all_keys_expire, charge,
    client_connections, exclusive_lock, policy, runtime, store, used,
};

/// The slots of the other primaries stay available when one primary is lost.
const ALLOW_PARTIAL_COVERAGE: [&str; 2] = ["--cluster-require-full-coverage", "no"];

fn cluster_url<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let hosts: Vec<String> =
        servers.into_iter().map(|server| server.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// The name of a test's counter in Redis. The hash tag encodes 128 bits, six bits per character.
fn counter_key(key: u64) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let Fingerprint { hi, lo } = charge(&policy(), key, 1).key.fingerprint;
    let bits = u128::from(hi) << 64 | u128::from(lo);
    let digit = |place: u32| {
        let six = if place < 21 { bits >> (122 - 6 * place) } else { bits << 4 } & 63;
        char::from(ALPHABET[usize::try_from(six).unwrap_or(0)])
    };
    format!("tg:test:{{{}}}", (0..22).map(digit).collect::<String>())
}

/// A different key whose counter is in the same slot.
fn key_in_same_slot(key: u64) -> u64 {
    let slot = slot_of(counter_key(key));
    (0..1_000_000)
        .find(|&other| other != key && slot_of(counter_key(other)) == slot)
        .expect("a key")
}

/// A key whose counter is on a server.
fn key_on_server(cluster: &RedisCluster, server: &RedisServer) -> u64 {
    let there = |key: &u64| cluster.primary_of(slot_of(counter_key(*key))).port() == server.port();
    (0..1_000).find(there).expect("a key")
}

fn apply_one(
    runtime: &Runtime,
    store: &RedisStore,
    op: Op,
    key: u64,
) -> Result<Reading, StoreError> {
    let (policy, mut reply) = (policy(), [Reading::default()]);
    let charges = [charge(&policy, key, 1)];
    runtime.block_on(store.apply(op, &charges, &mut reply)).map(|_| reply[0])
}

/// Tasks that charge some keys in a loop, and collect the store's errors.
struct KeyCallers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<(u64, Vec<String>)>>,
}

impl KeyCallers {
    fn start(runtime: &Runtime, store: &Arc<RedisStore>, keys: &[u64]) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = keys.iter().map(|&key| {
            let (store, stop, answered) = (Arc::clone(store), stop.clone(), answered.clone());
            runtime.spawn(async move {
                let (policy, mut reply) = (policy(), [Reading::default()]);
                let (mut admitted, mut lost) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let one = [charge(&policy, key, 1)];
                    match store.apply(Op::Charge, &one, &mut reply).await {
                        Ok(_) => admitted += 1,
                        Err(error) => lost.push(error.reason),
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                (admitted, lost)
            })
        });
        let tasks = tasks.collect();
        Self { stop, answered, tasks }
    }

    fn await_progress(&self) {
        let from = self.answered.load(Ordering::SeqCst);
        eventually("callers are answered", || self.answered.load(Ordering::SeqCst) > from + 200);
    }

    /// Stops the tasks. Returns the number admitted to each, and the store's errors.
    fn stop(self, runtime: &Runtime) -> (Vec<u64>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let reply = self.tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic"));
        let (admitted, lost): (Vec<u64>, Vec<Vec<String>>) = reply.unzip();
        (admitted, lost.concat())
    }
}

#[test]
fn dead_primary_loses_only_its_slots() {
    let cluster = RedisCluster::start_with(&ALLOW_PARTIAL_COVERAGE);
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&cluster_url(cluster.nodes()));
    let load = LoadGenerator::start(&node);
    let victim = &cluster.nodes()[0];
    let policy = policy();
    let (lost, kept) =
        (key_on_server(&cluster, victim), key_on_server(&cluster, &cluster.nodes()[1]));
    let both = [charge(&policy, lost, 1), charge(&policy, kept, 1)];
    let charge_both = || {
        let mut reply = [Reading::default(); 2];
        let answer = node.runtime.block_on(node.store().apply(Op::Charge, &both, &mut reply));
        (answer, used(&reply[1]))
    };
    assert!(charge_both().0.is_ok());
    victim.process().kill();
    node.await_unavailable();
    let before = charge_both();
    let error = before.0.expect_err("half of it is lost");
    assert_eq!(error.answered, [1], "{error}");
    let (answer, counted) = charge_both();
    assert_eq!(
        (answer.expect_err("half of it is lost").answered, counted),
        (vec![1], before.1 + 1)
    );
    let successor = cluster.fail_over(victim);
    node.await_recovered();
    let back = poll_until(MAX_RECOVERY_TIME, || charge_both().0.is_ok().then_some(()));
    assert!(back.is_some(), "{:?}", charge_both().0);
    load.await_store_answers();
    load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"], "{:?}", node.events());
    assert_all_keys_expire(successor);
    node.shut_down(&cluster.nodes()[1..]);
}

#[test]
fn slot_migration_under_load_loses_nothing() {
    let cluster = RedisCluster::start();
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &cluster_url(&cluster.nodes()[..3]), Duration::from_secs(2));
    let [home, other, ..] = cluster.nodes() else { panic!("several nodes") };
    let key = key_on_server(&cluster, home);
    let (slot, second) = (slot_of(counter_key(key)), key_in_same_slot(key));
    // Many callers, so that one batch contains both keys.
    let callers = KeyCallers::start(&runtime, &store, &[[key, second]; 8].concat());
    callers.await_progress();
    cluster.begin_move(slot, other);
    callers.await_progress();
    // From here on the two keys are on different servers; a call with both gets TRYAGAIN.
    cluster.move_key(counter_key(key), other);
    callers.await_progress();
    cluster.finish_move(slot, other);
    callers.await_progress();
    // And back, in one step.
    cluster.move_slot(slot, home);
    callers.await_progress();
    let (admitted, lost) = callers.stop(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "the store answers every request");
    let stands =
        |key| used(&apply_one(&runtime, &store, Op::Peek, key).expect("the server answers"));
    let sum = |from: usize| admitted.iter().skip(from).step_by(2).sum::<u64>();
    assert_eq!([stands(key), stands(second)], [sum(0), sum(1)], "each is counted once");
    drop(store);
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
    for node in cluster.nodes() {
        eventually("no connection is left", || client_connections(node) == 0);
    }
}

#[test]
fn slot_migrates_to_new_server() {
    let cluster = RedisCluster::start();
    let newcomer = join_empty_primary(&cluster);
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &cluster_url(&cluster.nodes()[..3]), Duration::from_secs(2));
    let (first, second) = (3, key_in_same_slot(3));
    let slot = slot_of(counter_key(first));
    apply_one(&runtime, &store, Op::Charge, first).expect("the server answers");
    cluster.begin_move(slot, newcomer);
    // The key does not exist on the old server, which redirects to one without a connection yet.
    let reply = apply_one(&runtime, &store, Op::Charge, second);
    assert_eq!(used(&reply.expect("the newcomer answers")), 1);
    let callers = KeyCallers::start(&runtime, &store, &[first, second]);
    callers.await_progress();
    cluster.finish_move(slot, newcomer);
    callers.await_progress();
    let (admitted, lost) = callers.stop(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "the store answers every request");
    let stands =
        |key| used(&apply_one(&runtime, &store, Op::Peek, key).expect("the server answers"));
    assert_eq!([stands(first), stands(second)], [1 + admitted[0], 1 + admitted[1]]);
    assert_eq!(store.unavailable_reason(), None);
}

/// Turns a replica into a primary without slots.
fn join_empty_primary(cluster: &RedisCluster) -> &RedisServer {
    let newcomer = &cluster.nodes()[5];
    let id = newcomer.command(&["CLUSTER", "MYID"]).text();
    let nodes = newcomer.command(&["CLUSTER", "NODES"]).text();
    let bus = nodes.lines().find(|line| line.starts_with(&id)).expect("itself");
    let bus = bus.split('@').nth(1).and_then(|rest| rest.split([',', ' ']).next()).expect("a bus");
    newcomer.command(&["CLUSTER", "RESET", "SOFT"]);
    newcomer.command(&["FLUSHALL"]);
    let port = newcomer.port().to_string();
    cluster.nodes()[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
    eventually("all nodes know the newcomer as a primary", || {
        cluster.nodes().iter().all(|node| {
            let known = node.command(&["CLUSTER", "NODES"]).text();
            let mut lines = known.lines().filter(|line| line.starts_with(&id));
            lines.any(|line| line.contains("master"))
                && known.lines().filter(|line| !line.contains("handshake")).count() == 6
        }) && cluster.is_healthy()
    });
    newcomer
}

#[test]
fn one_live_seed_is_enough() {
    let cluster = RedisCluster::start();
    let dead: Vec<RedisServer> = (0..2).map(|_| RedisServer::start()).collect();
    dead[0].process().kill();
    dead[1].process().pause();
    let _alone = exclusive_lock();
    let seeds = dead.iter().chain([&cluster.nodes()[4]]);
    let node = LimiterNode::start_ready(&cluster_url(seeds));
    let load = LoadGenerator::start(&node);
    load.stop(&node, 0);
    assert_eq!(node.event_names(), Vec::<&str>::new(), "the dead seeds cause no outage");
    // A primary without requests, which does not hold the node count either.
    let nodes = cluster.primary_of(slot_of("tg:nodes")).port();
    let idle = cluster.nodes()[..3].iter().find(|primary| primary.port() != nodes).expect("two");
    idle.process().kill();
    let why = node.await_unavailable();
    assert!(why.contains(&idle.address().to_string()), "{why}");
    idle.restart();
    eventually("the cluster is healthy", || cluster.is_healthy());
    node.await_recovered();
    assert_eq!(node.event_names(), ["lost", "back"]);
    node.shut_down(cluster.nodes());
}

#[test]
fn cluster_is_found_after_late_start() {
    let cluster = RedisCluster::start();
    let proxy = FaultProxy::start(cluster.nodes()[3].address());
    proxy.refuse();
    let _alone = exclusive_lock();
    let node = LimiterNode::start(&format!("redis+cluster://{}", proxy.address()));
    eventually("the outage is reported once", || node.event_names() == ["lost"]);
    let why = node.await_unavailable();
    assert!(why.contains(&proxy.address().to_string()) && why.contains("refused"), "{why}");
    proxy.pass();
    node.await_recovered();
    node.await_ready();
    let load = LoadGenerator::start(&node);
    load.stop(&node, 0);
    assert_eq!(node.event_names(), ["lost", "back"]);
    node.shut_down(cluster.nodes());
}

/// When one charge is refused, the others are refunded. If a server does not answer the refund, the
/// caller does not wait for it.
#[test]
fn refund_does_not_delay_the_answer() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let cluster = RedisCluster::start();
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &cluster_url(&cluster.nodes()[..3]), DEADLINE);
    let [strict, lenient, ..] = cluster.nodes() else { panic!("several nodes") };
    let (refused, charged) = (key_on_server(&cluster, strict), key_on_server(&cluster, lenient));
    strict.process().pause();
    let charging = Arc::clone(&store);
    let request = runtime.spawn(async move {
        let (policy, mut reply) = (policy(), [Reading::default(); 2]);
        let both = [charge(&policy, refused, AMPLE_LIMIT + 1), charge(&policy, charged, 1)];
        let begun = tokio::time::Instant::now();
        let answer = charging.apply(Op::Charge, &both, &mut reply).await;
        (answer, reply, begun.elapsed())
    });
    let is_charged = || lenient.command(&["EXISTS", &counter_key(charged)]).integer() == 1;
    eventually("one of two is charged", is_charged);
    // The other server refuses after half of the deadline.
    let early = poll_until(DEADLINE / 2, || request.is_finished().then_some(()));
    assert_eq!(early, None, "the paused server does not answer");
    lenient.process().pause();
    strict.process().resume();
    let (answer, reply, took) = runtime.block_on(request).expect("no panic");
    assert_eq!(answer.map(|_| reply[0].verdict), Ok(Verdict::Deny));
    assert!(took < DEADLINE * 5 / 4, "answered after {took:?}");
    lenient.process().resume();
    eventually("the charge is refunded", || {
        let reply = apply_one(&runtime, &store, Op::Peek, charged);
        reply.is_ok_and(|reply| used(&reply) == 0)
    });
}
