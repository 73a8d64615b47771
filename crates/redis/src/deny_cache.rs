//! Deny cache: a key that cannot pass yet is refused without a round trip.
//!
//! A refusal is cached only when nothing is left, and until anything at all can pass
//! ([`Reading::next_after`]). The time counts from before the request was sent and is at most one
//! second. Until then no node admits anything, so the cached numbers stay correct. A refusal is
//! repeated only for the same cost, because the wait for another cost is unknown. The cache is
//! exact, except after a refund, a reset or a forced charge by another node.
//!
//! Refusals that have side effects (bans, warnings, `charge: always`) are never cached. Concurrency
//! slots are not cached either, because one may be released at any time, and neither are counters
//! of which nodes return units ([`Charge::lent`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, QueueMode, Role};
use tidegate_core::time::Micros;
use tokio::time::Instant;

/// Maximum lifetime of a cached refusal.
const MAX_TTL: Duration = Duration::from_secs(1);

/// Shorter refusals are not cached; they end before the response is sent.
const MIN_TTL: Duration = Duration::from_millis(1);

const SHARDS: usize = 64;

/// Maximum number of keys per shard. A full shard drops expired refusals; if none are, it caches no
/// more.
const MAX_KEYS_PER_SHARD: usize = 1_024;

/// Cached refusals by key.
#[derive(Debug)]
pub(crate) struct DenyCache {
    hasher: RandomState,
    shards: Box<[Mutex<DenyShard>]>,
}

#[derive(Debug, Default)]
struct DenyShard {
    denied: HashMap<Fingerprint, CachedDenial>,
    /// Time of the last refund, reset or forced charge. Answers to earlier requests are not cached.
    invalidated_at: Option<Instant>,
}

/// Forgets keys when dropped, after the operation that changes them has finished or failed.
#[derive(Debug)]
pub(crate) struct ForgetGuard<'a> {
    cache: &'a DenyCache,
    charges: &'a [Charge<'a>],
}

impl Drop for ForgetGuard<'_> {
    fn drop(&mut self) {
        self.cache.forget(self.charges);
    }
}

#[derive(Clone, Copy, Debug)]
struct CachedDenial {
    policy: Policy,
    /// The ban policy, if the key is banned.
    ban: Option<BanPolicy>,
    queue: QueueMode,
    cost: u64,
    asked_at: Instant,
    until: Instant,
    reading: Reading,
}

impl DenyCache {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// Refuses a batch if the cache holds a refusal for one of its keys, and fills in those
    /// readings.
    pub(crate) fn refuses(
        &self,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
        now: Instant,
    ) -> bool {
        if charges.iter().any(|charge| charge.role == Role::Always) {
            return false;
        }
        let mut refused = false;
        for (charge, reading) in charges.iter().zip(readings) {
            *reading = Reading::default();
            if charge.role != Role::Enforce {
                continue;
            }
            let shard = self.shard(charge.key.fingerprint).lock();
            if let Some(denied) = shard.denied.get(&charge.key.fingerprint)
                && now < denied.until
                && denied.matches_charge(charge)
            {
                *reading = denied.reading_at(now);
                refused = true;
            } else if charge.ban.is_some() {
                // If this charge is refused, that counts towards a ban, so the store must decide.
                return false;
            }
        }
        refused
    }

    /// Caches the refusals of an answer to a request sent at `asked_at`.
    pub(crate) fn remember(&self, charges: &[Charge<'_>], readings: &[Reading], asked_at: Instant) {
        for (charge, reading) in charges.iter().zip(readings) {
            let counted = charge.grace.is_some() || charge.ban.is_some();
            // Slots may be released at any time, so the end of the refusal is unknown.
            let unknown = charge.policy.is_concurrency();
            let plain = charge.role == Role::Enforce && !counted && !unknown && !charge.lent;
            // If something is left, another node may admit a smaller cost, which changes the
            // numbers.
            let known = plain && reading.verdict == Verdict::Deny && reading.remaining == 0;
            // During a ban nothing is counted, whatever the cost. If the limit refuses too, it is
            // unknown which lasts longer, and a refusal after the ban counts as a strike or
            // warning.
            let banned = charge.role == Role::Enforce
                && reading.verdict == Verdict::Ban
                && charge.cost <= reading.remaining;
            if !known && !banned {
                continue;
            }
            let ttl = match reading.retry {
                _ if known => reading.next_after,
                Retry::After(wait) => wait,
                Retry::Now | Retry::Never => continue,
            };
            let ttl = Duration::from(ttl).min(MAX_TTL);
            if ttl < MIN_TTL {
                continue;
            }
            let key = charge.key.fingerprint;
            let denied = CachedDenial {
                policy: *charge.policy,
                ban: charge.ban.copied(),
                queue: charge.queue,
                cost: charge.cost,
                asked_at,
                until: asked_at + ttl,
                reading: *reading,
            };
            let mut shard = self.shard(key).lock();
            if shard.invalidated_at.is_some_and(|at| asked_at <= at) {
                continue;
            }
            let shard = &mut shard.denied;
            if shard.len() >= MAX_KEYS_PER_SHARD && !shard.contains_key(&key) {
                shard.retain(|_, denied| asked_at < denied.until);
                if shard.len() >= MAX_KEYS_PER_SHARD {
                    continue;
                }
            }
            shard.insert(key, denied);
        }
    }

    /// Returns a guard that forgets these keys once a refund, reset or forced charge is done.
    pub(crate) fn forget_on_drop<'a>(&'a self, charges: &'a [Charge<'a>]) -> ForgetGuard<'a> {
        ForgetGuard { cache: self, charges }
    }

    fn forget(&self, charges: &[Charge<'_>]) {
        let now = Instant::now();
        for charge in charges {
            let mut shard = self.shard(charge.key.fingerprint).lock();
            shard.denied.remove(&charge.key.fingerprint);
            shard.invalidated_at = Some(now);
        }
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<DenyShard> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl CachedDenial {
    /// Whether a charge would get this refusal under the same rule. A charge with a ban or grace
    /// policy only matches a cached ban, because its other refusals have side effects. A ban
    /// refuses every cost within the limit, for the same time.
    fn matches_charge(&self, charge: &Charge<'_>) -> bool {
        let refused_alike = match self.ban {
            Some(ban) => charge.ban == Some(&ban) && charge.cost <= self.reading.remaining,
            None => charge.ban.is_none() && charge.grace.is_none() && charge.cost == self.cost,
        };
        (*charge.policy, charge.queue) == (self.policy, self.queue) && refused_alike
    }

    /// The refusal as of a later time.
    fn reading_at(&self, now: Instant) -> Reading {
        let passed = u64::try_from((now - self.asked_at).as_micros()).unwrap_or(u64::MAX);
        let less = |span: Micros| Micros::new(span.get().saturating_sub(passed));
        let Reading { retry, reset_after, next_after, now: then, .. } = self.reading;
        let retry = match retry {
            Retry::After(wait) => Retry::After(less(wait).max(Micros::new(1))),
            other => other,
        };
        let now = then.plus(Micros::new(passed));
        let (reset_after, next_after) = (less(reset_after), less(next_after));
        Reading { retry, reset_after, next_after, now, ..self.reading }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::key::Key;
    use tidegate_core::policy::Algorithm;
    use tidegate_core::quota::Quota;
    use tidegate_core::time::Timestamp;

    fn policy(requests: u64) -> Policy {
        Policy::new(Algorithm::TokenBucket, Quota::new(requests, Micros::from_secs(60))).unwrap()
    }

    fn charge<'a>(policy: &'a Policy, key: u64, cost: u64) -> Charge<'a> {
        let fingerprint = Fingerprint { hi: key, lo: 0 };
        let key = Key::without_namespace("r", fingerprint);
        Charge::plain(key, policy, cost)
    }

    fn denied_reading(wait: u64) -> Reading {
        Reading {
            verdict: Verdict::Deny,
            limit: 10,
            retry: Retry::After(Micros::from_millis(wait)),
            reset_after: Micros::from_secs(60),
            next_after: Micros::from_millis(wait),
            now: Timestamp::from_micros(1_000_000),
            ..Reading::default()
        }
    }

    fn cached_refusal(cache: &DenyCache, charge: Charge<'_>, now: Instant) -> Option<Reading> {
        let mut reading = [Reading::default()];
        cache.refuses(&[charge], &mut reading, now).then_some(reading[0])
    }

    #[tokio::test]
    async fn refusal_is_cached_per_cost_until_admissible() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ms = Duration::from_millis;
        cache.remember(&[charge(&policy, 1, 3)], &[denied_reading(200)], start);
        assert_eq!(
            cached_refusal(&cache, charge(&policy, 1, 2), start),
            None,
            "a smaller cost waits less"
        );
        assert_eq!(
            cached_refusal(&cache, charge(&policy, 1, 4), start),
            None,
            "a larger cost waits longer"
        );
        assert_eq!(cached_refusal(&cache, charge(&policy, 2, 3), start), None, "another key");
        let reading = cached_refusal(&cache, charge(&policy, 1, 3), start + ms(150)).unwrap();
        assert_eq!(reading.retry, Retry::After(Micros::from_millis(50)));
        assert_eq!(reading.now, Timestamp::from_micros(1_150_000));
        assert_eq!(reading.reset_after, Micros::from_millis(59_850));
        assert!(cached_refusal(&cache, charge(&policy, 1, 3), start + ms(199)).is_some());
        assert_eq!(cached_refusal(&cache, charge(&policy, 1, 3), start + ms(200)), None);
    }

    #[tokio::test]
    async fn cached_refusal_ends_with_ttl_or_reset() {
        let (cache, start, old, new) = (DenyCache::new(), Instant::now(), policy(10), policy(20));
        cache.remember(&[charge(&old, 1, 1)], &[denied_reading(60_000)], start);
        assert!(
            cached_refusal(&cache, charge(&old, 1, 1), start + Duration::from_millis(999))
                .is_some()
        );
        assert_eq!(cached_refusal(&cache, charge(&old, 1, 1), start + MAX_TTL), None);
        assert_eq!(cached_refusal(&cache, charge(&new, 1, 1), start), None, "the rule has changed");
        cache.forget(&[charge(&old, 1, 1)]);
        assert_eq!(cached_refusal(&cache, charge(&old, 1, 1), start), None);
    }

    /// A smaller cost may pass sooner, here or on another node, and that changes the numbers.
    #[tokio::test]
    async fn refusal_with_remaining_quota_is_not_cached() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let some = Reading { remaining: 2, ..denied_reading(500) };
        cache.remember(&[charge(&policy, 1, 3)], &[some], start);
        assert_eq!(cached_refusal(&cache, charge(&policy, 1, 3), start), None);
        let soon = Reading { next_after: Micros::from_millis(100), ..denied_reading(500) };
        cache.remember(&[charge(&policy, 1, 3)], &[soon], start);
        let at =
            |ms| cached_refusal(&cache, charge(&policy, 1, 3), start + Duration::from_millis(ms));
        assert_eq!(at(99).map(|reading| reading.next_after), Some(Micros::from_millis(1)));
        assert_eq!(at(100), None);
    }

    #[tokio::test]
    async fn counted_refusals_bypass_cache() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let warned = Charge { grace: Some(&policy), ..charge(&policy, 1, 1) };
        let shadow = Charge { role: Role::Shadow, ..charge(&policy, 2, 1) };
        let always = Charge { role: Role::Always, ..charge(&policy, 3, 1) };
        for one in [warned, shadow, always] {
            cache.remember(&[one], &[denied_reading(500)], start);
            assert_eq!(cached_refusal(&cache, one, start), None);
        }
        cache.remember(&[charge(&policy, 4, 1)], &[denied_reading(500)], start);
        let mut readings = [Reading::default(); 2];
        assert!(!cache.refuses(&[charge(&policy, 4, 1), always], &mut readings, start));
    }

    /// Its wait is a hint: another request may finish a moment later.
    #[tokio::test]
    async fn slot_refusal_is_not_cached() {
        let (cache, start) = (DenyCache::new(), Instant::now());
        let quota = Quota::new(10, Micros::from_secs(30));
        let slots = Policy::new(Algorithm::Concurrent, quota).unwrap();
        cache.remember(&[charge(&slots, 1, 1)], &[denied_reading(1_000)], start);
        assert_eq!(cached_refusal(&cache, charge(&slots, 1, 1), start), None);
    }

    #[tokio::test]
    async fn refusal_counted_by_ban_is_not_cached() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ban = BanPolicy::new(2, Micros::from_secs(1), Micros::from_secs(1), 1, Micros::ZERO);
        let strict = Charge { ban: Some(&ban), ..charge(&policy, 2, 1) };
        let mut readings = [Reading::default(); 2];
        cache.remember(&[charge(&policy, 1, 1)], &[denied_reading(500)], start);
        assert!(!cache.refuses(&[charge(&policy, 1, 1), strict], &mut readings, start));
        // Banned and within the limit: nothing is counted until the ban ends.
        let banned = Reading { verdict: Verdict::Ban, remaining: 1, ..denied_reading(300) };
        cache.remember(&[strict], &[banned], start);
        assert!(cache.refuses(&[charge(&policy, 1, 1), strict], &mut readings, start));
        let now_lenient = charge(&policy, 2, 1);
        assert_eq!(
            cached_refusal(&cache, now_lenient, start),
            None,
            "the rule no longer has a ban"
        );
    }

    /// Regression: such a refusal was cached until the limit admitted it. But after the ban a
    /// refusal counts again, and warnings may be left.
    #[tokio::test]
    async fn ban_over_the_limit_is_not_cached() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ban = BanPolicy::new(2, Micros::from_secs(1), Micros::from_secs(1), 1, Micros::ZERO);
        let strict = Charge { ban: Some(&ban), grace: Some(&policy), ..charge(&policy, 2, 1) };
        let banned = Reading { verdict: Verdict::Ban, remaining: 0, ..denied_reading(300) };
        cache.remember(&[strict], &[banned], start);
        assert_eq!(cached_refusal(&cache, strict, start), None);
    }

    /// Regression: a refusal was cached although a reset happened before its answer arrived.
    #[tokio::test]
    async fn answer_older_than_refund_is_not_cached() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        drop(cache.forget_on_drop(&[charge(&policy, 1, 1)]));
        cache.remember(&[charge(&policy, 1, 1)], &[denied_reading(500)], start);
        assert_eq!(cached_refusal(&cache, charge(&policy, 1, 1), start), None);
        let later = Instant::now() + MIN_TTL;
        cache.remember(&[charge(&policy, 1, 1)], &[denied_reading(500)], later);
        assert!(cached_refusal(&cache, charge(&policy, 1, 1), later).is_some());
    }

    #[tokio::test]
    async fn refused_key_flood_keeps_cache_bounded() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        for key in 0..2 * (SHARDS * MAX_KEYS_PER_SHARD) as u64 {
            cache.remember(&[charge(&policy, key, 1)], &[denied_reading(500)], start);
        }
        assert!(cache.shards.iter().all(|shard| shard.lock().denied.len() <= MAX_KEYS_PER_SHARD));
        let later = start + Duration::from_millis(600);
        cache.remember(&[charge(&policy, u64::MAX, 1)], &[denied_reading(500)], later);
        assert!(cached_refusal(&cache, charge(&policy, u64::MAX, 1), later).is_some());
    }
}
