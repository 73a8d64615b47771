//! The request rate of one key, and burst detection: a burst is at least ten times the mean rate of
//! the seconds before.

use tidegate_core::time::{Micros, Timestamp};

/// Minimum ratio of a burst to the recent mean.
const BURST_FACTOR: u64 = 10;

/// Minimum number of requests per second in a burst; a rise from 1 to 10 does not matter.
const MIN_BURST_REQUESTS: u64 = 100;

/// Minimum number of requests actually sampled in a burst, so that it is not extrapolated from a
/// few.
const MIN_SAMPLED: u32 = 8;

/// How long no further burst of a key is reported.
const QUIET_SECS: u64 = 60;

/// Each second, the mean moves by 1/16 of the difference; it covers about the last 16 seconds.
const MEAN_DECAY: u64 = 16;

/// The mean is stored in 1/256 requests per second.
const MEAN_SCALE: u64 = 256;

/// The request rate of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRate {
    second: u64,
    /// Estimated number of requests in the current second.
    count: u64,
    /// Number of those requests that were sampled.
    sampled: u32,
    /// Moving average over the seconds before, scaled by [`MEAN_SCALE`].
    mean: u64,
    /// No burst is reported before this second.
    quiet_until: u64,
}

/// A sharp rise of a key's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateSpike {
    /// Requests in the current second so far.
    pub(super) rate: u64,
    /// Mean requests per second before.
    pub(super) mean: u64,
}

impl KeyRate {
    /// The rate of a new key that had at most `before` requests in the preceding time `over`.
    pub(super) fn new(now: Timestamp, before: u64, over: Micros) -> Self {
        let seconds = over.as_secs_ceil().max(1);
        let mean = before.saturating_mul(MEAN_SCALE) / seconds;
        Self { second: whole_seconds(now), count: 0, sampled: 0, mean, quiet_until: 0 }
    }

    /// Counts a sampled request, which represents `times` requests. Returns the spike if the rate
    /// is now a burst.
    pub(super) fn add(&mut self, now: Timestamp, times: u64) -> Option<RateSpike> {
        self.advance(whole_seconds(now));
        self.count += times;
        self.sampled += 1;
        let is_burst = self.count >= MIN_BURST_REQUESTS
            && self.sampled >= MIN_SAMPLED
            && self.count.saturating_mul(MEAN_SCALE) >= self.mean.saturating_mul(BURST_FACTOR);
        if !is_burst || self.second < self.quiet_until {
            return None;
        }
        self.quiet_until = self.second + QUIET_SECS;
        Some(RateSpike { rate: self.count, mean: self.mean.div_ceil(MEAN_SCALE) })
    }

    fn advance(&mut self, second: u64) {
        if second <= self.second {
            return;
        }
        let latest = self.count.saturating_mul(MEAN_SCALE);
        self.mean = (self.mean.saturating_mul(MEAN_DECAY - 1).saturating_add(latest)) / MEAN_DECAY;
        // Any mean has decayed to 0 after this many seconds without requests.
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

    /// Adds `rate` requests in each of the seconds. Returns the reported spikes and their seconds.
    fn run_at_rate(
        key_rate: &mut KeyRate,
        seconds: std::ops::Range<u64>,
        rate: u64,
    ) -> Vec<(u64, RateSpike)> {
        let mut spikes = Vec::new();
        for second in seconds {
            for i in 0..rate {
                spikes.extend(key_rate.add(at(second, i), 1).map(|spike| (second, spike)));
            }
        }
        spikes
    }

    #[test]
    fn tenfold_rate_is_a_burst() {
        let mut key_rate = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut key_rate, 0..200, 20), []);
        let mut other = key_rate;
        assert_eq!(run_at_rate(&mut key_rate, 200..201, 190), []);
        let spikes = run_at_rate(&mut other, 200..201, 210);
        assert_eq!(spikes, [(200, RateSpike { rate: 200, mean: 20 })]);
    }

    #[test]
    fn few_requests_are_never_a_burst() {
        let mut key_rate = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut key_rate, 0..1, MIN_BURST_REQUESTS - 1), []);
        assert_eq!(run_at_rate(&mut key_rate, 100..101, MIN_BURST_REQUESTS).len(), 1);
    }

    #[test]
    fn burst_is_reported_again_after_silence() {
        let mut key_rate = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run_at_rate(&mut key_rate, 0..10, 1_000).len(), 1);
        assert_eq!(run_at_rate(&mut key_rate, 600..610, 1_000).len(), 1);
    }

    #[test]
    fn possibly_fast_key_is_no_burst() {
        let mut key_rate = KeyRate::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(run_at_rate(&mut key_rate, 0..20, 200), []);
        let mut key_rate = KeyRate::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(
            run_at_rate(&mut key_rate, 0..1, 1_000),
            [(0, RateSpike { rate: 1_000, mean: 100 })]
        );
    }

    #[test]
    fn few_samples_are_not_a_burst() {
        let mut key_rate = KeyRate::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(key_rate.add(at(0, 1), 640), None);
        (0..6).for_each(|i| assert_eq!(key_rate.add(at(0, 2 + i), 64), None));
        assert!(key_rate.add(at(0, 9), 64).is_some());
    }
}
