//! A cluster that loses a primary, moves slots, or is mostly dead when the node starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Op, Store as _, StoreError};
use tidegate_redis::RedisStore;
use tidegate_testkit::process::{eventually, within};
use tidegate_testkit::proxy::Proxy;
use tidegate_testkit::redis::{Cluster, Server, slot_of};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::load::Load;
use crate::node::{
    HEALED, Node, PLENTY, all_expire, alone, charge, clients, policy, runtime, store, used,
};

/// A primary that is lost takes no other's slots with it.
const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];

fn url<'a>(servers: impl IntoIterator<Item = &'a Server>) -> String {
    let hosts: Vec<String> =
        servers.into_iter().map(|server| server.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// The name of a test's counter in Redis: the hash in its braces is 128 bits in digits of six.
fn name(key: u64) -> String {
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
fn neighbour(key: u64) -> u64 {
    let slot = slot_of(name(key));
    (0..1_000_000).find(|&other| other != key && slot_of(name(other)) == slot).expect("a key")
}

/// A key whose counter is on a server.
fn key_on(cluster: &Cluster, server: &Server) -> u64 {
    let there = |key: &u64| cluster.primary_of(slot_of(name(*key))).port() == server.port();
    (0..1_000).find(there).expect("a key")
}

fn ask(runtime: &Runtime, store: &RedisStore, op: Op, key: u64) -> Result<Reading, StoreError> {
    let (policy, mut told) = (policy(), [Reading::default()]);
    let asked = [charge(&policy, key, 1)];
    runtime.block_on(store.apply(op, &asked, &mut told)).map(|_| told[0])
}

/// Callers of some keys; what the store did not answer is told.
struct Callers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<(u64, Vec<String>)>>,
}

impl Callers {
    fn of(runtime: &Runtime, store: &Arc<RedisStore>, keys: &[u64]) -> Self {
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

    fn go_on(&self) {
        let from = self.answered.load(Ordering::SeqCst);
        eventually("callers are answered", || self.answered.load(Ordering::SeqCst) > from + 200);
    }

    /// What was admitted to each, and whom the store did not answer.
    fn end(self, runtime: &Runtime) -> (Vec<u64>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let told = self.tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic"));
        let (admitted, lost): (Vec<u64>, Vec<Vec<String>>) = told.unzip();
        (admitted, lost.concat())
    }
}

#[test]
fn a_primary_dies_and_only_its_slots_are_lost_until_its_replica_has_them() {
    let cluster = Cluster::start_with(&PARTIAL);
    let _alone = alone();
    let node = Node::ready(&url(cluster.nodes()));
    let load = Load::on(&node);
    let victim = &cluster.nodes()[0];
    let policy = policy();
    let (lost, kept) = (key_on(&cluster, victim), key_on(&cluster, &cluster.nodes()[1]));
    let both = [charge(&policy, lost, 1), charge(&policy, kept, 1)];
    let ask = || {
        let mut told = [Reading::default(); 2];
        let answer = node.runtime.block_on(node.store().apply(Op::Charge, &both, &mut told));
        (answer, used(&told[1]))
    };
    assert!(ask().0.is_ok());
    victim.process().kill();
    node.await_lost();
    let before = ask();
    let error = before.0.expect_err("half of it is lost");
    assert_eq!(error.answered, [1], "{error}");
    let (answer, counted) = ask();
    assert_eq!(
        (answer.expect_err("half of it is lost").answered, counted),
        (vec![1], before.1 + 1)
    );
    let heir = cluster.fail_over(victim);
    node.await_back();
    let back = within(HEALED, || ask().0.is_ok().then_some(()));
    assert!(back.is_some(), "{:?}", ask().0);
    load.goes_on();
    load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"], "{:?}", node.events());
    all_expire(heir);
    node.end(&cluster.nodes()[1..]);
}

#[test]
fn slots_move_under_load_and_nobody_notices() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let _alone = alone();
    let store = store(&runtime, &url(&cluster.nodes()[..3]), Duration::from_secs(2));
    let [home, other, ..] = cluster.nodes() else { panic!("several nodes") };
    let key = key_on(&cluster, home);
    let (slot, second) = (slot_of(name(key)), neighbour(key));
    // Many, so that requests for both travel together.
    let callers = Callers::of(&runtime, &store, &[[key, second]; 8].concat());
    callers.go_on();
    cluster.begin_move(slot, other);
    callers.go_on();
    // From here on one of the two is there and one here, and whoever asks for both is told TRYAGAIN.
    cluster.move_key(name(key), other);
    callers.go_on();
    cluster.finish_move(slot, other);
    callers.go_on();
    // And back, all at once.
    cluster.move_slot(slot, home);
    callers.go_on();
    let (admitted, lost) = callers.end(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "every one is answered by the store");
    let stands = |key| used(&ask(&runtime, &store, Op::Peek, key).expect("the server answers"));
    let sum = |from: usize| admitted.iter().skip(from).step_by(2).sum::<u64>();
    assert_eq!([stands(key), stands(second)], [sum(0), sum(1)], "each is counted once");
    drop(store);
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
    for node in cluster.nodes() {
        eventually("no connection is left", || clients(node) == 0);
    }
}

#[test]
fn a_slot_moves_to_a_server_that_never_had_any() {
    let cluster = Cluster::start();
    let newcomer = newcomer(&cluster);
    let runtime = runtime();
    let _alone = alone();
    let store = store(&runtime, &url(&cluster.nodes()[..3]), Duration::from_secs(2));
    let (first, second) = (3, neighbour(3));
    let slot = slot_of(name(first));
    ask(&runtime, &store, Op::Charge, first).expect("the server answers");
    cluster.begin_move(slot, newcomer);
    // It is not here, so it is there, at one that nobody has spoken to.
    let told = ask(&runtime, &store, Op::Charge, second);
    assert_eq!(used(&told.expect("the newcomer answers")), 1);
    let callers = Callers::of(&runtime, &store, &[first, second]);
    callers.go_on();
    cluster.finish_move(slot, newcomer);
    callers.go_on();
    let (admitted, lost) = callers.end(&runtime);
    assert_eq!(lost, Vec::<String>::new(), "every one is answered by the store");
    let stands = |key| used(&ask(&runtime, &store, Op::Peek, key).expect("the server answers"));
    assert_eq!([stands(first), stands(second)], [1 + admitted[0], 1 + admitted[1]]);
    assert_eq!(store.lost(), None);
}

/// A replica that is made a primary without slots.
fn newcomer(cluster: &Cluster) -> &Server {
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
        }) && cluster.is_well()
    });
    newcomer
}

#[test]
fn one_seed_that_lives_is_enough() {
    let cluster = Cluster::start();
    let dead: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    dead[0].process().kill();
    dead[1].process().pause();
    let _alone = alone();
    let seeds = dead.iter().chain([&cluster.nodes()[4]]);
    let node = Node::ready(&url(seeds));
    let load = Load::on(&node);
    load.end(&node, 0);
    assert_eq!(node.told(), Vec::<&str>::new(), "nothing of theirs was needed");
    // One that nobody asks, not even for the number of nodes.
    let nodes = cluster.primary_of(slot_of("tg:nodes")).port();
    let idle = cluster.nodes()[..3].iter().find(|primary| primary.port() != nodes).expect("two");
    idle.process().kill();
    let why = node.await_lost();
    assert!(why.contains(&idle.address().to_string()), "{why}");
    idle.restart();
    eventually("the cluster is well", || cluster.is_well());
    node.await_back();
    assert_eq!(node.told(), ["lost", "back"]);
    node.end(cluster.nodes());
}

#[test]
fn a_cluster_that_comes_later_is_found() {
    let cluster = Cluster::start();
    let proxy = Proxy::before(cluster.nodes()[3].address());
    proxy.refuse();
    let _alone = alone();
    let node = Node::start(&format!("redis+cluster://{}", proxy.address()));
    eventually("it is told once", || node.told() == ["lost"]);
    let why = node.await_lost();
    assert!(why.contains(&proxy.address().to_string()) && why.contains("refused"), "{why}");
    proxy.pass();
    node.await_back();
    node.await_ready();
    let load = Load::on(&node);
    load.end(&node, 0);
    assert_eq!(node.told(), ["lost", "back"]);
    node.end(cluster.nodes());
}

/// What was charged beside a refusal is given back; that the server which should take it does not
/// answer is no reason to let the caller wait.
#[test]
fn nobody_waits_for_what_is_given_back() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let cluster = Cluster::start();
    let runtime = runtime();
    let _alone = alone();
    let store = store(&runtime, &url(&cluster.nodes()[..3]), DEADLINE);
    let [strict, lenient, ..] = cluster.nodes() else { panic!("several nodes") };
    let (refused, charged) = (key_on(&cluster, strict), key_on(&cluster, lenient));
    strict.process().pause();
    let asking = Arc::clone(&store);
    let asked = runtime.spawn(async move {
        let (policy, mut told) = (policy(), [Reading::default(); 2]);
        let both = [charge(&policy, refused, PLENTY + 1), charge(&policy, charged, 1)];
        let begun = tokio::time::Instant::now();
        let answer = asking.apply(Op::Charge, &both, &mut told).await;
        (answer, told, begun.elapsed())
    });
    let is_charged = || lenient.command(&["EXISTS", &name(charged)]).integer() == 1;
    eventually("one of two is charged", is_charged);
    // Half of the time is over when the other one refuses.
    let half_of_it = within(DEADLINE / 2, || asked.is_finished().then_some(()));
    assert_eq!(half_of_it, None, "a server that stands still answers nobody");
    lenient.process().pause();
    strict.process().resume();
    let (answer, told, took) = runtime.block_on(asked).expect("no panic");
    assert_eq!(answer.map(|_| told[0].verdict), Ok(Verdict::Deny));
    assert!(took < DEADLINE * 5 / 4, "answered after {took:?}");
    lenient.process().resume();
    eventually("it was given back", || {
        let told = ask(&runtime, &store, Op::Peek, charged);
        told.is_ok_and(|told| used(&told) == 0)
    });
}
