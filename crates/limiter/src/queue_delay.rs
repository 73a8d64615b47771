//! The delay of a request that a queueing rule admitted.

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{LeakMode, Meter};
use tidegate_core::time::Micros;

use crate::decision::Decision;

/// When a queued request may proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDelay {
    /// Fingerprint of the queue's key.
    pub queue: Fingerprint,
    /// The request's delay, from the time of the decision.
    pub delay: Micros,
    /// Minimum time between this request and the next one in the queue.
    pub spacing: Micros,
}

impl Decision {
    /// The request's queue delay, if a rule queues it. At most one rule does: loading the rules
    /// rejects most combinations of queueing rules, and matching refuses the rest.
    #[must_use]
    pub fn queue_delay(&self) -> Option<QueueDelay> {
        if !self.open_ended {
            return None;
        }
        self.charge_records.iter().find_map(|record| {
            let reading = self.readings.get(record.reading_index as usize)?;
            let policy = self.rules[reading.rule].limit().policy()?;
            let Meter::Bucket { units, leak: LeakMode::Queue } = policy.meter() else {
                return None;
            };
            let cost = record.cost.saturating_mul(units.per_request).min(units.ceiling);
            let delay = reading.numbers?.delay;
            Some(QueueDelay { queue: record.fingerprint, delay, spacing: units.drain_time(cost) })
        })
    }
}
