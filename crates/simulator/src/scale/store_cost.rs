//! What a call costs a store, and how many stores that takes. The numbers are measured; see
//! `benches/README.md` and `docs/scale.md`.

/// What a call costs a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreCost {
    /// Decisions a second of one Redis while many of them share a script call: `cargo xtask bench
    /// redis`, 256 callers.
    pub shared_calls_per_second: f64,
    /// Decisions a second of one Redis core while each is a script call of its own.
    pub single_calls_per_second: f64,
    /// How much of a core's time may be used, in percent.
    pub load_percent: f64,
    /// Bytes of a counter in Redis: `cargo xtask bench redis`, token bucket.
    pub counter_bytes: f64,
}

impl Default for StoreCost {
    fn default() -> Self {
        Self {
            shared_calls_per_second: 300_000.0,
            single_calls_per_second: 75_000.0,
            load_percent: 60.0,
            counter_bytes: 184.0,
        }
    }
}

impl StoreCost {
    /// The shards that these calls need, if as many as possible share a script call.
    pub(super) fn fewest_shards(&self, calls: f64) -> f64 {
        self.shards(calls, self.shared_calls_per_second)
    }

    /// The shards that these calls need, if none share a script call.
    pub(super) fn most_shards(&self, calls: f64) -> f64 {
        self.shards(calls, self.single_calls_per_second)
    }

    fn shards(&self, calls: f64, per_second: f64) -> f64 {
        (calls / (per_second * self.load_percent / 100.0)).ceil().max(1.0)
    }
}
