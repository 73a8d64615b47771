//! Overflow buckets: what newcomers share when the table is full.
//!
//! Each rule has a fixed number of them, chosen by the key's hash, so a flood of keys neither grows
//! memory nor resets anyone: it exhausts buckets of its own. A key that later gets a place of its
//! own starts from its bucket's state, not fresh.

use std::collections::HashMap;

use tidegate_core::algorithm::State;
use tidegate_core::batch::Part;
use tidegate_core::time::Timestamp;

use crate::hash::TableHash;
use crate::shard::is_fresh;
use crate::sync::{AtomicU64, AtomicUsize, Guard, Lock, Ordering::Relaxed};

/// Buckets a rule.
const BUCKETS: usize = 16;

#[derive(Debug)]
pub(crate) struct Overflow {
    buckets: Vec<Lock<Bucket>>,
    /// States in all buckets; zero is the usual case and then nothing here is locked.
    held: AtomicUsize,
    /// How often a key came for which there was no place.
    overflowed: AtomicU64,
}

/// The shared states of one bucket, by rule and part.
#[derive(Debug, Default)]
pub(crate) struct Bucket(HashMap<Box<str>, [Option<State>; 3]>);

impl Overflow {
    pub(crate) fn new() -> Self {
        let buckets = (0..BUCKETS).map(|_| Lock::new(Bucket::default())).collect();
        Self { buckets, held: AtomicUsize::new(0), overflowed: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// A key comes for which there is no place.
    pub(crate) fn overflow(&self) {
        self.overflowed.fetch_add(1, Relaxed);
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }

    pub(crate) const fn bucket_of(hash: TableHash) -> usize {
        hash.shard(BUCKETS)
    }

    pub(crate) fn lock(&self, bucket: usize) -> Guard<'_, Bucket> {
        self.buckets[bucket].lock()
    }

    /// Lets a shared state be changed. One that is left absent stays: it is not one key's alone.
    pub(crate) fn edit<R>(
        &self,
        bucket: &mut Bucket,
        rule: &str,
        part: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let mut state = bucket.get(rule, part).cloned();
        let told = change(&mut state);
        if state.is_some() {
            let states = bucket.0.entry(rule.into()).or_default();
            if states[part as usize].is_none() {
                self.held.fetch_add(1, Relaxed);
            }
            states[part as usize] = state;
        }
        told
    }

    /// Forgets shared states that are equal to fresh.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if !self.is_used() {
            return;
        }
        for bucket in &self.buckets {
            bucket.lock().0.retain(|_, states| {
                for state in states.iter_mut().filter(|state| state.is_some()) {
                    if is_fresh(state.as_ref(), now) {
                        *state = None;
                        self.held.fetch_sub(1, Relaxed);
                    }
                }
                states.iter().any(Option::is_some)
            });
        }
    }
}

impl Bucket {
    pub(crate) fn get(&self, rule: &str, part: Part) -> Option<&State> {
        self.0.get(rule)?[part as usize].as_ref()
    }
}
