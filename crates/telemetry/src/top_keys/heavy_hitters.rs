//! One rule's keys, watched: which of them occur most in the last one to two minutes, and which come in a burst.
//!
//! As long as few come, all are looked at, and later a sample: then a count is an estimate, whose spread is told.
//! So a decision pays for a look only when there is time for it, and threads seldom meet at the lock.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

use super::identity::KeyIdentity;
use super::request_rate::{KeyRate, RateSpike};
use super::sampler::AdaptiveSampler;
use super::sketch::{Sketch, SketchEntry, merge};

/// How long a generation is; two of them are told of.
const GENERATION_SPAN: Micros = Micros::from_secs(60);

/// The most keys that are looked at in an eighth of a second before it is one in four.
const SAMPLE_BUDGET: u32 = 512;

/// Bursts are not told before this much is known of what is usual.
const WARM_UP: Micros = Micros::from_secs(10);

/// The keys of one rule.
pub(super) struct HeavyHitters {
    sampler: AdaptiveSampler,
    window: Mutex<GenerationWindow>,
}

struct GenerationWindow {
    capacity: usize,
    began: Option<Timestamp>,
    /// When the generation began.
    since: Timestamp,
    now: SketchGeneration,
    before: SketchGeneration,
}

struct SketchGeneration {
    sketch: Sketch<KeyState>,
    /// The largest number for which one stands.
    one_in: u32,
}

/// What is kept of a key.
#[derive(Clone)]
struct KeyState {
    identity: Option<Arc<KeyIdentity>>,
    rate: KeyRate,
}

/// A key, how often it occurred, and by how much that may be wrong.
pub(super) struct HeavyHitter {
    pub(super) key: Fingerprint,
    pub(super) identity: Option<Arc<KeyIdentity>>,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) spread: u64,
}

/// A key that comes in a burst.
pub(super) struct DetectedBurst {
    pub(super) at: Timestamp,
    pub(super) key: Fingerprint,
    pub(super) identity: Option<Arc<KeyIdentity>>,
    pub(super) spike: RateSpike,
}

impl HeavyHitters {
    /// A watch with room for so many keys in each generation.
    pub(super) fn new(room: usize) -> Self {
        let window = GenerationWindow {
            capacity: room,
            began: None,
            since: Timestamp::EPOCH,
            now: SketchGeneration::new(room),
            before: SketchGeneration::new(room),
        };
        Self { sampler: AdaptiveSampler::new(SAMPLE_BUDGET), window: Mutex::new(window) }
    }

    /// A key occurred, which stands for so many. Tells whether it does so in a burst.
    pub(super) fn count(
        &self,
        times: u32,
        now: Timestamp,
        key: impl FnOnce() -> Fingerprint,
        who: &dyn Fn() -> KeyIdentity,
    ) -> Option<DetectedBurst> {
        let times = times * self.sampler.draw()?;
        self.sampler.record_sampled(now);
        self.window.lock().count(key(), times, now, who)
    }

    /// The keys of the last one to two generations, in no order, and since when they are counted.
    pub(super) fn list(&self, now: Timestamp) -> (Timestamp, Vec<HeavyHitter>) {
        let mut window = self.window.lock();
        window.advance(now);
        let GenerationWindow { now, before, since, began, .. } = &*window;
        let one_in = now.one_in.max(before.one_in);
        let watched = |entry: SketchEntry<&KeyState>| HeavyHitter {
            key: entry.key,
            identity: entry.value.identity.clone(),
            count: entry.count,
            error: entry.error,
            // Twice the standard deviation of a sum of draws with a chance of one in so many.
            spread: 2 * (u64::from(one_in - 1) * entry.count).isqrt(),
        };
        let counted_since = since.minus(GENERATION_SPAN).max(began.unwrap_or_default());
        (counted_since, merge(&now.sketch, &before.sketch).map(watched).collect())
    }
}

impl GenerationWindow {
    fn count(
        &mut self,
        key: Fingerprint,
        times: u32,
        now: Timestamp,
        who: &dyn Fn() -> KeyIdentity,
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
        // In a flood of keys that come once, who each of them is would be work for nothing.
        if entry.value.identity.is_none() && (entry.error == 0 || entry.count - entry.error > times)
        {
            entry.value.identity = Some(Arc::new(who()));
        }
        let jump = entry.value.rate.add(now, times)?;
        let known = now.since(began) >= WARM_UP;
        known.then(|| DetectedBurst {
            at: now,
            key,
            identity: entry.value.identity.clone(),
            spike: jump,
        })
    }

    /// Begins a new generation when it is time, or two.
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
    const fn new(room: usize) -> Self {
        Self { sketch: Sketch::new(room), one_in: 1 }
    }
}
