//! One rule's keys, watched: which of them occur most in the last one to two minutes, and which come in a burst.
//!
//! As long as few come, all are looked at. When more come than is worth the time, one in 4, 16 or 64 is, drawn at
//! random, and stands for as many: then a count is an estimate, whose spread is told. So a decision pays for a
//! look only when there is time for it, and threads seldom meet at the lock.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

use super::pace::{Jump, Pace};
use super::sketch::{Entry, Sketch, merged};
use super::who::Who;

/// How long a generation is; two of them are told of.
const GENERATION: Micros = Micros::from_secs(60);

/// How long a tick is, as a power of two in microseconds: 131 ms.
const TICK: u32 = 17;

/// The most that are looked at in a tick before it is one in four of those.
const BUDGET: u32 = 512;

/// By how much fewer are looked at each time, and the fewest: one in so many.
const STEP: u32 = 4;
const FEWEST: u32 = 64;

/// Bursts are not told before this much is known of what is usual.
const WARM_UP: Micros = Micros::from_secs(10);

/// The keys of one rule.
pub(super) struct Watch {
    /// One in so many is looked at.
    one_in: AtomicU32,
    window: Mutex<Window>,
}

struct Window {
    room: usize,
    began: Option<Timestamp>,
    tick: u64,
    looked_at: u32,
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
            tick: 0,
            looked_at: 0,
            since: Timestamp::EPOCH,
            now: Generation::new(room),
            before: Generation::new(room),
        };
        Self { one_in: AtomicU32::new(1), window: Mutex::new(window) }
    }

    /// A key occurred. Tells whether it does so in a burst.
    #[inline]
    pub(super) fn count(
        &self,
        key: &dyn Fn() -> Fingerprint,
        now: &dyn Fn() -> Timestamp,
        who: &dyn Fn() -> Who,
    ) -> Option<Bursting> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in > 1 && !drawn(one_in) {
            return None;
        }
        self.look(key(), one_in, now(), who)
    }

    fn look(
        &self,
        key: Fingerprint,
        one_in: u32,
        now: Timestamp,
        who: &dyn Fn() -> Who,
    ) -> Option<Bursting> {
        let mut window = self.window.lock();
        self.one_in.store(window.looked_at(now, one_in), Ordering::Relaxed);
        window.count(key, u64::from(one_in), now, who)
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
    /// One more is looked at; one in how many is from now on?
    fn looked_at(&mut self, now: Timestamp, one_in: u32) -> u32 {
        let tick = now.as_micros() >> TICK;
        let mut next = one_in;
        if tick != self.tick {
            // Ticks in which nobody came were calm as well.
            if self.looked_at < BUDGET / 8 || tick.abs_diff(self.tick) > 1 {
                next = (next / STEP).max(1);
            }
            (self.tick, self.looked_at) = (tick, 0);
        }
        self.looked_at += 1;
        if self.looked_at > BUDGET && next < FEWEST {
            self.looked_at = 0;
            next *= STEP;
        }
        next
    }

    fn count(
        &mut self,
        key: Fingerprint,
        times: u64,
        now: Timestamp,
        who: &dyn Fn() -> Who,
    ) -> Option<Bursting> {
        self.advance(now);
        let began = *self.began.get_or_insert(now);
        let Self { now: generation, before, since, .. } = self;
        // At most this fits: 64.
        generation.one_in = generation.one_in.max(u32::try_from(times).unwrap_or(FEWEST));
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

/// Whether the one in so many is drawn. So many is a power of two.
fn drawn(one_in: u32) -> bool {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u8) | 1);
    }
    // Marsaglia's xorshift64*: what is drawn is nobody's secret.
    let draw = STATE.try_with(|state| {
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    });
    draw.is_ok_and(|draw| draw & u64::from(one_in - 1) == 0)
}
