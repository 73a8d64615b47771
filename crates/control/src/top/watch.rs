//! One rule's keys, watched: which of them occur most in the last one to two minutes, and which come in a burst.
//!
//! As long as few come, all are looked at, and later a sample: then a count is an estimate, whose spread is told.
//! So a decision pays for a look only when there is time for it, and threads seldom meet at the lock.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

use super::pace::{Jump, Pace};
use super::sample::Sample;
use super::sketch::{Entry, Sketch, merged};
use super::who::Who;

/// How long a generation is; two of them are told of.
const GENERATION: Micros = Micros::from_secs(60);

/// The most keys that are looked at in an eighth of a second before it is one in four.
const BUDGET: u32 = 512;

/// Bursts are not told before this much is known of what is usual.
const WARM_UP: Micros = Micros::from_secs(10);

/// The keys of one rule.
pub(super) struct Watch {
    sample: Sample,
    window: Mutex<Window>,
}

struct Window {
    room: usize,
    began: Option<Timestamp>,
    /// When the generation began.
    since: Timestamp,
    now: Generation,
    before: Generation,
}

struct Generation {
    sketch: Sketch<Kept>,
    /// The largest number for which one stands.
    one_in: u32,
}

/// What is kept of a key.
#[derive(Clone)]
struct Kept {
    who: Option<Arc<Who>>,
    pace: Pace,
}

/// A key, how often it occurred, and by how much that may be wrong.
pub(super) struct Watched {
    pub(super) key: Fingerprint,
    pub(super) who: Option<Arc<Who>>,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) spread: u64,
}

/// A key that comes in a burst.
pub(super) struct Bursting {
    pub(super) at: Timestamp,
    pub(super) key: Fingerprint,
    pub(super) who: Option<Arc<Who>>,
    pub(super) jump: Jump,
}

impl Watch {
    /// A watch with room for so many keys in each generation.
    pub(super) fn new(room: usize) -> Self {
        let window = Window {
            room,
            began: None,
            since: Timestamp::EPOCH,
            now: Generation::new(room),
            before: Generation::new(room),
        };
        Self { sample: Sample::new(BUDGET), window: Mutex::new(window) }
    }

    /// A key occurred, which stands for so many. Tells whether it does so in a burst.
    pub(super) fn count(
        &self,
        times: u32,
        now: Timestamp,
        key: impl FnOnce() -> Fingerprint,
        who: &dyn Fn() -> Who,
    ) -> Option<Bursting> {
        let times = times * self.sample.draw()?;
        self.sample.looked_at(now);
        self.window.lock().count(key(), times, now, who)
    }

    /// The keys of the last one to two generations, in no order, and since when they are counted.
    pub(super) fn told(&self, now: Timestamp) -> (Timestamp, Vec<Watched>) {
        let mut window = self.window.lock();
        window.advance(now);
        let Window { now, before, since, began, .. } = &*window;
        let one_in = now.one_in.max(before.one_in);
        let watched = |entry: Entry<&Kept>| Watched {
            key: entry.key,
            who: entry.kept.who.clone(),
            count: entry.count,
            error: entry.error,
            // Twice the standard deviation of a sum of draws with a chance of one in so many.
            spread: 2 * (u64::from(one_in - 1) * entry.count).isqrt(),
        };
        let counted_since = since.minus(GENERATION).max(began.unwrap_or_default());
        (counted_since, merged(&now.sketch, &before.sketch).map(watched).collect())
    }
}

impl Window {
    fn count(
        &mut self,
        key: Fingerprint,
        times: u32,
        now: Timestamp,
        who: &dyn Fn() -> Who,
    ) -> Option<Bursting> {
        self.advance(now);
        let began = *self.began.get_or_insert(now);
        let Self { now: generation, before, since, .. } = self;
        generation.one_in = generation.one_in.max(times);
        let times = u64::from(times);
        let make = |error: u64| match before.sketch.find(key) {
            Some(twin) => twin.kept.clone(),
            None if error > 0 => Kept { who: None, pace: Pace::new(now, error, now.since(*since)) },
            None => Kept { who: None, pace: Pace::new(now, before.sketch.floor(), GENERATION) },
        };
        let entry = generation.sketch.add(key, times, make)?;
        // In a flood of keys that come once, who each of them is would be work for nothing.
        if entry.kept.who.is_none() && (entry.error == 0 || entry.count - entry.error > times) {
            entry.kept.who = Some(Arc::new(who()));
        }
        let jump = entry.kept.pace.add(now, times)?;
        let known = now.since(began) >= WARM_UP;
        known.then(|| Bursting { at: now, key, who: entry.kept.who.clone(), jump })
    }

    /// Begins a new generation when it is time, or two.
    fn advance(&mut self, now: Timestamp) {
        let age = now.since(self.since);
        if age < GENERATION {
            return;
        }
        let last = std::mem::replace(&mut self.now, Generation::new(self.room));
        let next = self.since.plus(GENERATION);
        if now.since(next) < GENERATION {
            (self.before, self.since) = (last, next);
        } else {
            (self.before, self.since) = (Generation::new(self.room), now);
        }
    }
}

impl Generation {
    const fn new(room: usize) -> Self {
        Self { sketch: Sketch::new(room), one_in: 1 }
    }
}
