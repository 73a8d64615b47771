//! Encodes the policies of a batch as numbers for the script.

use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{LeakMode, Meter, Policy};
use tidegate_core::store::{Op, QueueMode};

use super::encoder::write_u56;
use crate::script_request::ScriptCharge;

/// Lua numbers are exact up to this; a larger cost never fits a limit anyway.
pub(super) const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// How long a bucket's key may outlive its state, minimum and maximum, in microseconds. The minimum
/// is what the script grants other keys; the maximum bounds wasted memory.
const EXPIRY_SLACK_US: [u64; 2] = [2_000_000, 300_000_000];

/// The distinct policies of a batch.
#[derive(Debug, Default)]
pub(super) struct PolicyTable {
    known: Vec<(PolicyEncoding, u64)>,
    pub(super) bytes: Vec<u8>,
}

/// The wire form of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyEncoding {
    Policy(Policy),
    /// A queueing policy for a caller that cannot hold requests, and the cost of its charge.
    WithoutQueue(Policy, u64),
    Ban(BanPolicy),
}

impl PolicyTable {
    /// Returns the number, counted from 1, of a policy for records with this tag.
    pub(super) fn intern(&mut self, policy: PolicyEncoding, tag: u64) -> usize {
        let known = self.known.iter().position(|known| *known == (policy, tag));
        known.unwrap_or_else(|| {
            self.known.push((policy, tag));
            let (kind, numbers) = policy.to_wire_numbers();
            self.bytes.push(kind);
            numbers.into_iter().for_each(|each| write_u56(&mut self.bytes, each));
            self.bytes.extend(tag.to_be_bytes());
            self.known.len() - 1
        }) + 1
    }
}

impl PolicyEncoding {
    /// The encoding of a charge's main policy.
    pub(super) const fn from_charge(charge: &ScriptCharge, op: Op) -> Self {
        match (charge.queue, charge.policy.meter(), op) {
            (QueueMode::Refuse, Meter::Bucket { leak: LeakMode::Queue, .. }, Op::Charge) => {
                Self::WithoutQueue(charge.policy, charge.cost)
            }
            _ => Self::Policy(charge.policy),
        }
    }

    /// The kind and its numbers, as documented in `lua/decide.lua`.
    fn to_wire_numbers(self) -> (u8, [u64; 6]) {
        let policy = match self {
            Self::Ban(ban) => return (5, ban.parameters()),
            Self::Policy(policy) | Self::WithoutQueue(policy, _) => policy,
        };
        let (requests, window) = (policy.quota().requests, policy.quota().window.get());
        match policy.meter() {
            Meter::Bucket { units, .. } => {
                let (p, q, since) = (units.per_micro, units.per_request, policy.effective_since());
                let capacity = match self {
                    // With room for this request alone, it fits only if the queue is empty.
                    Self::WithoutQueue(_, cost) => cost.saturating_mul(q).min(units.capacity),
                    _ => units.capacity,
                };
                let slack =
                    (policy.period().get() / 4).clamp(EXPIRY_SLACK_US[0], EXPIRY_SLACK_US[1]);
                (
                    1,
                    [
                        p,
                        q,
                        capacity,
                        units.ceiling,
                        since.as_micros().min(MAX_EXACT_INTEGER),
                        slack,
                    ],
                )
            }
            Meter::Fixed => (2, [requests, window, 0, 0, 0, 0]),
            Meter::Counter(ticks) => {
                (3, [requests, window, ticks.micros, ticks.per_window, ticks.max_count(), 0])
            }
            Meter::Log | Meter::Slots => {
                (4, [requests, window, policy.max_log_entries().unwrap_or_default(), 0, 0, 0])
            }
        }
    }
}
