//! Fleets in several regions: each has its own store and a share of each rule's limit, and may
//! borrow from the others.

mod draw;
mod marker;
mod moving;
mod network;
mod plan;
mod sum_bound;
mod terms;

pub(crate) use marker::{StoreMarker, is_lender_usable};
pub use moving::RegionDemand;
pub(crate) use plan::RegionPlan;
pub(crate) use terms::{BorrowTerms, RegionTerms, region_name, share_again};
