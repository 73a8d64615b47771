//! A small deterministic random generator: SplitMix64 (Steele, Lea and Flood 2014).

/// Numbers that depend on the seed only.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator whose numbers do not depend on how many this one produced later.
    pub(crate) const fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias of the remainder does not matter here.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        match bound {
            0 => 0,
            bound => self.next() % bound,
        }
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in this many of 100 cases.
    pub(crate) const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// The index of one of `count` things.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// One of the values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// A number with a long tail: mostly near `usual`, rarely up to `usual` times `tail`.
    pub(crate) const fn long_tailed(&mut self, usual: u64, tail: u64) -> u64 {
        match self.below(20) {
            0 => self.between(usual, usual * tail),
            _ => self.between(usual / 2, usual * 3 / 2),
        }
    }

    /// A number from 0 to 1, above 0.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number around `mean` with an exponential distribution: the time between two events
    /// that are independent of each other.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is positive, and a float saturates"
    )]
    pub(crate) fn exponential(&mut self, mean: f64) -> u64 {
        (-self.fraction().ln() * mean) as u64
    }

    /// -limit to limit.
    pub(crate) fn signed(&mut self, limit: i64) -> i64 {
        let span = limit.unsigned_abs() * 2 + 1;
        i64::try_from(self.below(span)).unwrap_or(0) - limit
    }
}
