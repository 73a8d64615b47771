//! Buckets that no rule names: the caller brings the key and the numbers (`CL.THROTTLE`).
//!
//! Their keys share nothing with those of rules, and there is no `on_fail`: where the store does not
//! answer, the caller is told so.
//!
//! A key keeps what was used of it, whatever numbers come. Other numbers than the last ones govern it
//! from its last charge on (a policy in force since the beginning), rather than from when they were
//! first seen: so every node and every restart gives the same answer, and a wait that is told stays
//! true.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::ApiKind;

use crate::limiter::Limiter;

/// No rule has this id: a word of a document is never empty.
const NO_RULE: &str = "";

/// The most different numbers that are kept. Each takes about 300 bytes for the life of the process
/// (`core::scale`), so what callers make up must have an end.
const MAX_POLICIES: usize = 10_000;

/// Later than any instant of a store's clock, and below 2^53: what was charged then has not drained.
const FAR_FUTURE: Timestamp = Timestamp::from_micros((1 << 53) - 1);

/// What buckets without a rule have in common: how keys are hashed, and the policies seen so far.
#[derive(Debug)]
pub struct AdHoc {
    seed: KeyHasher,
    policies: RwLock<HashMap<Quota, Policy>>,
}

/// Why there is no policy for a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdHocPolicyError {
    /// Its numbers do not work.
    Invalid(PolicyError),
    /// Too many different ones were seen.
    TooMany,
}

impl AdHoc {
    /// Buckets whose keys are hashed under the secret.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let mut seed = KeyHasher::new(secret);
        seed.write_part(NO_RULE.as_bytes());
        Self { seed, policies: RwLock::default() }
    }

    /// The bucket of a name.
    #[must_use]
    pub fn key(&self, name: &[u8]) -> Fingerprint {
        let mut hasher = self.seed;
        hasher.write_part(name);
        hasher.finish()
    }

    /// The token bucket of a quota. Worth keeping by whoever asks for the same one again and again.
    ///
    /// # Errors
    /// When the numbers do not work, or too many different ones were seen.
    pub fn policy(&self, quota: Quota) -> Result<Policy, AdHocPolicyError> {
        let known = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let (found, full) = (known.get(&quota).copied(), known.len() >= MAX_POLICIES);
        drop(known);
        match found {
            Some(policy) => Ok(policy),
            None if full => Err(AdHocPolicyError::TooMany),
            None => self.compile_policy(quota),
        }
    }

    fn compile_policy(&self, quota: Quota) -> Result<Policy, AdHocPolicyError> {
        let mut known = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_POLICIES {
            return Err(AdHocPolicyError::TooMany);
        }
        let policy =
            Policy::new(Algorithm::TokenBucket, quota).map_err(AdHocPolicyError::Invalid)?;
        Ok(*known.entry(quota).or_insert(policy))
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Charges a bucket that no rule names, for who asks at a door; a cost of 0 looks at it and changes nothing.
    ///
    /// # Errors
    /// When the store does not answer. It may have charged all the same.
    pub async fn charge_ad_hoc(
        &self,
        door: ApiKind,
        key: Fingerprint,
        policy: &Policy,
        cost: u64,
    ) -> Result<Reading, StoreError> {
        let key = Key::without_namespace(NO_RULE, key);
        let charge = [Charge::plain(key, policy, cost)];
        let mut reading = [Reading::default()];
        let op = if cost == 0 { Op::Peek } else { Op::Charge };
        let started = self.start_timer(op);
        let by = self.store.apply(op, &charge, &mut reading).await?;
        self.stop_timer(started);
        let [reading] = reading;
        if op == Op::Charge {
            self.notify_ad_hoc_charge(door, by, reading.verdict);
        }
        Ok(reading)
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Gives back to a bucket that no rule names, up to all that is used. Nobody says when it was charged, so
    /// nothing counts as having come back by itself since.
    ///
    /// # Errors
    /// When the store does not answer. It may have given back all the same.
    pub async fn refund_ad_hoc(
        &self,
        key: Fingerprint,
        policy: &Policy,
        amount: u64,
    ) -> Result<Reading, StoreError> {
        let charge = [Charge::plain(
            Key::without_namespace(NO_RULE, key),
            policy,
            amount.min(policy.limit().saturating_mul(2)),
        )];
        let mut reading = [Reading::default()];
        self.store.apply(Op::Refund { charged_at: FAR_FUTURE }, &charge, &mut reading).await?;
        let [reading] = reading;
        Ok(reading)
    }
}

impl fmt::Display for AdHocPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => why.fmt(f),
            Self::TooMany => write!(
                f,
                "more than {MAX_POLICIES} different limits were asked for since the start; use \
                 fewer, or rules"
            ),
        }
    }
}

impl std::error::Error for AdHocPolicyError {}
