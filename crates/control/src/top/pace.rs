//! How fast requests of one key come, and when that is a burst: at least ten times what it was in the seconds before.

use tidegate_core::time::{Micros, Timestamp};

/// A burst is so many times the recent mean.
const JUMP: u64 = 10;

/// Fewer in a second are none: from one to ten is nothing.
const LEAST: u64 = 100;

/// Of so many requests at least we know it, and did not reckon it from fewer that stand for others.
const LOOKED_AT: u32 = 8;

/// How long a key that burst is not told of again.
const QUIET: u64 = 60;

/// The mean moves by this share of the difference with each second: it remembers about as many.
const MEMORY: u64 = 16;

/// The mean is kept in this part of a request a second.
const PART: u64 = 256;

/// How fast requests of one key come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    second: u64,
    /// In this second: how many there were, and how many of them were looked at.
    count: u64,
    looked_at: u32,
    /// In the seconds before, in parts.
    mean: u64,
    /// Until when it is not told of.
    quiet_until: u64,
}

/// A key is faster than it was, by much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    /// Requests in this second so far.
    pub(super) rate: u64,
    /// Requests in a second before.
    pub(super) mean: u64,
}

impl Pace {
    /// The pace of a key that is new here, of which at most `before` requests came in the time `over` before.
    pub(super) fn new(now: Timestamp, before: u64, over: Micros) -> Self {
        let seconds = over.as_secs_ceil().max(1);
        let mean = before.saturating_mul(PART) / seconds;
        Self { second: second(now), count: 0, looked_at: 0, mean, quiet_until: 0 }
    }

    /// A request came that stands for so many; tells whether it is a burst by now.
    pub(super) fn add(&mut self, now: Timestamp, times: u64) -> Option<Jump> {
        self.advance(second(now));
        self.count += times;
        self.looked_at += 1;
        let jumped = self.count >= LEAST
            && self.looked_at >= LOOKED_AT
            && self.count.saturating_mul(PART) >= self.mean.saturating_mul(JUMP);
        if !jumped || self.second < self.quiet_until {
            return None;
        }
        self.quiet_until = self.second + QUIET;
        Some(Jump { rate: self.count, mean: self.mean.div_ceil(PART) })
    }

    fn advance(&mut self, second: u64) {
        if second <= self.second {
            return;
        }
        let told = self.count.saturating_mul(PART);
        self.mean = (self.mean.saturating_mul(MEMORY - 1).saturating_add(told)) / MEMORY;
        // After so many seconds of silence nothing is left of any mean.
        for _ in 1..(second - self.second).min(40 * MEMORY) {
            self.mean = self.mean * (MEMORY - 1) / MEMORY;
        }
        (self.second, self.count, self.looked_at) = (second, 0, 0);
    }
}

const fn second(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, share: u64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000 + share)
    }

    /// So many requests a second, from one second to another; the jumps that were told.
    fn run(pace: &mut Pace, seconds: std::ops::Range<u64>, rate: u64) -> Vec<(u64, Jump)> {
        let mut told = Vec::new();
        for second in seconds {
            for i in 0..rate {
                told.extend(pace.add(at(second, i), 1).map(|jump| (second, jump)));
            }
        }
        told
    }

    #[test]
    fn ten_times_as_many_are_a_burst_and_nine_times_are_not() {
        let mut pace = Pace::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run(&mut pace, 0..200, 20), []);
        let mut other = pace;
        assert_eq!(run(&mut pace, 200..201, 190), []);
        let told = run(&mut other, 200..201, 210);
        assert_eq!(told, [(200, Jump { rate: 200, mean: 20 })]);
    }

    #[test]
    fn a_few_requests_are_none_whatever_was_before() {
        let mut pace = Pace::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run(&mut pace, 0..1, LEAST - 1), []);
        assert_eq!(run(&mut pace, 100..101, LEAST).len(), 1);
    }

    #[test]
    fn it_is_told_once_and_again_after_a_while_of_silence() {
        let mut pace = Pace::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(run(&mut pace, 0..10, 1_000).len(), 1);
        assert_eq!(run(&mut pace, 600..610, 1_000).len(), 1);
    }

    #[test]
    fn one_that_may_have_been_as_fast_before_is_no_burst() {
        let mut pace = Pace::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(run(&mut pace, 0..20, 200), []);
        let mut pace = Pace::new(at(0, 0), 6_000, Micros::from_secs(60));
        assert_eq!(run(&mut pace, 0..1, 1_000), [(0, Jump { rate: 1_000, mean: 100 })]);
    }

    #[test]
    fn a_handful_that_stands_for_many_is_not_believed() {
        let mut pace = Pace::new(at(0, 0), 0, Micros::ZERO);
        assert_eq!(pace.add(at(0, 1), 640), None);
        (0..6).for_each(|i| assert_eq!(pace.add(at(0, 2 + i), 64), None));
        assert!(pace.add(at(0, 9), 64).is_some());
    }
}
