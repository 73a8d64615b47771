//! A request on its way to the script: owned, because it may outlive whoever asked.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::batch::Part;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Leak, Meter, Policy};
use tidegate_core::store::{Charge, Op, Queue, Role};
use tidegate_core::time::Timestamp;

use crate::name::{Name, name};
use crate::script::Text;

/// Numbers in a script are exact below this; a cost above it fits nowhere either.
const EXACT: u64 = 1 << 53;

/// By how many microseconds the key of a bucket may outlive its state, at least and at most: the first
/// is what the script gives other keys, the second is what memory is worth.
const SLACK: [u64; 2] = [2_000_000, 300_000_000];

/// A batch of charges, all or none.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) op: Op,
    pub(crate) items: SmallVec<[Item; 2]>,
}

/// One charge.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) name: Name,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) role: Role,
    pub(crate) grace: Option<(Name, Policy)>,
    pub(crate) ban: Option<(Name, BanPolicy)>,
    pub(crate) queue: Queue,
}

impl Item {
    pub(crate) fn new(prefix: &str, charge: &Charge<'_>) -> Self {
        let called = |part| name(prefix, &charge.key, part);
        Self {
            fingerprint: charge.key.fingerprint,
            name: called(Part::Main),
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            grace: charge.grace.map(|policy| (called(Part::Grace), *policy)),
            ban: charge.ban.map(|policy| (called(Part::Ban), *policy)),
            queue: charge.queue,
        }
    }
}

/// Several requests as one call of the script.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    keys: Vec<&'a [u8]>,
    policies: Vec<u8>,
    requests: Vec<u8>,
    /// Where the keys of each request are.
    pub(crate) places: Vec<SmallVec<[Places; 2]>>,
}

/// Where the keys of a charge are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) main: usize,
    pub(crate) grace: Option<usize>,
    pub(crate) ban: Option<usize>,
}

impl<'a> Batch<'a> {
    /// Several requests, in this order.
    pub(crate) fn new(asks: &'a [Arc<Ask>]) -> Self {
        let mut keys = Keys::default();
        let places: Vec<SmallVec<[Places; 2]>> = asks
            .iter()
            .map(|ask| ask.items.iter().map(|item| keys.places(item)).collect())
            .collect();
        let mut policies = Policies::default();
        let mut requests = Vec::with_capacity(16 * asks.len());
        for (ask, places) in asks.iter().zip(&places) {
            write_request(&mut requests, ask, places, &keys, &mut policies);
        }
        Self { keys: keys.names, policies: policies.bytes, requests, places }
    }

    /// The call, by the script's name or with its text.
    pub(crate) fn command(&self, script: &Text, whole: bool, now: Option<Timestamp>) -> Cmd {
        let mut command = Cmd::new();
        if whole {
            command.arg("EVAL").arg(&script.text);
        } else {
            command.arg("EVALSHA").arg(&script.sha);
        }
        command.arg(self.keys.len());
        for key in &self.keys {
            command.arg(*key);
        }
        command.arg(&self.policies).arg(&self.requests);
        if let Some(now) = now {
            command.arg(now.as_micros());
        }
        command
    }
}

/// The keys of a batch, each once.
#[derive(Debug, Default)]
struct Keys<'a> {
    names: Vec<&'a [u8]>,
    asked: Vec<u32>,
    known: HashMap<(Fingerprint, Part), usize>,
}

impl<'a> Keys<'a> {
    fn places(&mut self, item: &'a Item) -> Places {
        let key = item.fingerprint;
        Places {
            main: self.place(key, Part::Main, &item.name),
            grace: item.grace.as_ref().map(|(name, _)| self.place(key, Part::Grace, name)),
            ban: item.ban.as_ref().map(|(name, _)| self.place(key, Part::Ban, name)),
        }
    }

    fn place(&mut self, key: Fingerprint, part: Part, name: &'a [u8]) -> usize {
        let place = *self.known.entry((key, part)).or_insert_with(|| {
            self.names.push(name);
            self.asked.push(0);
            self.names.len() - 1
        });
        self.asked[place] += 1;
        place
    }
}

/// The policies of a batch, each once.
#[derive(Debug, Default)]
struct Policies {
    known: Vec<Sent>,
    bytes: Vec<u8>,
}

/// What is sent of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Policy(Policy),
    /// A queue whose requests nobody can hold, for a charge of this cost.
    Unheld(Policy, u64),
    Ban(BanPolicy),
}

impl Policies {
    /// The number of a policy, from 1.
    fn number(&mut self, policy: Sent) -> usize {
        let known = self.known.iter().position(|known| *known == policy);
        known.unwrap_or_else(|| {
            self.known.push(policy);
            let (kind, numbers) = policy.numbers();
            self.bytes.push(kind);
            numbers.into_iter().for_each(|each| wide(&mut self.bytes, each));
            self.known.len() - 1
        }) + 1
    }
}

impl Sent {
    /// What is sent of a charge's own policy.
    const fn of(item: &Item, op: Op) -> Self {
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

/// See `lua/decide.lua` for what is read back.
fn write_request(
    out: &mut Vec<u8>,
    ask: &Ask,
    places: &[Places],
    keys: &Keys<'_>,
    policies: &mut Policies,
) {
    let alone = |(item, places): (&Item, &Places)| {
        let plain = item.role == Role::Enforce && item.grace.is_none() && item.ban.is_none();
        plain && item.policy.algorithm().is_bucket() && keys.asked[places.main] == 1
    };
    let op = match ask.op {
        Op::Charge if ask.items.iter().zip(places).all(alone) => 5,
        Op::Charge => 0,
        Op::Peek => 1,
        Op::Force => 2,
        Op::Refund { charged_at } => {
            write_moment(out, charged_at);
            3
        }
        Op::Renew { charged_at } => {
            write_moment(out, charged_at);
            7
        }
        Op::Reset => 4,
    };
    out.push(op);
    narrow(out, ask.items.len());
    for (item, places) in ask.items.iter().zip(places) {
        let role = match item.role {
            Role::Enforce => 0,
            Role::Shadow => 1,
            Role::Always => 2,
        };
        narrow(out, policies.number(Sent::of(item, ask.op)));
        narrow(out, places.main + 1);
        wide(out, item.cost);
        out.push(role + 4 * u8::from(item.grace.is_some()) + 8 * u8::from(item.ban.is_some()));
        if let (Some((_, grace)), Some(place)) = (&item.grace, places.grace) {
            narrow(out, policies.number(Sent::Policy(*grace)));
            narrow(out, place + 1);
        }
        if let (Some((_, ban)), Some(place)) = (&item.ban, places.ban) {
            narrow(out, policies.number(Sent::Ban(*ban)));
            narrow(out, place + 1);
        }
    }
}

/// The time that the next request is of, as the cost of a request without charges.
fn write_moment(out: &mut Vec<u8>, charged_at: Timestamp) {
    out.extend([6, 0, 0, 0, 0, 0, 0]);
    wide(out, charged_at.as_micros());
    out.push(0);
}

/// A number of two bytes; batches are bounded so that it fits.
fn narrow(out: &mut Vec<u8>, number: usize) {
    out.extend(u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

/// A number of seven bytes. A cost beyond what scripts count exactly fits nowhere either.
fn wide(out: &mut Vec<u8>, number: u64) {
    out.extend(&number.min(EXACT).to_be_bytes()[1..]);
}
