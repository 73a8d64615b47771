//! The heavy hitters of one rule: the keys that occur most in the last one to two minutes, and
//! those whose rate bursts.
//!
//! At a low rate every key is counted. At a high rate keys are sampled; a count is then an estimate
//! with a reported spread. Sampling bounds the cost per decision and the contention for the lock.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

use super::identity::KeyIdentity;
use super::request_rate::{KeyRate, RateSpike};
use super::sampler::AdaptiveSampler;
use super::sketch::{Sketch, SketchEntry, merge};

/// Length of a generation. Lists cover the current and the previous generation.
const GENERATION_SPAN: Micros = Micros::from_secs(60);

/// Number of keys counted in an eighth of a second before only one in four is counted.
const SAMPLE_BUDGET: u32 = 512;

/// Bursts are reported only after this time, when the usual rates are known.
const WARM_UP: Micros = Micros::from_secs(10);

/// The keys of one rule.
pub(super) struct HeavyHitters {
    sampler: AdaptiveSampler,
    window: Mutex<GenerationWindow>,
}

struct GenerationWindow {
    capacity: usize,
    /// When the first key was counted.
    began: Option<Timestamp>,
    /// Start of the current generation.
    since: Timestamp,
    now: SketchGeneration,
    before: SketchGeneration,
}

struct SketchGeneration {
    sketch: Sketch<KeyState>,
    /// The largest number of occurrences that one sample represented.
    one_in: u32,
}

/// The data kept for a key.
#[derive(Clone)]
struct KeyState {
    identity: Option<Arc<KeyIdentity>>,
    rate: KeyRate,
}

/// A key, its number of occurrences and the errors of that number; see [`TopKey`](super::TopKey).
pub(super) struct HeavyHitter {
    pub(super) key: Fingerprint,
    pub(super) identity: Option<Arc<KeyIdentity>>,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) spread: u64,
}

/// A key whose rate bursts.
pub(super) struct DetectedBurst {
    pub(super) at: Timestamp,
    pub(super) key: Fingerprint,
    pub(super) identity: Option<Arc<KeyIdentity>>,
    pub(super) spike: RateSpike,
}

impl HeavyHitters {
    /// Creates empty sketches for `capacity` keys in each generation.
    pub(super) fn new(capacity: usize) -> Self {
        let window = GenerationWindow {
            capacity,
            began: None,
            since: Timestamp::EPOCH,
            now: SketchGeneration::new(capacity),
            before: SketchGeneration::new(capacity),
        };
        Self { sampler: AdaptiveSampler::new(SAMPLE_BUDGET), window: Mutex::new(window) }
    }

    /// Counts a key, which represents `times` occurrences. Returns the burst if one was detected.
    pub(super) fn count(
        &self,
        times: u32,
        now: Timestamp,
        key: impl FnOnce() -> Fingerprint,
        identity: &dyn Fn() -> KeyIdentity,
    ) -> Option<DetectedBurst> {
        let times = times * self.sampler.draw()?;
        self.sampler.record_sampled(now);
        self.window.lock().count(key(), times, now, identity)
    }

    /// The keys of the current and the previous generation, unordered, and the start of the
    /// counting period.
    pub(super) fn list(&self, now: Timestamp) -> (Timestamp, Vec<HeavyHitter>) {
        let mut window = self.window.lock();
        window.advance(now);
        let GenerationWindow { now, before, since, began, .. } = &*window;
        let one_in = now.one_in.max(before.one_in);
        let hitter = |entry: SketchEntry<&KeyState>| HeavyHitter {
            key: entry.key,
            identity: entry.value.identity.clone(),
            count: entry.count,
            error: entry.error,
            // Twice the standard deviation of a sum of draws with a probability of 1 in `one_in`.
            spread: 2 * (u64::from(one_in - 1) * entry.count).isqrt(),
        };
        let counted_since = since.minus(GENERATION_SPAN).max(began.unwrap_or_default());
        (counted_since, merge(&now.sketch, &before.sketch).map(hitter).collect())
    }
}

impl GenerationWindow {
    fn count(
        &mut self,
        key: Fingerprint,
        times: u32,
        now: Timestamp,
        identity: &dyn Fn() -> KeyIdentity,
    ) -> Option<DetectedBurst> {
        self.advance(now);
        let began = *self.began.get_or_insert(now);
        let Self { now: generation, before, since, .. } = self;
        generation.one_in = generation.one_in.max(times);
        let times = u64::from(times);
        let make = |error: u64| match before.sketch.find(key) {
            Some(twin) => twin.value.clone(),
            None if error > 0 => {
                KeyState { identity: None, rate: KeyRate::new(now, error, now.since(*since)) }
            }
            None => KeyState {
                identity: None,
                rate: KeyRate::new(now, before.sketch.floor(), GENERATION_SPAN),
            },
        };
        let entry = generation.sketch.add(key, times, make)?;
        // Resolving the identity is wasted work for keys that occur only once, as in a flood of
        // random keys.
        if entry.value.identity.is_none() && (entry.error == 0 || entry.count - entry.error > times)
        {
            entry.value.identity = Some(Arc::new(identity()));
        }
        let spike = entry.value.rate.add(now, times)?;
        let is_warm = now.since(began) >= WARM_UP;
        is_warm.then(|| DetectedBurst {
            at: now,
            key,
            identity: entry.value.identity.clone(),
            spike,
        })
    }

    /// Starts a new generation if the current one is over; discards both if they are too old.
    fn advance(&mut self, now: Timestamp) {
        let age = now.since(self.since);
        if age < GENERATION_SPAN {
            return;
        }
        let last = std::mem::replace(&mut self.now, SketchGeneration::new(self.capacity));
        let next = self.since.plus(GENERATION_SPAN);
        if now.since(next) < GENERATION_SPAN {
            (self.before, self.since) = (last, next);
        } else {
            (self.before, self.since) = (SketchGeneration::new(self.capacity), now);
        }
    }
}

impl SketchGeneration {
    const fn new(capacity: usize) -> Self {
        Self { sketch: Sketch::new(capacity), one_in: 1 }
    }
}
