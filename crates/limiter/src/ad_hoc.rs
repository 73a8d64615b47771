//! Ad-hoc buckets, which belong to no rule: the caller supplies the key and the quota
//! (`CL.THROTTLE`).
//!
//! Their keys never collide with keys of rules. They have no `on_fail`: if the store does not
//! answer, the caller gets an error.
//!
//! A key keeps its usage when its quota changes. A new quota applies from the key's last charge on
//! (its policy is effective since the epoch), not from the time at which it was first seen. Every
//! node therefore gives the same answer, also after a restart, and a retry time stays valid once
//! returned.

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

/// The rule ID of ad-hoc buckets. No rule has it, because the ID of a rule is never empty.
const NO_RULE: &str = "";

/// Maximum number of distinct quotas. Each uses about 300 bytes for the life of the process
/// (`core::scale`), so the number that callers can create must be bounded.
const MAX_POLICIES: usize = 10_000;

/// Later than any time of a store's clock, and below 2^53. A charge made at that time has not
/// drained.
const FAR_FUTURE: Timestamp = Timestamp::from_micros((1 << 53) - 1);

/// State shared by all ad-hoc buckets: the key hasher and the policies compiled so far.
#[derive(Debug)]
pub struct AdHoc {
    seed: KeyHasher,
    policies: RwLock<HashMap<Quota, Policy>>,
}

/// Why a quota has no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdHocPolicyError {
    /// The quota is invalid.
    Invalid(PolicyError),
    /// The maximum number of distinct quotas is reached.
    TooMany,
}

impl AdHoc {
    /// Creates ad-hoc buckets whose keys are hashed with `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let mut seed = KeyHasher::new(secret);
        seed.write_part(NO_RULE.as_bytes());
        Self { seed, policies: RwLock::default() }
    }

    /// The key of a named bucket.
    #[must_use]
    pub fn key(&self, name: &[u8]) -> Fingerprint {
        let mut hasher = self.seed;
        hasher.write_part(name);
        hasher.finish()
    }

    /// The token bucket policy for a quota. Callers that use the same quota repeatedly should cache
    /// it.
    ///
    /// # Errors
    /// If the quota is invalid or the maximum number of distinct quotas is reached.
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
    /// Charges an ad-hoc bucket on behalf of a caller of `api`. A cost of 0 only reads the bucket.
    ///
    /// # Errors
    /// If the store does not answer. It may nevertheless have charged the bucket.
    pub async fn charge_ad_hoc(
        &self,
        api: ApiKind,
        key: Fingerprint,
        policy: &Policy,
        cost: u64,
    ) -> Result<Reading, StoreError> {
        let key = Key::without_namespace(NO_RULE, key);
        let charge = [Charge::plain(key, policy, cost)];
        let mut reading = [Reading::default()];
        let op = if cost == 0 { Op::Peek } else { Op::Charge };
        let started = self.start_timer(op);
        let answered = self.store.apply(op, &charge, &mut reading).await;
        self.stop_timer(started);
        let by = answered?;
        let [reading] = reading;
        if op == Op::Charge {
            self.notify_ad_hoc_charge(api, by, reading.verdict);
        }
        Ok(reading)
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Refunds up to all usage of an ad-hoc bucket. The time of the charge is unknown, so nothing
    /// is assumed to have drained since.
    ///
    /// # Errors
    /// If the store does not answer. It may nevertheless have made the refund.
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
                "callers have used more than {MAX_POLICIES} different limits since startup; use fewer \
                 limits, or rules"
            ),
        }
    }
}

impl std::error::Error for AdHocPolicyError {}
