//! A request on its way to the script: owned, because it may outlive whoever asked.

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::batch::Part;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::Timestamp;

use crate::msgpack::{array, number};
use crate::name::{Name, name};
use crate::script::Text;

/// Numbers in a script are exact below this; a cost above it fits nowhere either.
const EXACT: u64 = 1 << 53;

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
        }
    }
}

/// Several requests as one call of the script.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    keys: Vec<&'a [u8]>,
    key_places: std::collections::HashMap<(Fingerprint, Part), usize>,
    policies: Vec<Sent>,
    policy_bytes: Vec<u8>,
    requests: Vec<u8>,
    numbers: usize,
}

/// What a policy was sent as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Policy(Policy),
    Ban(BanPolicy),
}

impl<'a> Batch<'a> {
    /// Adds a request, and says at which places its keys are.
    pub(crate) fn add(&mut self, ask: &'a Ask) -> SmallVec<[Places; 2]> {
        let (op, charged_at) = match ask.op {
            Op::Charge => (0, 0),
            Op::Peek => (1, 0),
            Op::Force => (2, 0),
            Op::Refund { charged_at } => (3, charged_at.as_micros().min(EXACT)),
            Op::Reset => (4, 0),
        };
        self.write([op, charged_at, ask.items.len() as u64]);
        ask.items.iter().map(|item| self.add_item(item)).collect()
    }

    fn add_item(&mut self, item: &'a Item) -> Places {
        let policy = self.policy(Sent::Policy(item.policy));
        let main = self.key(item.fingerprint, Part::Main, &item.name);
        let role = match item.role {
            Role::Enforce => 0,
            Role::Shadow => 1,
            Role::Always => 2,
        };
        let grace = item.grace.as_ref().map(|(name, policy)| {
            let place = self.key(item.fingerprint, Part::Grace, name);
            (self.policy(Sent::Policy(*policy)), place)
        });
        let ban = item.ban.as_ref().map(|(name, policy)| {
            let place = self.key(item.fingerprint, Part::Ban, name);
            (self.policy(Sent::Ban(*policy)), place)
        });
        let or_none = |sent: Option<(u64, usize)>| {
            sent.map_or([0, 0], |(policy, place)| [policy, place as u64 + 1])
        };
        let ([grace_policy, grace_key], [ban_policy, ban_key]) = (or_none(grace), or_none(ban));
        self.write([policy, main as u64 + 1, item.cost.min(EXACT), role]);
        self.write([grace_policy, grace_key, ban_policy, ban_key]);
        Places { main, grace: grace.map(|(_, place)| place), ban: ban.map(|(_, place)| place) }
    }

    /// The call, by the script's name or with its text.
    pub(crate) fn command(&self, script: &Text, whole: bool, now: Option<Timestamp>) -> Cmd {
        let mut policies = Vec::with_capacity(self.policy_bytes.len() + 5);
        array(&mut policies, self.policies.len());
        policies.extend(&self.policy_bytes);
        let mut requests = Vec::with_capacity(self.requests.len() + 5);
        array(&mut requests, self.numbers);
        requests.extend(&self.requests);
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
        command.arg(policies).arg(requests);
        if let Some(now) = now {
            command.arg(now.as_micros());
        }
        command
    }

    fn key(&mut self, fingerprint: Fingerprint, part: Part, name: &'a [u8]) -> usize {
        *self.key_places.entry((fingerprint, part)).or_insert_with(|| {
            self.keys.push(name);
            self.keys.len() - 1
        })
    }

    /// The number of a policy, from 1; each is sent once.
    fn policy(&mut self, policy: Sent) -> u64 {
        let known = self.policies.iter().position(|sent| *sent == policy);
        let place = known.unwrap_or_else(|| {
            self.policies.push(policy);
            write_policy(&mut self.policy_bytes, &policy);
            self.policies.len() - 1
        });
        place as u64 + 1
    }

    fn write<const N: usize>(&mut self, numbers: [u64; N]) {
        self.numbers += N;
        numbers.into_iter().for_each(|each| number(&mut self.requests, each));
    }
}

/// Where the keys of a charge are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) main: usize,
    pub(crate) grace: Option<usize>,
    pub(crate) ban: Option<usize>,
}

/// See `lua/decide.lua` for what each number means.
fn write_policy(out: &mut Vec<u8>, policy: &Sent) {
    let mut all = |numbers: &[u64]| {
        array(out, numbers.len());
        numbers.iter().for_each(|each| number(out, *each));
    };
    match policy {
        Sent::Ban(ban) => {
            let [after, within, lasts, factor, longest, forget] = ban.numbers();
            all(&[5, after, within, lasts, factor, longest, forget]);
        }
        Sent::Policy(policy) => {
            let (requests, window) = (policy.quota().requests, policy.quota().window.get());
            match policy.meter() {
                Meter::Bucket { units, .. } => {
                    let since = policy.since().as_micros();
                    let (p, q) = (units.per_micro, units.per_request);
                    all(&[1, p, q, units.capacity, units.ceiling, since]);
                }
                Meter::Fixed => all(&[2, requests, window]),
                Meter::Counter(ticks) => {
                    all(&[3, requests, window, ticks.micros, ticks.per_window, ticks.most()]);
                }
                Meter::Log => all(&[4, requests, window]),
            }
        }
    }
}
