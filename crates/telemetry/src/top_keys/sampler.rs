//! Adaptive random sampling: every event at a low rate; one in 4, 16 or 64 at higher rates. A
//! sample represents as many events.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tidegate_core::time::Timestamp;

/// Length of a tick, as a power of two in microseconds: 131 ms.
const TICK_SHIFT: u32 = 17;

/// The sampling ratio is 1 in `one_in`. It changes by this factor, up to the maximum below.
const ONE_IN_STEP: u32 = 4;
const MAX_ONE_IN: u32 = 64;

/// Draws samples, and adapts the ratio to their rate.
pub(super) struct AdaptiveSampler {
    /// Maximum number of samples in a tick; beyond it, the ratio drops to a quarter.
    budget: u32,
    one_in: AtomicU32,
    tick: Mutex<SamplerTick>,
}

#[derive(Default)]
struct SamplerTick {
    tick: u64,
    sampled: u32,
}

impl AdaptiveSampler {
    pub(super) const fn new(budget: u32) -> Self {
        let tick = Mutex::new(SamplerTick { tick: 0, sampled: 0 });
        Self { budget, one_in: AtomicU32::new(1), tick }
    }

    /// Decides whether to sample an event. Returns the number of events that it represents, or
    /// `None` to skip it.
    #[inline]
    pub(super) fn draw(&self) -> Option<u32> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        (one_in == 1 || draw_one_in(one_in)).then_some(one_in)
    }

    /// Records a sample. Not recorded if another thread holds the lock; the rate need not be exact.
    pub(super) fn record_sampled(&self, now: Timestamp) {
        if let Some(mut tick) = self.tick.try_lock() {
            let next = tick.next_one_in(now, self.one_in.load(Ordering::Relaxed), self.budget);
            self.one_in.store(next, Ordering::Relaxed);
        }
    }
}

impl SamplerTick {
    fn next_one_in(&mut self, now: Timestamp, one_in: u32, budget: u32) -> u32 {
        let tick = now.as_micros() >> TICK_SHIFT;
        let mut next = one_in;
        if tick != self.tick {
            // A low rate, or a tick without any samples.
            if self.sampled < budget / 8 || tick.abs_diff(self.tick) > 1 {
                next = (next / ONE_IN_STEP).max(1);
            }
            (self.tick, self.sampled) = (tick, 0);
        }
        self.sampled += 1;
        if self.sampled > budget && next < MAX_ONE_IN {
            self.sampled = 0;
            next *= ONE_IN_STEP;
        }
        next
    }
}

/// Returns true with a probability of 1 in `one_in`, which is a power of two.
#[inline]
fn draw_one_in(one_in: u32) -> bool {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u8) | 1);
    }
    // Marsaglia's xorshift64*: not cryptographically secure, and need not be.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Micros;

    #[test]
    fn sampling_adapts_to_load_and_recovers() {
        let sample = AdaptiveSampler::new(100);
        let start = Timestamp::from_micros(1 << 40);
        (0..100).for_each(|_| sample.record_sampled(start));
        assert_eq!(sample.draw(), Some(1));
        let represented = |_| {
            (0..101).for_each(|_| sample.record_sampled(start));
            (0..10_000).find_map(|_| sample.draw())
        };
        let ratios: Vec<_> = (0..4).map(represented).collect();
        assert_eq!(ratios, [4, 16, 64, 64].map(Some));
        let drawn = (0..64_000).filter(|_| sample.draw().is_some()).count();
        // 1000 are expected; six standard deviations are 190.
        assert!((810..1_190).contains(&drawn), "{drawn}");
        (1..=3).for_each(|second| sample.record_sampled(start.plus(Micros::from_secs(second))));
        assert_eq!(sample.draw(), Some(1));
    }
}
