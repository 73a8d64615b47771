//! Sweeps a store as decisions run, so that no background task is needed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::time::{Micros, Timestamp};

/// The time between two steps. A step checks one shard, so a busy limiter visits the 4 096 shards
/// of the default memory budget every two seconds.
const STEP_INTERVAL: Micros = Micros::new(500);

/// When the store was last swept.
#[derive(Debug, Default)]
pub(crate) struct LazySweep {
    last_step_us: AtomicU64,
}

impl LazySweep {
    /// Runs `step` if the last step is long enough ago. Of several threads, one runs it.
    #[inline]
    pub(crate) fn run_if_due(&self, now: Timestamp, step: impl FnOnce()) {
        let (last, now) = (self.last_step_us.load(Relaxed), now.as_micros());
        // The difference, because the clock may go back.
        if now.abs_diff(last) >= STEP_INTERVAL.get()
            && self.last_step_us.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
        {
            step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_runs_once_per_interval() {
        let (sweep, mut steps) = (LazySweep::default(), 0);
        let start = 1_700_000_000_000_000;
        for micros in [start, start, start + 499, start + 500, start + 501, start + 1_000] {
            sweep.run_if_due(Timestamp::from_micros(micros), || steps += 1);
        }
        assert_eq!(steps, 3);
        sweep.run_if_due(Timestamp::from_micros(start - 86_400_000_000), || steps += 1);
        assert_eq!(steps, 4, "the clock went back by a day");
    }
}
