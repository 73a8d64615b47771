//! The bound of all regions together, in true time.
//!
//! Region i has the share r_i, B_i of the limit, and each unit is charged by exactly one store:
//! that of the region whose node spends it, or that of the region that lends it. So all units that
//! store i charged keep the bound of share i (see `bound.rs`, with ttl the longest time for which a
//! unit of the store may be held, by its own nodes or others), wherever they are spent. Added up,
//! with ρ_i the drift of store i:
//!
//! A(T) ≤ Σ B_i + Σ r_i(1+ρ_i)T + Σ r_i((1+ρ_i)ttl' − ttl) + Σ r_i·1 µs
//!
//! where Σ r_i ≤ (1 + tolerance)r and Σ B_i ≤ (1 + tolerance)B, because shares are rounded down. No
//! term depends on messages between regions: a loan that its borrower never learns of is charged
//! and not spent. A step or a loss of state adds what it adds to the bound of its own store, at
//! most B_i. While nodes differ in the rule's version, store i may be charged by either version of
//! share i, so each share counts with its larger version.
//!
//! **Log.** A span that holds at most L_i of every store holds at most Σ L_i.
//!
//! **Fixed window.** An interval in which no store's clock enters another window holds at most
//! Σ L_i. Store clocks differ, so an interval as long as the window may overlap two of each.

use crate::bound::{BoundConditions, BoundTerms, RuleBound};

impl RuleBound {
    /// The bound of all regions, of which these are the bounds of one rule; `None` if there are
    /// none.
    pub(crate) fn sum_of(regions: &[&Self]) -> Option<Self> {
        let first = regions.first()?;
        let store_ppm = regions.iter().map(|bound| bound.conditions.store_ppm).max()?;
        let conditions = BoundConditions { store_ppm, ..first.conditions };
        let mut sum = Self::new(first.spec, conditions);
        let mut starts: Vec<u64> =
            regions.iter().flat_map(|bound| &bound.terms).map(|terms| terms.from).collect();
        starts.sort_unstable();
        starts.dedup();
        let terms_from = |from| {
            let terms = || regions.iter().map(|bound| bound.terms_at(from));
            let base = terms().map(|terms| terms.base).sum();
            BoundTerms { from, base, per_micro: terms().map(|terms| terms.per_micro).sum() }
        };
        sum.terms = starts.into_iter().map(terms_from).collect();
        sum.disturbances = regions.iter().flat_map(|bound| &bound.disturbances).copied().collect();
        Some(sum)
    }
}
