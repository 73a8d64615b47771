//! A node as in production: a limiter over a Redis store, with a local fallback that is settled,
//! and an observer of store events. Each node has a separate runtime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::Charge;
use tidegate_core::time::Micros;
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_redis::{RedisAddress, RedisOptions, RedisStore, StoreEvent, StoreObserver};
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_testkit::process::{eventually, poll_until};
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

pub(crate) type FallbackLimiter = Limiter<RedisStore, MemoryStore>;

/// The deadline of a decision; generous, because the machine is small and shared.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// How long a breaker may stay open after its server is healthy again (I8).
pub(crate) const MAX_RECOVERY_TIME: Duration = Duration::from_secs(2);

/// The burst of the rule with a local fallback.
pub(crate) const BURST: u64 = 10;

/// The limit of the other rules, which no test reaches. Their window starts long before the test
/// and ends long after it, so that no count expires.
pub(crate) const AMPLE_LIMIT: u64 = 1_000_000;

const RULES: &str = "facts: [kind]
rules:
  - { id: open, match: { kind: open }, key_by: user_id, on_fail: allow, limit: { requests: 1000000, window: 300d, algorithm: fixed_window } }
  - { id: closed, match: { kind: closed }, key_by: user_id, on_fail: deny, limit: { requests: 1000000, window: 300d, algorithm: fixed_window } }
  - { id: shared, match: { kind: shared }, key_by: user_id, on_fail: local, limit: { requests: 10, window: 300d } }";

/// A node with its runtime.
pub(crate) struct LimiterNode {
    pub(crate) runtime: Runtime,
    pub(crate) limiter: Arc<FallbackLimiter>,
    events: Arc<Mutex<Vec<StoreEvent>>>,
    settler: tokio::task::JoinHandle<()>,
}

impl LimiterNode {
    pub(crate) fn start(url: &str) -> Self {
        Self::start_with(url, DEADLINE)
    }

    pub(crate) fn start_with(url: &str, deadline: Duration) -> Self {
        let runtime = runtime();
        let events = Arc::new(Mutex::new(Vec::new()));
        let observed = Arc::clone(&events);
        let observer =
            StoreObserver::new(move |event: &StoreEvent| locked(&observed).push(event.clone()));
        let address = RedisAddress::parse(url).expect("an address");
        let options = RedisOptions { deadline, observer, ..RedisOptions::new(address) };
        let inside = runtime.enter();
        let store = RedisStore::start(&options);
        let limiter = Arc::new(Limiter::new(store, rules(RULES)).with_local(MemoryStore::new()));
        let settling = Arc::downgrade(&limiter);
        let settler = tokio::spawn(async move {
            while let Some(limiter) = settling.upgrade() {
                limiter.settle().await;
                drop(limiter);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        drop(inside);
        Self { runtime, limiter, events, settler }
    }

    /// Starts a node and waits until it has reached its servers.
    pub(crate) fn start_ready(url: &str) -> Self {
        let node = Self::start(url);
        node.await_ready();
        node
    }

    pub(crate) fn await_ready(&self) {
        let ready = self.runtime.block_on(self.store().wait_ready(Duration::from_secs(10)));
        assert!(ready, "{:?}", self.store().unavailable_reason());
    }

    pub(crate) fn store(&self) -> &RedisStore {
        self.limiter.store()
    }

    /// Waits until the node reports an unavailable server, and returns the reason.
    #[track_caller]
    pub(crate) fn await_unavailable(&self) -> String {
        tidegate_testkit::process::eventually_some("the node notices", || {
            self.store().unavailable_reason()
        })
    }

    /// Asserts that the breaker closes in time. The server must be healthy already.
    #[track_caller]
    pub(crate) fn await_recovered(&self) {
        let back = poll_until(MAX_RECOVERY_TIME, || {
            self.store().unavailable_reason().is_none().then_some(())
        });
        assert!(
            back.is_some(),
            "still open {MAX_RECOVERY_TIME:?} after: {:?}",
            self.store().unavailable_reason()
        );
    }

    /// The names of the store events so far.
    pub(crate) fn event_names(&self) -> Vec<&'static str> {
        let events = locked(&self.events);
        let short = |event: &StoreEvent| match event {
            StoreEvent::Lost { .. } => "lost",
            StoreEvent::Recovered { .. } => "back",
        };
        events.iter().map(short).collect()
    }

    /// The store events so far.
    pub(crate) fn events(&self) -> Vec<StoreEvent> {
        locked(&self.events).clone()
    }

    /// How much of a rule's limit a user has used, according to the store.
    pub(crate) fn used(&self, kind: &str, user: &str) -> u64 {
        let facts = facts(kind, user);
        let reply = self.runtime.block_on(self.limiter.peek(&facts, None, 1));
        assert_eq!(reply.answered_by().name(), "store", "the store is available after the outage");
        let (_, reading) = reply.tightest().expect("a rule");
        let numbers = reading.numbers.expect("numbers");
        numbers.limit - numbers.remaining
    }

    /// Stops the node, and asserts that it leaves no task and no connection to these servers.
    #[track_caller]
    pub(crate) fn shut_down<'a>(self, servers: impl IntoIterator<Item = &'a RedisServer>) {
        let Self { runtime, limiter, settler, .. } = self;
        let limiter = Arc::into_inner(limiter);
        settler.abort();
        drop(limiter);
        eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
        for server in servers {
            eventually("no connection is left", || client_connections(server) == 0);
        }
    }
}

/// The number of client connections to a server, except those of the test itself.
pub(crate) fn client_connections(server: &RedisServer) -> usize {
    let list = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).text();
    // The server may still list a connection of the test that was just closed.
    let others = ["cmd=client|list", "name=sentinel-"];
    list.lines().filter(|line| !others.iter().any(|other| line.contains(other))).count()
}

/// Asserts that every key of ours has an expiry.
#[track_caller]
pub(crate) fn assert_all_keys_expire(server: &RedisServer) {
    let keys = server.command(&["KEYS", "tg:*"]);
    assert!(!keys.items().is_empty(), "there are keys");
    for key in keys.items() {
        let key = key.text();
        // -2 means that the key has expired since.
        let left = server.command(&["PTTL", &key]).integer();
        assert_ne!(left, -1, "{key} never expires");
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

pub(crate) fn rules(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).expect("a document");
    RuleSet::compile(&document, Secret::UNSET).expect("rules")
}

pub(crate) fn facts(kind: &str, user: &str) -> Facts<'static> {
    let facts: Facts<'_> = [("kind", kind), ("user_id", user)].into_iter().collect();
    facts.into_owned()
}

/// A store without a limiter.
pub(crate) fn store(runtime: &Runtime, url: &str, deadline: Duration) -> Arc<RedisStore> {
    let address = RedisAddress::parse(url).expect("an address");
    let _inside = runtime.enter();
    let store = RedisStore::start(&RedisOptions { deadline, ..RedisOptions::new(address) });
    assert!(
        runtime.block_on(store.wait_ready(Duration::from_secs(10))),
        "{:?}",
        store.unavailable_reason()
    );
    Arc::new(store)
}

/// A policy whose window does not end during a test.
pub(crate) fn policy() -> Policy {
    let window = Micros::from_secs(300 * 86_400);
    Policy::new(Algorithm::FixedWindow, Quota::new(AMPLE_LIMIT, window)).expect("a policy")
}

pub(crate) fn charge(policy: &Policy, key: u64, cost: u64) -> Charge<'_> {
    // Spread the keys, so that adjacent ones do not share a slot.
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let key = Key::without_namespace("test", Fingerprint { hi: spread, lo: key });
    Charge::plain(key, policy, cost)
}

pub(crate) fn used(reply: &Reading) -> u64 {
    reply.limit - reply.remaining
}

/// Tests with timing run one at a time: two cores cannot run two load tests at once.
pub(crate) fn exclusive_lock() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    locked(&TURN)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
