//! Encodes requests in the format that `lua/decide.lua` documents.

use smallvec::{SmallVec, smallvec};
use tidegate_core::store::{GrantTerms, Op, Role};
use tidegate_core::time::Timestamp;

use super::key_table::{ChargeIndexes, KeyTable, RecordIndex};
use super::policy_table::{MAX_EXACT_INTEGER, PolicyEncoding, PolicyTable};
use crate::script_request::{ScriptCharge, ScriptRequest};

/// The encoded parts of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchEncoder {
    pub(super) requests: Vec<u8>,
    pub(super) policies: PolicyTable,
    pub(super) shapes: ShapeTable,
}

impl BatchEncoder {
    pub(super) fn encode_request(
        &mut self,
        request: &ScriptRequest,
        indexes: &[ChargeIndexes],
        keys: &KeyTable<'_>,
    ) {
        if request.op == Op::Charge
            && let Some(groups) = self.group_by_page(request, indexes, keys)
        {
            self.requests.push(5);
            write_u16(&mut self.requests, groups.len());
            for PageCharge { shape, first, cost } in groups {
                let shape = self.shapes.intern(shape);
                write_charge(&mut self.requests, shape, first, cost, 0);
            }
            return;
        }
        let op = match request.op {
            Op::Charge => 0,
            Op::Peek => 1,
            Op::Force => 2,
            Op::Refund { charged_at } => {
                write_charged_at(&mut self.requests, charged_at);
                3
            }
            Op::Renew { charged_at } => {
                write_charged_at(&mut self.requests, charged_at);
                7
            }
            Op::Grant(_) => 8,
            Op::Reset => 4,
        };
        self.requests.push(op);
        write_u16(&mut self.requests, request.items.len());
        for (charge, indexes) in request.items.iter().zip(indexes) {
            self.encode_charge(request.op, charge, indexes);
        }
        if let Op::Grant(GrantTerms { most, leave, part }) = request.op {
            for number in [most.into(), leave, part.max(1)] {
                write_u56(&mut self.requests, number);
            }
        }
    }

    /// Groups a plain request by page; `None` if it is not plain. It is all or nothing, so order is
    /// free.
    fn group_by_page(
        &mut self,
        request: &ScriptRequest,
        indexes: &[ChargeIndexes],
        keys: &KeyTable<'_>,
    ) -> Option<SmallVec<[PageCharge; 4]>> {
        let mut groups: SmallVec<[PageCharge; 4]> = SmallVec::new();
        let mut charges: SmallVec<[(&ScriptCharge, RecordIndex); 4]> =
            request.items.iter().zip(indexes.iter().map(|indexes| indexes.main)).collect();
        charges.sort_unstable_by_key(|(_, index)| index.record);
        for (charge, index) in charges {
            let plain =
                charge.role == Role::Enforce && charge.grace.is_none() && charge.ban.is_none();
            let bucket = charge.policy.algorithm().is_bucket();
            if !plain || !bucket || keys.pages[index.page].shared {
                return None;
            }
            let policy =
                self.policies.intern(PolicyEncoding::from_charge(charge, request.op), index.tag);
            match groups.iter_mut().find(|group| group.first.page == index.page) {
                None => {
                    let shape = smallvec![policy];
                    groups.push(PageCharge { shape, first: index, cost: charge.cost });
                }
                Some(group) if group.cost == charge.cost => group.shape.push(policy),
                Some(_) => return None,
            }
        }
        Some(groups)
    }

    fn encode_charge(&mut self, op: Op, charge: &ScriptCharge, indexes: &ChargeIndexes) {
        let (out, policies) = (&mut self.requests, &mut self.policies);
        let role = match charge.role {
            Role::Enforce => 0,
            Role::Shadow => 1,
            Role::Always => 2,
        };
        let flags =
            role + 4 * u8::from(charge.grace.is_some()) + 8 * u8::from(charge.ban.is_some());
        let policy = policies.intern(PolicyEncoding::from_charge(charge, op), indexes.main.tag);
        write_charge(out, policy, indexes.main, charge.cost, flags);
        if let (Some((_, grace)), Some(index)) = (&charge.grace, indexes.grace) {
            write_record_index(
                out,
                policies.intern(PolicyEncoding::Policy(*grace), index.tag),
                index,
            );
        }
        if let (Some((_, ban)), Some(index)) = (&charge.ban, indexes.ban) {
            write_record_index(out, policies.intern(PolicyEncoding::Ban(*ban), index.tag), index);
        }
    }
}

/// The charges of a plain request on one page.
#[derive(Debug)]
struct PageCharge {
    /// The policies, in the order of their tags.
    shape: SmallVec<[usize; 4]>,
    /// The first record; the others have consecutive numbers.
    first: RecordIndex,
    cost: u64,
}

/// The distinct shapes of a batch.
#[derive(Debug, Default)]
pub(super) struct ShapeTable {
    known: Vec<SmallVec<[usize; 4]>>,
    pub(super) bytes: Vec<u8>,
}

impl ShapeTable {
    /// Returns the number of a shape, counted from 1.
    fn intern(&mut self, shape: SmallVec<[usize; 4]>) -> usize {
        let known = self.known.iter().position(|known| *known == shape);
        known.unwrap_or_else(|| {
            write_u16(&mut self.bytes, shape.len());
            shape.iter().for_each(|policy| write_u16(&mut self.bytes, *policy));
            self.known.push(shape);
            self.known.len() - 1
        }) + 1
    }
}

fn write_charge(out: &mut Vec<u8>, policy: usize, index: RecordIndex, cost: u64, flags: u8) {
    write_record_index(out, policy, index);
    write_u56(out, cost);
    out.push(flags);
}

/// Writes a policy, page and record; the script counts all of them from 1.
fn write_record_index(out: &mut Vec<u8>, policy: usize, index: RecordIndex) {
    write_u16(out, policy);
    write_u16(out, index.page + 1);
    write_u16(out, index.record + 1);
}

/// Writes the charge time of the next request, as the cost field of a request without charges.
fn write_charged_at(out: &mut Vec<u8>, charged_at: Timestamp) {
    out.extend([6, 0, 0, 0, 0, 0, 0, 0, 0]);
    write_u56(out, charged_at.as_micros());
    out.push(0);
}

/// Writes two bytes; the bounds on batches guarantee that the number fits.
fn write_u16(out: &mut Vec<u8>, number: usize) {
    out.extend(u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

/// Writes seven bytes. Clamps costs beyond the script's exact range; those never fit a limit
/// anyway.
pub(super) fn write_u56(out: &mut Vec<u8>, number: u64) {
    out.extend(&number.min(MAX_EXACT_INTEGER).to_be_bytes()[1..]);
}
