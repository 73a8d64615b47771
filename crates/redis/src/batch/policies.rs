//! The policies of a batch as numbers that the script counts with.

use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Leak, Meter, Policy};
use tidegate_core::store::{Op, Queue};

use super::writer::wide;
use crate::ask::Item;

/// Numbers in a script are exact below this; a cost above it fits nowhere either.
pub(super) const EXACT: u64 = 1 << 53;

/// By how many microseconds the key of a bucket may outlive its state, at least and at most: the first
/// is what the script gives other keys, the second is what memory is worth.
const SLACK: [u64; 2] = [2_000_000, 300_000_000];

/// The policies of a batch, each once.
#[derive(Debug, Default)]
pub(super) struct Policies {
    known: Vec<(Sent, u64)>,
    pub(super) bytes: Vec<u8>,
}

/// What is sent of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Policy(Policy),
    /// A queue whose requests nobody can hold, for a charge of this cost.
    Unheld(Policy, u64),
    Ban(BanPolicy),
}

impl Policies {
    /// The number, from 1, of a policy for records with a tag.
    pub(super) fn number(&mut self, policy: Sent, tag: u64) -> usize {
        let known = self.known.iter().position(|known| *known == (policy, tag));
        known.unwrap_or_else(|| {
            self.known.push((policy, tag));
            let (kind, numbers) = policy.numbers();
            self.bytes.push(kind);
            numbers.into_iter().for_each(|each| wide(&mut self.bytes, each));
            self.bytes.extend(tag.to_be_bytes());
            self.known.len() - 1
        }) + 1
    }
}

impl Sent {
    /// What is sent of a charge's own policy.
    pub(super) const fn of(item: &Item, op: Op) -> Self {
        match (item.queue, item.policy.meter(), op) {
            (Queue::Refuse, Meter::Bucket { leak: Leak::Queue, .. }, Op::Charge) => {
                Self::Unheld(item.policy, item.cost)
            }
            _ => Self::Policy(item.policy),
        }
    }

    /// What kind it is, and its numbers; `lua/decide.lua` says what each means.
    fn numbers(&self) -> (u8, [u64; 6]) {
        let policy = match self {
            Self::Ban(ban) => return (5, ban.numbers()),
            Self::Policy(policy) | Self::Unheld(policy, _) => policy,
        };
        let (requests, window) = (policy.quota().requests, policy.quota().window.get());
        match policy.meter() {
            Meter::Bucket { units, .. } => {
                let (p, q, since) = (units.per_micro, units.per_request, policy.since());
                let capacity = match self {
                    // Where there is room for this one alone, it fits only if nobody is before it.
                    Self::Unheld(_, cost) => cost.saturating_mul(q).min(units.capacity),
                    _ => units.capacity,
                };
                let slack = (policy.period().get() / 4).clamp(SLACK[0], SLACK[1]);
                (1, [p, q, capacity, units.ceiling, since.as_micros().min(EXACT), slack])
            }
            Meter::Fixed => (2, [requests, window, 0, 0, 0, 0]),
            Meter::Counter(ticks) => {
                (3, [requests, window, ticks.micros, ticks.per_window, ticks.most(), 0])
            }
            Meter::Log | Meter::Slots => {
                (4, [requests, window, policy.log_entries().unwrap_or_default(), 0, 0, 0])
            }
        }
    }
}
