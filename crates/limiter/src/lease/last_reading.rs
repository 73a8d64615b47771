//! What a node knows of a counter between two answers of a store.

use tidegate_core::decision::Reading;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

/// A store's last answer about a counter, and when it was processed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastReading {
    pub(super) reading: Reading,
    /// By the lease clock.
    pub(super) at: Timestamp,
}

impl LastReading {
    /// The store's clock.
    pub(super) fn store_now(&self, now: Timestamp) -> Timestamp {
        self.reading.now.plus(now.since(self.at))
    }

    /// What the counter has left if nothing else is charged.
    pub(super) fn remaining(&self, policy: &Policy, now: Timestamp) -> u64 {
        let limit = policy.limit();
        if *policy.meter() == Meter::Fixed {
            let window = |at: Timestamp| at.as_micros() / policy.quota().window.get();
            let is_next = window(self.store_now(now)) > window(self.reading.now);
            return if is_next { limit } else { self.reading.remaining.min(limit) };
        }
        let refilled = refilled(policy, now.since(self.at));
        self.reading.remaining.saturating_add(refilled).min(limit)
    }

    /// At most one in this many units of the room is asked for, so that one node leaves some for
    /// the others. A node that paces itself asks once in a `pace`, so it may take what becomes
    /// available in that time even if it is the only one with demand. Otherwise a small burst is
    /// never used up. `leave` of the counter is not room.
    pub(super) fn part(
        &self,
        policy: &Policy,
        leave: u64,
        pace: Micros,
        nodes: u64,
        now: Timestamp,
    ) -> u64 {
        let part = match policy.meter() {
            // What is left must last until the window ends.
            Meter::Fixed => {
                let window = policy.quota().window.get();
                (window - self.store_now(now).as_micros() % window) / pace.get()
            }
            _ => {
                let room = self.remaining(policy, now).saturating_sub(leave);
                room / (refilled(policy, pace) + 1)
            }
        };
        part.clamp(1, most_parts(nodes))
    }
}

/// The most parts into which the nodes divide the room of a counter.
pub(super) const fn most_parts(nodes: u64) -> u64 {
    2 * nodes
}

/// The requests that a policy's rate admits in a time, rounded down.
fn refilled(policy: &Policy, span: Micros) -> u64 {
    let Quota { requests, window, .. } = *policy.quota();
    let units = u128::from(requests) * u128::from(span.get()) / u128::from(window.get());
    u64::try_from(units).unwrap_or(u64::MAX)
}
