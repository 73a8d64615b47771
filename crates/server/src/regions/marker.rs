//! Background tasks that write the marker of this node's region, and read those of the others
//! before and while units are borrowed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link::{MarkerCheck, RegionLink};
use super::{RegionLinks, SharedLimiter};
use crate::telemetry::RegionEvent;

/// How often markers are written and read.
const MARKER_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a marker was missing or could not be read.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Writes the marker of this node's region into its store.
pub(super) async fn write_own_marker(limiter: SharedLimiter, links: Arc<RegionLinks>) {
    let Some(marker) = &links.own_marker else { return };
    loop {
        limiter.store().wait_ready(MARKER_INTERVAL).await;
        if let Ok(found) = limiter.store().write_region_marker(marker).await {
            let taken = found.region != marker.region;
            if links.own_store_taken.swap(taken, Ordering::Relaxed) != taken {
                let (region, found) = (&marker.region, &found.region);
                match taken {
                    true => RegionEvent::OwnStoreTaken { region, found }.log(),
                    false => RegionEvent::OwnStoreMarked { region }.log(),
                }
            }
        }
        tokio::time::sleep(MARKER_INTERVAL).await;
    }
}

/// Reads the marker of another region's store, again after each reconnection.
pub(super) async fn watch_marker(link: Arc<RegionLink>) {
    loop {
        link.wait_connected().await;
        if let Ok(Some(check)) = link.check_marker().await {
            report_check(&link.region, &check);
        }
        let pause = if link.is_usable() { MARKER_INTERVAL } else { RETRY_INTERVAL };
        _ = tokio::time::timeout(pause, link.wait_lost()).await;
    }
}

fn report_check(region: &str, check: &MarkerCheck) {
    match check {
        MarkerCheck::Matches => RegionEvent::Usable { region }.log(),
        MarkerCheck::Differs(problem) => RegionEvent::MarkerDiffers { region, problem }.log(),
        MarkerCheck::Pending => {}
    }
}

impl RegionLinks {
    /// Whether the node may take units from a region. It may not if its own store is marked as
    /// that of another region, because its share would then be counted in two places.
    pub(crate) fn may_borrow_from(&self, link: &RegionLink) -> bool {
        !self.is_own_store_taken() && link.is_usable()
    }
}
