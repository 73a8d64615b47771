//! Bans straight from their definition: records every strike and evaluates the rules over them.

use tidegate_core::time::{Micros, Timestamp};

/// The parameters of a ban.
#[derive(Clone, Copy, Debug)]
pub struct BanParameters {
    /// Number of strikes that lead to a ban.
    pub after: u32,
    /// Interval within which they must occur.
    pub within: Micros,
    /// Duration of the first ban.
    pub lasts: Micros,
    /// Factor by which each further ban is longer.
    pub factor: u32,
    /// Maximum duration of a ban.
    pub longest: Micros,
}

/// The strikes and bans of a key.
#[derive(Clone, Debug)]
pub struct BanOracle {
    parameters: BanParameters,
    /// Strikes that may still lead to a ban.
    pending: Vec<Timestamp>,
    bans: u32,
    until: Timestamp,
    last_began: Timestamp,
}

impl BanOracle {
    /// A key without strikes.
    #[must_use]
    pub fn new(parameters: BanParameters) -> Self {
        let (until, last_began) = (Timestamp::EPOCH, Timestamp::EPOCH);
        Self { parameters, pending: Vec::new(), bans: 0, until, last_began }
    }

    /// Remaining time of the ban.
    #[must_use]
    pub fn ban_remaining(&self, now: Timestamp) -> Micros {
        self.until.since(now)
    }

    /// Records a refusal as a strike.
    pub fn record_refusal(&mut self, now: Timestamp) {
        let longest = self.parameters.longest.max(self.parameters.lasts);
        let memory = longest.max(self.parameters.within);
        if now >= self.last_began.max(self.until).plus(memory) {
            *self = Self::new(self.parameters);
        }
        if self.pending.first().is_some_and(|first| now.since(*first) >= self.parameters.within) {
            self.pending.clear();
        }
        self.pending.push(now);
        self.last_began = self.pending[0];
        if self.pending.len() >= self.parameters.after as usize {
            self.pending.clear();
            self.last_began = now;
            let times = (0..self.bans)
                .fold(1_u64, |times, _| times.saturating_mul(self.parameters.factor.into()));
            let length =
                Micros::new(self.parameters.lasts.get().saturating_mul(times)).min(longest);
            self.until = now.plus(length);
            self.bans += 1;
        }
    }

    /// Clears all strikes and bans.
    pub fn reset(&mut self) {
        *self = Self::new(self.parameters);
    }
}
