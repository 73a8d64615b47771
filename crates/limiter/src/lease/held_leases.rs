//! Units of one counter that stores have charged and this node may spend until their lease ends.

use smallvec::SmallVec;
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use super::lenders::LenderId;

/// The lease that units were taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitOrigin {
    /// When the store charged the units, by its clock. It identifies the lease, and dates every
    /// charge made on it: dated by the decision, a later refund would give back too much.
    pub(crate) granted_at: Timestamp,
    /// The region whose store charged them, if it is not this node's.
    pub(crate) lender: Option<LenderId>,
}

/// Units that a store has charged and this node may spend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) origin: UnitOrigin,
    pub(super) left: u64,
    pub(super) granted: u64,
    /// From when the units must not be spent, by the lease clock.
    pub(super) ends_at: Timestamp,
}

/// Units that were not spent before their lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnspentUnits {
    pub(super) units: u64,
    pub(super) origin: UnitOrigin,
}

/// The leases on one counter.
#[derive(Debug, Default)]
pub(super) struct HeldLeases {
    /// Those with units left, the soonest end first.
    leases: SmallVec<[Lease; 2]>,
    /// What to return to the stores.
    unspent: SmallVec<[UnspentUnits; 1]>,
    /// What is not worth returning.
    expired: SmallVec<[UnspentUnits; 1]>,
}

impl UnitOrigin {
    /// Units of this node's own store.
    pub(crate) const fn own(granted_at: Timestamp) -> Self {
        Self { granted_at, lender: None }
    }
}

impl UnspentUnits {
    /// Whether at least one whole unit comes back if the store takes them back.
    pub(super) fn is_worth_returning(&self, policy: &Policy, store_now: Timestamp) -> bool {
        policy.is_worth_refunding(self.units, self.origin.granted_at, store_now)
    }
}

impl HeldLeases {
    /// The units left.
    pub(super) fn units(&self) -> u64 {
        self.units_where(|_| true)
    }

    /// The units left of the selected leases.
    pub(super) fn units_where(&self, which: impl Fn(&UnitOrigin) -> bool) -> u64 {
        self.leases.iter().filter(|lease| which(&lease.origin)).map(|lease| lease.left).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// The number of leases.
    pub(super) fn count(&self) -> usize {
        self.leases.len()
    }

    /// Whether all leases end by then.
    pub(super) fn all_end_by(&self, at: Timestamp) -> bool {
        self.leases.iter().all(|lease| lease.ends_at <= at)
    }

    /// Spends units of the lease that ends first and has enough left.
    pub(super) fn spend(&mut self, cost: u64) -> Option<UnitOrigin> {
        let lease = self.leases.iter_mut().find(|lease| lease.left >= cost)?;
        lease.left -= cost;
        Some(lease.origin)
    }

    /// Adds units that a store granted.
    pub(super) fn add(&mut self, granted: u64, origin: UnitOrigin, ends_at: Timestamp) {
        if granted == 0 {
            return;
        }
        match self.leases.iter_mut().find(|lease| lease.origin == origin) {
            // Two grants within one microsecond cannot be distinguished.
            Some(known) => {
                known.left += granted;
                known.granted += granted;
                known.ends_at = known.ends_at.min(ends_at);
            }
            None => self.leases.push(Lease { origin, left: granted, granted, ends_at }),
        }
        self.leases.sort_by_key(|lease| lease.ends_at);
    }

    /// Puts units that were not used back into their lease. `false` if it has ended.
    pub(super) fn give_back(&mut self, cost: u64, origin: UnitOrigin, now: Timestamp) -> bool {
        let live = |lease: &&mut Lease| lease.origin == origin && now < lease.ends_at;
        let lease = self.leases.iter_mut().find(live);
        let Some(lease) = lease else { return false };
        lease.left = lease.left.saturating_add(cost).min(lease.granted);
        true
    }

    /// Whether units taken of this lease may still be spent.
    pub(super) fn is_live(&self, origin: UnitOrigin, now: Timestamp) -> bool {
        self.leases.iter().any(|lease| lease.origin == origin && now < lease.ends_at)
    }

    /// Ends the leases whose time is over. `is_worth` says whether a store takes units back.
    pub(super) fn end_expired(&mut self, now: Timestamp, is_worth: impl Fn(&UnspentUnits) -> bool) {
        let ended = self.leases.iter().take_while(|lease| lease.ends_at <= now).count();
        if ended > 0 {
            self.end_first(ended, is_worth);
        }
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self, is_worth: impl Fn(&UnspentUnits) -> bool) {
        self.end_first(self.leases.len(), is_worth);
    }

    /// The units to return to the stores.
    pub(super) fn take_unspent(&mut self) -> SmallVec<[UnspentUnits; 1]> {
        std::mem::take(&mut self.unspent)
    }

    /// The units that are lost, because they are not worth returning.
    pub(super) fn take_expired(&mut self) -> SmallVec<[UnspentUnits; 1]> {
        std::mem::take(&mut self.expired)
    }

    fn end_first(&mut self, count: usize, is_worth: impl Fn(&UnspentUnits) -> bool) {
        for Lease { left, origin, .. } in self.leases.drain(..count) {
            let units = UnspentUnits { units: left, origin };
            let list = if is_worth(&units) { &mut self.unspent } else { &mut self.expired };
            list.push(units);
        }
    }
}
