//! The stores of other regions, from which rules with `borrow` take units.
//!
//! No request waits for them: only background tasks call them. A link to a store is usable once the
//! store's [marker](tidegate_redis::RegionMarker) was read, and until its connection is lost.

mod borrowing;
mod exchange_metrics;
mod link;
mod loans;
mod marker;
mod metrics;
mod notice;
mod report;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_core::key::Secret;
use tidegate_limiter::Limiter;
use tidegate_redis::{RegionMarker, Stats};
use tokio::task::JoinSet;

use crate::config::RegionStoreSettings;
use crate::store::{EmbeddedStore, SharedStore};
pub(crate) use borrowing::return_borrowed;
pub(crate) use link::RegionLink;
pub use link::{MarkerProblem, RegionState, compare_markers};
use loans::RegionLoans;
pub(crate) use metrics::RegionMetrics;
pub use notice::{RegionNotice, rule_notices};
pub(crate) use report::report_states;
pub(crate) use view::RegionStatus;

type SharedLimiter = Arc<Limiter<SharedStore, EmbeddedStore>>;

/// This node's region and the stores of the others.
pub struct RegionLinks {
    /// The marker of this node's region; `None` if the node has no region.
    own_marker: Option<RegionMarker>,
    /// Whether the store of this node has the marker of another region.
    own_store_taken: AtomicBool,
    /// What this node's region lent, as of the last answer of its store.
    lent: Mutex<RegionLoans>,
    links: Vec<Arc<RegionLink>>,
}

impl RegionLinks {
    /// Starts to connect to the stores. Must be called inside a tokio runtime.
    pub(crate) fn start(
        region: Option<&str>,
        secret: Secret,
        stores: &[RegionStoreSettings],
    ) -> Self {
        let marker = |region: &str| region_marker(region, secret);
        let start = |settings: &RegionStoreSettings| {
            Arc::new(RegionLink::start(settings, marker(&settings.region)))
        };
        Self {
            own_marker: region.map(marker),
            own_store_taken: AtomicBool::new(false),
            lent: Mutex::default(),
            links: stores.iter().map(start).collect(),
        }
    }

    /// Whether this node has a region.
    pub(crate) const fn has_region(&self) -> bool {
        self.own_marker.is_some()
    }

    /// Whether the store of this node is marked as that of another region.
    fn is_own_store_taken(&self) -> bool {
        self.own_store_taken.load(Ordering::Relaxed)
    }

    /// Whether units can be borrowed from all regions.
    pub fn are_usable(&self) -> bool {
        self.iter().all(|link| link.is_usable())
    }

    /// Statistics of the calls to the store of each region.
    pub fn store_stats(&self) -> Vec<Stats> {
        self.iter().map(|link| link.store.stats()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RegionLink>> {
        self.links.iter()
    }
}

/// The marker that nodes of a region with this key secret write.
pub fn region_marker(region: &str, secret: Secret) -> RegionMarker {
    RegionMarker { region: region.to_owned(), secret_check: secret.check_value() }
}

/// Lets a limiter without a server around it borrow, as benchmarks need. The limiter must know the
/// regions as [lenders](Limiter::with_lenders). Must be called inside a tokio runtime.
pub fn start_borrowing(
    limiter: &SharedLimiter,
    region: &str,
    secret: Secret,
    stores: &[RegionStoreSettings],
    tasks: &mut JoinSet<()>,
) -> Arc<RegionLinks> {
    let links = Arc::new(RegionLinks::start(Some(region), secret, stores));
    // Until their markers have been read.
    links.iter().for_each(|link| limiter.set_lender_usable(&link.region, false));
    spawn_tasks(limiter, &links, tasks);
    tasks.spawn(report_states(Arc::clone(limiter), Arc::clone(&links), Arc::default()));
    links
}

/// Starts the background tasks.
pub(crate) fn spawn_tasks(
    limiter: &SharedLimiter,
    regions: &Arc<RegionLinks>,
    tasks: &mut JoinSet<()>,
) {
    if !regions.has_region() {
        return;
    }
    tasks.spawn(marker::write_own_marker(Arc::clone(limiter), Arc::clone(regions)));
    tasks.spawn(loans::exchange_loans(Arc::clone(limiter), Arc::clone(regions)));
    for link in regions.iter() {
        tasks.spawn(marker::watch_marker(Arc::clone(link)));
        let (limiter, regions) = (Arc::clone(limiter), Arc::clone(regions));
        tasks.spawn(borrowing::borrow_from(limiter, regions, Arc::clone(link)));
    }
}
