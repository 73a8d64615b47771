//! In-process contenders: our memory store, governor with string keys, and a plain sharded table.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultKeyedRateLimiter, Quota as GovernorQuota, RateLimiter};
use parking_lot::RwLock;
use tidegate::{Facts, KeyedLimiter, Limiter};
use tidegate_core::decision::Reading;
use tidegate_core::key::{Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Micros;
use tidegate_memory::{FastClock, MemoryStore};

/// Enough memory for ten million keys.
const MAX_BYTES: u64 = 2 << 30;

/// A limiter that decides by string key.
pub trait KeyLimiter: Sync {
    /// Makes one decision.
    #[expect(clippy::ptr_arg, reason = "governor looks keys up by `&String`")]
    fn decide(&self, key: &String);
}

/// Names of all contenders, as in the tables.
pub const NAMES: [&str; 4] = ["tidegate", "governor", "tidegate, shared secret", "bare table"];

/// A contender that admits `per_second` requests per second and key, with a burst of the same size.
#[must_use]
pub fn limiter_by_name(name: &str, per_second: u32) -> Option<Box<dyn KeyLimiter>> {
    Some(match name {
        "tidegate" => Box::new(TidegateLimiter::new(per_second, Secret::random())),
        "tidegate, shared secret" => Box::new(TidegateLimiter::new(per_second, Secret::UNSET)),
        "governor" => Box::new(GovernorLimiter::new(per_second)),
        "bare table" => Box::new(BareTable::default()),
        _ => return None,
    })
}

/// Our memory store: hashes the key, charges one token bucket and reads the remaining quota.
pub struct TidegateLimiter {
    store: MemoryStore,
    policy: Policy,
    hashers: [KeyHasher; 3],
}

impl TidegateLimiter {
    /// A store with room for all keys, hashed under this secret.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the numbers are constants")]
    pub fn new(per_second: u32, secret: Secret) -> Self {
        let quota = Quota::new(u64::from(per_second), Micros::from_secs(1));
        Self {
            store: MemoryStore::with_clock(FastClock::new(), MAX_BYTES),
            policy: Policy::new(Algorithm::TokenBucket, quota).expect("a valid policy"),
            hashers: ["user", "endpoint", "tenant"].map(|rule| {
                let mut hasher = KeyHasher::new(secret);
                hasher.write_part(rule.as_bytes());
                hasher
            }),
        }
    }

    #[inline(always)]
    fn charge<'a>(&'a self, seed: &KeyHasher, key: &str) -> Charge<'a> {
        let mut hasher = *seed;
        hasher.write_part(key.as_bytes());
        let key = Key::without_namespace("rule", hasher.finish());
        Charge::plain(key, &self.policy, 1)
    }
}

impl KeyLimiter for TidegateLimiter {
    fn decide(&self, key: &String) {
        let mut readings = [Reading::default()];
        let [user, ..] = &self.hashers;
        self.store.apply_now(Op::Charge, &[self.charge(user, key)], &mut readings);
        black_box(&readings);
    }
}

/// Our memory store with three rules in one all-or-none decision, each rule with a separate key.
pub struct ThreeRuleLimiter(pub TidegateLimiter);

impl KeyLimiter for ThreeRuleLimiter {
    fn decide(&self, key: &String) {
        let mut readings = [Reading::default(); 3];
        let [user, endpoint, tenant] = &self.0.hashers;
        let charge = |seed: &KeyHasher| self.0.charge(seed, key);
        let charges = [charge(user), charge(endpoint), charge(tenant)];
        self.0.store.apply_now(Op::Charge, &charges, &mut readings);
        black_box(&readings);
    }
}

/// governor with string keys and its state in a DashMap.
pub struct GovernorLimiter(DefaultKeyedRateLimiter<String>);

impl GovernorLimiter {
    /// A limiter with the same quota as ours; a rate of zero counts as one.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        Self(RateLimiter::dashmap(GovernorQuota::per_second(rate)))
    }
}

impl KeyLimiter for GovernorLimiter {
    fn decide(&self, key: &String) {
        black_box(self.0.check_key(key).is_ok());
    }
}

/// The library crate's limiter for one limit by one key.
pub struct KeyedContender(KeyedLimiter);

impl KeyedContender {
    /// A limiter with the same quota as the others, and room for all keys.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the limit is a constant but for a number")]
    pub fn new(per_second: u32) -> Self {
        let limit = format!("{per_second}/s");
        let limiter = Limiter::builder().limit(limit).memory_bytes(MAX_BYTES).build_keyed();
        Self(limiter.expect("a valid limit"))
    }
}

impl KeyLimiter for KeyedContender {
    fn decide(&self, key: &String) {
        black_box(self.0.check_now(key).is_allowed());
    }
}

/// The library crate with one rule by key: facts, matching, hash, charge and decision.
pub struct LibraryLimiter(Limiter);

impl LibraryLimiter {
    /// A limiter with the same quota as the others, and room for all keys.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the document is a constant but for a number")]
    pub fn new(per_second: u32) -> Self {
        let limit = format!("{per_second}/s by api_key");
        let limiter = Limiter::builder().limit(limit).memory_bytes(MAX_BYTES).build();
        Self(limiter.expect("a valid limit"))
    }
}

impl KeyLimiter for LibraryLimiter {
    fn decide(&self, key: &String) {
        let facts = Facts::from([("api_key", key.as_str())]);
        black_box(self.0.check_now(&facts).is_allowed());
    }
}

const SHARDS: usize = 256;

/// No limiter at all: a sharded hash map of string keys to counters.
pub struct BareTable {
    shards: Vec<RwLock<HashMap<String, AtomicU64>>>,
    hasher: RandomState,
}

impl Default for BareTable {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, hasher: RandomState::new() }
    }
}

impl KeyLimiter for BareTable {
    fn decide(&self, key: &String) {
        let hash = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0);
        let shard = &self.shards[hash % SHARDS];
        if let Some(count) = shard.read().get(key) {
            black_box(count.fetch_add(1, Ordering::Relaxed));
            return;
        }
        shard.write().entry(key.clone()).or_default();
    }
}
