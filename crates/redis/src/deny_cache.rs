//! Refusals that are remembered: a key that cannot pass yet need not be asked about.
//!
//! A refusal is remembered where nothing is left, for as long as nothing at all can pass ([`Reading::next_after`]),
//! counted from before it was asked for and at most a second: until then no node admits anything, so that its numbers
//! stay true. It is repeated for the same cost alone, because the wait of another is not known. That is exact, except
//! for a refund, a reset or a forced charge made by another node. Nothing is remembered or refused here where a refusal
//! is counted (bans, warnings, `charge: always`), nor where a slot is wanted, which may be freed at any time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Queue, Role};
use tidegate_core::time::Micros;
use tokio::time::Instant;

/// The longest that a refusal is remembered.
const LONGEST: Duration = Duration::from_secs(1);

/// Refusals shorter than this are over before the answer is out.
const SHORTEST: Duration = Duration::from_millis(1);

const SHARDS: usize = 64;

/// Keys a shard; when it is full, what is over is removed, else nothing new is remembered.
const KEYS: usize = 1_024;

/// What is remembered of refusals.
#[derive(Debug)]
pub(crate) struct DenyCache {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    denied: HashMap<Fingerprint, Denied>,
    /// When something was last given back or forced: what was asked before is not remembered after.
    amended: Option<Instant>,
}

/// Forgets keys when what amends them has been done, or given up.
#[derive(Debug)]
pub(crate) struct Forgetting<'a> {
    cache: &'a DenyCache,
    charges: &'a [Charge<'a>],
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.cache.forget(self.charges);
    }
}

#[derive(Clone, Copy, Debug)]
struct Denied {
    policy: Policy,
    /// What it is banned under, if it is.
    ban: Option<BanPolicy>,
    queue: Queue,
    cost: u64,
    asked: Instant,
    until: Instant,
    reading: Reading,
}

impl DenyCache {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// Refuses a batch if one of its keys cannot pass, with the readings of all that cannot.
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
                && denied.is_of(charge)
            {
                *reading = denied.reading_at(now);
                refused = true;
            } else if charge.ban.is_some() {
                // Its own refusal, if it is one, counts towards a ban.
                return false;
            }
        }
        refused
    }

    /// Remembers the refusals of an answer that was asked for at an instant.
    pub(crate) fn remember(&self, charges: &[Charge<'_>], readings: &[Reading], asked: Instant) {
        for (charge, reading) in charges.iter().zip(readings) {
            let counted = charge.grace.is_some() || charge.ban.is_some();
            // Slots may be freed at any time: how long they cannot be had is not known.
            let unknown = charge.policy.is_concurrency();
            let plain = charge.role == Role::Enforce && !counted && !unknown;
            // Where something is left, a smaller cost may be admitted by any node, and the numbers change.
            let known = plain && reading.verdict == Verdict::Deny && reading.remaining == 0;
            // While it lasts, a ban counts nothing, whatever the cost. Where the limit refuses too it is
            // not known which of them lasts longer, and what comes after a ban is counted or a warning.
            let banned = charge.role == Role::Enforce
                && reading.verdict == Verdict::Ban
                && charge.cost <= reading.remaining;
            if !known && !banned {
                continue;
            }
            let lasts = match reading.retry {
                _ if known => reading.next_after,
                Retry::After(wait) => wait,
                Retry::Now | Retry::Never => continue,
            };
            let lasts = Duration::from(lasts).min(LONGEST);
            if lasts < SHORTEST {
                continue;
            }
            let key = charge.key.fingerprint;
            let denied = Denied {
                policy: *charge.policy,
                ban: charge.ban.copied(),
                queue: charge.queue,
                cost: charge.cost,
                asked,
                until: asked + lasts,
                reading: *reading,
            };
            let mut shard = self.shard(key).lock();
            if shard.amended.is_some_and(|at| asked <= at) {
                continue;
            }
            let shard = &mut shard.denied;
            if shard.len() >= KEYS && !shard.contains_key(&key) {
                shard.retain(|_, denied| asked < denied.until);
                if shard.len() >= KEYS {
                    continue;
                }
            }
            shard.insert(key, denied);
        }
    }

    /// Forgets keys that are about to be given something back, or charged by force, once that is done.
    pub(crate) fn forgetting<'a>(&'a self, charges: &'a [Charge<'a>]) -> Forgetting<'a> {
        Forgetting { cache: self, charges }
    }

    fn forget(&self, charges: &[Charge<'_>]) {
        let now = Instant::now();
        for charge in charges {
            let mut shard = self.shard(charge.key.fingerprint).lock();
            shard.denied.remove(&charge.key.fingerprint);
            shard.amended = Some(now);
        }
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Denied {
    /// Whether it is the refusal of a charge, by the same rule: what was refused without a ban would have been
    /// counted, or warned, had there been one. A ban refuses whatever is within the limit, for the same time.
    fn is_of(&self, charge: &Charge<'_>) -> bool {
        let refused_alike = match self.ban {
            Some(ban) => charge.ban == Some(&ban) && charge.cost <= self.reading.remaining,
            None => charge.ban.is_none() && charge.grace.is_none() && charge.cost == self.cost,
        };
        (*charge.policy, charge.queue) == (self.policy, self.queue) && refused_alike
    }

    /// The refusal, as of a later instant.
    fn reading_at(&self, now: Instant) -> Reading {
        let passed = u64::try_from((now - self.asked).as_micros()).unwrap_or(u64::MAX);
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
        let key = Key::alone("r", fingerprint);
        Charge::plain(key, policy, cost)
    }

    fn denied(wait: u64) -> Reading {
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

    fn refuses(cache: &DenyCache, charge: Charge<'_>, now: Instant) -> Option<Reading> {
        let mut reading = [Reading::default()];
        cache.refuses(&[charge], &mut reading, now).then_some(reading[0])
    }

    #[tokio::test]
    async fn a_refusal_is_remembered_for_its_cost_until_something_could_pass() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ms = Duration::from_millis;
        cache.remember(&[charge(&policy, 1, 3)], &[denied(200)], start);
        assert_eq!(refuses(&cache, charge(&policy, 1, 2), start), None, "it waits less");
        assert_eq!(refuses(&cache, charge(&policy, 1, 4), start), None, "it waits longer");
        assert_eq!(refuses(&cache, charge(&policy, 2, 3), start), None, "another key");
        let told = refuses(&cache, charge(&policy, 1, 3), start + ms(150)).unwrap();
        assert_eq!(told.retry, Retry::After(Micros::from_millis(50)));
        assert_eq!(told.now, Timestamp::from_micros(1_150_000));
        assert_eq!(told.reset_after, Micros::from_millis(59_850));
        assert!(refuses(&cache, charge(&policy, 1, 3), start + ms(199)).is_some());
        assert_eq!(refuses(&cache, charge(&policy, 1, 3), start + ms(200)), None);
    }

    #[tokio::test]
    async fn it_lasts_a_second_at_most_and_ends_with_a_reset_or_another_policy() {
        let (cache, start, old, new) = (DenyCache::new(), Instant::now(), policy(10), policy(20));
        cache.remember(&[charge(&old, 1, 1)], &[denied(60_000)], start);
        assert!(refuses(&cache, charge(&old, 1, 1), start + Duration::from_millis(999)).is_some());
        assert_eq!(refuses(&cache, charge(&old, 1, 1), start + LONGEST), None);
        assert_eq!(refuses(&cache, charge(&new, 1, 1), start), None, "the rule was changed");
        cache.forget(&[charge(&old, 1, 1)]);
        assert_eq!(refuses(&cache, charge(&old, 1, 1), start), None);
    }

    /// A smaller cost may pass before, here or on another node, and then the numbers are others.
    #[tokio::test]
    async fn it_lasts_until_one_more_could_pass_and_is_not_remembered_where_something_is_left() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let some = Reading { remaining: 2, ..denied(500) };
        cache.remember(&[charge(&policy, 1, 3)], &[some], start);
        assert_eq!(refuses(&cache, charge(&policy, 1, 3), start), None);
        let soon = Reading { next_after: Micros::from_millis(100), ..denied(500) };
        cache.remember(&[charge(&policy, 1, 3)], &[soon], start);
        let at = |ms| refuses(&cache, charge(&policy, 1, 3), start + Duration::from_millis(ms));
        assert_eq!(at(99).map(|told| told.next_after), Some(Micros::from_millis(1)));
        assert_eq!(at(100), None);
    }

    #[tokio::test]
    async fn what_counts_refusals_is_always_asked() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let warned = Charge { grace: Some(&policy), ..charge(&policy, 1, 1) };
        let shadow = Charge { role: Role::Shadow, ..charge(&policy, 2, 1) };
        let always = Charge { role: Role::Always, ..charge(&policy, 3, 1) };
        for one in [warned, shadow, always] {
            cache.remember(&[one], &[denied(500)], start);
            assert_eq!(refuses(&cache, one, start), None);
        }
        cache.remember(&[charge(&policy, 4, 1)], &[denied(500)], start);
        let mut readings = [Reading::default(); 2];
        assert!(!cache.refuses(&[charge(&policy, 4, 1), always], &mut readings, start));
    }

    /// Its wait is a hint: another request may end a moment later.
    #[tokio::test]
    async fn a_refusal_for_want_of_a_slot_is_not_remembered() {
        let (cache, start) = (DenyCache::new(), Instant::now());
        let quota = Quota::new(10, Micros::from_secs(30));
        let slots = Policy::new(Algorithm::Concurrent, quota).unwrap();
        cache.remember(&[charge(&slots, 1, 1)], &[denied(1_000)], start);
        assert_eq!(refuses(&cache, charge(&slots, 1, 1), start), None);
    }

    #[tokio::test]
    async fn a_refusal_that_others_count_is_asked_for() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ban = BanPolicy::new(2, Micros::from_secs(1), Micros::from_secs(1), 1, Micros::ZERO);
        let strict = Charge { ban: Some(&ban), ..charge(&policy, 2, 1) };
        let mut readings = [Reading::default(); 2];
        cache.remember(&[charge(&policy, 1, 1)], &[denied(500)], start);
        assert!(!cache.refuses(&[charge(&policy, 1, 1), strict], &mut readings, start));
        // Banned, and within the limit: nothing is counted until the ban is over.
        let banned = Reading { verdict: Verdict::Ban, remaining: 1, ..denied(300) };
        cache.remember(&[strict], &[banned], start);
        assert!(cache.refuses(&[charge(&policy, 1, 1), strict], &mut readings, start));
        let now_lenient = charge(&policy, 2, 1);
        assert_eq!(refuses(&cache, now_lenient, start), None, "the rule bans nobody any more");
    }

    /// It was remembered until the limit let it pass, though after the ban a refusal counts again and
    /// a warning may be in reserve.
    #[tokio::test]
    async fn a_ban_of_somebody_over_the_limit_is_not_remembered() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        let ban = BanPolicy::new(2, Micros::from_secs(1), Micros::from_secs(1), 1, Micros::ZERO);
        let strict = Charge { ban: Some(&ban), grace: Some(&policy), ..charge(&policy, 2, 1) };
        let banned = Reading { verdict: Verdict::Ban, remaining: 0, ..denied(300) };
        cache.remember(&[strict], &[banned], start);
        assert_eq!(refuses(&cache, strict, start), None);
    }

    /// It was remembered when the refusal was heard only after the reset that came later.
    #[tokio::test]
    async fn what_was_asked_before_something_was_given_back_is_not_remembered_after() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        drop(cache.forgetting(&[charge(&policy, 1, 1)]));
        cache.remember(&[charge(&policy, 1, 1)], &[denied(500)], start);
        assert_eq!(refuses(&cache, charge(&policy, 1, 1), start), None);
        let later = Instant::now() + SHORTEST;
        cache.remember(&[charge(&policy, 1, 1)], &[denied(500)], later);
        assert!(refuses(&cache, charge(&policy, 1, 1), later).is_some());
    }

    #[tokio::test]
    async fn a_flood_of_refused_keys_does_not_grow_it() {
        let (cache, start, policy) = (DenyCache::new(), Instant::now(), policy(10));
        for key in 0..2 * (SHARDS * KEYS) as u64 {
            cache.remember(&[charge(&policy, key, 1)], &[denied(500)], start);
        }
        assert!(cache.shards.iter().all(|shard| shard.lock().denied.len() <= KEYS));
        let later = start + Duration::from_millis(600);
        cache.remember(&[charge(&policy, u64::MAX, 1)], &[denied(500)], later);
        assert!(refuses(&cache, charge(&policy, u64::MAX, 1), later).is_some());
    }
}
