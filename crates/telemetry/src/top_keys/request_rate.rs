//! How fast requests of one key come, and when that is a burst: at least ten times what it was in the seconds before.

use tidegate_core::time::{Micros, Timestamp};

/// A burst is so many times the recent mean.
const BURST_FACTOR: u64 = 10;

/// Fewer in a second are none: from one to ten is nothing.
const MIN_BURST_REQUESTS: u64 = 100;

/// Of so many requests at least we know it, and did not reckon it from fewer that stand for others.
const MIN_SAMPLED: u32 = 8;

/// How long a key that burst is not told of again.
const QUIET_SECS: u64 = 60;

/// The mean moves by this share of the difference with each second: it remembers about as many.
const MEAN_DECAY: u64 = 16;

/// The mean is kept in this part of a request a second.
const MEAN_SCALE: u64 = 256;

/// How fast requests of one key come.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRate {
    second: u64,
    /// In this second: how many there were, and how many of them were looked at.
    count: u64,
    sampled: u32,
    /// In the seconds before, in parts.
    mean: u64,
    /// Until when it is not told of.
    quiet_until: u64,
}

/// A key is faster than it was, by much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateSpike {
    /// Requests in this second so far.
    pub(super) rate: u64,
    /// Requests in a second before.
    pub(super) mean: u64,
}

impl KeyRate {
    /// The pace of a key that is new here, of which at most `before` requests came in the time `over` before.
    pub(super) fn new(now: Timestamp, before: u64, over: Micros) -> Self {
        let seconds = over.as_secs_ceil().max(1);
        let mean = before.saturating_mul(MEAN_SCALE) / seconds;
        Self { second: whole_seconds(now), count: 0, sampled: 0, mean, quiet_until: 0 }
    }

    /// A request came that stands for so many; tells whether it is a burst by now.
    pub(super) fn add(&mut self, now: Timestamp, times: u64) -> Option<RateSpike> {
        self.advance(whole_seconds(now));
        self.count += times;
        self.sampled += 1;
        let jumped = self.count >= MIN_BURST_REQUESTS
            && self.sampled >= MIN_SAMPLED
            && self.count.saturating_mul(MEAN_SCALE) >= self.mean.saturating_mul(BURST_FACTOR);
        if !jumped || self.second < self.quiet_until {
            return None;
        }
        self.quiet_until = self.second + QUIET_SECS;
        Some(RateSpike { rate: self.count, mean: self.mean.div_ceil(MEAN_SCALE) })
    }

    fn advance(&mut self, second: u64) {
        if second <= self.second {
            return;
        }
        let told = self.count.saturating_mul(MEAN_SCALE);
        self.mean = (self.mean.saturating_mul(MEAN_DECAY - 1).saturating_add(told)) / MEAN_DECAY;
        // After so many seconds of silence nothing is left of any mean.
        for _ in 1..(second - self.second).min(40 * MEAN_DECAY) {
            self.mean = self.mean * (MEAN_DECAY - 1) / MEAN_DECAY;
        }
        (self.second, self.count, self.sampled) = (second, 0, 0);
    }
}

const fn whole_seconds(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, share: u64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000 + share)
    }

    /// So many requests a second, from one second to another; the jumps that were told.
    fn run_at_rate(
        pace: &mut KeyRate,
        seconds: std::ops::Range<u64>,
        rate: u64,
    ) -> Vec<(u64, RateSpike)> {
        let mut told = Vec::new();
        for second in seconds {
            for i in 0..rate {
                told.extend(pace.add(at(second, i), 1).map(|jump| (second, jump)));
            }
        }
        told
    }

    #[test]
    fn tenfold_rate_is_a_burst() {
        let mut pace = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut pace, 0..200, 20), []);
        let mut other = pace;
        assert_eq!(run_at_rate(&mut pace, 200..201, 190), []);
        let told = run_at_rate(&mut other, 200..201, 210);
        assert_eq!(told, [(200, RateSpike { rate: 200, mean: 20 })]);
    }

    #[test]
    fn few_requests_are_never_a_burst() {
        let mut pace = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut pace, 0..1, MIN_BURST_REQUESTS - 1), []);
        assert_eq!(run_at_rate(&mut pace, 100..101, MIN_BURST_REQUESTS).len(), 1);
    }

    #[test]
    fn burst_is_reported_again_after_silence() {
        let mut pace = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut pace, 0..10, 1_000).len(), 1);
        assert_eq!(run_at_rate(&mut pace, 600..610, 1_000).len(), 1);
    }

    #[test]
    fn possibly_fast_key_is_no_burst() {
        let mut pace = KeyRate::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(run_at_rate(&mut pace, 0..20, 200), []);
        let mut pace = KeyRate::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(
            run_at_rate(&mut pace, 0..1, 1_000),
            [(0, RateSpike { rate: 1_000, mean: 100 })]
        );
    }

    #[test]
    fn few_samples_are_not_a_burst() {
        let mut pace = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(pace.add(at(0, 1), 640), None);
        (0..6).for_each(|i| assert_eq!(pace.add(at(0, 2 + i), 64), None));
        assert!(pace.add(at(0, 9), 64).is_some());
    }
}
