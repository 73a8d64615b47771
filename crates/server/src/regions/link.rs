//! The connection to the store of another region, and whether this node may borrow from it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_redis::{RedisOptions, RedisStore, RegionMarker, StoreEvent, StoreObserver};
use tokio::sync::Notify;

use super::exchange_metrics::ExchangeMetrics;
use super::loans::ReportedLoans;
use crate::config::RegionStoreSettings;
use crate::store;
use crate::telemetry::RegionEvent;

/// Deadline of calls until a rule with `borrow` sets one.
const INITIAL_DEADLINE: Duration = Duration::from_millis(250);

/// The most calls in flight: together they carry all questions that the limiter has in flight. At a
/// round trip of 150 ms, two calls would ask for too few counters.
const MAX_CALLS: usize = 8;

/// The store of another region.
pub(crate) struct RegionLink {
    /// The region that owns the store.
    pub(crate) region: String,
    pub(crate) store: RedisStore,
    /// The store's address for people; never contains a password.
    pub(crate) address: String,
    pub(crate) exchanges: ExchangeMetrics,
    /// What this node reported that it borrowed there.
    pub(super) reported: Mutex<ReportedLoans>,
    /// The marker that the store must have.
    expected: RegionMarker,
    checked: Arc<CheckedMarker>,
}

/// The marker of the store on the present connection.
#[derive(Debug, Default)]
struct CheckedMarker {
    state: Mutex<CheckState>,
    /// Notified when the connection was lost.
    lost: Notify,
}

#[derive(Debug, Default)]
struct CheckState {
    result: MarkerCheck,
    /// How often the connection was lost.
    losses: u64,
}

/// What is known of a store's marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum MarkerCheck {
    /// Nothing since the connection was opened.
    #[default]
    Pending,
    /// It is as expected.
    Matches,
    /// Units from this store would exist twice.
    Differs(MarkerProblem),
}

/// Why a node must not borrow from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkerProblem {
    /// No node has written a marker under this prefix.
    Missing,
    /// The store belongs to another region.
    OtherRegion(String),
    /// The region's nodes hash keys with another secret.
    OtherSecret,
}

/// Whether this node may borrow from a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// Not connected yet, or the marker has not been read.
    Connecting,
    /// The store does not answer.
    Unreachable(String),
    /// The store has another marker.
    Mismatch(MarkerProblem),
    /// Units can be borrowed.
    Usable,
}

impl RegionLink {
    pub(super) fn start(settings: &RegionStoreSettings, expected: RegionMarker) -> Self {
        let (region, checked) = (settings.region.clone(), Arc::<CheckedMarker>::default());
        let options = RedisOptions {
            observer: observer(region.clone(), Arc::clone(&checked)),
            deadline: INITIAL_DEADLINE,
            deny_cache: false,
            max_calls: MAX_CALLS,
            heartbeat: false,
            ..store::options(&settings.redis)
        };
        let (store, address) = (RedisStore::start(&options), settings.redis.address.to_string());
        let (exchanges, reported) = (ExchangeMetrics::default(), Mutex::default());
        Self { region, store, address, exchanges, reported, expected, checked }
    }

    /// The state of the region as users see it.
    pub(crate) fn state(&self) -> RegionState {
        if let Some(why) = self.store.unavailable_reason() {
            return RegionState::Unreachable(why);
        }
        match &self.checked.state.lock().result {
            MarkerCheck::Pending => RegionState::Connecting,
            MarkerCheck::Differs(problem) => RegionState::Mismatch(problem.clone()),
            MarkerCheck::Matches => RegionState::Usable,
        }
    }

    /// Whether the node may send a batch now.
    pub(crate) fn is_usable(&self) -> bool {
        self.state() == RegionState::Usable
    }

    /// Waits until the store was connected.
    pub(super) async fn wait_connected(&self) {
        while !self.store.wait_ready(Duration::from_secs(60)).await {}
    }

    /// Waits until the connection is lost.
    pub(super) async fn wait_lost(&self) {
        self.checked.lost.notified().await;
    }

    /// Reads the marker. Returns the result if it differs from the one before.
    ///
    /// # Errors
    /// The reason, if the store does not answer.
    pub(super) async fn check_marker(&self) -> Result<Option<MarkerCheck>, String> {
        let losses = self.checked.state.lock().losses;
        let found = self.store.read_region_marker().await?;
        let check = match compare_markers(&self.expected, found) {
            None => MarkerCheck::Matches,
            Some(problem) => MarkerCheck::Differs(problem),
        };
        let mut state = self.checked.state.lock();
        // After a loss this marker may be that of another server.
        if state.losses != losses || state.result == check {
            return Ok(None);
        }
        state.result = check.clone();
        Ok(Some(check))
    }
}

/// Why units of a store with the marker `found` must not be borrowed.
pub fn compare_markers(
    expected: &RegionMarker,
    found: Option<RegionMarker>,
) -> Option<MarkerProblem> {
    match found {
        None => Some(MarkerProblem::Missing),
        Some(found) if found.region != expected.region => {
            Some(MarkerProblem::OtherRegion(found.region))
        }
        Some(found) if found.secret_check != expected.secret_check => {
            Some(MarkerProblem::OtherSecret)
        }
        Some(_) => None,
    }
}

/// Forgets the marker as soon as the connection is lost, before another one is opened.
fn observer(region: String, checked: Arc<CheckedMarker>) -> StoreObserver {
    StoreObserver::new(move |event| match event {
        StoreEvent::Lost { why, .. } => {
            let mut state = checked.state.lock();
            (state.result, state.losses) = (MarkerCheck::Pending, state.losses + 1);
            drop(state);
            checked.lost.notify_one();
            RegionEvent::Lost { region: &region, why }.log();
        }
        StoreEvent::Recovered { .. } => RegionEvent::Recovered { region: &region }.log(),
    })
}

impl RegionState {
    /// One word for APIs and metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Unreachable(_) => "unreachable",
            Self::Mismatch(_) => "mismatch",
            Self::Usable => "usable",
        }
    }

    /// Why nothing is borrowed, if that needs a reason.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Connecting | Self::Usable => None,
            Self::Unreachable(why) => Some(why.clone()),
            Self::Mismatch(problem) => Some(problem.to_string()),
        }
    }
}

impl fmt::Display for MarkerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no node of this region has written its marker there"),
            Self::OtherRegion(region) if region.is_empty() => {
                f.write_str("its marker cannot be read")
            }
            Self::OtherRegion(region) => write!(f, "it is the store of region {region}"),
            Self::OtherSecret => f.write_str("its nodes have another --key-secret-file"),
        }
    }
}

impl MarkerProblem {
    /// What to do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Missing => {
                "start a node of that region with --region and the same --store-prefix"
            }
            Self::OtherRegion(_) => "correct --region-store, or --region on that region's nodes",
            Self::OtherSecret => "use the same --key-secret-file in all regions",
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;

    use super::super::region_marker;
    use super::*;

    #[test]
    fn only_equal_markers_allow_borrowing() {
        let expected = region_marker("us", Secret::from_bytes(b"one"));
        let found = |region, secret| Some(region_marker(region, Secret::from_bytes(secret)));
        let problem = |found| compare_markers(&expected, found);
        assert_eq!(problem(found("us", b"one")), None);
        assert_eq!(problem(None), Some(MarkerProblem::Missing));
        assert_eq!(problem(found("us", b"two")), Some(MarkerProblem::OtherSecret));
        let other = Some(MarkerProblem::OtherRegion("eu".to_owned()));
        assert_eq!(problem(found("eu", b"one")), other);
    }
}
