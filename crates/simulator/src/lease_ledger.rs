//! What a node spends must have been granted to it, within the life of a lease before.
//!
//! The node's word on which grant paid is not asked for. Instead each unit spent is matched with
//! the oldest grant that may still pay for it. That finds a matching whenever there is one, because
//! all grants live equally long.

use std::collections::BTreeMap;

use tidegate_core::key::Fingerprint;

use crate::store_server::GrantRecord;

/// The grants and the spending of all nodes and counters.
#[derive(Debug, Default)]
pub(crate) struct LeaseLedger {
    counters: BTreeMap<GrantKey, NodeCounter>,
}

/// The node that was granted units, their counter, and the store that granted them.
pub(crate) type GrantKey = (usize, Fingerprint, usize);

#[derive(Debug, Default)]
struct NodeCounter {
    grants: Vec<Grant>,
    /// Grants before this index have ended.
    first_live: usize,
    spends: Vec<Spend>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    at: u64,
    units: u64,
    left: u64,
}

#[derive(Clone, Copy, Debug)]
struct Spend {
    at: u64,
    request: u64,
    cost: u64,
}

impl LeaseLedger {
    /// A store grants units.
    pub(crate) fn grant(&mut self, store: usize, record: &GrantRecord) {
        let GrantRecord { node, fingerprint, units, true_at } = *record;
        let counter = self.counters.entry((node, fingerprint, store)).or_default();
        counter.grants.push(Grant { at: true_at, units, left: units });
    }

    /// A node spends units; `longest` is the life of a lease in true time.
    ///
    /// # Errors
    /// If no live grant can have paid.
    pub(crate) fn spend(
        &mut self,
        key: GrantKey,
        (at, request, cost): (u64, u64, u64),
        longest: u64,
    ) -> Result<(), String> {
        let counter = self.counters.entry(key).or_default();
        let spend = Spend { at, request, cost };
        counter.spends.push(spend);
        let missing = counter.pay(spend, longest);
        if missing == 0 {
            return Ok(());
        }
        Err(format!(
            "node {} spends {cost} units of a lease of store {}, but for {missing} of them no grant \
             within {longest} µs can have paid",
            key.0, key.2
        ))
    }

    /// A spent request is refunded.
    pub(crate) fn refund(&mut self, key: GrantKey, request: u64, longest: u64) {
        let Some(counter) = self.counters.get_mut(&key) else { return };
        counter.spends.retain(|spend| spend.request != request);
        // Units that the request used may have paid for others.
        counter.grants.iter_mut().for_each(|grant| grant.left = grant.units);
        counter.first_live = 0;
        for at in 0..counter.spends.len() {
            let spend = counter.spends[at];
            counter.pay(spend, longest);
        }
    }
}

impl NodeCounter {
    /// Takes the cost from the oldest live grants, and returns what is missing.
    fn pay(&mut self, spend: Spend, longest: u64) -> u64 {
        while self.grants.get(self.first_live).is_some_and(|one| one.at + longest <= spend.at) {
            self.first_live += 1;
        }
        let mut missing = spend.cost;
        for grant in self.grants[self.first_live..].iter_mut().filter(|one| one.at <= spend.at) {
            let taken = missing.min(grant.left);
            grant.left -= taken;
            missing -= taken;
        }
        missing
    }
}
