//! Requests as the script reads them (`lua/decide.lua` says how).

use smallvec::{SmallVec, smallvec};
use tidegate_core::store::{Op, Role};
use tidegate_core::time::Timestamp;

use super::book::{Book, Place, Places};
use super::policies::{EXACT, Policies, Sent};
use crate::ask::{Ask, Item};

/// What has been written of a batch.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) requests: Vec<u8>,
    pub(super) policies: Policies,
    pub(super) shapes: Shapes,
}

impl Writer {
    pub(super) fn request(&mut self, ask: &Ask, places: &[Places], book: &Book<'_>) {
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
pub(super) struct Shapes {
    known: Vec<SmallVec<[usize; 4]>>,
    pub(super) bytes: Vec<u8>,
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
pub(super) fn wide(out: &mut Vec<u8>, number: u64) {
    out.extend(&number.min(EXACT).to_be_bytes()[1..]);
}
