//! Overflow buckets: states that new keys share when the table is full.
//!
//! Each rule has a fixed number of buckets, and the key's hash selects one. A flood of new keys
//! therefore neither grows memory nor resets existing counters: it only exhausts the overflow
//! buckets. A key that later gets its own slot starts from its bucket's state, not from an unused
//! counter.

use std::collections::HashMap;

use tidegate_core::algorithm::State;
use tidegate_core::batch::StateKind;
use tidegate_core::time::Timestamp;

use crate::hash::TableHash;
use crate::shard::is_expired;
use crate::sync::{AtomicU64, AtomicUsize, Guard, Ordering::Relaxed, SpinLock};

/// Buckets per rule.
const BUCKET_COUNT: usize = 16;

#[derive(Debug)]
pub(crate) struct OverflowTable {
    buckets: Vec<SpinLock<OverflowBucket>>,
    /// Number of states in all buckets. Usually zero, in which case no bucket is locked.
    state_count: AtomicUsize,
    /// How often a key did not get a slot.
    overflow_count: AtomicU64,
}

/// The shared states of one bucket, by rule and kind.
#[derive(Debug, Default)]
pub(crate) struct OverflowBucket(HashMap<Box<str>, [Option<State>; 3]>);

impl OverflowTable {
    pub(crate) fn new() -> Self {
        let buckets = (0..BUCKET_COUNT).map(|_| SpinLock::new(OverflowBucket::default())).collect();
        Self { buckets, state_count: AtomicUsize::new(0), overflow_count: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.state_count.load(Relaxed) > 0
    }

    pub(crate) fn state_count(&self) -> usize {
        self.state_count.load(Relaxed)
    }

    /// Counts a key that did not get a slot.
    pub(crate) fn record_overflow(&self) {
        self.overflow_count.fetch_add(1, Relaxed);
    }

    pub(crate) fn overflow_count(&self) -> u64 {
        self.overflow_count.load(Relaxed)
    }

    pub(crate) const fn bucket_index(hash: TableHash) -> usize {
        hash.shard(BUCKET_COUNT)
    }

    pub(crate) fn lock(&self, bucket: usize) -> Guard<'_, OverflowBucket> {
        self.buckets[bucket].lock()
    }

    /// Passes a shared state to `change` and stores the result. If `change` leaves `None`, the
    /// state is kept, because other keys share it.
    pub(crate) fn edit<R>(
        &self,
        bucket: &mut OverflowBucket,
        rule: &str,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let mut state = bucket.get(rule, part).cloned();
        let result = change(&mut state);
        if state.is_some() {
            let states = bucket.0.entry(rule.into()).or_default();
            if states[part as usize].is_none() {
                self.state_count.fetch_add(1, Relaxed);
            }
            states[part as usize] = state;
        }
        result
    }

    /// Removes expired shared states.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if !self.is_used() {
            return;
        }
        for bucket in &self.buckets {
            bucket.lock().0.retain(|_, states| {
                for state in states.iter_mut().filter(|state| state.is_some()) {
                    if is_expired(state.as_ref(), now) {
                        *state = None;
                        self.state_count.fetch_sub(1, Relaxed);
                    }
                }
                states.iter().any(Option::is_some)
            });
        }
    }
}

impl OverflowBucket {
    pub(crate) fn get(&self, rule: &str, part: StateKind) -> Option<&State> {
        self.0.get(rule)?[part as usize].as_ref()
    }
}
