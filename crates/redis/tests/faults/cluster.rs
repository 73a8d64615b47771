//! A cluster that loses a primary, moves slots, or is mostly dead when the node starts.

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

/// A primary that is lost takes no other's slots with it.
const ALLOW_PARTIAL_COVERAGE: [&str; 2] = ["--cluster-require-full-coverage", "no"];

fn cluster_url<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let hosts: Vec<String> =
        servers.into_iter().map(|server| server.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// The name of a test's counter in Redis: the hash in its braces is 128 bits in digits of six.
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

/// Another key whose counter is in the same slot.
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
    let (policy, mut told) = (policy(), [Reading::default()]);
    let asked = [charge(&policy, key, 1)];
    runtime.block_on(store.apply(op, &asked, &mut told)).map(|_| told[0])
}

/// Callers of some keys; what the store did not answer is told.
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
                let (policy, mut told) = (policy(), [Reading::default()]);
                let (mut admitted, mut lost) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let one = [charge(&policy, key, 1)];
                    match store.apply(Op::Charge, &one, &mut told).await {
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

    /// What was admitted to each, and whom the store did not answer.
    fn stop(self, runtime: &Runtime) -> (Vec<u64>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let told = self.tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic"));
        let (admitted, lost): (Vec<u64>, Vec<Vec<String>>) = told.unzip();
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
    let ask = || {
        let mut told = [Reading::default(); 2];
        let answer = node.runtime.block_on(node.store().apply(Op::Charge, &both, &mut told));
        (answer, used(&told[1]))
    };
    assert!(ask().0.is_ok());
    victim.process().kill();
    node.await_unavailable();
    let before = ask();
    let error = before.0.expect_err("half of it is lost");
    assert_eq!(error.answered, [1], "{error}");
    let (answer, counted) = ask();
    assert_eq!(
        (answer.expect_err("half of it is lost").answered, counted),
        (vec![1], before.1 + 1)
    );
    let heir = cluster.fail_over(victim);
    node.await_recovered();
    let back = poll_until(MAX_RECOVERY_TIME, || ask().0.is_ok().then_some(()));
    assert!(back.is_some(), "{:?}", ask().0);
    load.await_store_answers();
    load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"], "{:?}", node.events());
    assert_all_keys_expire(heir);
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
    // Many, so that requests for both travel together.
    let callers = KeyCallers::start(&runtime, &store, &[[key, second]; 8].concat());
    callers.await_progress();
    cluster.begin_move(slot, other);
    callers.await_progress();
    // From here on one of the two is there and one here, and whoever asks for both is told TRYAGAIN.
    cluster.move_key(counter_key(key), other);
    callers.await_progress();
    cluster.finish_move(slot, other);
    callers.await_progress();
    // And back, all at once.
    cluster.move_slot(slot, home);
    callers.await_progress();
    let (admitted, lost) = callers.stop(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "every one is answered by the store");
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
    // It is not here, so it is there, at one that nobody has spoken to.
    let told = apply_one(&runtime, &store, Op::Charge, second);
    assert_eq!(used(&told.expect("the newcomer answers")), 1);
    let callers = KeyCallers::start(&runtime, &store, &[first, second]);
    callers.await_progress();
    cluster.finish_move(slot, newcomer);
    callers.await_progress();
    let (admitted, lost) = callers.stop(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "every one is answered by the store");
    let stands =
        |key| used(&apply_one(&runtime, &store, Op::Peek, key).expect("the server answers"));
    assert_eq!([stands(first), stands(second)], [1 + admitted[0], 1 + admitted[1]]);
    assert_eq!(store.unavailable_reason(), None);
}

/// A replica that is made a primary without slots.
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
    eventually("everybody knows the newcomer as a primary", || {
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
    assert_eq!(node.event_names(), Vec::<&str>::new(), "nothing of theirs was needed");
    // One that nobody asks, not even for the number of nodes.
    let nodes = cluster.primary_of(slot_of("tg:nodes")).port();
    let idle = cluster.nodes()[..3].iter().find(|primary| primary.port() != nodes).expect("two");
    idle.process().kill();
    let why = node.await_unavailable();
    assert!(why.contains(&idle.address().to_string()), "{why}");
    idle.restart();
    eventually("the cluster is well", || cluster.is_healthy());
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
    eventually("it is told once", || node.event_names() == ["lost"]);
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

/// What was charged beside a refusal is given back; that the server which should take it does not
/// answer is no reason to let the caller wait.
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
    let asking = Arc::clone(&store);
    let asked = runtime.spawn(async move {
        let (policy, mut told) = (policy(), [Reading::default(); 2]);
        let both = [charge(&policy, refused, AMPLE_LIMIT + 1), charge(&policy, charged, 1)];
        let begun = tokio::time::Instant::now();
        let answer = asking.apply(Op::Charge, &both, &mut told).await;
        (answer, told, begun.elapsed())
    });
    let is_charged = || lenient.command(&["EXISTS", &counter_key(charged)]).integer() == 1;
    eventually("one of two is charged", is_charged);
    // Half of the time is over when the other one refuses.
    let half_of_it = poll_until(DEADLINE / 2, || asked.is_finished().then_some(()));
    assert_eq!(half_of_it, None, "a server that stands still answers nobody");
    lenient.process().pause();
    strict.process().resume();
    let (answer, told, took) = runtime.block_on(asked).expect("no panic");
    assert_eq!(answer.map(|_| told[0].verdict), Ok(Verdict::Deny));
    assert!(took < DEADLINE * 5 / 4, "answered after {took:?}");
    lenient.process().resume();
    eventually("it was given back", || {
        let told = apply_one(&runtime, &store, Op::Peek, charged);
        told.is_ok_and(|told| used(&told) == 0)
    });
}
