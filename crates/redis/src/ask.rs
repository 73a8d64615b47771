//! A request on its way to the script: owned, because it may outlive whoever asked.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Cmd;
use smallvec::{SmallVec, smallvec};
use tidegate_core::batch::Part;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Leak, Meter, Policy};
use tidegate_core::store::{Charge, Op, Queue, Role};
use tidegate_core::time::Timestamp;

use crate::name::Home;
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
    pub(crate) home: Home,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) role: Role,
    pub(crate) grace: Option<(Home, Policy)>,
    pub(crate) ban: Option<(Home, BanPolicy)>,
    pub(crate) queue: Queue,
}

impl Item {
    pub(crate) fn new(prefix: &str, charge: &Charge<'_>) -> Self {
        let key = &charge.key;
        let home = |part, policy: &Policy| match policy.log_entries() {
            Some(_) => Home::log(prefix, key, part),
            None => Home::page(prefix, key, part),
        };
        Self {
            fingerprint: key.fingerprint,
            home: home(Part::Main, charge.policy),
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            grace: charge.grace.map(|policy| (home(Part::Grace, policy), *policy)),
            ban: charge.ban.map(|policy| (Home::page(prefix, key, Part::Ban), *policy)),
            queue: charge.queue,
        }
    }
}

/// Several requests as one call of the script.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pages: Vec<Page<'a>>,
    policies: Vec<u8>,
    requests: Vec<u8>,
    shapes: Vec<u8>,
    /// Where the states of each request are.
    pub(crate) places: Vec<SmallVec<[Places; 2]>>,
}

/// Where the states of a charge are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) main: Place,
    pub(crate) grace: Option<Place>,
    pub(crate) ban: Option<Place>,
}

/// Where a state is in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) page: usize,
    /// Which of all records, each of which has a number of its own.
    pub(crate) record: usize,
    pub(crate) tag: u64,
}

impl<'a> Batch<'a> {
    /// Several requests, in this order.
    pub(crate) fn new(asks: &'a [Arc<Ask>]) -> Self {
        let mut book = Book::default();
        let places: Vec<SmallVec<[Places; 2]>> =
            asks.iter().enumerate().map(|(by, ask)| book.all_places(ask, by)).collect();
        let mut writer =
            Writer { requests: Vec::with_capacity(18 * asks.len()), ..Writer::default() };
        for (ask, places) in asks.iter().zip(&places) {
            writer.request(ask, places, &book);
        }
        let Writer { requests, policies, shapes } = writer;
        let (policies, shapes) = (policies.bytes, shapes.bytes);
        Self { pages: book.pages, policies, requests, shapes, places }
    }

    /// The call, by the script's name or with its text.
    pub(crate) fn command(&self, script: &Text, whole: bool, now: Option<Timestamp>) -> Cmd {
        let mut command = Cmd::new();
        if whole {
            command.arg("EVAL").arg(&script.text);
        } else {
            command.arg("EVALSHA").arg(&script.sha);
        }
        command.arg(self.pages.len());
        for page in &self.pages {
            command.arg(page.name);
        }
        command.arg(&self.policies).arg(&self.requests).arg(&self.shapes);
        if let Some(now) = now {
            command.arg(now.as_micros());
        }
        command
    }
}

/// The pages and logs of a batch, each once.
#[derive(Debug, Default)]
struct Book<'a> {
    pages: Vec<Page<'a>>,
    records: usize,
    known: HashMap<&'a [u8], usize>,
}

#[derive(Debug)]
struct Page<'a> {
    name: &'a [u8],
    /// The number of each record that is asked for.
    records: SmallVec<[(u64, usize); 2]>,
    /// The request that asks for it, and whether others do, or the same one twice for a record.
    by: usize,
    shared: bool,
}

impl<'a> Book<'a> {
    /// The places of a request's charges. Records of a page are numbered in the order of their tags.
    fn all_places(&mut self, ask: &'a Ask, by: usize) -> SmallVec<[Places; 2]> {
        if let [item] = &ask.items[..] {
            return smallvec![self.places(item, by)];
        }
        let mut sorted: SmallVec<[(usize, &Item); 4]> = ask.items.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, item)| (&item.home.name, item.home.tag));
        let mut placed: SmallVec<[(usize, Places); 4]> =
            sorted.into_iter().map(|(at, item)| (at, self.places(item, by))).collect();
        placed.sort_unstable_by_key(|(at, _)| *at);
        placed.into_iter().map(|(_, places)| places).collect()
    }

    fn places(&mut self, item: &'a Item, by: usize) -> Places {
        Places {
            main: self.place(&item.home, by),
            grace: item.grace.as_ref().map(|(home, _)| self.place(home, by)),
            ban: item.ban.as_ref().map(|(home, _)| self.place(home, by)),
        }
    }

    fn place(&mut self, home: &'a Home, by: usize) -> Place {
        let (name, tag) = (&*home.name, home.tag);
        let page = *self.known.entry(name).or_insert_with(|| {
            self.pages.push(Page { name, records: SmallVec::new(), by, shared: false });
            self.pages.len() - 1
        });
        let Page { records, by: first, shared, .. } = &mut self.pages[page];
        let known = records.iter().find(|(known, _)| *known == tag).map(|(_, record)| *record);
        *shared |= *first != by || known.is_some();
        let record = known.unwrap_or_else(|| {
            records.push((tag, self.records));
            self.records += 1;
            self.records - 1
        });
        Place { page, record, tag }
    }
}

/// The policies of a batch, each once.
#[derive(Debug, Default)]
struct Policies {
    known: Vec<(Sent, u64)>,
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
    /// The number, from 1, of a policy for records with a tag.
    fn number(&mut self, policy: Sent, tag: u64) -> usize {
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

/// Writes requests; `lua/decide.lua` says what is read back.
#[derive(Debug, Default)]
struct Writer {
    requests: Vec<u8>,
    policies: Policies,
    shapes: Shapes,
}

impl Writer {
    fn request(&mut self, ask: &Ask, places: &[Places], book: &Book<'_>) {
        if ask.op == Op::Charge
            && let Some(parts) = self.plain(ask, places, book)
        {
            self.requests.push(5);
            narrow(&mut self.requests, parts.len());
            for OnPage { shape, first, cost } in parts {
                let shape = self.shapes.number(shape);
                write_charge(&mut self.requests, shape, first, cost, 0);
            }
            return;
        }
        let op = match ask.op {
            Op::Charge => 0,
            Op::Peek => 1,
            Op::Force => 2,
            Op::Refund { charged_at } => {
                write_moment(&mut self.requests, charged_at);
                3
            }
            Op::Renew { charged_at } => {
                write_moment(&mut self.requests, charged_at);
                7
            }
            Op::Reset => 4,
        };
        self.requests.push(op);
        narrow(&mut self.requests, ask.items.len());
        for (item, places) in ask.items.iter().zip(places) {
            self.charge(ask.op, item, places);
        }
    }

    /// A plain request page by page, if it is one: all are charged or none, so their order is free.
    fn plain(
        &mut self,
        ask: &Ask,
        places: &[Places],
        book: &Book<'_>,
    ) -> Option<SmallVec<[OnPage; 4]>> {
        let mut parts: SmallVec<[OnPage; 4]> = SmallVec::new();
        let mut charges: SmallVec<[(&Item, Place); 4]> =
            ask.items.iter().zip(places.iter().map(|places| places.main)).collect();
        charges.sort_unstable_by_key(|(_, place)| place.record);
        for (item, place) in charges {
            let plain = item.role == Role::Enforce && item.grace.is_none() && item.ban.is_none();
            let bucket = item.policy.algorithm().is_bucket();
            if !plain || !bucket || book.pages[place.page].shared {
                return None;
            }
            let policy = self.policies.number(Sent::of(item, ask.op), place.tag);
            match parts.iter_mut().find(|part| part.first.page == place.page) {
                None => {
                    let shape = smallvec![policy];
                    parts.push(OnPage { shape, first: place, cost: item.cost });
                }
                Some(part) if part.cost == item.cost => part.shape.push(policy),
                Some(_) => return None,
            }
        }
        Some(parts)
    }

    fn charge(&mut self, op: Op, item: &Item, places: &Places) {
        let (out, policies) = (&mut self.requests, &mut self.policies);
        let role = match item.role {
            Role::Enforce => 0,
            Role::Shadow => 1,
            Role::Always => 2,
        };
        let flags = role + 4 * u8::from(item.grace.is_some()) + 8 * u8::from(item.ban.is_some());
        let policy = policies.number(Sent::of(item, op), places.main.tag);
        write_charge(out, policy, places.main, item.cost, flags);
        if let (Some((_, grace)), Some(place)) = (&item.grace, places.grace) {
            write_place(out, policies.number(Sent::Policy(*grace), place.tag), place);
        }
        if let (Some((_, ban)), Some(place)) = (&item.ban, places.ban) {
            write_place(out, policies.number(Sent::Ban(*ban), place.tag), place);
        }
    }
}

/// What a plain request is charged on one page.
#[derive(Debug)]
struct OnPage {
    /// The policies, in the order of their tags.
    shape: SmallVec<[usize; 4]>,
    /// The first of the records; the others have the numbers that follow.
    first: Place,
    cost: u64,
}

/// The shapes of a batch, each once.
#[derive(Debug, Default)]
struct Shapes {
    known: Vec<SmallVec<[usize; 4]>>,
    bytes: Vec<u8>,
}

impl Shapes {
    /// The number of a shape, from 1.
    fn number(&mut self, shape: SmallVec<[usize; 4]>) -> usize {
        let known = self.known.iter().position(|known| *known == shape);
        known.unwrap_or_else(|| {
            narrow(&mut self.bytes, shape.len());
            shape.iter().for_each(|policy| narrow(&mut self.bytes, *policy));
            self.known.push(shape);
            self.known.len() - 1
        }) + 1
    }
}

fn write_charge(out: &mut Vec<u8>, policy: usize, place: Place, cost: u64, flags: u8) {
    write_place(out, policy, place);
    wide(out, cost);
    out.push(flags);
}

/// Which policy decides about which record of which page; all count from 1 there.
fn write_place(out: &mut Vec<u8>, policy: usize, place: Place) {
    narrow(out, policy);
    narrow(out, place.page + 1);
    narrow(out, place.record + 1);
}

/// The time that the next request is of, as the cost of a request without charges.
fn write_moment(out: &mut Vec<u8>, charged_at: Timestamp) {
    out.extend([6, 0, 0, 0, 0, 0, 0, 0, 0]);
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
