//! The place of an admitted request in a queue.

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{LeakMode, Meter};
use tidegate_core::time::Micros;

use crate::decision::Decision;

/// When a request that a queueing rule admitted may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDelay {
    /// Whose queue it is in.
    pub queue: Fingerprint,
    /// How long it waits, counted from the decision.
    pub delay: Micros,
    /// How long after it the next one leaves at the earliest.
    pub spacing: Micros,
}

impl Decision {
    /// The request's place in a queue, if a rule queues it. At most one rule does: what else could be
    /// is refused when rules are loaded, and when they are matched.
    #[must_use]
    pub fn queue_delay(&self) -> Option<QueueDelay> {
        if !self.open_ended {
            return None;
        }
        self.charge_records.iter().find_map(|paid| {
            let reading = self.readings.get(paid.reading_index as usize)?;
            let policy = self.rules[reading.rule].limit().policy()?;
            let Meter::Bucket { units, leak: LeakMode::Queue } = policy.meter() else {
                return None;
            };
            let cost = paid.cost.saturating_mul(units.per_request).min(units.ceiling);
            let delay = reading.numbers?.delay;
            Some(QueueDelay { queue: paid.fingerprint, delay, spacing: units.drain_time(cost) })
        })
    }
}
