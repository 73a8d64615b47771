//! Who is compared: our store, governor with string keys, and a bare sharded table.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultKeyedRateLimiter, Quota as GovernorQuota, RateLimiter};
use parking_lot::RwLock;
use tidegate_core::decision::Reading;
use tidegate_core::key::{Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::Micros;
use tidegate_memory::{FastClock, MemoryStore};

/// Something that decides by string keys: 100 a second, bursts of 100.
pub trait Contender: Sync {
    /// One decision.
    fn decide(&self, key: &String);
}

/// Our store: hash the key, charge one token bucket, read what is left.
pub struct Tidegate {
    store: MemoryStore,
    policy: Policy,
    hasher: KeyHasher,
}

impl Tidegate {
    /// A store that may take `max_bytes`.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the numbers are constants")]
    pub fn new(max_bytes: u64) -> Self {
        let quota = Quota::new(100, Micros::from_secs(1));
        Self {
            store: MemoryStore::with_clock(FastClock::new(), max_bytes),
            policy: Policy::new(Algorithm::TokenBucket, quota).expect("a plain quota"),
            hasher: KeyHasher::new(Secret::UNSET),
        }
    }

    fn charge<'a>(&'a self, rule: &'a str, key: &str) -> Charge<'a> {
        let mut hasher = self.hasher;
        hasher.part(key.as_bytes());
        let key = Key { rule, fingerprint: hasher.finish() };
        Charge { key, policy: &self.policy, cost: 1, role: Role::Enforce, grace: None, ban: None }
    }

    /// What the store holds.
    pub fn usage(&self) -> tidegate_memory::Usage {
        self.store.usage()
    }
}

impl Contender for Tidegate {
    fn decide(&self, key: &String) {
        let mut readings = [Reading::default()];
        self.store.apply_now(Op::Charge, &[self.charge("user", key)], &mut readings);
        black_box(readings);
    }
}

/// Our store with three rules in one decision, each with a key of its own.
pub struct ThreeRules(pub Tidegate);

impl Contender for ThreeRules {
    fn decide(&self, key: &String) {
        let mut readings = [Reading::default(); 3];
        // Three different keys of the same length: the same text hashed under three rules.
        let charges = ["user", "endpoint", "tenant"].map(|rule| {
            let mut charge = self.0.charge(rule, key);
            charge.key.fingerprint.hi ^= rule.len() as u64;
            charge
        });
        self.0.store.apply_now(Op::Charge, &charges, &mut readings);
        black_box(readings);
    }
}

/// governor, keyed by string, state in a DashMap.
pub struct Governor(DefaultKeyedRateLimiter<String>);

impl Governor {
    /// The same quota.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the numbers are constants")]
    pub fn new() -> Self {
        let quota = GovernorQuota::per_second(NonZeroU32::new(100).expect("not zero"));
        Self(RateLimiter::dashmap(quota))
    }
}

impl Default for Governor {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Governor {
    fn decide(&self, key: &String) {
        black_box(self.0.check_key(key).is_ok());
    }
}

const SHARDS: usize = 256;

/// No limiter at all: a sharded hash map of string keys to counters. The ceiling.
pub struct Bare {
    shards: Vec<RwLock<HashMap<String, AtomicU64>>>,
    hasher: RandomState,
}

impl Bare {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, hasher: RandomState::new() }
    }
}

impl Default for Bare {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Bare {
    fn decide(&self, key: &String) {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        if let Some(count) = shard.read().get(key) {
            black_box(count.fetch_add(1, Ordering::Relaxed));
            return;
        }
        shard.write().entry(key.clone()).or_default();
    }
}
