//! Bans by definition: every strike kept, and the rules read over them.

use tidegate_core::time::{Micros, Timestamp};

/// The numbers of a ban.
#[derive(Clone, Copy, Debug)]
pub struct BanParameters {
    /// So many strikes …
    pub after: u32,
    /// … inside this lead to a ban …
    pub within: Micros,
    /// … this long, …
    pub lasts: Micros,
    /// … each further one so many times as long, …
    pub factor: u32,
    /// … but no longer than this.
    pub longest: Micros,
}

/// What a key has done.
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
    /// A clean record.
    #[must_use]
    pub fn new(parameters: BanParameters) -> Self {
        let (until, last_began) = (Timestamp::EPOCH, Timestamp::EPOCH);
        Self { parameters, pending: Vec::new(), bans: 0, until, last_began }
    }

    /// How long the key is still banned.
    #[must_use]
    pub fn ban_remaining(&self, now: Timestamp) -> Micros {
        self.until.since(now)
    }

    /// Counts a refusal.
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

    /// Forgets everything.
    pub fn reset(&mut self) {
        *self = Self::new(self.parameters);
    }
}
