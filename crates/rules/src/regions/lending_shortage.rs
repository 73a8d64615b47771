//! Whether a region can lend all that it leaves.
//!
//! A node asks at most once in `every`, and the answer takes a round trip. What refills in the
//! lender's bucket in that time must fit into what it lends at once; otherwise the bucket is full
//! before the next question comes, and units are lost.

use tidegate_core::time::Micros;

use super::{RegionLender, RegionalLimit};
use crate::consistency::refilled;
use crate::value_syntax::percentage::Percentage;

/// Why a region cannot lend all that it leaves, and what would suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LendingShortage {
    /// The units of a counter that the region lends at once.
    pub lent_at_once: u64,
    /// The units that refill in `every` and a round trip.
    pub refilled: u64,
    /// The smallest burst of the rule's whole limit that suffices; `None` if the region keeps all.
    pub min_burst: Option<u64>,
    /// The largest `keep` that suffices with the present burst, if one does.
    pub max_keep: Option<Percentage>,
}

impl RegionalLimit {
    /// What prevents a region at this distance from lending all that it leaves. Always `None` for
    /// a window, which lends until it ends.
    #[must_use]
    pub fn lending_shortage(
        &self,
        lender: &RegionLender,
        round_trip: Micros,
    ) -> Option<LendingShortage> {
        let (terms, policy) = (self.shares.borrow_terms()?, lender.policy());
        if !policy.algorithm().is_bucket() {
            return None;
        }
        let (burst, share) = (policy.limit(), self.shares.share(lender.region())?);
        let pause = Micros::new(terms.every.get().saturating_add(round_trip.get()));
        let refilled = refilled(policy, pause);
        let lent_at_once = burst.saturating_sub(lender.kept_units());
        if lent_at_once >= refilled {
            return None;
        }
        let reserved = share.of(self.whole.limit()).saturating_sub(burst);
        let lent = Percentage::ONE_HUNDRED.minus(terms.keep);
        let min_burst = (lent > Percentage::ZERO)
            .then(|| share.whole_of(lent.whole_of(refilled).saturating_add(reserved)));
        let left = burst.checked_sub(refilled);
        let max_keep = left.map(|left| Percentage::of_ratio(left, burst));
        Some(LendingShortage { lent_at_once, refilled, min_burst, max_keep })
    }
}
