//! The limiter for programs that need one limit, by one key, and nothing else.

use std::fmt::{self, Debug};
use std::sync::Arc;

use tidegate_core::decision::Reading;
use tidegate_core::key::{Key, KeyHasher, Secret};
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Clock;
use tidegate_memory::{FastClock, MemoryStore, StoreUsage};
use tidegate_rules::RuleSet;

use crate::error::BuildError;
use crate::lazy_sweep::LazySweep;
use crate::limiter::Limiter;

/// One limit for each key. Clones share the counters.
///
/// It decides several times as fast as a [`Limiter`], because it has no facts to match, no second
/// rule to charge, and returns a plain [`Reading`].
///
/// ```
/// use tidegate::{KeyedLimiter, Retry};
///
/// let limiter = KeyedLimiter::new("2/min")?;
/// assert!(limiter.check_now("ada").is_allowed());
/// assert_eq!(limiter.check_now("ada").remaining, 0);
/// let refused = limiter.check_now("ada");
/// assert!(!refused.is_allowed());
/// assert!(matches!(refused.retry, Retry::After(wait) if wait.get() <= 30_000_000));
/// assert!(limiter.check_now("grace").is_allowed());
/// # Ok::<(), tidegate::BuildError>(())
/// ```
pub struct KeyedLimiter<C = FastClock> {
    shared: Arc<KeyedState<C>>,
}

/// What all clones share.
struct KeyedState<C> {
    store: MemoryStore<C>,
    policy: Policy,
    hasher: KeyHasher,
    sweep: LazySweep,
}

impl<C> Clone for KeyedLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Debug> Debug for KeyedLimiter<C> {
    /// Leaves out the hash function, which holds a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyedState { policy, store, .. } = &*self.shared;
        let mut fields = f.debug_struct("KeyedLimiter");
        fields.field("policy", policy).field("store", store).finish_non_exhaustive()
    }
}

impl KeyedLimiter {
    /// Creates a limiter from a limit in one line: `N/WINDOW [burst B] [using ALGORITHM]`. For
    /// other settings, see [`LimiterBuilder::build_keyed`](crate::LimiterBuilder::build_keyed).
    ///
    /// # Errors
    /// If the limit cannot be used.
    pub fn new(limit: impl Into<String>) -> Result<Self, BuildError> {
        Limiter::builder().limit(limit).build_keyed()
    }
}

impl<C: Clock + Debug + 'static> KeyedLimiter<C> {
    /// Enforces the only rule of `rules`.
    pub(crate) fn with_rules(
        rules: &RuleSet,
        secret: Secret,
        store: MemoryStore<C>,
    ) -> Result<Self, BuildError> {
        let [rule] = rules.rules() else { return Err(BuildError::NotOneKey) };
        let is_global = rule.key_by().any(|part| part == "global");
        let (Some(policy), 1, false) = (rule.limit().policy(), rule.key_by().count(), is_global)
        else {
            return Err(BuildError::NotOneKey);
        };
        let state = KeyedState {
            store,
            policy: *policy,
            hasher: KeyHasher::new(secret),
            sweep: LazySweep::default(),
        };
        Ok(Self { shared: Arc::new(state) })
    }

    /// Decides one request of `key`, and charges it unless it is refused.
    #[inline]
    pub fn check_now(&self, key: impl AsRef<[u8]>) -> Reading {
        self.check_cost_now(key, 1)
    }

    /// Like [`check_now`](Self::check_now), for a request that counts as `cost` requests.
    #[inline]
    pub fn check_cost_now(&self, key: impl AsRef<[u8]>, cost: u32) -> Reading {
        let reading = self.apply(Op::Charge, key.as_ref(), cost);
        self.shared.sweep.run_if_due(reading.now, || {
            self.shared.store.sweep();
        });
        reading
    }

    /// What [`check_now`](Self::check_now) would return. Charges nothing.
    #[must_use]
    pub fn peek_now(&self, key: impl AsRef<[u8]>) -> Reading {
        self.apply(Op::Peek, key.as_ref(), 1)
    }

    /// Deletes the counter of `key`.
    pub fn reset_now(&self, key: impl AsRef<[u8]>) {
        self.apply(Op::Reset, key.as_ref(), 1);
    }

    /// The memory that the counters use, and how many there are.
    #[must_use]
    pub fn memory_usage(&self) -> StoreUsage {
        self.shared.store.usage()
    }

    #[inline]
    fn apply(&self, op: Op, key: &[u8], cost: u32) -> Reading {
        let KeyedState { store, policy, hasher, .. } = &*self.shared;
        let mut hasher = *hasher;
        hasher.write_part(key);
        let key = Key::without_namespace("keyed", hasher.finish());
        let mut reading = [Reading::default()];
        store.apply_now(op, &[Charge::plain(key, policy, u64::from(cost))], &mut reading);
        let [reading] = reading;
        reading
    }
}
